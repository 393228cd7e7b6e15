//! One of our watches lags in each change of a cluster, from the beginning of the change or from the middle of it.
//! Members are still added, replaced and removed once, one after the other.

use crate::account::changed_machines;
use crate::bring_up::PATIENCE;
use crate::deletion::all_is_gone;
use crate::departures::{only_theirs, replaced};
use crate::ill::{IMPATIENT, STALL, checked};
use crate::rolls::{FOLLOWERS, another_spec, changed, follow, nothing_is_lost, rolled};
use crate::shrinks::{are_well, wanted};
use anyhow::{Context, Result, ensure};
use e2e::bed::data::on;
use e2e::bed::{Bed, ClusterHandle, Manifests, Membership};
use e2e::faults::FaultyManager;
use e2e::history::History;
use e2e::observer::Silence;
use e2e::until::until;
use futures::{StreamExt, TryStreamExt, stream};
use local_infrastructure::machine::Machine;
use serde_json::{Value, json};
use std::time::Duration;

/// The watches that are held back, and whether each change has to appear there: a Cluster changes only with what our
/// manager reports in it.
const WATCHES: [(&str, bool); 5] =
    [("machines", true), ("secrets", true), ("etcdclusters", true), ("etcdadmconfigs", true), ("clusters", false)];
/// How long a watch lags, from the change on: longer than it takes until a member counts as unhealthy and its
/// replacement is made.
const LAGS: Duration = Duration::from_secs(12);
/// How many clusters there are side by side, each with a manager of its own; and how many if they have one to four
/// members.
const AT_ONCE: usize = 2;
const AT_ONCE_SMALL: usize = 4;
/// How long a change may take beside others.
const CHANGES: Duration = Duration::from_secs(300);

/// The moment of a change from which on a watch lags.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// The first new member has joined, and does not vote yet.
    FirstLearner,
    /// An old member is to leave: the operation is recorded, and is about to be carried out.
    FirstOperation,
    /// A dead member is to leave, or has left, and its replacement is about to join.
    Removal,
}

/// For each watch, a cluster grows from one member to three, a person deletes a Machine, another machine loses its
/// power, the spec changes, and the cluster shrinks to one member. The watch is held from the beginning of each change.
pub(crate) async fn in_every_change(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let shared = &*bed;
    let lives = stream::iter(WATCHES).map(async |(resource, tells)| {
        let late = Late::up(shared, resource, &format!("lags-{resource}"), 1).await?;
        late.live(tells).await.with_context(|| format!("the watch of {resource} lags behind"))
    });
    lives.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    bed.start_manager(0).await
}

/// For each watch, a cluster of three gets another spec, gets yet another one, and is deleted. The watch is held from
/// the first learner of the first rollout on, from the first departure of the second rollout on, and from the deletion
/// on.
pub(crate) async fn in_the_middle_of_changes(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let shared = &*bed;
    let lives = stream::iter(WATCHES).map(async |(resource, tells)| {
        let late = Late::up(shared, resource, &format!("lags-midway-{resource}"), 3).await?;
        late.held_midway(tells).await.with_context(|| format!("the watch of {resource} lags behind"))
    });
    lives.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    bed.start_manager(0).await
}

/// For each watch in which each change has to appear, a cluster grows from one member to three, loses a machine, and
/// shrinks to one member. The watch is held from the first learner on, from the removal of the dead member on, and from
/// the first departure on.
pub(crate) async fn while_members_come_and_go(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let shared = &*bed;
    let lives = stream::iter(WATCHES.into_iter().filter(|(_, tells)| *tells)).map(async |(resource, _)| {
        let late = Late::up(shared, resource, &format!("lags-between-{resource}"), 1).await?;
        late.held_between().await.with_context(|| format!("the watch of {resource} lags behind"))
    });
    lives.buffer_unordered(AT_ONCE_SMALL).try_collect::<()>().await?;
    bed.start_manager(0).await
}

/// A cluster whose manager learns of changes late.
struct Late<'a> {
    bed: &'a Bed,
    resource: &'static str,
    manager: FaultyManager,
    handle: ClusterHandle,
    writers: History,
}

