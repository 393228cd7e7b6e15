//! A machine fails for good while its cluster changes, with each fault and in each change. Without help, the machine's
//! member is replaced, the change is carried out, and no acknowledged write is lost. If the machine fails only for a
//! moment, or the quorum is lost for a while, no member is replaced.

mod fault;
mod passing;
mod quorum;
mod victim;

use crate::account::{changed_machines, made};
use crate::bring_up::PATIENCE;
use crate::certificates;
use crate::deletion::all_is_gone;
use crate::departures::only_theirs;
use crate::ill::{IMPATIENT, STALL, checked, copies_are_saved, unavailability_is_told};
use crate::rolls::{FOLLOWERS, another_spec, changed, nothing_is_lost, up_to_date};
use crate::scale::data_of;
use crate::shrinks::{alone, wanted};
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::MemberRole;
use e2e::bed::data::{DataLoss, on};
use e2e::bed::illness::{keep_certificate, small_disk};
use e2e::bed::{Bed, ClusterHandle, Manifests, Membership};
use e2e::history::{Figures, History};
use e2e::observer::Silence;
use e2e::plane::Mark;
use e2e::scenarios::tries_every_place;
use e2e::until::until;
use fault::{Action, FAULTS, Needs, ONCE};
use futures::{StreamExt, TryStreamExt, stream};
use local_infrastructure::machine::Machine;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use victim::{Found, SMALL, Victim, find};

pub(crate) use fault::{CORRUPTED, CUT_OFF, DEAF, FROZEN, Fault, KILLED, OLDER, ROBBED, UNHEARD};
pub(crate) use passing::with_faults_that_end;

/// How many clusters there are side by side: one has up to seven machines.
const AT_ONCE: usize = 2;
/// Seconds that a Machine has to become a member: few, because some never do, but many compared with what a Machine
/// needs on a busy computer.
const GRACE: i64 = 30;
/// How long all of it may take: a Machine that does not become a member is replaced after two to three graces.
const ENDS: Duration = Duration::from_secs(420);
/// How long the scenario watches that nothing is done: a few times what it takes until a member counts as unhealthy.
const STEADY: Duration = Duration::from_secs(12);

/// What is done to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Growth,
    ScaleDown,
    Rollout,
    Repair,
    BringUp,
    Departure,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Self::Growth => "growth",
            Self::ScaleDown => "scale-down",
            Self::Rollout => "rollout",
            Self::Repair => "repair",
            Self::BringUp => "bring-up",
            Self::Departure => "departure",
        }
    }

    /// How many members there are before and in the end: enough to survive one failure at any time.
    fn sizes(self) -> (usize, usize) {
        match self {
            Self::Growth => (3, 5),
            Self::ScaleDown => (5, 3),
            Self::Rollout | Self::Departure => (3, 3),
            Self::Repair => (5, 5),
            Self::BringUp => (2, 3),
        }
    }

    fn victims(self) -> &'static [Victim] {
        match self {
            Self::ScaleDown | Self::Departure => &[Victim::Leader, Victim::Follower, Victim::Leaver],
            Self::Growth | Self::Rollout | Self::Repair => &[Victim::Leader, Victim::Follower, Victim::Newcomer],
            // With two members, the quorum does not survive a failure of either.
            Self::BringUp => &[Victim::Newcomer],
        }
    }

    /// Every fault that fits, each with another victim, or with every victim if `E2E_EVERY_PLACE` is set. Then the
    /// faults that occur only in this change.
    fn stories(self, bed: &Bed) -> Vec<Story<'_>> {
        let mut stories = Vec::new();
        for (number, fault) in FAULTS.iter().enumerate() {
            let victims: Vec<Victim> = self.victims().iter().copied().filter(|victim| fault.fits(*victim)).collect();
            let most = if tries_every_place() { victims.len() } else { victims.len().min(1) };
            // Not the same pairs in each change.
            let chosen = victims.iter().cycle().skip(number + self as usize).take(most);
            stories.extend(chosen.map(|victim| Story { bed, change: self, fault, victim: *victim }));
        }
        let here = ONCE.iter().filter(|(change, ..)| *change == self);
        stories.extend(here.map(|&(change, fault, victim)| Story { bed, change, fault, victim }));
        stories
    }
}

