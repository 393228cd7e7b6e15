//! `etcdadm join`: one more member for an existing cluster.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use etcd_values::EtcdVersion;
use rand::RngExt;
use tokio::time::Instant;

use crate::compatibility::Role;
use crate::config::env::{Start, initial_cluster};
use crate::endpoint::{Endpoint, same_url};
use crate::etcd::{Cluster, Failure, Member, Membership, Progress};
use crate::init_system::UnitState;
use crate::member::MemberRecord;
use crate::node::{Node, POLL};
use crate::pki::authority::AUTHORITY;
use crate::plan::{self, JoinStep, Observation};
use crate::preflight;
use versions::{Leave, Versions};

mod versions;

/// Pause before the cluster is asked again to accept a member. Each refusal is a warning in the cluster's log.
const ADD_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause between two checks of a learner that is catching up. The first pauses are short.
const CATCH_UP_PAUSE: Duration = Duration::from_secs(1);
/// How many log entries a learner may lack when it is promoted. By default, etcd keeps this many for a slow member.
const BEHIND: u64 = 5_000;
/// How long a learner waits for earlier learners to start, and again for them to be promoted. Two members that start at
/// the same time ask each other for the members and their versions before they serve, and wait up to 24 s for the
/// answers. Of two promotions at the same time, raft drops the second. If an earlier learner never gets on, this costs
/// only these seconds.
const TURN: Duration = Duration::from_secs(5);
/// How long the learner of a single voter lets another machine join before it is promoted. With a second voter, etcd
/// refuses every member until the two have been connected for this long (`HealthInterval` in etcd's
/// server/etcdserver/server.go, 3.5 to 3.7). It counts from when this machine found itself listed.
const COMPANY: Duration = Duration::from_secs(5);
/// Pause after an endpoint failed.
const FAILURE_PAUSE: Duration = Duration::from_millis(500);

/// Which cluster to join, and how.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Endpoints of its members.
    pub endpoints: &'a [Endpoint],
    /// The cluster's ID, if it is known: an address may have passed to a member of another cluster.
    pub cluster_id: Option<u64>,
    /// Whether to retry. If not, a cluster that cannot be reached, or cannot accept a member now, is an error
    /// immediately.
    pub retry: bool,
}

