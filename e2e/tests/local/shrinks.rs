//! A cluster that is in use gets fewer members, and clients that follow its endpoints are told once. All scenarios
//! here but one have no control plane. It would never get a Node, and so never roll out with other endpoints, and
//! members whose endpoints API servers use wait for that rollout.

use crate::bring_up::PATIENCE;
use crate::departures::only_theirs;
use crate::load::LowLoad;
use crate::records::{Record, warnings};
use crate::rolls::{FOLLOWERS, follow, hardly_noticed, ignore_what_is_in_use, nothing_is_lost, used};
use crate::scale::{LOAD, data_of};
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests, States};
use e2e::history::History;
use e2e::until::until;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// How long no write may be acknowledged: one move of leadership at most.
const STALL: Duration = Duration::from_millis(1_500);

/// How long the scenario waits to see that no member leaves.
const WAIT: Duration = Duration::from_secs(5);

/// From three members to one. The manager is killed while the first member leaves.
pub(crate) async fn three_to_one(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "three-to-one", 3).await?;
    shrinks(bed, &handle, &[1], true).await
}

/// From five members to three, and to one.
pub(crate) async fn five_to_one(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "five-to-one", 5).await?;
    shrinks(bed, &handle, &[3, 1], false).await
}

/// From one member to three, five and seven, and back to three and one, under one load. All that its clients notice
/// is moves of leadership and removals, each once.
pub(crate) async fn there_and_back(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "there-and-back", 1).await?;
    let first = handle.etcd_machines().await?;
    let states = Record::of(&bed.client(), &handle.namespace).await?;
    let writers =
        History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
    for size in [3, 5, 7] {
        grows_to(bed, &handle, size, &writers).await.with_context(|| format!("up to {size}"))?;
    }
    for size in [3, 1] {
        shrinks_to(bed, &handle, size, false, &writers).await.with_context(|| format!("down to {size}"))?;
    }
    let machines = handle.etcd_machines().await?;
    ensure!(machines == first, "the Machine was {first:?}, and is {machines:?}: the newest ones were to leave");
    hardly_noticed(bed, &handle, writers, states, &data_of(bed, &handle, &machines)?).await?;
    let told = warnings(&bed.client(), &handle.namespace).await?;
    ensure!(told.is_empty(), "the warnings are {told:#?}");
    Ok(())
}

/// Adds members. Their endpoints are published when all of them are members.
async fn grows_to(bed: &Bed, handle: &ClusterHandle, size: usize, writers: &History) -> Result<()> {
    let before = handle.etcd_machines().await?;
    wanted(handle, size).await?;
    until("more endpoints are published", PATIENCE * 2, async || {
        let status = handle.status().await?;
        let published = status.endpoints.split(',').count();
        ensure!(status.ready && published == size, "{}: {:?}", status.endpoints, status.conditions);
        Ok(Some(()))
    })
    .await?;
    let machines = are_well(bed, handle, size).await?;
    ensure!(before.iter().all(|name| machines.contains(name)), "of {before:?} there are {machines:?}");
    follow(writers, &handle.status().await?);
    only_theirs(bed, handle, &machines).await
}

/// From three members to one, and back to three before the second has left: in the end there are three again.
pub(crate) async fn a_mind_is_changed(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "changed-mind", 3).await?;
    let load = LowLoad::begin(bed, &handle).await?;
    wanted(&handle, 1).await?;
    until("a Machine is being deleted", PATIENCE, async || {
        let status = handle.status().await?;
        Ok(status.conditions.iter().any(|c| c.type_ == "MachinesDeleting" && c.status == "True").then_some(()))
    })
    .await?;
    wanted(&handle, 3).await?;
    let machines = are_well(bed, &handle, 3).await?;
    only_theirs(bed, &handle, &machines).await?;
    load.judged().await
}

/// From three members to one, while API servers use all three: no member leaves before the control plane has rolled
/// out, because two members would survive no failure until then. Here it never rolls out. When a person says that
/// both may leave, they leave.
pub(crate) async fn beside_a_control_plane(bed: &mut Bed) -> Result<()> {
    let handle = used(bed, Manifests::new("shrinks-used", "demo")?).await?;
    let before = handle.etcd_machines().await?;
    let load = LowLoad::begin(bed, &handle).await?;
    wanted(&handle, 1).await?;
    until("both say what they wait for", PATIENCE, async || {
        let status = handle.status().await?;
        let deleting = status.conditions.iter().find(|c| c.type_ == "MachinesDeleting").context("no condition")?;
        Ok((deleting.status == "True" && deleting.message.contains("the next member to leave")).then_some(()))
    })
    .await?;
    tokio::time::sleep(WAIT).await;
    let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
    ensure!(status.operation.is_none() && status.ready, "{:?}", status.conditions);
    let etcd = handle.membership(&bed.machines, &machines).await?;
    ensure!(etcd.voters() == before, "there were {before:?}, and there are {:?}", etcd.members);
    ignore_what_is_in_use(&handle).await?;
    let machines = are_well(bed, &handle, 1).await?;
    only_theirs(bed, &handle, &machines).await?;
    load.judged().await
}

