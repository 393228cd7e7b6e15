//! A machine fails for a moment while its cluster changes, and is back before its member counts as unhealthy. The
//! change goes on by itself, and the member stays the same and is not replaced.

use super::fault::SLOW;
use super::quorum::LOST;
use super::victim::{Victim, find};
use super::{
    AT_ONCE, CUT_OFF, Change, FROZEN, Fault, Story, UNHEARD, agreed, ask_the_living, begin_writers, carried_out, up,
};
use crate::account::deleted;
use crate::bring_up::PATIENCE;
use crate::ill::{ILLNESS, PATIENT, unhealthy_after};
use crate::rolls::is_voter;
use anyhow::{Context, Result, ensure};
use e2e::bed::data::on;
use e2e::bed::{Bed, ClusterHandle};
use e2e::observer::Silence;
use e2e::until::until;
use futures::{StreamExt, TryStreamExt, stream};
use std::time::Duration;
use tokio::time::Instant;

/// How long it may take until a check has failed: less than [`PATIENT`], so that no member counts as unhealthy.
const SEEN: Duration = Duration::from_secs(20);

/// Each fault occurs in a change that has begun, and strikes a voter that is to stay.
static PASSING: [(Change, &Fault, Victim); 5] = [
    (Change::Growth, &FROZEN, Victim::Leader),
    (Change::Growth, &SLOW, Victim::Leader),
    (Change::Growth, &UNHEARD, Victim::Follower),
    (Change::ScaleDown, &CUT_OFF, Victim::Follower),
    (Change::Rollout, &FROZEN, Victim::Newcomer),
];

/// Three clusters grow from three members to five, one shrinks from five to three, and one gets another spec. In two
/// more clusters, so many members fail at the same time that there is no quorum for a while.
pub(crate) async fn with_faults_that_end(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let of_one = PASSING.iter().map(|&(change, fault, victim)| (Story { bed, change, fault, victim }, false));
    let victim = Victim::Leader;
    let of_a_quorum = LOST.iter().map(|&(change, fault)| (Story { bed, change, fault, victim }, true));
    let stories = stream::iter(of_one.chain(of_a_quorum)).map(async |(story, loses_quorum)| {
        let told = if loses_quorum { story.loses_its_quorum().await } else { story.passes().await };
        told.with_context(|| story.name())
    });
    stories.buffer_unordered(AT_ONCE).try_collect().await
}

impl Story<'_> {
    async fn passes(&self) -> Result<()> {
        let (bed, (before, after)) = (self.bed, self.change.sizes());
        let ends = self.fault.ends.context("it does not end")?;
        let handle = up(bed, &format!("passing-{}", self.name()), before).await?;
        unhealthy_after(&handle, PATIENT).await?;
        let old = handle.etcd_machines().await?;
        let etcd = agreed(bed, &handle, &old).await?;
        let writers = begin_writers(bed, &handle).await?;

        let mark = bed.plane.mark();
        self.begins(&handle, &old).await?;
        let found = until(format!("{} is there, and votes", self.victim.name()), PATIENCE, async || {
            if !self.is_under_way(&handle, &old).await? {
                return Ok(None);
            }
            let Some(found) = find(bed, &handle, &old, self.victim, &[]).await? else { return Ok(None) };
            let members = handle.status().await?.members;
            let votes = members.iter().any(|member| member.machine == found.machine && is_voter(member));
            Ok(votes.then_some(found))
        })
        .await?;
        let name = found.machine.clone();
        let machine = bed.machines.get(&handle.namespace, &name)?;
        // Requests to the other members are answered sooner or later.
        ask_the_living(&handle.status().await?.endpoints, &[found], &writers);
        bed.fault(&format!("{name}: {}, for a moment", self.fault.name), &[&machine], Silence::Lasting);
        let begun = Instant::now();
        on(&machine, self.fault.begins).await?;
        if self.fault.is_seen {
            fails_a_check(&handle, &name).await?;
        }
        tokio::time::sleep_until(begun + ILLNESS).await;
        bed.fault_is_over(&format!("{name}: that is over"), &[&machine]);
        on(&machine, ends).await?;
        println!("  {}: {name} was away for {:.1} s", handle.namespace, begun.elapsed().as_secs_f32());

        let machines = carried_out(bed, &handle, after, &[], &writers).await?;
        ensure!(machines.contains(&name), "{name} is none of {machines:?}");
        let (gone, stay): (Vec<String>, Vec<String>) = old.into_iter().partition(|name| !machines.contains(name));
        let expected = if self.change == Change::Rollout { 0 } else { before.min(after) };
        ensure!(stay.len() == expected, "gone are {gone:?}, and there are {machines:?}");
        deleted(bed, &handle, mark, &gone)?;
        self.is_carried_out_once(&handle, (mark, &etcd), &machines, stay.len()).await?;
        self.ends_well(&handle, &machines, writers).await
    }
}

/// Waits until a condition reports that this member is not known to be healthy. It does not count as unhealthy yet.
async fn fails_a_check(handle: &ClusterHandle, name: &str) -> Result<()> {
    until(format!("it is told that {name} is not well"), SEEN, async || {
        let status = handle.status().await?;
        let told = status.conditions.iter().find(|condition| condition.type_ == "MembersHealthy");
        let told = told.context("no condition")?;
        ensure!(told.status != "True" && told.message.contains(name), "{told:?}");
        Ok(Some(()))
    })
    .await
}
