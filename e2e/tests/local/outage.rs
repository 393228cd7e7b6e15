//! The API server is down in the middle of a bring-up.

use crate::boots::look_again_within;
use crate::bring_up::{PATIENCE, released};
use crate::kills::made_once;
use crate::load::LowLoad;
use anyhow::{Result, bail, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::until::until;
use serde_json::json;
use std::time::Duration;

/// How long the API server is down.
const AWAY: Duration = Duration::from_secs(20);

/// How soon the watches have to work again. What we build on would wait for up to 30 s before it connects once more.
const WATCHED_AGAIN: Duration = Duration::from_secs(20);

/// With one member up and the second on its way, the API server is down for 20 seconds. Neither etcd nor its clients
/// notice. Afterwards the bring-up goes on, and nothing is made twice.
pub(crate) async fn api_server_away(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "outage").await?;
    let manifests = Manifests::new("outage", "demo")?;
    let handle = ClusterHandle::new(&client, &manifests);
    let before = bed.plane.mark();
    manifests.apply(&client).await?;
    let second = "demo-etcd-1";
    until(format!("machine {second} is there"), PATIENCE, async || {
        Ok(bed.machines.get("outage", second).is_ok().then_some(()))
    })
    .await?;
    let first = handle.member_names(1);
    let etcd = handle.membership(&bed.machines, &first).await?;
    let process = bed.machines.get("outage", &first[0])?.first_process();
    let load = LowLoad::begin_early_if_full(bed, &handle).await?;

    bed.note("the API server is killed");
    bed.plane.stop_apiserver().await?;
    tokio::time::sleep(AWAY).await;
    let during = handle.membership(&bed.machines, &first).await?;
    ensure!(during.cluster_id == etcd.cluster_id, "etcd was {etcd:?}, and is {during:?}");
    bed.note("the API server starts again");
    bed.plane.start_apiserver().await?;
    // Where Cluster API's managers elect a leader, they exit when they cannot reach the API server for ten seconds,
    // and are started again. So they are restarted here. Our manager keeps running.
    for manager in ["capi-core", "capi-bootstrap", "capi-control-plane"] {
        bed.plane.process(manager)?.restart().await?;
    }

    let change = json!({"spec": {"healthCheck": {"unhealthyAfterSeconds": 61}}});
    look_again_within(&handle, &change, WATCHED_AGAIN).await?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    bed.exactly(&[(&handle, 3)]).await?;
    made_once(bed, "outage", before)?;
    let same = bed.machines.get("outage", &first[0])?.first_process() == process;
    ensure!(same, "machine {} was started again", first[0]);
    if let Some(load) = load {
        load.judged_of(bed, 3).await?;
    }
    // Members that were never unhealthy are never reported as unhealthy.
    let alarms: Vec<String> = handle.warnings(3).await?.into_iter().filter(|line| line.contains("Unhealthy")).collect();
    if !alarms.is_empty() {
        bail!("false alarms: {alarms:?}");
    }
    Ok(())
}
