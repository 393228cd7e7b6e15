//! The quorum is lost while a cluster changes, and comes back. As long as it is lost, nothing more is begun. Then the
//! change is carried out by itself, as if nothing had happened, and the members that failed are not replaced for it.

use super::victim::{Found, Victim, find};
use super::{CUT_OFF, Change, FROZEN, Fault, STEADY, Story, agreed, begin_writers, carried_out, up};
use crate::account::deleted;
use crate::bring_up::PATIENCE;
use crate::deletion::all_is_gone;
use crate::ill::{unavailability_is_told, unhealthy_after};
use crate::lasting::BACK_OFF;
use anyhow::{Context, Result, ensure};
use e2e::bed::data::on;
use e2e::bed::{Bed, ClusterHandle};
use e2e::observer::Silence;
use e2e::until::until;
use futures::future::try_join_all;
use local_infrastructure::machine::Machine;
use std::collections::BTreeMap;
use tokio::time::Instant;

/// The changes, and what happens in each to the leader and to another one of three voters. With the member that joins,
/// there may be four voters by then: without these two, four have no quorum either.
pub(super) static LOST: [(Change, &Fault); 2] = [(Change::Rollout, &FROZEN), (Change::Departure, &CUT_OFF)];

impl Story<'_> {
    /// Makes another voter fail together with the victim, which is the leader.
    pub(super) async fn loses_its_quorum(&self) -> Result<()> {
        let (bed, (before, after)) = (self.bed, self.change.sizes());
        let ends = self.fault.ends.context("it does not end")?;
        let handle = up(bed, &format!("quorum-{}", self.name()), before).await?;
        let old = handle.etcd_machines().await?;
        let etcd = agreed(bed, &handle, &old).await?;
        let writers = begin_writers(bed, &handle).await?;

        let mark = bed.plane.mark();
        let leaves = self.begins(&handle, &old).await?;
        let found = until("two voters that stay for now are there", PATIENCE, async || {
            if self.is_under_way(&handle, &old).await? { two_voters(bed, &handle, &old).await } else { Ok(None) }
        })
        .await?;
        let machines = bed.machines_of(&handle.namespace, found.iter().map(|found| &found.machine))?;
        let theirs: Vec<&Machine> = machines.iter().collect();
        // Without a quorum, the members that are left cannot answer.
        writers.endpoints(Vec::new());
        bed.fault(&format!("two of {} are {}", handle.namespace, self.fault.name), &theirs, Silence::Lasting);
        let begun = Instant::now();
        try_join_all(machines.iter().map(|machine| on(machine, self.fault.begins))).await?;
        let message = unavailability_is_told(&handle, PATIENCE).await?;
        println!("  {}: {message}", handle.namespace);
        let told = machines_of(&handle).await?;
        tokio::time::sleep(STEADY).await;
        let now = machines_of(&handle).await?;
        // A Machine that was already being deleted, and whose member had left, may go.
        let is_as_told = |(name, deleting): (&String, &bool)| told.get(name).is_some_and(|told| told == deleting);
        ensure!(now.iter().all(is_as_told), "without a quorum the Machines were {told:?}, and are {now:?}");
        let stays = |(name, deleting): (&String, &bool)| *deleting || now.contains_key(name);
        ensure!(told.iter().all(stays), "without a quorum the Machines were {told:?}, and are {now:?}");

        unhealthy_after(&handle, BACK_OFF).await?;
        bed.fault_is_over(&format!("two of {}: that is over", handle.namespace), &theirs);
        try_join_all(machines.iter().map(|machine| on(machine, ends))).await?;
        println!("  {}: {:.1} s without a quorum", handle.namespace, begun.elapsed().as_secs_f32());

        let machines = carried_out(bed, &handle, after, &[], &writers).await?;
        let expected = leaves.as_ref().map_or_else(|| old.clone(), |leaves| vec![leaves.clone()]);
        let (gone, stay): (Vec<String>, Vec<String>) = old.into_iter().partition(|name| !machines.contains(name));
        ensure!(gone == expected, "gone are {gone:?}, and there are {machines:?}");
        // Our manager does not delete the Machine that a person has deleted.
        let by_us: &[String] = if leaves.is_some() { &[] } else { &gone };
        deleted(bed, &handle, mark, by_us)?;
        self.is_carried_out_once(&handle, (mark, &etcd), &machines, stay.len()).await?;
        self.is_kept(&handle, &machines, writers).await?;
        handle.delete("Cluster", &handle.cluster).await?;
        all_is_gone(bed, &handle).await
    }
}

/// The leader, and another voter that was there before, if there are both.
async fn two_voters(bed: &Bed, handle: &ClusterHandle, old: &[String]) -> Result<Option<[Found; 2]>> {
    let Some(leader) = find(bed, handle, old, Victim::Leader, &[]).await? else { return Ok(None) };
    let other = find(bed, handle, old, Victim::Follower, &[]).await?;
    Ok(other.filter(|other| other.machine != leader.machine).map(|other| [leader, other]))
}

/// The Machines, and which of them are being deleted.
async fn machines_of(handle: &ClusterHandle) -> Result<BTreeMap<String, bool>> {
    let mut machines = BTreeMap::new();
    for name in handle.etcd_machines().await? {
        let machine = handle.api("Machine").get_opt(&name).await?;
        machines.extend(machine.map(|machine| (name, machine.metadata.deletion_timestamp.is_some())));
    }
    Ok(machines)
}
