//! One prober for the members of all clusters. It runs beside the reconciles.
//!
//! ```text
//! reconcile: prober.set(etcd, uid, wanted) sets the targets and the interval; cheap if nothing has changed
//!            prober.snapshot(uid)          what is known: a probe for each target, and the member list
//!            prober.refresh(uid).await     the same, asked again now: right before a membership change
//!            prober.ask_again(uid).await   the same, from those that have answered: right before a removal
//!            prober.forget(uid)            the EtcdCluster is gone
//!            prober.retain(exists)         now and then: forgets those that went without a last reconcile
//! prober:    changes <- etcd               something that matters has changed (prober/verdict.rs): reconcile it
//! ```
//!
//! Guarantees:
//! - A cluster that hangs does not delay another cluster: each cluster has a task of its own, and no probe takes longer
//!   than 5 s for each address.
//! - At most 128 requests are under way at the same time, 32 of them kept for `refresh`, beside those of `ask_again`. If
//!   more than some 750 members are silent at the same time, the time between two probes of a member gets so long that
//!   no run of failures becomes long. That is intended: nothing is repaired when so much looks bad at once.
//! - The list of a cluster other than the recorded one is never reported as the member list.
//! - A target that is new, or whose addresses, expected member or eagerness have changed, is probed immediately.

mod breaking;
mod cadence;
mod clients;
mod cluster;
mod figures;
mod heard;
mod list;
mod metrics;
mod rounds;
mod verdict;

use crate::observation::probe::{Snapshot, TargetKey};
use crate::pki::CertAndKey;
use api::EtcdCluster;
use cluster::Cluster;
use controller_support::Metrics;
pub(crate) use figures::Figures;
use kube::runtime::reflector::ObjectRef;
pub(crate) use metrics::ProbeMetrics;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How many requests may be under way at the same time for the rounds of all clusters.
const IN_ROUNDS: usize = 96;
/// How many more are kept for [`Prober::refresh`], so that a membership change never waits for members that hang.
const LIVE: usize = 32;
/// Answers that come within this time count as given at the same time. A removal rests on them.
const FRESH: Duration = Duration::from_secs(1);

/// The members of one cluster to probe, and what to expect.
#[derive(Clone, PartialEq, Eq)]
pub struct Probes {
    /// The CA that the members trust, and that has signed their certificates. `None`: it cannot be read at the moment,
    /// so the previous CA stays in use.
    pub(crate) ca: Option<CertAndKey>,
    /// The recorded cluster ID, if one is recorded.
    pub cluster_id: Option<u64>,
    /// The members to probe.
    pub targets: Vec<Target>,
    /// Time between two probes of a settled member.
    pub interval: Duration,
    /// How long a member has to fail to be unhealthy. The EtcdCluster is reconciled when a member has failed for as
    /// long.
    pub unhealthy_after: Duration,
    /// How much longer a stranger may have to fail. The EtcdCluster is reconciled at that time as well.
    pub grace: Duration,
}

/// The member of one Machine, or a stranger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The member that it is about.
    pub key: TargetKey,
    /// Client URLs to ask, in this order, until the expected member answers: the Machine's address first, then where
    /// the member served last.
    pub urls: Vec<String>,
    /// ID of the member that is expected there, if that is recorded.
    pub member_id: Option<u64>,
    /// The member should come up or be promoted any moment: probe it often.
    pub eager: bool,
}

/// Probes the members of all clusters. See the module's documentation.
pub struct Prober {
    clusters: Mutex<HashMap<String, Entry>>,
    shared: Arc<Shared>,
}

/// What the tasks of all clusters share.
struct Shared {
    changes: mpsc::UnboundedSender<ObjectRef<EtcdCluster>>,
    rounds: Semaphore,
    live: Semaphore,
    metrics: ProbeMetrics,
}

/// One cluster, with the task that probes its members. The task ends when the entry is dropped.
struct Entry {
    cluster: Arc<Cluster>,
    task: JoinSet<()>,
}