/// From three members to five.
pub(crate) async fn growth(bed: &mut Bed) -> Result<()> {
    during(bed, Change::Growth).await
}

/// From five members to three.
pub(crate) async fn scale_down(bed: &mut Bed) -> Result<()> {
    during(bed, Change::ScaleDown).await
}

/// Another spec for three members, which are replaced one after the other.
pub(crate) async fn rollout(bed: &mut Bed) -> Result<()> {
    during(bed, Change::Rollout).await
}

/// One of five members has died, and the machine of its replacement runs.
pub(crate) async fn repair(bed: &mut Bed) -> Result<()> {
    during(bed, Change::Repair).await
}

/// Two of three members vote, and the third joins.
pub(crate) async fn bring_up(bed: &mut Bed) -> Result<()> {
    during(bed, Change::BringUp).await
}

/// A person has deleted the Machine of a follower, one of three members.
pub(crate) async fn departure(bed: &mut Bed) -> Result<()> {
    during(bed, Change::Departure).await
}

async fn during(bed: &Bed, change: Change) -> Result<()> {
    let stories = stream::iter(change.stories(bed)).map(async |story| {
        let (name, begun) = (story.name(), Instant::now());
        story.tell().await.with_context(|| name.clone())?;
        println!("  {name}: {:.1} s", begun.elapsed().as_secs_f32());
        anyhow::Ok(())
    });
    stories.buffer_unordered(AT_ONCE).try_collect().await
}

/// A change of one cluster, and the fault in it.
struct Story<'a> {
    bed: &'a Bed,
    change: Change,
    fault: &'static Fault,
    victim: Victim,
}

