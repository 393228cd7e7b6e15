//! One cluster: its targets, what is known about it, and its probes.

use super::clients::ClientCell;
use super::figures::{Figures, Leaders};
use super::heard::Heard;
use super::list::{leader_to_ask, whom};
use super::verdict::Reported;
use super::{Probes, Shared, Target};
use crate::etcd_access::{Client, Expected, Fault, PeerCounters};
use crate::observation::probe::{
    ListFault, MemberFault, Membership, OurFault, Outcome, Probe, Run, Snapshot, TargetKey, voters_answer_since,
};
use api::EtcdCluster;
use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// One cluster.
pub(super) struct Cluster {
    etcd: ObjectRef<EtcdCluster>,
    wanted: watch::Sender<Arc<Probes>>,
    client: ClientCell,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    snapshot: Snapshot,
    reported: Reported,
    /// When the latest probe of each target was begun, and how long it took.
    timed: HashMap<TargetKey, (Instant, Duration)>,
    leaders: Leaders,
    list_begun: Option<Instant>,
    /// `None` while no member fails, or no leader answers.
    heard: Option<Heard>,
}

impl Cluster {
    pub(super) fn new(etcd: ObjectRef<EtcdCluster>, wanted: Probes) -> Self {
        Self {
            etcd,
            wanted: watch::Sender::new(Arc::new(wanted)),
            client: ClientCell::default(),
            state: Mutex::default(),
        }
    }

    pub(super) fn set(&self, wanted: Probes) {
        self.wanted.send_if_modified(|present| {
            if **present == wanted {
                return false;
            }
            let mut state = self.state();
            let State { snapshot, timed, .. } = &mut *state;
            snapshot.probes.retain(|key, _| wanted.targets.iter().any(|target| target.key == *key));
            timed.retain(|key, _| snapshot.probes.contains_key(key));
            if let (Membership::Known { cluster_id, .. }, Some(recorded)) = (&snapshot.membership, wanted.cluster_id)
                && *cluster_id != recorded
            {
                snapshot.membership = Membership::NotAsked;
            }
            *present = Arc::new(wanted);
            true
        });
    }

