//! The objects that were made for a Machine that is no longer wanted before it is made itself.

use crate::bring_up::PATIENCE;
use crate::departures::only_theirs;
use crate::shrinks::{are_well, wanted};
use anyhow::{Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::faults::{ApiCall, Fault, FaultyManager, Rule, Verb};
use e2e::until::until;

/// The Machine that is never made.
const REFUSED: &str = "demo-etcd-1";

/// The config and the infrastructure machine of a second Machine are made, and the Machine itself is refused. When the
/// Machine is no longer wanted, both are deleted. Later Machines get other numbers.
pub(crate) async fn of_a_machine_that_is_not_made(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let told = tell(bed, "leftovers").await;
    bed.start_manager(0).await?;
    told
}

async fn tell(bed: &Bed, namespace: &str) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let is_made = |call: &ApiCall| call.verb == Verb::Create && call.resource == "machines" && call.name == REFUSED;
    let refused = Rule::at_call(is_made, Fault::Answer(403)).times(usize::MAX);
    let manager = FaultyManager::start(bed, namespace, Some(namespace), vec![refused]).await?;
    let manifests = Manifests::new(namespace, "demo")?.replicas(1).without_control_plane();
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    wanted(&handle, 3).await?;
    is_begun(&handle, REFUSED).await?;
    wanted(&handle, 1).await?;
    let machines = are_well(bed, &handle, 1).await?;
    only_theirs(bed, &handle, &machines).await?;
    wanted(&handle, 3).await?;
    let machines = are_well(bed, &handle, 3).await?;
    ensure!(machines == ["demo-etcd-0", "demo-etcd-2", "demo-etcd-3"], "the Machines are {machines:?}");
    only_theirs(bed, &handle, &machines).await?;
    manager.stop().await?;
    Ok(())
}

/// Waits until a Machine's config and infrastructure machine are there.
pub(crate) async fn is_begun(handle: &ClusterHandle, machine: &str) -> Result<()> {
    until(format!("all of {machine} is there but its Machine"), PATIENCE, async || {
        for kind in ["EtcdadmConfig", "LocalMachine"] {
            let found = handle.names(kind, "").await?;
            ensure!(found.iter().any(|name| name == machine), "of {kind} there are {found:?}");
        }
        Ok(Some(()))
    })
    .await
}