impl Story<'_> {
    fn name(&self) -> String {
        format!("{}-{}-{}", self.change.name(), self.victim.name(), self.fault.name)
    }

    async fn tell(&self) -> Result<()> {
        let (bed, (before, after)) = (self.bed, self.change.sizes());
        let (handle, old) = match self.change {
            Change::BringUp => comes_up(bed, self.manifests(after)?).await?,
            _ => {
                let handle = alone(bed, self.manifests(before)?).await?;
                // All Machines are made at the same time, so their names are known.
                let old = handle.member_names(before);
                (handle, old)
            }
        };
        // In a bring-up, the Machine of the third member is there already.
        let there = handle.etcd_machines().await?;
        let (mark, etcd) = (bed.plane.mark(), agreed(bed, &handle, &old).await?);
        // A fault that needs preparation is prepared on every member, because the victim is not known yet.
        let machines = bed.machines_of(&handle.namespace, &old)?;
        match self.fault.needs {
            Needs::OlderCopy => copies_are_saved(bed, &handle, &machines, DataLoss::OlderCopy).await?,
            Needs::Expired => keep_expired(&handle, &machines).await?,
            Needs::Nothing | Needs::Log | Needs::SmallDisk => {}
        }
        let writers = begin_writers(bed, &handle).await?;

        let mut dead = Vec::<Found>::new();
        let leaves = self.begins(&handle, &old).await?;
        if self.change == Change::Repair {
            let first = find(bed, &handle, &old, Victim::Follower, &[]).await?.context("there is no follower")?;
            self.strikes(&handle, first, &KILLED, &mut dead, &writers).await?;
        }
        let found = until(format!("{} is there", self.victim.name()), PATIENCE, async || {
            if !self.is_under_way(&handle, &old).await? {
                return Ok(None);
            }
            let found = find(bed, &handle, &old, self.victim, &dead).await?;
            Ok(found.filter(|found| self.fault.can_strike(found)))
        })
        .await?;
        self.strikes(&handle, found, self.fault, &mut dead, &writers).await?;

        let machines = carried_out(bed, &handle, after, &dead, &writers).await?;
        // Otherwise the fault has had no effect, and nothing is shown.
        let stays = dead.iter().map(|dead| &dead.machine).find(|dead| machines.contains(dead));
        ensure!(stays.is_none(), "{stays:?} has failed for good, and was not replaced: {machines:?}");
        let now = handle.membership(&bed.machines, &machines).await?;
        ensure!(now.cluster_id == etcd.cluster_id, "etcd was {etcd:?}, and is {now:?}");
        let alive = old.iter().filter(|name| !dead.iter().any(|dead| dead.machine == **name));
        let alive = alive.filter(|name| leaves.as_ref() != Some(*name));
        let stayed = alive.clone().filter(|name| machines.contains(name)).count();
        let ever = || old.iter().chain(dead.iter().map(|dead| &dead.machine)).chain(&machines);
        let by_us = ever().filter(|name| !machines.contains(name) && leaves.as_ref() != Some(*name));
        let new: BTreeSet<&String> = ever().filter(|name| !there.contains(name)).collect();
        changed_machines(bed, &handle, mark, &by_us.cloned().collect::<Vec<_>>(), new.len())?;
        let (least, most) = match self.change {
            // No healthy member leaves.
            Change::Growth | Change::Repair | Change::BringUp | Change::Departure => (alive.count(), before),
            Change::ScaleDown => (after - 1, after),
            Change::Rollout => (0, 0),
        };
        ensure!((least..=most).contains(&stayed), "there were {old:?}, and there are {machines:?}");
        self.ends_well(&handle, &machines, writers).await
    }

    /// The manifests of the cluster, with one disk that can be filled if the fault needs it.
    fn manifests(&self, members: usize) -> Result<Manifests> {
        let manifests = manifests(&self.name(), members)?;
        if self.fault.needs != Needs::SmallDisk {
            return Ok(manifests);
        }
        Ok(manifests.with("EtcdCluster", |etcd| {
            etcd["spec"]["etcdadmConfigSpec"]["preEtcdadmCommands"] = json!([small_disk(SMALL)]);
        }))
    }

    /// Begins the change; a repair begins when a machine fails. Returns the Machine that a person deletes for the
    /// change, if there is one.
    async fn begins(&self, handle: &ClusterHandle, old: &[String]) -> Result<Option<String>> {
        match self.change {
            Change::BringUp | Change::Repair => {}
            Change::Growth | Change::ScaleDown => wanted(handle, self.change.sizes().1).await?,
            Change::Rollout => changed(handle, &another_spec()).await?,
            Change::Departure => {
                let found = find(self.bed, handle, old, Victim::Follower, &[]).await?;
                let leaves = found.context("there is no follower")?.machine;
                handle.delete("Machine", &leaves).await?;
                return Ok(Some(leaves));
            }
        }
        Ok(None)
    }

    /// Checks that no acknowledged write is lost with these Machines, and that no client waited for long. Then deletes
    /// the Cluster, and waits until all of it is gone.
    async fn ends_well(&self, handle: &ClusterHandle, machines: &[String], writers: History) -> Result<()> {
        let figures = self.is_kept(handle, machines, writers).await?;
        ensure!(figures.longest_stall <= STALL, "{figures}");
        handle.delete("Cluster", &handle.cluster).await?;
        all_is_gone(self.bed, handle).await
    }

    /// Checks that no acknowledged write is lost with these Machines.
    async fn is_kept(&self, handle: &ClusterHandle, machines: &[String], writers: History) -> Result<Figures> {
        only_theirs(self.bed, handle, machines).await?;
        // After a rollout no member is left that has the log from its beginning.
        let data = if self.change == Change::Rollout { Vec::new() } else { data_of(self.bed, handle, machines)? };
        nothing_is_lost(handle, writers, &data).await
    }

    /// Checks that `stay` of the earlier members are still there, unchanged, and that the others were made once each,
    /// and not as repairs.
    async fn is_carried_out_once(
        &self,
        handle: &ClusterHandle,
        (mark, etcd): (Mark, &Membership),
        machines: &[String],
        stay: usize,
    ) -> Result<()> {
        let remediation = handle.status().await?.last_remediation;
        ensure!(remediation.is_none(), "{remediation:?}");
        made(self.bed, handle, mark, self.change.sizes().1 - stay)?;
        let now = handle.membership(&self.bed.machines, machines).await?;
        let stayed = etcd.stayed(&now);
        ensure!(now.cluster_id == etcd.cluster_id && stayed == stay, "etcd was {etcd:?}, and is {now:?}");
        Ok(())
    }

    /// Whether the change has begun to take effect, so that a fault strikes in the middle of it.
    async fn is_under_way(&self, handle: &ClusterHandle, old: &[String]) -> Result<bool> {
        let status = handle.status().await?;
        let is = |type_: &str| status.conditions.iter().any(|found| found.type_ == type_ && found.status == "True");
        Ok(match self.change {
            Change::Growth | Change::Rollout => status.members.iter().any(|member| !old.contains(&member.machine)),
            Change::ScaleDown => status.operation.is_some() || is("MachinesDeleting"),
            Change::BringUp => true,
            Change::Departure => is("MachinesDeleting"),
            Change::Repair => find(self.bed, handle, old, Victim::Newcomer, &[]).await?.is_some(),
        })
    }

    /// Makes the machine fail, and tells clients not to use its endpoint any more. Requests to the other members are
    /// answered sooner or later.
    async fn strikes(
        &self,
        handle: &ClusterHandle,
        found: Found,
        fault: &Fault,
        dead: &mut Vec<Found>,
        writers: &History,
    ) -> Result<()> {
        let machine = self.bed.machines.get(&handle.namespace, &found.machine)?;
        dead.push(found);
        ask_the_living(&handle.status().await?.endpoints, dead, writers);
        self.bed.fault(&format!("{}: {}", machine.spec().name, fault.name), &[&machine], Silence::Lasting);
        on(&machine, fault.begins).await
    }
}

