//! The faults of health.rs and data_loss.rs, where a person replaces members, in clusters where our manager replaces
//! them. A machine that hangs for good, or has lost its data, is replaced without help. If a quorum or all members
//! fail, none is replaced, and they come back.

mod data;

use crate::departures::{only_theirs, replaced};
use crate::during::{CUT_OFF, DEAF, FROZEN, Fault, KILLED, UNHEARD, nothing_is_begun};
use crate::ill::{IMPATIENT, STALL, all_are_well, checked, copies_are_saved, unavailability_is_told, unhealthy_after};
use crate::rolls::{FOLLOWERS, follow, nothing_is_lost};
use crate::scale::data_of;
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use e2e::bed::data::{DataLoss, on};
use e2e::bed::{Bed, ClusterHandle, Manifests, Membership};
use e2e::history::History;
use e2e::observer::Silence;
use e2e::until::until;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use local_infrastructure::machine::Machine;
use std::time::Duration;

pub(crate) use data::of_a_quorum_that_loses_its_data;

/// How long it may take until the lost quorum is reported.
const TOLD: Duration = Duration::from_secs(60);
/// How long the scenario watches that nothing is done: several times what it takes until a member counts as unhealthy.
const STEADY: Duration = Duration::from_secs(16);
/// Seconds until a member counts as unhealthy after the network has come back. TCP sends again what was lost, at
/// intervals that double, and etcd keeps its connections. So a connection may be silent for as long again as the
/// network was cut, which is half a minute. In this time, a member that the leader does not hear cannot be
/// distinguished from one that is ill.
pub(crate) const BACK_OFF: i64 = 40;
/// Clusters side by side.
const AT_ONCE: usize = 2;

/// What happens to one machine.
#[derive(Clone, Copy)]
enum Lasting {
    Hangs,
    Loses(DataLoss),
}

/// Two faults for each cluster, so that one member that has the log from its beginning stays.
const OF_ONE: [(&str, [Lasting; 2]); 3] = [
    ("lasting-hangs", [Lasting::Hangs, Lasting::Loses(DataLoss::RobbedDisk)]),
    ("lasting-deleted", [Lasting::Loses(DataLoss::DeletedDirectory), Lasting::Loses(DataLoss::DeletedWhileOff)]),
    ("lasting-older", [Lasting::Loses(DataLoss::CopyFromBeforeStop), Lasting::Loses(DataLoss::OlderCopy)]),
];

/// Side by side, the machine of a follower fails, and then the machine of the leader. Each is replaced, and no
/// acknowledged write is lost.
pub(crate) async fn of_one_of_three(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let stories = stream::iter(OF_ONE)
        .map(async |(namespace, faults)| are_replaced(bed, namespace, faults).await.with_context(|| namespace));
    stories.buffer_unordered(AT_ONCE).try_collect().await
}