async fn shrinks(bed: &mut Bed, handle: &ClusterHandle, sizes: &[usize], killed: bool) -> Result<()> {
    let writers = History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, LOAD).await?;
    for size in sizes {
        shrinks_to(bed, handle, *size, killed, &writers).await.with_context(|| format!("to {size}"))?;
    }
    let machines = handle.etcd_machines().await?;
    let figures = nothing_is_lost(handle, writers, &data_of(bed, handle, &machines)?).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    let told = warnings(&bed.client(), &handle.namespace).await?;
    ensure!(told.is_empty(), "the warnings are {told:#?}");
    Ok(())
}

/// Takes members away. The manager is killed meanwhile if `killed` is set.
pub(crate) async fn shrinks_to(
    bed: &mut Bed,
    handle: &ClusterHandle,
    size: usize,
    killed: bool,
    writers: &History,
) -> Result<()> {
    let endpoints = handle.status().await?.endpoints;
    let states = States::of(handle.etcds(), &handle.etcd).await?;
    wanted(handle, size).await?;
    if killed {
        until("a member leaves", PATIENCE, async || Ok(handle.status().await?.operation.map(drop))).await?;
        bed.kill_and_restart_manager(0).await?;
    }
    // The writers that follow the endpoints switch to the members that stay.
    let told = until("fewer endpoints are published", PATIENCE, async || {
        let status = handle.status().await?;
        let published: Vec<String> = status.endpoints.split(',').map(str::to_owned).collect();
        Ok((status.ready && published.len() == size).then_some(published))
    })
    .await?;
    ensure!(told.iter().all(|url| endpoints.contains(url)), "the endpoints are {told:?}");
    writers.endpoints(told.clone());
    let machines = are_well(bed, handle, size).await?;
    let states = states.stop().await?.into_iter().filter_map(|etcd| etcd.status);
    for status in states.filter(|status| status.endpoints != endpoints) {
        ensure!(status.endpoints == told.join(","), "meanwhile these were published: {}", status.endpoints);
        ensure!(status.ready, "it was not ready: {:?}", status.conditions);
    }
    only_theirs(bed, handle, &machines).await
}

/// What `kubectl scale` does.
pub(crate) async fn wanted(handle: &ClusterHandle, replicas: usize) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    handle.etcds().patch_scale(&handle.etcd, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until there are so many Machines, all of them voters, and nothing is being done. Returns their names.
pub(crate) async fn are_well(bed: &Bed, handle: &ClusterHandle, wanted: usize) -> Result<Vec<String>> {
    until(format!("{wanted} members are left"), PATIENCE * 2, async || {
        let machines = handle.etcd_machines().await?;
        let status = handle.status().await?;
        ensure!(machines.len() == wanted, "the Machines are {machines:?}: {:?}", status.conditions);
        ensure!(status.ready && status.operation.is_none(), "{:?}", status.conditions);
        ensure!(status.removed_members.is_empty(), "removed are {:?}", status.removed_members);
        let leaves = status.conditions.iter().find(|condition| condition.type_ == "MachinesDeleting");
        ensure!(leaves.is_some_and(|condition| condition.status == "False"), "{leaves:?}");
        let etcd = handle.membership(&bed.machines, &machines).await?;
        ensure!(etcd.voters() == machines, "Machines {machines:?}, members {:?}", etcd.members);
        Ok(Some(machines))
    })
    .await
}

async fn up(bed: &Bed, namespace: &str, replicas: i64) -> Result<ClusterHandle> {
    alone(bed, Manifests::new(namespace, "demo")?.replicas(replicas)).await
}

/// Brings up a cluster from these manifests, without the control plane.
pub(crate) async fn alone(bed: &Bed, manifests: Manifests) -> Result<ClusterHandle> {
    let (client, manifests) = (bed.client(), manifests.without_control_plane());
    ClusterHandle::make_namespace(&client, &manifests.namespace).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    Ok(handle)
}
