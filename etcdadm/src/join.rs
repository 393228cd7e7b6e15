//! `etcdadm join`: one more member for an existing cluster.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use etcd_values::EtcdVersion;
use rand::RngExt;
use tokio::time::Instant;

use crate::compatibility::Role;
use crate::config::env::{Start, initial_cluster};
use crate::endpoint::Endpoint;
use crate::etcd::{Cluster, Failure, Member, Membership};
use crate::init_system::UnitState;
use crate::member::MemberRecord;
use crate::node::{Node, POLL};
use crate::pki::authority::AUTHORITY;
use crate::plan::{self, JoinStep, Observation};
use crate::preflight;
use versions::{Leave, Versions};

mod versions;

/// Pause before the cluster is asked again to take a member while it cannot: each refusal is a warning in its log.
const ADD_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause between two looks at a learner that catches up; the first ones are short.
const CATCH_UP_PAUSE: Duration = Duration::from_secs(1);
/// Entries of the log that a learner may lack when it is promoted: as many as etcd keeps for a member that is slow, by default.
const BEHIND: u64 = 5_000;
/// How long a member may be silent before the cluster's tolerance is given for it: a voter that cannot start costs it one
/// member, a learner none.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a learner waits for those before it to start, and how long to be promoted. Two that start at once ask each
/// other for the members and their versions before they serve, and wait up to 24 s for the answers; of two promotions
/// at once, raft drops the second. Those before it may never get on: then it is only those seconds later.
const TURN: Duration = Duration::from_secs(5);
/// Pause after an endpoint failed.
const FAILURE_PAUSE: Duration = Duration::from_millis(500);

/// What is joined, and how.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Where its members are.
    pub endpoints: &'a [Endpoint],
    /// ID of the cluster, if it is known: an address may have been given to a member of another one.
    pub cluster_id: Option<u64>,
    /// Without, a cluster that cannot be reached or cannot take a member now is an error at once.
    pub retry: bool,
}

/// Makes this machine a voter of the cluster that is wanted, and returns once it is one and healthy.
///
/// # Errors
/// When a step fails, or the time is up. A further run goes on where this one stopped.
pub async fn join(node: &Node, wanted: &Wanted<'_>) -> Result<()> {
    node.within_time(Join::steps(node, wanted)).await
}

struct Join<'a> {
    node: &'a Node,
    cluster: Cluster,
    /// The member on this machine.
    member: Cluster,
    own_url: String,
    retry: bool,
    /// Pause before the next look at a learner that catches up.
    catch_up: Duration,
    /// Since when this machine's learner has let others start first.
    lets_start: Option<Instant>,
    /// Since when it has let others be promoted first.
    lets_be_promoted: Option<Instant>,
    /// Since when members have been silent whose versions would decide how this machine joins.
    silence: Option<Instant>,
    /// The versions that members told in this run, by ID: one that falls silent does not become older.
    told: HashMap<u64, EtcdVersion>,
    /// The member whose version was compared with the others' before it was added, or before its first start.
    compared: Option<u64>,
}

impl<'a> Join<'a> {
    async fn steps(node: &'a Node, wanted: &Wanted<'_>) -> Result<()> {
        let own = node.settings.client_endpoint();
        let others: Vec<Endpoint> = wanted.endpoints.iter().filter(|endpoint| **endpoint != own).cloned().collect();
        let authority = node.authority()?.with_context(|| {
            format!(
                "there is no certificate authority in {0}; put the cluster's own ca.crt and ca.key there: a new one \
                 would not be trusted by its members",
                node.paths.certificate(AUTHORITY).parent().unwrap_or(&node.settings.certs_dir).display()
            )
        })?;
        let local = node.local().await?;
        node.install(&local).await?;
        node.certificates(&authority, &local)?;
        let mut cluster = node.cluster(&authority, others)?.of(wanted.cluster_id);
        if !wanted.retry {
            cluster = cluster.asked_once();
        }
        let member = node.cluster(&authority, vec![own.clone()])?;
        node.tell_differences(&local)?;
        // On a machine that is a member already, the member itself can tell when nobody else does. Before, its address
        // answers nothing.
        if local.owner.is_some() {
            cluster.also_through(own);
        }
        Self::new(node, cluster, member, wanted.retry).run().await
    }

    fn new(node: &'a Node, cluster: Cluster, member: Cluster, retry: bool) -> Self {
        let own_url = node.settings.peer_endpoint().to_string();
        let (lets_start, lets_be_promoted, silence, told, compared) = Default::default();
        Self {
            node,
            cluster,
            member,
            own_url,
            retry,
            catch_up: POLL,
            lets_start,
            lets_be_promoted,
            silence,
            told,
            compared,
        }
    }

