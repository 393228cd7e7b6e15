//! What to do next. Pure and total: the same observation always gives the same answer.

mod deletion;
mod handover;
mod in_use;
mod preconditions;
mod remediation;

pub use in_use::{retires, retiring};

use crate::observation::{Claim, ControlPlaneMachine, Etcd, KeyPair, Observation, Pause};
use api::conditions::reasons;
use std::time::Duration;

/// What a reconcile comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// All is as it should be.
    Steady,
    /// Something is awaited.
    Wait(Hold),
    /// Somebody has to correct something first.
    Block(Hold),
    /// One write.
    Do(Step),
}

/// Why nothing is done at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// One of [`reasons`].
    pub reason: &'static str,
    /// For people: what is waited for, or what is wrong and what would be right.
    pub message: String,
    /// When to look again if no watch tells. None: a watch does.
    pub again: Option<Duration>,
}

/// A write. Each is refused by the API server if the object has changed since it was observed.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Put the Cluster's label and owner reference on the etcd object.
    ClaimEtcd,
    /// Pause the control plane, with our marker.
    Pause,
    /// Lift our pause, and take our marker away.
    Unpause,
    /// Take our marker away; the pause, if there is one, is the user's.
    DropMarker,
    /// Tell the etcd object that API servers may be using these endpoints, and no others.
    RecordEndpointsInUse(Vec<String>),
    /// Write these endpoints into the control plane.
    WriteEndpoints(Vec<String>),
    /// Create the client Secret: from here on the control plane makes Machines.
    PublishClient(KeyPair),
    /// Bring the client Secret up to date.
    UpdateClient(KeyPair),
    /// Delete a Machine that a MachineHealthCheck wants replaced and the control plane defers, because it cannot tell how an
    /// etcd is that is not its own. We can.
    Remediate(ControlPlaneMachine),
    /// Note that a Machine is being replaced, as the control plane would: so that it goes on, and counts retries.
    NoteRemediation(String),
    /// Delete the etcd object.
    DeleteEtcd,
    /// Take our condition away from the control plane of a Cluster that names no etcd any more.
    RemoveHealth,
    /// Take our condition away from a Cluster that names no etcd any more.
    RemoveCondition,
}

/// Nothing watches what another provider keeps in Secrets without our label.
const UNWATCHED_SECRETS: Duration = crate::secret_cache::TTL;
/// Between two looks at the workers that are left.
const WORKERS: Duration = Duration::from_secs(5);
/// Between two looks at what only a person will change, and no watch of ours would tell.
const PEOPLE: Duration = Duration::from_secs(60);
/// Shortest and longest time between two look-ups of a kind that is not there.
const KINDS: (Duration, Duration) = (Duration::from_secs(10), PEOPLE);

/// Decides.
pub fn plan(observation: &Observation) -> Plan {
    if observation.cluster.view.paused {
        return wait(reasons::PAUSED, "the Cluster is paused: nothing is changed".to_owned(), None);
    }
    match &observation.etcd {
        Etcd::NotNamed => part(observation),
        _ if observation.cluster.view.deleting => deletion::plan(observation),
        _ => handover::plan(observation),
    }
}

/// The Cluster does not name an etcd any more: nothing of ours stays behind.
fn part(observation: &Observation) -> Plan {
    match observation.found_control_plane().map(|control_plane| control_plane.pause) {
        Some(Pause::Ours) => Plan::Do(Step::Unpause),
        Some(Pause::UsersOverOurs | Pause::TakenAway) => Plan::Do(Step::DropMarker),
        _ if crate::status::health::has_our_condition(observation) => Plan::Do(Step::RemoveHealth),
        _ if observation.cluster.condition.is_some() => Plan::Do(Step::RemoveCondition),
        _ => Plan::Steady,
    }
}

/// Seldomer the longer our condition has not been True.
fn look_again(observation: &Observation) -> Duration {
    let bad = observation.cluster.condition.as_ref().filter(|condition| condition.status != "True");
    let since = bad.map(|condition| condition.last_transition_time.0);
    let elapsed = since.map_or(0, |since| observation.now.0.duration_since(since).as_secs());
    Duration::from_secs(u64::try_from(elapsed).unwrap_or(0)).clamp(KINDS.0, KINDS.1)
}

fn claimed_by_another(observation: &Observation) -> Option<&str> {
    match &observation.found_etcd()?.claim {
        Claim::Theirs(name) => Some(name),
        Claim::Ours | Claim::Free => None,
    }
}

fn wait(reason: &'static str, message: String, again: Option<Duration>) -> Plan {
    Plan::Wait(Hold { reason, message, again })
}

fn block(reason: &'static str, message: String, again: Option<Duration>) -> Plan {
    Plan::Block(Hold { reason, message, again })
}

#[cfg(test)]
mod tests;
