//! A cluster's whole life over IPv6. The machines of etcd have no other addresses, so code that forgets the brackets of
//! a URL, or supports only IPv4, does not get far.

use crate::departures::replaced;
use crate::repair::manifests;
use crate::rolls::{FOLLOWERS, another_spec, changed, nothing_is_lost, rolled, used};
use crate::shrinks::{alone, are_well};
use anyhow::{Context, Result, ensure};
use e2e::bed::data::on;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::history::History;
use e2e::observer::Silence;
use e2e::plane::workload::WorkloadApiServer;
use e2e::scenarios::skip;
use e2e::world::has_ipv6;
use futures::try_join;
use local_infrastructure::machine::Machine;
use serde_json::json;

/// Beside a control plane, three members come up, and a real API server works with the published endpoints. Without a
/// control plane, one member becomes three, one of these is cut off for good and replaced, and another spec replaces
/// all. No acknowledged write is lost.
pub(crate) async fn whole_life(bed: &mut Bed) -> Result<()> {
    if !has_ipv6() {
        skip("the kernel has no IPv6");
        return Ok(());
    }
    let bed = &*bed;
    try_join!(told(bed), changes(bed)).map(drop)
}

async fn told(bed: &Bed) -> Result<()> {
    let handle = used(bed, over_ipv6("ipv6-told", 3)?).await?;
    has_no_other(&handle).await?;
    bed.exactly(&[(&handle, 3)]).await?;
    let server = WorkloadApiServer::start(bed.world(), &handle.etcd_access().await?).await?;
    bed.observe_api_server(&format!("{}/{}", handle.namespace, handle.cluster), &server);
    server.store_an_object().await
}

async fn changes(bed: &Bed) -> Result<()> {
    let handle = alone(bed, over_ipv6("ipv6-changes", 1)?).await?;
    let writers =
        History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
    changed(&handle, &json!({"replicas": 3})).await?;
    are_well(bed, &handle, 3).await?;
    let status = handle.status().await?;
    let doomed = status.members.iter().find(|member| !member.leader).context("all of them lead")?;
    let machine = bed.machines.get(&handle.namespace, &doomed.machine)?;
    bed.fault(&format!("{}: its machine is cut off", doomed.machine), &[&machine], Silence::Lasting);
    on(&machine, Machine::cut_off).await?;
    let old = replaced(bed, &handle, &doomed.machine).await?;
    writers.endpoints(has_no_other(&handle).await?);
    changed(&handle, &another_spec()).await?;
    rolled(bed, &handle, &old, &writers).await?;
    has_no_other(&handle).await?;
    nothing_is_lost(&handle, writers, &[]).await.map(drop)
}

/// A cluster whose etcd machines have only IPv6 addresses.
fn over_ipv6(namespace: &str, replicas: i64) -> Result<Manifests> {
    let manifests = manifests(namespace, replicas)?;
    let template = format!("{}-etcd", manifests.name);
    Ok(manifests.with("LocalMachineTemplate", |document| {
        assert_eq!(document["metadata"]["name"], template.as_str(), "the first template is that of etcd's machines");
        document["spec"]["template"]["spec"]["ipFamily"] = json!("IPv6");
    }))
}

/// Checks that the status has an endpoint for each member, all of them IPv6. Returns the endpoints.
async fn has_no_other(handle: &ClusterHandle) -> Result<Vec<String>> {
    let status = handle.status().await?;
    let endpoints: Vec<String> = status.endpoints.split(',').map(str::to_owned).collect();
    let is_right = |url: &String| url.starts_with("https://[fd00:77::") && url.ends_with("]:2379");
    ensure!(endpoints.iter().all(is_right) && endpoints.len() == status.members.len(), "they are {endpoints:?}");
    Ok(endpoints)
}