/// From one member to three, and the only voter fails when the next member joins. Nothing can be done, and nothing is
/// done. When the fault is over, the change goes on by itself.
pub(crate) async fn growth_of_one(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let faults = FAULTS.iter().filter_map(|fault| Some((fault, fault.ends?)));
    let stories = stream::iter(faults).map(async |(fault, ends)| {
        only_voter_fails(bed, fault, ends).await.with_context(|| format!("the only voter is {}", fault.name))
    });
    stories.buffer_unordered(AT_ONCE).try_collect().await
}

async fn only_voter_fails(bed: &Bed, fault: &Fault, ends: Action) -> Result<()> {
    let handle = up(bed, &format!("growth-of-one-{}", fault.name), 1).await?;
    let old = handle.etcd_machines().await?;
    let before = handle.membership(&bed.machines, &old).await?;
    let writers = begin_writers(bed, &handle).await?;
    wanted(&handle, 3).await?;
    until("the next one joins", PATIENCE, async || {
        let status = handle.status().await?;
        Ok(status.members.iter().any(|member| !old.contains(&member.machine)).then_some(()))
    })
    .await?;
    let machine = bed.machines.get(&handle.namespace, &old[0])?;
    writers.endpoints(Vec::new());
    bed.fault(&format!("{}: {}", old[0], fault.name), &[&machine], Silence::Lasting);
    on(&machine, fault.begins).await?;
    unavailability_is_told(&handle, PATIENCE).await?;
    tokio::time::sleep(STEADY).await;
    nothing_is_begun(&handle).await?;
    let machines = handle.etcd_machines().await?;
    ensure!(machines.contains(&old[0]), "the Machines are {machines:?}");

    bed.fault_is_over(&format!("{}: that is over", old[0]), &[&machine]);
    on(&machine, ends).await?;
    let machines = carried_out(bed, &handle, 3, &[], &writers).await?;
    let after = handle.membership(&bed.machines, &machines).await?;
    let stays = before.members.iter().all(|member| after.members.contains(member));
    ensure!(after.cluster_id == before.cluster_id && stays, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &handle, &machines).await?;
    nothing_is_lost(&handle, writers, &data_of(bed, &handle, &machines)?).await?;
    handle.delete("Cluster", &handle.cluster).await?;
    all_is_gone(bed, &handle).await
}

/// Checks that no member is being replaced or removed, and that no Machine is being deleted.
pub(crate) async fn nothing_is_begun(handle: &ClusterHandle) -> Result<()> {
    let status = handle.status().await?;
    ensure!(status.operation.is_none() && status.removed_members.is_empty(), "{:?}", status.operation);
    ensure!(status.last_remediation.is_none(), "{:?}", status.last_remediation);
    for name in handle.etcd_machines().await? {
        let machine = handle.api("Machine").get(&name).await?;
        ensure!(machine.metadata.deletion_timestamp.is_none(), "{name} is being deleted: {:?}", status.conditions);
    }
    Ok(())
}