async fn are_replaced(bed: &Bed, namespace: &str, faults: [Lasting; 2]) -> Result<()> {
    let handle = up(bed, namespace).await?;
    let writers = History::begin(bed.world(), namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
    for (fault, leads) in faults.into_iter().zip([false, true]) {
        let before = handle.membership(&bed.machines, &handle.etcd_machines().await?).await?;
        let status = handle.status().await?;
        let member = status.members.iter().find(|member| member.leader == leads).context("no such member")?;
        strikes(bed, &handle, &member.machine, fault).await?;
        let machines = replaced(bed, &handle, &member.machine).await?;
        let after = handle.membership(&bed.machines, &machines).await?;
        let stayed = before.stayed(&after);
        ensure!(after.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {after:?}");
        only_theirs(bed, &handle, &machines).await?;
        follow(&writers, &handle.status().await?);
        until("one of them leads", TOLD, async || {
            Ok(handle.status().await?.members.iter().any(|member| member.leader).then_some(()))
        })
        .await?;
    }
    let machines = handle.etcd_machines().await?;
    let figures = nothing_is_lost(&handle, writers, &data_of(bed, &handle, &machines)?).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    Ok(())
}

async fn strikes(bed: &Bed, handle: &ClusterHandle, name: &str, fault: Lasting) -> Result<()> {
    let machine = bed.machines.get(&handle.namespace, name)?;
    let loss = match fault {
        Lasting::Hangs => {
            bed.fault(&format!("{name}: its machine hangs"), &[&machine], Silence::Lasting);
            return on(&machine, Machine::freeze).await;
        }
        Lasting::Loses(loss) => loss,
    };
    if loss.is_by_a_copy() {
        copies_are_saved(bed, handle, std::slice::from_ref(&machine), loss).await?;
    }
    bed.fault(&format!("{name}: {loss}"), &[&machine], Silence::Lasting);
    loss.strike(&machine).await
}

/// The fault, the number of the three machines that it strikes, and the seconds until a member counts as unhealthy
/// after the fault. If the disks of all are slow, there is still a quorum: see [`slow_disks`](crate::ill::slow_disks).
static OF_MANY: [(&Fault, usize, i64); 8] = [
    (&KILLED, 2, IMPATIENT),
    (&FROZEN, 2, IMPATIENT),
    (&CUT_OFF, 2, BACK_OFF),
    (&UNHEARD, 2, BACK_OFF),
    (&KILLED, 3, IMPATIENT),
    (&FROZEN, 3, IMPATIENT),
    (&CUT_OFF, 3, BACK_OFF),
    (&DEAF, 3, BACK_OFF),
];

/// The fault is reported, and no member or Machine is replaced, removed or deleted, however long the fault lasts. When
/// it is over, etcd is the same as before, with every acknowledged write.
pub(crate) async fn of_a_quorum_and_of_all(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let stories = stream::iter(OF_MANY).map(async |(fault, machines, patience)| {
        come_back(bed, fault, machines, patience)
            .await
            .with_context(|| format!("{machines} of three are {}", fault.name))
    });
    stories.buffer_unordered(AT_ONCE).try_collect().await
}

async fn come_back(bed: &Bed, fault: &Fault, number: usize, patience: i64) -> Result<()> {
    let ends = fault.ends.context("it does not end")?;
    let handle = up(bed, &format!("lasting-{}-{number}", fault.name)).await?;
    let names = handle.etcd_machines().await?;
    let before = etcd(bed, &handle, &names).await?;
    let writers =
        History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
    let machines = bed.machines_of(&handle.namespace, &names[..number])?;
    let theirs: Vec<&Machine> = machines.iter().collect();
    bed.fault(&format!("{number} of {} are {}", handle.namespace, fault.name), &theirs, Silence::Lasting);
    try_join_all(machines.iter().map(|machine| on(machine, fault.begins))).await?;
    is_told_and_left_alone(&handle, &names, &names[..number]).await?;

    unhealthy_after(&handle, patience).await?;
    bed.fault_is_over(&format!("{number} of {}: that is over", handle.namespace), &theirs);
    try_join_all(machines.iter().map(|machine| on(machine, ends))).await?;
    is_as_before(bed, &handle, &names, &before).await?;
    nothing_is_lost(&handle, writers, &data_of(bed, &handle, &names)?).await?;
    Ok(())
}

/// The members as they report themselves, and the published endpoints.
async fn etcd(bed: &Bed, handle: &ClusterHandle, names: &[String]) -> Result<(Membership, String)> {
    Ok((handle.membership(&bed.machines, names).await?, handle.status().await?.endpoints))
}

/// Waits until all members are healthy again, and checks that none was replaced, removed or deleted.
async fn is_as_before(
    bed: &Bed,
    handle: &ClusterHandle,
    names: &[String],
    before: &(Membership, String),
) -> Result<()> {
    all_are_well(handle).await?;
    let after = until("every member answers", TOLD, async || etcd(bed, handle, names).await.map(Some)).await?;
    ensure!(after == *before, "etcd was {before:?}, and is {after:?}");
    nothing_is_begun(handle).await
}

/// Waits until a condition reports that etcd is not available. Checks that, after a while, no member or Machine is
/// replaced, removed or deleted, and that the condition says so and names the members that the fault has struck.
async fn is_told_and_left_alone(handle: &ClusterHandle, names: &[String], struck: &[String]) -> Result<()> {
    unavailability_is_told(handle, TOLD).await?;
    tokio::time::sleep(STEADY).await;
    nothing_is_begun(handle).await?;
    let message = unavailability_is_told(handle, TOLD).await?;
    println!("  {}: {message}", handle.namespace);
    let names_all = struck.iter().all(|name| message.contains(&format!("{name}: ")));
    ensure!(names_all && message.contains(". Nothing is removed; "), "it says: {message}");
    let machines = handle.etcd_machines().await?;
    ensure!(machines == names, "the Machines are {machines:?}");
    Ok(())
}

/// Brings up three members with frequent health checks, which are replaced when they have failed.
async fn up(bed: &Bed, namespace: &str) -> Result<ClusterHandle> {
    alone(bed, checked(Manifests::new(namespace, "demo")?, IMPATIENT)).await
}
