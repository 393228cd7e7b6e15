//! Rollouts of etcd, and other numbers of members, beside a control plane that rolls out. Its API servers are real, and
//! each keeps the endpoints that it was started with. Clients write to them and read from them all the time. The
//! observer checks that each API server has enough live endpoints.

mod rollout;

use crate::bring_up::PATIENCE;
use crate::repair;
use crate::rolls::{ROLLOUT, another_spec, changed};
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, Behaviour, Manifests};
use e2e::faults::FaultyManager;
use e2e::tools::Etcd;
use e2e::until::until;
use rollout::{Rollout, Told, WAIT};
use serde_json::{Value, json};
use std::time::Duration;

/// How many API servers a control plane has. A control plane that rolls out repeatedly has fewer, because each of them
/// takes time to start.
const SERVERS: usize = 3;
const FEWER_SERVERS: usize = 2;
/// How long a change may take to reach our manager's watches.
const HEARD: Duration = Duration::from_secs(2);
/// Seconds until a member counts as unhealthy, where warnings are counted: more than the etcd of a learner needs to start
/// on a busy computer.
const STARTED: i64 = 15;
/// The watches that show our manager that a control plane has rolled out, and which endpoints are in use since then.
const CONTROL_PLANES: &str = "stubcontrolplanes";
const ETCDS: &str = "etcdclusters";

/// Another version of etcd: three members become six, each of the three API servers is replaced once, and only then the
/// old members leave.
pub(crate) async fn that_roll(bed: &mut Bed) -> Result<()> {
    let third = Etcd::V3_7.version()?;
    let mut rollout = Rollout::begin(bed, Manifests::new("stub-rolls", "demo")?, SERVERS).await?;
    rollout.goes_to(&third).await?;
    rollout.is_carried_out(bed, &third).await?;
    rollout.ends_well(bed).await
}

/// The same with a control plane that first stalls, and whose new API server then hangs. The old members stay, and
/// conditions say what they wait for. When the control plane goes on, the old members leave.
pub(crate) async fn that_stall(bed: &mut Bed) -> Result<()> {
    let third = Etcd::V3_7.version()?;
    let mut rollout = Rollout::begin(bed, Manifests::new("stub-stalls", "demo")?, SERVERS).await?;
    rollout.stub.behave(Behaviour::Stalls);
    rollout.goes_to(&third).await?;
    rollout.is_held_up(bed, "0 of 3 are up to date", SERVERS).await.context("it stalls")?;
    rollout.stub.behave(Behaviour::Fails);
    rollout.is_held_up(bed, "1 of 4 are up to date", SERVERS + 1).await.context("a new API server hangs")?;
    rollout.stub.behave(Behaviour::Rolls);
    rollout.is_carried_out(bed, &third).await?;
    rollout.ends_well(bed).await
}

/// The control plane stalls, and there are six voters. Then two machines die: the leader's, which is old, and a new one,
/// which is published already. The old member leaves, and the new one is replaced, while each list of endpoints keeps
/// two live members. The published endpoints stay as they are until the control plane has rolled out with them. Then it
/// is told of the replacement, and rolls out once more.
pub(crate) async fn that_stall_while_members_die(bed: &mut Bed) -> Result<()> {
    let third = Etcd::V3_7.version()?;
    let manifests = repair::manifests("stub-bereaved", 3)?
        .with("EtcdCluster", |etcd| etcd["spec"]["healthCheck"]["unhealthyAfterSeconds"] = json!(STARTED));
    let mut rollout = Rollout::begin(bed, manifests, SERVERS).await?;
    rollout.stub.behave(Behaviour::Stalls);
    rollout.goes_to(&third).await?;
    rollout.is_held_up(bed, "0 of 3 are up to date", SERVERS).await?;
    rollout.loses_two(bed).await.context("two die")?;
    rollout.stub.behave(Behaviour::Rolls);
    rollout.is_carried_out_in_two(bed, &third).await?;
    rollout.ends_after_deaths(bed, 2).await
}

/// Another version of etcd, while the watch of the control plane is held, from before the control plane is told until
/// some time after it has rolled out. Our manager knows only what it has written itself, and the earlier counts. No
/// member leaves. Then this watch catches up, and the watch of the EtcdCluster, which has the record of the endpoints
/// in use, is held.
pub(crate) async fn that_are_seen_late(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    seen_late(bed).await?;
    bed.start_manager(0).await
}