    async fn run(mut self) -> Result<()> {
        loop {
            let membership = match self.cluster.list().await {
                Ok(membership) => membership,
                Err(failure) => {
                    self.wait_out("the cluster does not answer", failure, FAILURE_PAUSE).await?;
                    continue;
                }
            };
            let observation = self.observation(membership).await?;
            match plan::join(&observation) {
                JoinStep::Add => self.add(&observation.membership).await?,
                JoinStep::AwaitRemoval(why) => {
                    self.wait_out("this machine is not added", Failure::Transient(why), FAILURE_PAUSE).await?;
                }
                JoinStep::RemoveOwnLearner(id) => self.remove_own_learner(id, &observation.membership).await?,
                JoinStep::Start(id) => {
                    if self.may_start(id, &observation).await? {
                        self.start(id, &observation).await?;
                    }
                }
                JoinStep::AwaitStart(id) => {
                    self.node.mark_existing()?;
                    self.node.wait(POLL, format!("for member {id:x} to start and make itself known")).await;
                }
                JoinStep::Promote(id) => {
                    // A voter's promises count: from here on it never starts without its data.
                    self.node.mark_existing()?;
                    self.promote(id, &observation.membership).await?;
                }
                JoinStep::AwaitHealth(id) => {
                    self.node.mark_existing()?;
                    match self.member.check().await {
                        Ok(()) => return self.done(id, &observation.membership),
                        Err(why) => self.node.wait(POLL, format!("for member {id:x} to be healthy ({why})")).await,
                    }
                }
                JoinStep::Refuse(why) => bail!(why),
            }
        }
    }

    async fn observation(&self, membership: Membership) -> Result<Observation> {
        let own_name = self.node.settings.name.clone();
        Ok(Observation { own_name, own_url: self.own_url.clone(), local: self.node.local().await?, membership })
    }

    /// Asks members for their versions: those that `asked` chooses. One that never started tells nothing.
    async fn versions(&mut self, membership: &Membership, asked: impl Fn(&Member) -> bool) -> Versions {
        let own = self.node.settings.version.clone();
        let mut versions = Versions { own, members: Vec::new(), floor: None };
        for member in membership.members.iter().filter(|member| asked(member)) {
            if let Some((program, storage)) = self.cluster.versions(membership, member).await {
                if let Ok(version) = program.parse() {
                    self.told.insert(member.id, version);
                }
                versions.floor = storage.parse().ok().max(versions.floor);
            }
            let name = format!("member {:x} ({})", member.id, member.peer_urls.join(","));
            versions.members.push((name, self.told.get(&member.id).cloned()));
        }
        versions
    }

    /// Whether the versions let this machine's member start. With data it has been started before.
    async fn may_start(&mut self, id: u64, observation: &Observation) -> Result<bool> {
        if observation.local.owner.is_some() || self.compared == Some(id) {
            return Ok(true);
        }
        let membership = &observation.membership;
        let learner = membership.members.iter().any(|member| member.id == id && member.learner);
        let versions = self.versions(membership, Member::has_started).await;
        let may = self.has_leave("the member is not started", versions.to_start(id, learner)).await?;
        if may {
            self.compared = Some(id);
        }
        Ok(may)
    }

    async fn has_leave(&self, what: &str, leave: Leave) -> Result<bool> {
        match leave {
            Leave::Given => Ok(true),
            Leave::NotYet(why) => {
                self.wait_out(what, Failure::Transient(why), FAILURE_PAUSE).await?;
                Ok(false)
            }
            Leave::Refused(why) => bail!(why),
        }
    }