/// The member list, once these members agree on it.
pub(crate) async fn agreed(bed: &Bed, handle: &ClusterHandle, old: &[String]) -> Result<Membership> {
    until("the members agree", PATIENCE, async || Ok(Some(handle.membership(&bed.machines, old).await?))).await
}

/// Clients that write for as long as the change takes.
async fn begin_writers(bed: &Bed, handle: &ClusterHandle) -> Result<History> {
    History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await
}

/// Waits until there are as many members as wanted, all of them healthy and as the spec says, and nothing is being
/// done. Returns the names of their Machines.
async fn carried_out(
    bed: &Bed,
    handle: &ClusterHandle,
    wanted: usize,
    dead: &[Found],
    writers: &History,
) -> Result<Vec<String>> {
    until(format!("{} has {wanted} members that are well", handle.namespace), ENDS, async || {
        let (machines, status) = (handle.etcd_machines().await?, handle.status().await?);
        ask_the_living(&status.endpoints, dead, writers);
        let ready = usize::try_from(status.ready_replicas)?;
        ensure!(status.ready && ready == wanted && machines.len() == wanted, "{machines:?}: {:?}", status.conditions);
        ensure!(status.operation.is_none(), "it still does {:?}", status.operation);
        ensure!(status.removed_members.is_empty(), "removed are {:?}", status.removed_members);
        ensure!(up_to_date(&status)?.0 == "True", "{:?}", status.conditions);
        // A machine that has failed does not answer.
        let etcd = handle.membership(&bed.machines, &machines).await?;
        ensure!(etcd.voters() == machines, "Machines {machines:?}, members {:?}", etcd.members);
        Ok(Some(machines))
    })
    .await
}

/// Puts certificates that have expired beside those of each of these members. Their etcd does not use them yet.
async fn keep_expired(handle: &ClusterHandle, machines: &[Machine]) -> Result<()> {
    let (authority, members) = (certificates::authority(handle).await?, handle.status().await?.members);
    for machine in machines {
        let name = &machine.spec().name;
        let member = members.iter().find(|member| member.machine == *name).context("it is not a member")?;
        let expired = certificates::identity(&authority, member, certificates::EXPIRED)?;
        for which in ["server", "peer"] {
            keep_certificate(machine, which, &expired).await.with_context(|| name.clone())?;
        }
    }
    Ok(())
}

/// Gives clients the published endpoints, without those of dead machines.
fn ask_the_living(published: &str, dead: &[Found], writers: &History) {
    let answers = |url: &&str| !dead.iter().any(|dead| dead.url.as_deref() == Some(*url));
    writers.endpoints(published.split(',').filter(answers).map(str::to_owned).collect());
}

/// Brings up a cluster with this many members and frequent health checks.
async fn up(bed: &Bed, namespace: &str, members: usize) -> Result<ClusterHandle> {
    alone(bed, manifests(namespace, members)?).await
}

/// Applies these manifests, and waits until two members vote. Returns their Machines.
async fn comes_up(bed: &Bed, manifests: Manifests) -> Result<(ClusterHandle, Vec<String>)> {
    let (client, manifests) = (bed.client(), manifests.without_control_plane());
    ClusterHandle::make_namespace(&client, &manifests.namespace).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    let voters = until(format!("two members of {} vote", handle.namespace), PATIENCE, async || {
        let members = handle.status().await?.members;
        let voters = members.into_iter().filter(|member| member.role == MemberRole::Voter);
        let voters: Vec<String> = voters.map(|member| member.machine).take(2).collect();
        ensure!(voters.len() == 2, "only {voters:?} votes");
        Ok(Some(voters))
    })
    .await?;
    Ok((handle, voters))
}

fn manifests(namespace: &str, members: usize) -> Result<Manifests> {
    let manifests = Manifests::new(namespace, "demo")?.replicas(i64::try_from(members)?);
    Ok(checked(manifests, IMPATIENT).with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"]["startupGraceSeconds"] = json!(GRACE);
    }))
}
