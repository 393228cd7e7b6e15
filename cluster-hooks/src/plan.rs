//! What to do next. Pure and total: the same observation always gives the same answer.

mod deletion;
mod handover;
mod in_use;
mod preconditions;
mod wanted;

pub use in_use::{earlier, way_out};

use crate::observation::{Claim, Etcd, Held, HookedMachine, Joining, KeyPair, Need, Observation, Pause, Used};
use api::conditions::reasons;
use api::endpoints::EndpointLists;
use controller_support::Hold;
use controller_support::plan::{block, wait};
use std::fmt;
use std::time::Duration;

/// What a reconcile decides.
pub type Plan = controller_support::Plan<Step>;

/// A step. The API server refuses a write if the object has changed since it was observed. There are exceptions: the
/// claim fails only if the owners of the etcd object have changed, and the deletion of etcd and the release of Machines
/// only if the UID has.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read something that the decision depends on.
    Read(Need),
    /// Put the Cluster's label and owner reference on the etcd object.
    ClaimEtcd,
    /// Write the condition of the Cluster.
    ///
    /// Invariant: a control plane that carries our pause belongs to a Cluster that carries our condition. So a Cluster
    /// that stops naming an etcd is still reconciled, and the pause is never left behind.
    Announce(Hold),
    /// Pause the control plane.
    Pause,
    /// Lift our pause.
    Unpause,
    /// Lift our pause of a control plane that the Cluster no longer refers to.
    UnpauseFormer(Held),
    /// Record on the etcd object that API servers may be using these lists of endpoints, and no others.
    RecordEndpointsInUse {
        /// The lists.
        lists: EndpointLists,
        /// Some lists that were in use no longer are, because every machine has been replaced.
        retire: bool,
    },
    /// Write these endpoints into the control plane.
    WriteEndpoints {
        /// The endpoints.
        endpoints: Vec<String>,
        /// Who has overwritten the endpoints, if we had written them before.
        overwritten_by: Option<String>,
    },
    /// Create the client Secret: from here on the control plane makes Machines.
    PublishClient(KeyPair),
    /// Bring the client Secret up to date.
    UpdateClient(KeyPair),
    /// Confirm that the etcd object may be deleted with its data, because its Cluster is being deleted.
    ConfirmDeletion,
    /// Delete the etcd object.
    DeleteEtcd,
    /// Remove the pre-terminate hook from these Machines. No other controller is left to do that.
    ReleaseMachines(Vec<HookedMachine>),
    /// Tell a control plane that is being deleted that etcd is gone, so that its controller reconciles again.
    WakeControlPlane,
    /// Remove our conditions from a Cluster that no longer names an etcd, and from its control plane.
    RemoveConditions,
}

impl fmt::Display for Step {
    /// Writes only the name of the step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{self:?}");
        f.write_str(text.split([' ', '(']).next().unwrap_or_default())
    }
}

/// The time between two reads of Secrets without our label, which are in no watch.
const UNWATCHED_SECRETS: Duration = Duration::from_secs(10);
/// The time between two reads of the workers that are left.
const WORKERS: Duration = Duration::from_secs(5);
/// The time between two checks of something that only a person will change, and that no watch of ours reports.
const PEOPLE: Duration = Duration::from_secs(60);
/// The time between two reads of what the machines of a control plane use, or would join with, as long as that is not
/// known.
const MACHINES: Duration = Duration::from_secs(60);
/// Shortest and longest time between two look-ups of a kind that does not exist.
const KINDS: (Duration, Duration) = (Duration::from_secs(10), PEOPLE);

/// Decides what to do next.
pub fn plan(observation: &Observation) -> Plan {
    if let Some(paused) = observation.cluster.view.pause() {
        return wait(reasons::PAUSED, format!("{paused}: nothing is changed"));
    }
    // This comes first, because a paused control plane is never deleted.
    if let Some(step) = lift(observation, |held| held.deleting) {
        return Plan::Do(step);
    }
    // Which of two Clusters of this name exists? If our watch is behind, a claim could take etcd away from its Cluster.
    // It could also give a free etcd to a Cluster that is gone, and the garbage collector would delete that etcd.
    if observation.found_etcd().is_some_and(|etcd| etcd.claim.is_open()) && !observation.reads.is_current {
        return Plan::Do(Step::Read(Need::Current));
    }
    match &observation.etcd {
        Etcd::NotNamed => part(observation),
        _ if observation.cluster.view.deleting => deletion::plan(observation),
        _ => handover::plan(observation),
    }
}

/// The Cluster no longer names an etcd: everything of ours is removed, the conditions last. After that, if the Cluster
/// is being deleted, Machines that its deletion would wait for are released.
fn part(observation: &Observation) -> Plan {
    match lift(observation, |_| true) {
        Some(step) => Plan::Do(step),
        None if observation.cluster.condition.is_some() => Plan::Do(Step::RemoveConditions),
        None if observation.cluster.view.deleting => deletion::release(observation).unwrap_or(Plan::Steady),
        None => Plan::Steady,
    }
}

/// Lifts our pause of one of the control planes that are `wanted`.
fn lift(observation: &Observation, wanted: impl Fn(&Held) -> bool) -> Option<Step> {
    let ours = |held: &Held| held.pause == Pause::Ours && wanted(held);
    if observation.held().is_some_and(|held| ours(&held)) {
        return Some(Step::Unpause);
    }
    observation.former.iter().find(|held| ours(held)).cloned().map(Step::UnpauseFormer)
}

/// When to reconcile again even if no watch reports a change: when the plan says so, and when a read has not given what
/// the plan needs. The hook watches neither Machines nor KubeadmConfigs, nor anything in the Kubernetes cluster.
pub fn due(observation: &Observation, plan: &Plan) -> Option<Duration> {
    let in_vain = matches!(observation.reads.used, Some(Used::Unknown | Used::NoMachine)) || keeps_others(observation);
    let hold = plan.hold().and_then(|hold| hold.again);
    hold.into_iter().chain(in_vain.then_some(MACHINES)).min()
}

/// Whether further machines would, or may, join with endpoints other than those of the control plane.
fn keeps_others(observation: &Observation) -> bool {
    match (&observation.reads.joining, observation.found_control_plane()) {
        (Some(Joining::With(list)), Some(control_plane)) => {
            !list.is_empty() && *list != control_plane.real_endpoints().into_iter().collect()
        }
        (Some(Joining::Unknown(_) | Joining::WithNone), _) => true,
        _ => false,
    }
}

/// The delay until a kind is looked up again. It grows with the time since our condition was last True.
fn look_again(observation: &Observation) -> Duration {
    let bad = observation.cluster.condition.as_ref().filter(|condition| condition.status != "True");
    let since = bad.map(|condition| condition.last_transition_time.0);
    let elapsed = since.map_or(0, |since| observation.now.0.duration_since(since).as_secs());
    Duration::from_secs(u64::try_from(elapsed).unwrap_or(0)).clamp(KINDS.0, KINDS.1)
}

fn claimed_by_another(observation: &Observation) -> Option<&str> {
    match &observation.found_etcd()?.claim {
        Claim::Theirs(name) => Some(name),
        Claim::Ours | Claim::Free | Claim::OfNamesake => None,
    }
}

#[cfg(test)]
mod tests;