    async fn add(&mut self, membership: &Membership) -> Result<()> {
        preflight::check(&self.node.paths, &self.node.settings)?;
        let versions = self.versions(membership, Member::has_started).await;
        let learner = match versions.role().map_err(|why| anyhow!(why))? {
            Role::Learner => true,
            Role::Voter => false,
            Role::VoterForSilence if self.silence.get_or_insert_with(Instant::now).elapsed() < SILENCE => {
                let reason =
                    "for every member to tell its version: while one does not, this machine must join as a voter";
                self.node.wait(FAILURE_PAUSE, reason.to_owned()).await;
                return Ok(());
            }
            Role::VoterForSilence => false,
            Role::Unknown => {
                let failure = Failure::Transient(versions.undecided());
                return self.wait_out("this machine is not added", failure, FAILURE_PAUSE).await;
            }
        };
        self.silence = None;
        match self.cluster.add(membership, &self.own_url, learner).await {
            Ok((id, membership)) => {
                let role = if learner { "learner" } else { "voter" };
                tracing::info!("added to cluster {:x} as {role} {id:x}", membership.cluster_id);
                self.compared = Some(id);
                // The answer holds what the next look would see: one request less on the way to a third member.
                let observation = self.observation(membership).await?;
                match plan::join(&observation) {
                    JoinStep::Start(id) => self.start(id, &observation).await,
                    _ => Ok(()),
                }
            }
            // Machines that wait for the same thing should not all ask at the same moments; and each refusal is an entry in
            // raft's log, while which no other change is taken.
            Err(failure @ Failure::TooManyLearners) => {
                let pause = Duration::from_millis(rand::rng().random_range(1_000..3_000));
                let failure = Failure::Transient(format!("{failure}{}", promoted_first(&membership.members)));
                self.wait_out("the cluster takes no member now", failure, pause).await
            }
            Err(failure @ Failure::Unhealthy(_)) => {
                self.wait_out("the cluster takes no member now", failure, ADD_PAUSE).await
            }
            // Whether the member was added or not is seen in the next list.
            Err(failure) => self.wait_out("this machine is not added", failure, FAILURE_PAUSE).await,
        }
    }

    async fn remove_own_learner(&mut self, id: u64, membership: &Membership) -> Result<()> {
        tracing::warn!("learner {id:x} of this machine has lost its data; removing it to join again");
        // The record first: with it, a machine that is not listed does not join.
        let name = self.node.settings.name.clone();
        let record = MemberRecord::disowned(id, name, self.own_url.clone());
        record.store(&self.node.paths)?;
        match self.cluster.remove(membership, id).await {
            // Somebody else may remove it at the same time, so that it stays out: only one of both is told yes.
            Ok(()) => record.removal_confirmed().store(&self.node.paths),
            Err(failure) => self.wait_out("the lost learner is not removed", failure, FAILURE_PAUSE).await,
        }
    }

    async fn start(&mut self, id: u64, observation: &Observation) -> Result<()> {
        let local = &observation.local;
        if local.owner.is_some() {
            self.remember(id, &observation.membership)?;
            return self.node.start(&Start::Again);
        }
        if local.unit == UnitState::Down
            && let Some(first) = self.first_to_start(id, &observation.membership.members)
        {
            self.node.wait(POLL, format!("for learner {first:x} to start first")).await;
            return Ok(());
        }
        let initial_cluster = initial_cluster(&observation.membership.members, id, &self.node.settings.name);
        let start = Start::Existing { initial_cluster: initial_cluster.map_err(|why| anyhow!(why))? };
        let is_recorded = local.record.as_ref().is_some_and(|record| record.member_id == id);
        // Before the record: with it, data that is missed is this member's.
        if !is_recorded && !self.node.forget_data(local, &start).await? {
            return Ok(());
        }
        self.remember(id, &observation.membership)?;
        self.node.ensure_started(local, &start).await
    }

    /// The learner that is to start before this machine's: see [`first_of`].
    fn first_to_start(&mut self, id: u64, members: &[Member]) -> Option<u64> {
        let learners = members.iter().filter(|member| member.learner && !member.has_started());
        first_of(learners, id, &mut self.lets_start)
    }

    /// The learner that is to be promoted before this machine's, likewise.
    fn first_to_be_promoted(&mut self, id: u64, members: &[Member]) -> Option<u64> {
        let learners = members.iter().filter(|member| member.learner && member.has_started());
        first_of(learners, id, &mut self.lets_be_promoted)
    }

    async fn promote(&mut self, id: u64, membership: &Membership) -> Result<()> {
        if !self.is_ready(id, membership).await {
            return Ok(());
        }
        if let Some(first) = self.first_to_be_promoted(id, &membership.members) {
            self.node.wait(POLL, format!("for learner {first:x} to be promoted first")).await;
            return Ok(());
        }
        // Members that are silent take time, in which etcd may have stopped here.
        if !self.may_promote(id, membership).await? || !self.is_ready(id, membership).await {
            return Ok(());
        }
        let answer = self.cluster.promote(membership, id).await;
        self.after_promotion(id, answer).await
    }

    /// Whether the learner [follows](Self::follows) the leader; if not, after a pause.
    async fn is_ready(&mut self, id: u64, membership: &Membership) -> bool {
        let follows = self.follows(id, membership).await;
        if let Err(why) = &follows {
            self.node.wait(self.pause(), why.clone()).await;
        }
        follows.is_ok()
    }