/// Makes this machine a voter of the requested cluster, and returns when the voter is healthy.
///
/// # Errors
/// When a step fails, or time is up. The next run continues where this one stopped.
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
    /// Pause before the next check of a learner that is catching up.
    catch_up: Duration,
    /// When this machine's learner began to let others start first.
    lets_start: Option<Instant>,
    /// When it began to let others be promoted first.
    lets_be_promoted: Option<Instant>,
    /// When this machine's learner and a single voter were first found to be all members.
    alone: Option<Instant>,
    /// Whether this run has started the learner for the first time, and it has not served clients since.
    starts_first: bool,
    /// The versions that members have reported in this run, by ID. A member that becomes silent keeps its version here.
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
        // If this machine already is a member, that member can answer when no other does. Otherwise nothing answers at
        // its address.
        if local.owner.is_some() {
            cluster.also_through(own);
        }
        Self::new(node, cluster, member, wanted.retry).run().await
    }

    fn new(node: &'a Node, cluster: Cluster, member: Cluster, retry: bool) -> Self {
        let own_url = node.settings.peer_endpoint().to_string();
        let (lets_start, lets_be_promoted, alone, starts_first, told, compared) = Default::default();
        Self {
            node,
            cluster,
            member,
            own_url,
            retry,
            catch_up: POLL,
            lets_start,
            lets_be_promoted,
            alone,
            starts_first,
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
            if self.is_alone(&observation.membership.members) {
                self.alone.get_or_insert_with(Instant::now);
            }
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
                    // The cluster relies on what a voter has acknowledged: from now on, this member never starts
                    // without its data.
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

    /// Asks the members that `asked` selects for their versions. A member that has never started has no version to
    /// report.
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

    /// Whether the versions allow this machine's member to start. A member with data has started before, so it may.
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
            // A voter that does not run yet, beside a member that is down, could cost the quorum.
            Role::Learner | Role::LearnerForNow => true,
            Role::Voter => false,
            Role::Unknown => {
                let failure = Failure::Transient(versions.undecided());
                return self.wait_out("this machine is not added", failure, FAILURE_PAUSE).await;
            }
        };
        match self.cluster.add(membership, &self.own_url, learner).await {
            Ok((id, membership)) => {
                let role = if learner { "learner" } else { "voter" };
                tracing::info!("added to cluster {:x} as {role} {id:x}", membership.cluster_id);
                self.compared = Some(id);
                // The answer holds the new member list. To use it saves a request before a third member can join.
                let observation = self.observation(membership).await?;
                match plan::join(&observation) {
                    JoinStep::Start(id) => self.start(id, &observation).await,
                    _ => Ok(()),
                }
            }
            // The pause is random, so that machines that wait for the same thing do not all ask at the same time. It is
            // long, because each refusal is an entry in raft's log, and during it etcd accepts no other change.
            Err(failure @ Failure::TooManyLearners) => {
                let pause = Duration::from_millis(rand::rng().random_range(1_000..3_000));
                let failure = Failure::Transient(format!("{failure}{}", promoted_first(&membership.members)));
                self.wait_out("the cluster takes no member now", failure, pause).await
            }
            Err(failure @ Failure::Unhealthy(_)) => {
                self.wait_out("the cluster takes no member now", failure, ADD_PAUSE).await
            }
            // The next list shows whether the member was added.
            Err(failure) => self.wait_out("this machine is not added", failure, FAILURE_PAUSE).await,
        }
    }

    async fn remove_own_learner(&mut self, id: u64, membership: &Membership) -> Result<()> {
        tracing::warn!("learner {id:x} of this machine has lost its data; removing it to join again");
        // Writes the record first: with it, a machine that is not listed does not join.
        let name = self.node.settings.name.clone();
        let record = MemberRecord::disowned(id, name, self.own_url.clone());
        record.store(&self.node.paths)?;
        match self.cluster.remove(membership, id).await {
            // Somebody else may remove the learner at the same time, to keep it out. etcd confirms only one of the two
            // removals.
            Ok(()) => record.removal_confirmed().store(&self.node.paths),
            Err(failure) => self.wait_out("the lost learner is not removed", failure, FAILURE_PAUSE).await,
        }
    }

    async fn start(&mut self, id: u64, observation: &Observation) -> Result<()> {
        let local = &observation.local;
        if local.owner.is_some() {
            self.starts_first = false;
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
        // This comes before the record: as soon as the new member is recorded, missing data counts as its data.
        if !is_recorded && !self.node.forget_data(local, &start).await? {
            return Ok(());
        }
        self.remember(id, &observation.membership)?;
        self.starts_first = true;
        self.node.ensure_started(local, &start).await
    }

    /// The learner that is to start before this machine's: see [`first_of`].
    fn first_to_start(&mut self, id: u64, members: &[Member]) -> Option<u64> {
        let learners = members.iter().filter(|member| member.learner && !member.has_started());
        first_of(learners, id, &mut self.lets_start)
    }

    /// The learner that has to be promoted before this machine's; see [`first_of`].
    fn first_to_be_promoted(&mut self, id: u64, members: &[Member]) -> Option<u64> {
        let learners = members.iter().filter(|member| member.learner && member.has_started());
        first_of(learners, id, &mut self.lets_be_promoted)
    }

    /// Whether this machine's learner and the only voter are all members.
    fn is_alone(&self, members: &[Member]) -> bool {
        let own = |member: &Member| member.learner && member.peer_urls.iter().any(|url| same_url(url, &self.own_url));
        members.len() == 2 && members.iter().any(own)
    }

    /// Whether another machine is to join before this machine's learner is promoted.
    fn lets_another_join(&self, members: &[Member]) -> bool {
        let settings = &self.node.settings;
        let takes_more = settings.version.has_max_learners() && settings.max_learners.is_some_and(|limit| limit > 1);
        takes_more && self.is_alone(members) && self.alone.is_some_and(|since| since.elapsed() < COMPANY)
    }

    async fn promote(&mut self, id: u64, membership: &Membership) -> Result<()> {
        if !self.is_ready(id, membership).await {
            return Ok(());
        }
        if self.lets_another_join(&membership.members) {
            self.node.wait(POLL, format!("for another machine to join before learner {id:x} is promoted")).await;
            return Ok(());
        }
        if let Some(first) = self.first_to_be_promoted(id, &membership.members) {
            self.node.wait(POLL, format!("for learner {first:x} to be promoted first")).await;
            return Ok(());
        }
        // Silent members take time, and etcd on this machine may have stopped meanwhile.
        if !self.may_promote(id, membership).await? || !self.is_ready(id, membership).await {
            return Ok(());
        }
        let answer = self.cluster.promote(membership, id).await;
        self.after_promotion(id, answer).await
    }

    /// Whether the learner [follows](Self::follows) the leader. If it does not, waits before it returns.
    async fn is_ready(&mut self, id: u64, membership: &Membership) -> bool {
        let follows = self.follows(id, membership).await;
        if let Err(why) = &follows {
            self.node.wait(self.pause(), why.clone()).await;
        }
        follows.is_ok()
    }

    /// Whether the versions of all members allow the learner's promotion.
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

    /// Checks that the learner on this machine runs, and that it has nearly all the data of the cluster. The error says
    /// what to wait for. etcd itself also promotes a learner that has stopped, and a voter that does not run reduces
    /// the cluster's fault tolerance. And for etcd, nine tenths of the log are enough, however long the log is.
    async fn follows(&mut self, id: u64, membership: &Membership) -> Result<(), String> {
        let own = self.own_progress(id, membership).await;
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

    /// How far the member on this machine has got. A learner that waits in vain for its name is restarted meanwhile, if
    /// this run has started it for the first time, and it has not served clients since. Later it may be about to be
    /// promoted, and a voter is never restarted: so the learner counts as silent until the restart has completed. A
    /// learner that had data before knows its name from the start.
    async fn own_progress(&mut self, id: u64, membership: &Membership) -> Result<Progress, Failure> {
        if self.node.is_restarting() {
            return Err(Failure::Transient("etcd is being restarted".to_owned()));
        }
        let own_member = self.member.at_peer_url(self.node.settings.peer_endpoint());
        tokio::select! {
            biased;
            own = self.member.progress(membership) => {
                self.starts_first &= own.is_err();
                own
            }
            () = own_member.waits_in_vain(id), if self.starts_first => {
                tracing::info!("learner {id:x} knows its name, and does not serve clients: etcd is restarted");
                self.starts_first = false;
                self.node.restart();
                Err(Failure::Transient("etcd is restarted".to_owned()))
            }
        }
    }

    /// The next pause. The pauses get longer.
    fn pause(&mut self) -> Duration {
        let pause = self.catch_up;
        self.catch_up = (pause * 2).min(CATCH_UP_PAUSE);
        pause
    }

    /// Waits before the next attempt. Fails instead if no retry is wanted, or if a retry would fail in the same way. A
    /// clock that is wrong may be corrected meanwhile.
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
        // A member that has started keeps the name that it published, whatever name this run was given.
        let listed = membership.members.iter().find(|member| member.id == id && member.has_started());
        let name = listed.map_or(&self.node.settings.name, |member| &member.name);
        MemberRecord::of(membership.cluster_id, id, name.clone(), self.own_url.clone()).store(&self.node.paths)
    }
}

/// The listed learners that use up the learner limit. They may not be all, because another machine may have been added
/// since.
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

/// The learner that goes before this machine's: on all machines, the lowest ID goes first. `None` also if this learner
/// has waited long enough.
fn first_of<'m>(learners: impl Iterator<Item = &'m Member>, own: u64, since: &mut Option<Instant>) -> Option<u64> {
    let first = learners.map(|member| member.id).min().filter(|first| *first < own)?;
    (since.get_or_insert_with(Instant::now).elapsed() < TURN).then_some(first)
}

#[cfg(test)]
mod tests;
