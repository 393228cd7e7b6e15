//! The clock jumps in the middle of a change, while the first machine that was made for it boots.

use super::{HOURS, STAYS, YEAR, a_year_ahead, comes_to_rest, is_sane, of_the_manager, the_right_one};
use crate::account::{deleted, made};
use crate::deletion::all_is_gone;
use crate::ill::{IMPATIENT, checked};
use crate::load::LowLoad;
use crate::repair;
use crate::rolls::{ROLLOUT, another_spec, changed, up_to_date};
use crate::shrinks::{alone, are_well, wanted};
use anyhow::{Context, Result, ensure};
use e2e::bed::clock::Clock;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::plane::Mark;
use e2e::until::until;
use futures::future::try_join_all;
use std::time::Duration;

/// How many members there are in the end.
const MEMBERS: usize = 3;
/// How long the first new machine waits before it boots. The clock jumps in this time.
const BOOTS: Duration = Duration::from_secs(20);
/// How long it may take until that machine runs.
const RUNS: Duration = Duration::from_secs(60);

/// What is done to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// One of three has died. This change takes longer than the others until its new machine boots.
    Repair,
    /// One member becomes three.
    Growth,
    /// Three members get another spec.
    Rollout,
}

impl Change {
    const ALL: [Self; 3] = [Self::Repair, Self::Growth, Self::Rollout];

    fn name(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Growth => "growth",
            Self::Rollout => "rollout",
        }
    }
}

/// Side by side, a member of three is replaced, one member grows to three, and three members get another spec. The
/// clock jumps while the first machine that was made for each change boots. If it jumps by two hours, in either
/// direction, every change is carried out by the wrong clock, and only the Machines that have to go are deleted. If it
/// jumps by more than a year, there are three members once the clock is right again, and nothing is lost.
pub(crate) async fn jump_while_a_machine_boots(bed: &mut Bed) -> Result<()> {
    let clock = of_the_manager(bed).await?;
    for (ahead, name) in [(HOURS, "ahead"), (-HOURS, "back"), (YEAR, "year")] {
        jumps(bed, &clock, ahead, name).await.with_context(|| format!("the clock is {ahead} s ahead"))?;
    }
    the_right_one(bed).await
}

async fn jumps(bed: &Bed, clock: &Clock, ahead: i64, name: &str) -> Result<()> {
    let stories = try_join_all(Change::ALL.map(|change| Story::up(bed, change, name))).await?;
    let (slowest, others) = stories.split_first().context("no story")?;
    slowest.begins().await?;
    try_join_all(others.iter().map(|story| story.begins())).await?;
    clock.jump(ahead)?;
    for story in &stories {
        story.has_not_joined().await?;
    }
    if ahead == YEAR {
        let handles: Vec<&ClusterHandle> = stories.iter().map(|story| &story.handle).collect();
        a_year_ahead(clock, &handles, BOOTS + STAYS).await?;
    } else {
        try_join_all(stories.iter().map(|story| story.goes_on())).await?;
        clock.jump(0)?;
    }
    try_join_all(stories.into_iter().map(|story| story.ends(ahead))).await.map(drop)
}

/// One cluster, and its change.
struct Story<'a> {
    bed: &'a Bed,
    change: Change,
    handle: ClusterHandle,
    load: LowLoad,
    cluster_id: String,
    /// The Machines before the change, and those of them that have to go.
    old: Vec<String>,
    goes: Vec<String>,
    /// The first Machine that is made for the change.
    boots: String,
    mark: Mark,
}