    /// Whether the versions of all members let the learner be promoted.
    async fn may_promote(&mut self, id: u64, membership: &Membership) -> Result<bool> {
        let versions = self.versions(membership, |_| true).await;
        self.has_leave("the learner is not promoted", versions.to_promote(id)).await
    }

    async fn after_promotion(&mut self, id: u64, answer: Result<(), Failure>) -> Result<()> {
        match answer {
            Ok(()) => {
                tracing::info!("learner {id:x} is promoted to voter");
                Ok(())
            }
            Err(Failure::NotInSync) => {
                self.node.wait(self.pause(), format!("for learner {id:x} to catch up with the leader")).await;
                Ok(())
            }
            Err(failure) => self.wait_out("the learner is not promoted", failure, FAILURE_PAUSE).await,
        }
    }

    /// Whether the learner on this machine runs, and has nearly all that the cluster has; if not, what is waited for. etcd
    /// promotes one that has stopped as well, and a voter that does not run costs the cluster a member. And it counts nine
    /// tenths of the log as nearly all of it, however long that is.
    async fn follows(&mut self, id: u64, membership: &Membership) -> Result<(), String> {
        let own = self.member.progress(membership).await;
        let own = own.map_err(|why| format!("for learner {id:x}, which does not answer on this machine ({why})"))?;
        if own.member_id != id {
            return Err(format!("for learner {id:x}: member {:x} answers on this machine", own.member_id));
        }
        if own.leader == 0 {
            return Err(format!("for learner {id:x} to find the leader"));
        }
        let voter = self.cluster.progress(membership).await;
        let voter = voter.map_err(|why| format!("for a voter to tell how far it is ({why})"))?;
        let behind = voter.applied.saturating_sub(own.applied);
        if behind > BEHIND {
            Err(format!("for learner {id:x} to catch up: it is {behind} entries behind"))
        } else {
            Ok(())
        }
    }

    /// The next pause of those that become longer.
    fn pause(&mut self) -> Duration {
        let pause = self.catch_up;
        self.catch_up = (pause * 2).min(CATCH_UP_PAUSE);
        pause
    }

    /// Waits before the next attempt, if there is one: not where none is wanted, nor where it would fail in the same
    /// way. A clock that is wrong may be set meanwhile.
    async fn wait_out(&self, what: &str, failure: Failure, pause: Duration) -> Result<()> {
        if !self.retry || matches!(failure, Failure::Refused(_) | Failure::Untrusted { by_clock: false, .. }) {
            return Err(anyhow!(failure).context(what.to_owned()));
        }
        self.node.wait(pause, format!("{what}: {failure}")).await;
        Ok(())
    }

    fn done(&self, id: u64, membership: &Membership) -> Result<()> {
        self.remember(id, membership)?;
        let voters = membership.members.iter().filter(|member| !member.learner).count();
        tracing::info!("member {id:x} of cluster {:x} is a healthy voter, one of {voters}", membership.cluster_id);
        Ok(())
    }

    fn remember(&self, id: u64, membership: &Membership) -> Result<()> {
        // A member that has started is called what it called itself then, whatever this run was told.
        let listed = membership.members.iter().find(|member| member.id == id && member.has_started());
        let name = listed.map_or(&self.node.settings.name, |member| &member.name);
        MemberRecord::of(membership.cluster_id, id, name.clone(), self.own_url.clone()).store(&self.node.paths)
    }
}

/// Which learners hold the places of those that the cluster takes, as far as the list has them: another machine may have
/// been added since.
fn promoted_first(members: &[Member]) -> String {
    let learners = members.iter().filter(|member| member.learner).map(|learner| {
        let name = if learner.has_started() { learner.name.as_str() } else { "not started yet" };
        format!("{:x} ({name}, {})", learner.id, learner.peer_urls.join(","))
    });
    match &learners.collect::<Vec<_>>()[..] {
        [] => String::new(),
        [one] => format!(", until learner {one} is promoted or removed"),
        several => format!(", until one of these is promoted or removed: learner {}", several.join(", learner ")),
    }
}

/// The learner that goes before this machine's: the lowest ID goes first, on all machines. `None` also where it has
/// been waited for long enough.
fn first_of<'m>(learners: impl Iterator<Item = &'m Member>, own: u64, since: &mut Option<Instant>) -> Option<u64> {
    let first = learners.map(|member| member.id).min().filter(|first| *first < own)?;
    (since.get_or_insert_with(Instant::now).elapsed() < TURN).then_some(first)
}

#[cfg(test)]
mod tests;
