//! A cluster with nothing left to do costs the API server nothing but its watches.

use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result, ensure};
use api::EtcdCluster;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::observer::Silence;
use e2e::plane::{Mark, Request, users};
use e2e::scenarios::is_full;
use e2e::until::until;
use kube::ResourceExt;
use std::time::Duration;

/// How long there may be no request: several rounds of health checks, which come every 10 s.
const WINDOW: Duration = Duration::from_secs(75);
/// With `E2E_FULL` set. A watch is renewed every five minutes at the latest.
const FULL_WINDOW: Duration = Duration::from_secs(320);
/// How many requests about the EtcdCluster our manager may send, from the manifests to the released control plane.
/// There are about 30. The number for other objects depends on how long the bring-up takes.
const BRING_UP: usize = 33;
/// A bit more than the time for which a new message may stay unwritten. If there is no request for this long, the
/// window began with this time.
const CALM: Duration = Duration::from_secs(11);

/// Neither our manager nor the local infrastructure writes, lists or reads anything. Our manager still sees immediately
/// what happens.
pub(crate) async fn costs_nothing(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "idle").await?;
    let manifests = Manifests::new("idle", "demo")?;
    let handle = ClusterHandle::new(&client, &manifests);
    let mark = bed.plane.mark();
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    let brought_up = bed.plane.requests_since(mark)?.user(users::PROVIDER);
    let about_etcd = brought_up.filter(|request| request.namespace == "idle").resource("etcdclusters");
    println!("one bring-up:\n{about_etcd}");
    ensure!(about_etcd.len() <= BRING_UP, "one bring-up:\n{brought_up}");
    let Calm { before, mark } = calm(bed, &handle).await?;
    let window = if is_full() { FULL_WINDOW } else { WINDOW };
    tokio::time::sleep(window.saturating_sub(CALM)).await;
    let spent = bed.plane.requests_since(mark)?;
    let ours = spent.filter(|request| OURS.contains(&request.user.as_str()));
    println!("in {} s:\n{ours}", window.as_secs());
    let other = ours.filter(|request| request.verb != "watch");
    ensure!(other.is_empty(), "in {} s:\n{other}\n{:?}", window.as_secs(), other.iter().next());
    let after = handle.etcds().get(&handle.etcd).await?;
    ensure!(after.resource_version() == before.resource_version(), "the EtcdCluster was written");

    // The manager was not idle: it probes the members all the time.
    let member = handle.etcd_machines().await?.pop().context("no Machine")?;
    let machine = bed.machines.get(&handle.namespace, &member)?;
    bed.fault(&format!("{member} is frozen"), &[&machine], Silence::Lasting);
    machine.freeze()?;
    handle.until_condition("MembersHealthy", "False", "MemberUnhealthy", PATIENCE).await?;
    bed.fault_is_over(&format!("{member} goes on"), &[&machine]);
    machine.thaw()?;
    handle.until_ready(PATIENCE).await?;
    Ok(())
}

const OURS: [&str; 2] = [users::PROVIDER, users::LOCAL_INFRASTRUCTURE];

/// The state at the beginning of the window.
struct Calm {
    before: EtcdCluster,
    mark: Mark,
}

/// Waits until everything about the bring-up is written.
async fn calm(bed: &Bed, handle: &ClusterHandle) -> Result<Calm> {
    let last = |since: Mark| -> Result<Option<Request>> {
        let spent = bed.plane.requests_since(since)?.filter(|request| OURS.contains(&request.user.as_str()));
        Ok(spent.filter(|request| request.verb != "watch").iter().last().cloned())
    };
    until("nothing is asked or written any more", PATIENCE, async || {
        let mark = bed.plane.mark();
        let before = handle.etcds().get(&handle.etcd).await?;
        tokio::time::sleep(CALM).await;
        match last(mark)? {
            None => Ok(Some(Calm { before, mark })),
            Some(request) => Err(anyhow::anyhow!("{request:?}")),
        }
    })
    .await
}