impl Prober {
    /// A prober that sends the EtcdClusters to reconcile to `changes`.
    #[must_use]
    pub fn new(changes: mpsc::UnboundedSender<ObjectRef<EtcdCluster>>, metrics: &Metrics) -> Self {
        let shared = Shared {
            changes,
            rounds: Semaphore::new(IN_ROUNDS),
            live: Semaphore::new(LIVE),
            metrics: ProbeMetrics::new(metrics),
        };
        Self { clusters: Mutex::default(), shared: Arc::new(shared) }
    }

    /// Sets the targets from now on. The first call for a `uid` starts the probes.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn set(&self, etcd: ObjectRef<EtcdCluster>, uid: &str, wanted: Probes) {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = clusters.get_mut(uid)
            // A task never ends by itself; if one has panicked, another one is started.
            && entry.task.try_join_next().is_none()
        {
            entry.cluster.set(wanted);
            return;
        }
        let cluster = Arc::new(Cluster::new(etcd, wanted));
        let mut task = JoinSet::new();
        task.spawn(rounds::run(cluster.clone(), self.shared.clone()));
        clusters.insert(uid.to_owned(), Entry { cluster, task });
    }

    /// What is known about a cluster. Nothing, if it has not been [set](Self::set).
    #[must_use]
    pub fn snapshot(&self, uid: &str) -> Snapshot {
        self.get(uid).map(|cluster| cluster.snapshot()).unwrap_or_default()
    }

    /// What metrics show of a cluster. `None`, if it has not been [set](Self::set).
    pub(crate) fn figures(&self, uid: &str) -> Option<Figures> {
        self.get(uid).map(|cluster| cluster.figures())
    }

    /// Stops probing a cluster that is gone, and closes its connections.
    pub fn forget(&self, uid: &str) {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// Forgets the clusters for whose UID `exists` returns false. An EtcdCluster whose finalizer was removed by hand
    /// goes without a last reconcile.
    pub fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner).retain(|uid, _| exists(uid));
    }

    /// Probes every target and reads the member list again, and returns what is known after that. Every probe in the
    /// answer, and the list if it is known, was begun after the call. Takes at most 5 s for each address of a target
    /// and 15 s for the list, if the system is not overloaded.
    pub async fn refresh(&self, uid: &str) -> Snapshot {
        let Some(cluster) = self.get(uid) else { return Snapshot::default() };
        let wanted = cluster.wanted();
        cluster.probe_all(&self.shared, &self.shared.live, &wanted, &wanted.targets.iter().collect::<Vec<_>>()).await;
        cluster.read_list(&self.shared, &self.shared.live, &wanted).await;
        cluster.snapshot()
    }

    /// Probes again the members that have answered, and returns what is known after that. Takes at most 5 s for each
    /// address of a target and for each member that falls silent.
    ///
    /// Whoever falls silent is waited for, and another one may fail meanwhile. So all others are asked again, until none
    /// falls silent. Then those that answer within a second are asked once more if others took longer.
    pub async fn ask_again(&self, uid: &str) -> Snapshot {
        let Some(cluster) = self.get(uid) else { return Snapshot::default() };
        let wanted = cluster.wanted();
        // Permits of its own: these few requests do not wait for members of other clusters that hang.
        let permits = Semaphore::new(wanted.targets.len());
        let mut asked: Vec<&Target> = wanted.targets.iter().collect();
        let mut limit = Duration::MAX;
        // Each round that takes longer leaves somebody out, or is the first of those that answer soon.
        for _ in 0..=wanted.targets.len() + 1 {
            asked.retain(|target| cluster.has_answered_within(&target.key, limit));
            let begun = Instant::now();
            cluster.probe_all(&self.shared, &permits, &wanted, &asked).await;
            if begun.elapsed() <= FRESH {
                break;
            }
            if asked.iter().all(|target| cluster.has_answered_within(&target.key, limit)) {
                limit = FRESH;
            }
        }
        cluster.snapshot()
    }

    fn get(&self, uid: &str) -> Option<Arc<Cluster>> {
        let clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.get(uid).map(|entry| entry.cluster.clone())
    }
}

#[cfg(test)]
mod tests;