    pub(super) fn wanted(&self) -> Arc<Probes> {
        self.wanted.borrow().clone()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Probes>> {
        self.wanted.subscribe()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.state().snapshot.clone()
    }

    /// What metrics show of it.
    pub(super) fn figures(&self) -> Figures {
        let state = self.state();
        let answered = state.snapshot.probes.iter().filter(|(_, probe)| probe.report().is_some());
        let took = answered.filter_map(|(key, _)| state.timed.get(key)).map(|(_, took)| *took);
        Figures { leader_changes: state.leaders.changes(), slowest_probe: took.max(), ..Figures::of(&state.snapshot) }
    }

    /// Probes one target. Returns whether the result is news, and the run.
    pub(super) async fn probe(
        &self,
        shared: &Shared,
        permits: &Semaphore,
        wanted: &Probes,
        target: &Target,
    ) -> (bool, Option<Run>) {
        let Some(first) = target.urls.first() else {
            return self.record(shared, wanted, target, Instant::now(), String::new(), Outcome::NoAddress);
        };
        // The semaphore is never closed.
        let _permit = permits.acquire().await;
        let begun = Instant::now();
        let (url, outcome) = match self.client.get(wanted.ca.as_ref(), now().1).await {
            Ok(client) => ask(&client, wanted, target, first, || self.another_answers(&target.key)).await,
            Err(fault) => (first.clone(), Outcome::OurFault(fault)),
        };
        shared.metrics.observe(&outcome, begun.elapsed());
        self.record(shared, wanted, target, begun, url, outcome)
    }

    /// Probes these targets, all at the same time.
    pub(super) async fn probe_all(&self, shared: &Shared, permits: &Semaphore, wanted: &Probes, targets: &[&Target]) {
        join_all(targets.iter().map(|target| self.probe(shared, permits, wanted, target))).await;
    }

    /// Whether the latest probe of a target was answered within this time.
    pub(super) fn has_answered_within(&self, key: &TargetKey, limit: Duration) -> bool {
        let state = self.state();
        let is_soon = state.timed.get(key).is_some_and(|(_, took)| *took <= limit);
        is_soon && state.snapshot.probes.get(key).is_some_and(|probe| probe.report().is_some())
    }

    /// Whether another member answers, which shows that it and this controller trust each other.
    fn another_answers(&self, key: &TargetKey) -> bool {
        let probes = &self.state().snapshot.probes;
        probes.iter().any(|(other, probe)| other != key && probe.report().is_some())
    }

    fn record(
        &self,
        shared: &Shared,
        wanted: &Probes,
        target: &Target,
        begun: Instant,
        url: String,
        outcome: Outcome,
    ) -> (bool, Option<Run>) {
        let is_wanted = self.wanted().targets.iter().any(|wanted| wanted.key == target.key);
        let mut state = self.state();
        // The probe is outdated if it was begun before the latest one, or if its target is not wanted any more.
        if !is_wanted || state.timed.get(&target.key).is_some_and(|(known, _)| begun < *known) {
            return (false, None);
        }
        let (at, kind) = (now().0, outcome.kind());
        let before = state.snapshot.probes.get(&target.key);
        let expected = target.member_id.or(before.and_then(|probe| probe.expected));
        // While a machine boots its port is closed, which is not a failure of the member that it becomes.
        let run = match before {
            Some(probe) if probe.expected == expected => probe.run.next(kind, at, wanted.interval),
            _ => Run::new(kind, at),
        };
        let mut answered = before.and_then(|probe| probe.answered);
        state.timed.insert(target.key.clone(), (begun, begun.elapsed()));
        if let Outcome::Answered(report) = &outcome {
            answered = Some(at);
            state.leaders.update(report);
        }
        state.snapshot.probes.insert(target.key.clone(), Probe { url, at, outcome, run, answered, expected });
        let (before, probes) = (state.snapshot.voters_answer_since, state.snapshot.probes.values());
        state.snapshot.voters_answer_since = voters_answer_since(before, probes, kind, at);
        (self.tell(&mut state, shared, wanted), Some(run))
    }

    /// Reads the member list. Returns whether the result is news.
    pub(super) async fn read_list(&self, shared: &Shared, permits: &Semaphore, wanted: &Probes) -> bool {
        let begun = Instant::now();
        let (whom, leader) = {
            let probes = &self.state().snapshot.probes;
            (whom(probes, wanted.cluster_id), leader_to_ask(probes))
        };
        let (membership, counted) = match whom {
            Ok((cluster_id, urls)) => {
                let _permit = permits.acquire().await;
                match self.client.get(wanted.ca.as_ref(), now().1).await {
                    Ok(client) => (list(&client, cluster_id, urls).await, counted(&client, leader.as_ref()).await),
                    Err(fault) => (Membership::Unknown(ListFault::Ours(fault)), None),
                }
            }
            Err(membership) => (membership, None),
        };
        let recorded = self.wanted().cluster_id;
        let mut state = self.state();
        // Another ID may have been recorded meanwhile.
        if recorded != wanted.cluster_id || state.list_begun.is_some_and(|known| begun < known) {
            return false;
        }
        state.list_begun = Some(begun);
        state.snapshot.membership = membership;
        let (before, at) = (state.heard.take(), Instant::now());
        state.heard = match (leader, counted) {
            (Some((leader, _)), Some(counted)) => Some(Heard::update(before, leader, counted, at)),
            // The leader did not answer this time.
            (Some(_), None) => Heard::kept(before, wanted.interval, at),
            (None, _) => None,
        };
        state.snapshot.heard = state.heard.as_ref().and_then(Heard::members);
        self.tell(&mut state, shared, wanted)
    }

    /// Requests a reconcile of the EtcdCluster if there is news.
    fn tell(&self, state: &mut State, shared: &Shared, wanted: &Probes) -> bool {
        let news = state.reported.update(&state.snapshot, wanted);
        if news {
            // The receiver ends with the controller, and then there is nothing left to reconcile.
            let _ = shared.changes.send(self.etcd.clone());
        }
        news
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the URLs of a target until the expected member answers, because the addresses of a machine may be wrong, or may
/// belong to another machine by now. If the expected member does not answer at any URL, the outcome of the first URL
/// counts, with two exceptions. The member is at fault only if every URL could be asked. Distrust is the member's fault
/// only if another member answers.
async fn ask(
    client: &Client,
    wanted: &Probes,
    target: &Target,
    first: &str,
    another_answers: impl Fn() -> bool,
) -> (String, Outcome) {
    let expected = Expected { cluster_id: wanted.cluster_id, member_id: target.member_id };
    let mut worst: Option<(String, Outcome)> = None;
    for url in &target.urls {
        let outcome = match client.probe(url, expected).await {
            Ok(report) if report.identity.is_ok() => return (url.clone(), Outcome::Answered(report)),
            Ok(report) => Outcome::Answered(report),
            Err(Fault::Theirs(fault)) => Outcome::MemberFault(fault),
            Err(Fault::Ours(fault)) => Outcome::OurFault(fault),
            Err(Fault::Either(distrust)) if another_answers() => Outcome::MemberFault(MemberFault::Distrust(distrust)),
            Err(Fault::Either(distrust)) => Outcome::OurFault(OurFault::Distrust(distrust)),
        };
        let ours = matches!(outcome, Outcome::OurFault(_));
        if worst.is_none() || ours && !matches!(worst, Some((_, Outcome::OurFault(_)))) {
            worst = Some((url.clone(), outcome));
        }
    }
    worst.unwrap_or_else(|| (first.to_owned(), Outcome::NoAddress))
}

/// What the leader has counted about the other members, if there is a leader to ask.
async fn counted(client: &Client, leader: Option<&(u64, String)>) -> Option<PeerCounters> {
    client.peer_counters(&leader?.1).await.ok()
}

async fn list(client: &Client, cluster_id: u64, urls: Vec<String>) -> Membership {
    let mut unknown = Membership::NotAsked;
    for url in urls {
        match client.members(&url).await {
            Ok((answered, members)) if answered == cluster_id => {
                return Membership::Known { cluster_id, members, at: now().0 };
            }
            Ok((answered, _)) => {
                let fault = ListFault::OtherCluster { recorded: cluster_id, ids: [answered].into() };
                unknown = Membership::Unknown(fault);
            }
            Err(Fault::Theirs(fault)) => unknown = Membership::Unknown(ListFault::Member { url, fault }),
            Err(Fault::Ours(fault)) => return Membership::Unknown(ListFault::Ours(fault)),
            // The member has just answered, so it trusted this controller a moment ago.
            Err(Fault::Either(distrust)) => {
                unknown = Membership::Unknown(ListFault::Member { url, fault: MemberFault::Distrust(distrust) });
            }
        }
    }
    unknown
}

#[expect(clippy::disallowed_methods, reason = "probes happen at a time; what decides by it is pure")]
fn now() -> (Timestamp, OffsetDateTime) {
    let now = Timestamp::now();
    (now, OffsetDateTime::from_unix_timestamp(now.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH))
}