impl<'a> Late<'a> {
    async fn up(bed: &'a Bed, resource: &'static str, namespace: &str, replicas: i64) -> Result<Self> {
        let client = bed.client();
        ClusterHandle::make_namespace(&client, namespace).await?;
        let manager = FaultyManager::start(bed, namespace, Some(namespace), Vec::new()).await?;
        let manifests =
            checked(Manifests::new(namespace, "demo")?.replicas(replicas), IMPATIENT).without_control_plane();
        let handle = ClusterHandle::new(&client, &manifests);
        manifests.apply(&client).await?;
        handle.until_ready(CHANGES).await?;
        let writers = History::begin(bed.world(), namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
        Ok(Self { bed, resource, manager, handle, writers })
    }

    async fn live(self, tells: bool) -> Result<()> {
        let mut kept = vec![self.grows(None).await.context("from one to three")?];
        kept.push(self.leaves().await.context("a Machine is deleted")?);
        kept.push(self.dies(None).await.context("a machine dies")?);
        kept.push(self.rolls(None, &another_spec()).await.context("another spec")?);
        kept.push(self.shrinks(None).await.context("from three to one")?);
        println!("  {}: kept were {kept:?} pieces of the watch", self.handle.namespace);
        // In the last change, members only leave, and little may have happened so soon.
        ensure!(!tells || kept[..4].iter().all(|kept| *kept > 0), "nothing was kept in one of the changes: {kept:?}");
        // No member is left that has the log from its beginning.
        let figures = nothing_is_lost(&self.handle, self.writers, &[]).await?;
        ensure!(figures.longest_stall <= STALL, "{figures}");
        self.manager.stop().await?;
        Ok(())
    }

    async fn held_midway(self, tells: bool) -> Result<()> {
        let spec = |commands: &[&str]| json!({"etcdadmConfigSpec": {"preEtcdadmCommands": commands}});
        let kept = [
            self.rolls(Some(Moment::FirstLearner), &spec(&["true"])).await.context("from the first learner on")?,
            self.rolls(Some(Moment::FirstOperation), &spec(&["true", "true"]))
                .await
                .context("from the first departure on")?,
        ];
        println!("  {}: kept were {kept:?} pieces of the watch", self.handle.namespace);
        ensure!(!tells || kept.iter().sum::<usize>() > 0, "nothing was kept in either rollout");
        let Self { bed, resource, manager, handle, writers } = self;
        // No member is left that has the log from its beginning.
        let figures = nothing_is_lost(&handle, writers, &[]).await?;
        ensure!(figures.longest_stall <= STALL, "{figures}");

        manager.hold_watch(resource);
        handle.delete("Cluster", &handle.cluster).await?;
        tokio::time::sleep(LAGS).await;
        println!("  {}: kept were {} pieces in the deletion", handle.namespace, manager.release_watch(resource));
        all_is_gone(bed, &handle).await.context("the deletion")?;
        manager.stop().await?;
        Ok(())
    }

    async fn held_between(self) -> Result<()> {
        let kept = [
            self.grows(Some(Moment::FirstLearner)).await.context("from the first learner on")?,
            self.dies(Some(Moment::Removal)).await.context("from the removal of a dead member on")?,
            self.shrinks(Some(Moment::FirstOperation)).await.context("from the first departure on")?,
        ];
        println!("  {}: kept were {kept:?} pieces of the watch", self.handle.namespace);
        ensure!(kept.iter().sum::<usize>() > 0, "nothing was kept in any of the changes");
        // A member that is left need not have the log from its beginning.
        let figures = nothing_is_lost(&self.handle, self.writers, &[]).await?;
        ensure!(figures.longest_stall <= STALL, "{figures}");
        self.manager.stop().await?;
        Ok(())
    }

    async fn grows(&self, from: Option<Moment>) -> Result<usize> {
        let (mark, handle) = (self.bed.plane.mark(), &self.handle);
        let old = handle.etcd_machines().await?;
        let kept = self.late_from(from, &old, async || wanted(handle, 3).await).await?;
        self.is_well(3).await?;
        changed_machines(self.bed, &self.handle, mark, &[], 2)?;
        Ok(kept)
    }

    async fn leaves(&self) -> Result<usize> {
        let (mark, handle) = (self.bed.plane.mark(), &self.handle);
        let leaves = handle.etcd_machines().await?.pop().context("there is no Machine")?;
        let kept = self.late(async || handle.delete("Machine", &leaves).await).await?;
        replaced(self.bed, handle, &leaves).await?;
        self.is_well(3).await?;
        changed_machines(self.bed, &self.handle, mark, &[], 1)?;
        Ok(kept)
    }

    async fn dies(&self, from: Option<Moment>) -> Result<usize> {
        let mark = self.bed.plane.mark();
        let (dead, machine) = self.whom_nobody_asks().await?;
        let dead = [dead];
        let kills = async || {
            self.bed.fault(&format!("{}: its machine is killed", dead[0]), &[&machine], Silence::Lasting);
            on(&machine, Machine::kill).await
        };
        let kept = self.late_from(from, &dead, kills).await?;
        replaced(self.bed, &self.handle, &dead[0]).await?;
        self.is_well(3).await?;
        changed_machines(self.bed, &self.handle, mark, &dead, 1)?;
        Ok(kept)
    }

    /// A follower, and its machine. Clients do not use its endpoint any more: requests to a dead member would wait, and
    /// their results would be unknown.
    async fn whom_nobody_asks(&self) -> Result<(String, Machine)> {
        let status = self.handle.status().await?;
        let found = status.members.iter().find(|member| !member.leader).context("there is no follower")?;
        let others = status.endpoints.split(',').filter(|url| **url != *found.client_url);
        self.writers.endpoints(others.map(str::to_owned).collect());
        Ok((found.machine.clone(), self.bed.machines.get(&self.handle.namespace, &found.machine)?))
    }

    async fn rolls(&self, from: Option<Moment>, spec: &Value) -> Result<usize> {
        let (mark, handle) = (self.bed.plane.mark(), &self.handle);
        let old = handle.etcd_machines().await?;
        let kept = self.late_from(from, &old, async || changed(handle, spec).await).await?;
        rolled(self.bed, handle, &old, &self.writers).await?;
        changed_machines(self.bed, &self.handle, mark, &old, old.len())?;
        Ok(kept)
    }

    async fn until_it_has_come(&self, moment: Moment, old: &[String]) -> Result<()> {
        until(format!("{moment:?} of {}", self.handle.namespace), CHANGES, async || {
            Ok(self.has_come(moment, old).await?.then_some(()))
        })
        .await
    }

    async fn has_come(&self, moment: Moment, old: &[String]) -> Result<bool> {
        let first = old.first().context("there is no member")?;
        match moment {
            Moment::FirstLearner => {
                let etcd = Membership::on(self.bed.machines.get(&self.handle.namespace, first)?).await?;
                Ok(etcd.members.iter().any(|member| member.learner))
            }
            Moment::FirstOperation => Ok(self.handle.status().await?.operation.is_some()),
            Moment::Removal => {
                let status = self.handle.status().await?;
                Ok(status.operation.is_some() || !status.members.iter().any(|member| member.machine == *first))
            }
        }
    }

    async fn shrinks(&self, from: Option<Moment>) -> Result<usize> {
        let (mark, handle) = (self.bed.plane.mark(), &self.handle);
        let old = handle.etcd_machines().await?;
        let kept = self.late_from(from, &old, async || wanted(handle, 1).await).await?;
        let left = self.is_well(1).await?;
        let gone: Vec<String> = old.into_iter().filter(|name| !left.contains(name)).collect();
        ensure!(gone.len() == 2, "{left:?} is not one of those before");
        changed_machines(self.bed, &self.handle, mark, &gone, 0)?;
        Ok(kept)
    }

    /// Makes a change, and holds the watch for a while: from the beginning of the change, or from a moment of it.
    /// Returns how many pieces of the watch were kept. `old` are the Machines before the change, or the one that dies.
    async fn late_from(
        &self,
        from: Option<Moment>,
        old: &[String],
        change: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<usize> {
        let Some(moment) = from else { return self.late(change).await };
        change().await?;
        self.until_it_has_come(moment, old).await?;
        self.late(async || Ok(())).await
    }

    /// Makes a change, and holds the watch for a while from its beginning. Returns how many pieces of the watch were
    /// kept.
    async fn late(&self, change: impl AsyncFnOnce() -> Result<()>) -> Result<usize> {
        self.manager.hold_watch(self.resource);
        let end = tokio::time::Instant::now() + LAGS;
        change().await?;
        until(format!("{} s have passed", LAGS.as_secs()), LAGS + PATIENCE, async || {
            // Clients follow the published endpoints, even if our manager learns of changes late.
            follow_the_living(&self.writers, &self.handle, self.bed).await?;
            Ok((tokio::time::Instant::now() >= end).then_some(()))
        })
        .await?;
        Ok(self.manager.release_watch(self.resource))
    }

    /// Waits until there are this many members, all of them healthy. Returns the names of their Machines.
    async fn is_well(&self, members: usize) -> Result<Vec<String>> {
        let handle = &self.handle;
        until(format!("{} has {members} members", handle.namespace), CHANGES, async || {
            let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
            follow_the_living(&self.writers, handle, self.bed).await?;
            let ready = usize::try_from(status.ready_replicas)?;
            ensure!(status.ready && ready == members && machines.len() == members, "{:?}", status.conditions);
            Ok(Some(()))
        })
        .await?;
        let machines = are_well(self.bed, handle, members).await?;
        follow(&self.writers, &handle.status().await?);
        only_theirs(self.bed, handle, &machines).await?;
        Ok(machines)
    }
}

/// Gives clients the published endpoints, without those of machines that do not run.
async fn follow_the_living(writers: &History, handle: &ClusterHandle, bed: &Bed) -> Result<()> {
    let status = handle.status().await?;
    let runs = |url: &&str| {
        let member = status.members.iter().find(|member| member.client_url == **url);
        let machine = member.map(|member| bed.machines.get(&handle.namespace, &member.machine));
        machine.is_none_or(|machine| machine.is_ok_and(|machine| machine.is_running()))
    };
    writers.endpoints(status.endpoints.split(',').filter(runs).map(str::to_owned).collect());
    Ok(())
}