impl<'a> Story<'a> {
    /// Brings up the cluster before its change.
    async fn up(bed: &'a Bed, change: Change, name: &str) -> Result<Self> {
        let namespace = format!("clocks-{}-{name}", change.name());
        let members = if change == Change::Growth { 1 } else { 3 };
        let manifests = Manifests::new(&namespace, "demo")?.replicas(members);
        let handle = alone(bed, checked(manifests, IMPATIENT)).await?;
        let load = LowLoad::begin(bed, &handle).await?;
        let old = handle.etcd_machines().await?;
        let cluster_id = handle.membership(&bed.machines, &old).await?.cluster_id;
        let goes = match change {
            Change::Repair => vec![old[1].clone()],
            Change::Growth => Vec::new(),
            Change::Rollout => old.clone(),
        };
        let boots = handle.member_names(old.len() + 1).pop().context("it has no name")?;
        bed.machines.fault_boot_delay(&namespace, &boots, BOOTS)?;
        let mark = bed.plane.mark();
        Ok(Self { bed, change, handle, load, cluster_id, old, goes, boots, mark })
    }

    /// Begins the change, and waits until the first machine that is made for it is about to boot.
    async fn begins(&self) -> Result<()> {
        match self.change {
            Change::Repair => repair::dies(self.bed, &self.handle, &self.old[1]).await?,
            Change::Growth => wanted(&self.handle, MEMBERS).await?,
            Change::Rollout => changed(&self.handle, &another_spec()).await?,
        }
        let namespace = &self.handle.namespace;
        until(format!("{} of {namespace} is about to boot", self.boots), RUNS, async || {
            Ok(self.bed.machines.get(namespace, &self.boots)?.is_running().then_some(()))
        })
        .await
    }

    /// Checks that no member has joined or left yet. Otherwise the scenario would show nothing.
    async fn has_not_joined(&self) -> Result<()> {
        let etcd = self.handle.membership(&self.bed.machines, &self.old[..1]).await?;
        let namespace = &self.handle.namespace;
        ensure!(etcd.members.len() == self.old.len(), "{namespace}: the clock jumped too late: {etcd:?}");
        Ok(())
    }

    /// Checks that the change is carried out by the wrong clock too.
    async fn goes_on(&self) -> Result<()> {
        let what = || self.handle.namespace.clone();
        self.is_carried_out().await.with_context(what)?;
        self.nobody_else_has_gone().await.with_context(what)?;
        is_sane(&self.handle.status().await?).with_context(what)
    }

    /// Waits until the Machines that have to go are gone, and there are three members that match the spec.
    async fn is_carried_out(&self) -> Result<()> {
        until(format!("{} has what is wanted", self.handle.namespace), ROLLOUT, async || {
            let (machines, status) = (self.handle.etcd_machines().await?, self.handle.status().await?);
            let left: Vec<&String> = machines.iter().filter(|name| self.goes.contains(name)).collect();
            ensure!(left.is_empty(), "{left:?} of {machines:?}: {:?}", status.conditions);
            ensure!(up_to_date(&status)?.0 == "True", "{:?}", status.conditions);
            Ok(Some(()))
        })
        .await?;
        are_well(self.bed, &self.handle, MEMBERS).await.map(drop)
    }

    /// Checks that no other Machine has gone: by the names, which are never used again, and in the audit log.
    async fn nobody_else_has_gone(&self) -> Result<()> {
        let new = MEMBERS + self.goes.len() - self.old.len();
        let mut expected = self.handle.member_names(self.old.len() + new);
        expected.retain(|name| !self.goes.contains(name));
        let machines = self.handle.etcd_machines().await?;
        ensure!(machines == expected, "the Machines are {machines:?}, and not {expected:?}");
        deleted(self.bed, &self.handle, self.mark, &self.goes)?;
        made(self.bed, &self.handle, self.mark, new)
    }

    /// Checks the end of the story, when the clock is right again.
    async fn ends(self, ahead: i64) -> Result<()> {
        self.is_carried_out().await?;
        comes_to_rest(self.bed, &self.handle, &self.cluster_id).await?;
        if ahead != YEAR {
            self.nobody_else_has_gone().await?;
        }
        self.load.judged().await.with_context(|| self.handle.namespace.clone())?;
        self.bed.machines.clear_faults(&self.handle.namespace, &self.boots)?;
        self.handle.delete("Cluster", &self.handle.cluster).await?;
        all_is_gone(self.bed, &self.handle).await
    }
}