async fn seen_late(bed: &Bed) -> Result<()> {
    let (namespace, third) = ("stub-seen-late", Etcd::V3_7.version()?);
    let manager = FaultyManager::start(bed, namespace, Some(namespace), Vec::new()).await?;
    let mut rollout = Rollout::begin(bed, Manifests::new(namespace, "demo")?, 1).await?;
    // A write over an older state would be refused, so the watches catch up first.
    tokio::time::sleep(HEARD).await;
    manager.hold_watch(CONTROL_PLANES);
    rollout.goes_to(&third).await?;
    let told = until("other endpoints are published", ROLLOUT, async || {
        let published = rollout.handle.status().await?.endpoints;
        Ok((published != rollout.before).then_some(published))
    })
    .await?;
    rollout.stub.until_all_use(&told, PATIENCE).await?;
    // This does not wait for the Cluster's condition. If Cluster API has changed the Cluster meanwhile, our manager's
    // write conflicts, and it forgets its write cache. It then tries to write the endpoints again, and is refused until
    // the held watch of the control plane catches up.
    rollout.nobody_leaves(bed, 2).await.context("that it has rolled is not heard")?;
    manager.hold_watch(ETCDS);
    let of_the_control_plane = manager.release_watch(CONTROL_PLANES);
    tokio::time::sleep(WAIT).await;
    let of_etcd = manager.release_watch(ETCDS);
    println!("  {namespace}: kept were {of_the_control_plane} and {of_etcd} pieces of the watches");
    ensure!(of_the_control_plane > 0 && of_etcd > 0, "nothing was kept");
    rollout.is_carried_out(bed, &third).await?;
    rollout.ends_well(bed).await?;
    manager.stop().await?;
    Ok(())
}

/// From etcd 3.5 via 3.6 to 3.7. Each upgrade is taken back while versions are mixed, and no API server notices. Then
/// it is carried out after all.
pub(crate) async fn that_roll_back(bed: &mut Bed) -> Result<()> {
    let [first, second, third] = Etcd::MINORS.map(Etcd::version);
    let (first, second, third) = (first?, second?, third?);
    let manifests = Manifests::new("stub-versions", "demo")?
        .with("EtcdCluster", |etcd| etcd["spec"]["etcdadmConfigSpec"]["version"] = json!(first));
    let mut rollout = Rollout::begin(bed, manifests, SERVERS).await?;
    for (version, before) in [(&second, &first), (&third, &second)] {
        rollout.goes_to(version).await?;
        rollout.until_a_member_runs(version).await?;
        rollout.goes_to(before).await?;
        rollout.is_taken_back(bed, before).await.with_context(|| format!("back to {before}"))?;
        rollout.goes_to(version).await?;
        rollout.is_carried_out(bed, version).await.with_context(|| format!("to {version}"))?;
    }
    rollout.ends_well(bed).await
}

/// From one member to seven and back. Each time, the control plane is told once, with the endpoints of all members that
/// there will be, and rolls out once. No earlier member is replaced: all of them stay when etcd grows, and as many as
/// are wanted when it shrinks.
pub(crate) async fn that_scales(bed: &mut Bed) -> Result<()> {
    let mut rollout = Rollout::begin(bed, Manifests::new("stub-scales", "demo")?.replicas(1), FEWER_SERVERS).await?;
    for size in [3, 5, 7, 3, 1] {
        rollout.scales_to(bed, size).await.with_context(|| format!("to {size}"))?;
    }
    rollout.ends_well(bed).await
}

/// Another version of etcd, with room for one Machine more than there are members. Then another configuration, without
/// room for an extra Machine. Whenever no further old member may leave, the control plane is told the endpoints of the
/// members that are there, and rolls out: twice with room for one, and three times without. Meanwhile, members leave
/// that API servers use.
pub(crate) async fn in_little_room(bed: &mut Bed) -> Result<()> {
    let third = Etcd::V3_7.version()?;
    let mut rollout = Rollout::begin(bed, Manifests::new("stub-narrow", "demo")?, FEWER_SERVERS).await?;
    let narrow = json!({"rolloutStrategy": with_room_for(1), "etcdadmConfigSpec": {"version": third}});
    changed(&rollout.handle, &narrow).await?;
    // All members that are there: two old ones, and two new ones.
    rollout.is_told_halfway(bed, Told { endpoints: 4, known: 2, members: 4 }).await.context("with room for one")?;
    // One of the remaining old members leaves while API servers use it.
    rollout.moments += 1;
    rollout.is_carried_out(bed, &third).await.context("with room for one")?;

    let mut without_room = another_spec();
    without_room["rolloutStrategy"] = with_room_for(0);
    changed(&rollout.handle, &without_room).await?;
    for time in ["the first time", "the second time"] {
        let told = rollout.is_told_halfway(bed, Told { endpoints: 3, known: 2, members: 3 }).await;
        told.with_context(|| format!("without room, {time}"))?;
    }
    // Here, the last old member leaves while API servers use it.
    rollout.moments += 1;
    rollout.is_carried_out(bed, &third).await.context("without room")?;
    rollout.ends_well(bed).await
}

/// Another version of etcd for five members: two of the old ones make room for new ones while API servers use them, and
/// three stay. The control plane is told once, with five new ones, and rolls out once. Then those three leave.
pub(crate) async fn of_five(bed: &mut Bed) -> Result<()> {
    let third = Etcd::V3_7.version()?;
    let mut rollout = Rollout::begin(bed, Manifests::new("stub-five", "demo")?.replicas(5), FEWER_SERVERS).await?;
    rollout.goes_to(&third).await?;
    rollout.is_told_next(Told { endpoints: 5, known: 0, members: 8 }).await?;
    // The two that have made room.
    rollout.moments += 2;
    rollout.is_carried_out(bed, &third).await?;
    rollout.ends_well(bed).await
}

/// `spec.rolloutStrategy` with room for this many more Machines than there are members.
fn with_room_for(machines: usize) -> Value {
    json!({"rollingUpdate": {"maxSurge": machines}})
}
