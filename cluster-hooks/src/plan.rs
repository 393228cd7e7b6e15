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

/// What a reconcile comes to.
pub type Plan = controller_support::Plan<Step>;

/// A step. Each write is refused by the API server if the object has changed since it was observed; the claim, if its
/// owners have.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask for what the decision depends on.
    Read(Need),
    /// Put the Cluster's label and owner reference on the etcd object.
    ClaimEtcd,
    /// Write the condition of the Cluster.
    ///
    /// Invariant: a control plane that carries our pause belongs to a Cluster that carries our condition. So a Cluster that
    /// stops naming an etcd is still looked at, and the pause is never left behind.
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
        /// Some that were in use are no longer: every machine has rolled.
        retire: bool,
    },
    /// Write these endpoints into the control plane.
    WriteEndpoints {
        /// The endpoints.
        endpoints: Vec<String>,
        /// Who has overwritten them, if they were there before.
        overwritten_by: Option<String>,
    },
    /// Create the client Secret: from here on the control plane makes Machines.
    PublishClient(KeyPair),
    /// Bring the client Secret up to date.
    UpdateClient(KeyPair),
    /// Confirm that the etcd object may be deleted with its data: its Cluster goes.
    ConfirmDeletion,
    /// Delete the etcd object.
    DeleteEtcd,
    /// Let these Machines go: nobody else is left who would.
    ReleaseMachines(Vec<HookedMachine>),
    /// Tell a control plane that is being deleted that etcd is gone, so that its controller looks again.
    WakeControlPlane,
    /// Remove our conditions from a Cluster that no longer names an etcd, and from its control plane.
    RemoveConditions,
}

impl fmt::Display for Step {
    /// Its name alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{self:?}");
        f.write_str(text.split([' ', '(']).next().unwrap_or_default())
    }
}

/// Between two looks at Secrets without our label, which nothing watches.
const UNWATCHED_SECRETS: Duration = Duration::from_secs(10);
/// Between two looks at the workers that are left.
const WORKERS: Duration = Duration::from_secs(5);
/// Between two looks at what only a person will change, and no watch of ours would tell.
const PEOPLE: Duration = Duration::from_secs(60);
/// Between two looks at what the machines of a control plane use, or will, as long as that cannot be told.
const MACHINES: Duration = Duration::from_secs(60);
/// Shortest and longest time between two look-ups of a kind that does not exist.
const KINDS: (Duration, Duration) = (Duration::from_secs(10), PEOPLE);

/// Decides.
pub fn plan(observation: &Observation) -> Plan {
    if let Some(paused) = observation.cluster.view.pause() {
        return wait(reasons::PAUSED, format!("{paused}: nothing is changed"));
    }
    // A paused control plane is never deleted, whatever else there is to be said.
    if let Some(step) = lift(observation, |held| held.deleting) {
        return Plan::Do(step);
    }
    // Which of two Clusters of this name is alive? A watch that is behind would take etcd from its Cluster, or give one that
    // nobody owns yet to a Cluster that is gone, and the garbage collector would delete it.
    if observation.found_etcd().is_some_and(|etcd| etcd.claim.is_open()) && !observation.reads.is_current {
        return Plan::Do(Step::Read(Need::Current));
    }
    match &observation.etcd {
        Etcd::NotNamed => part(observation),
        _ if observation.cluster.view.deleting => deletion::plan(observation),
        _ => handover::plan(observation),
    }
}

/// The Cluster no longer names an etcd: nothing of ours stays behind. Our condition goes last, but for what a Cluster
/// that is being deleted would wait for.
fn part(observation: &Observation) -> Plan {
    match lift(observation, |_| true) {
        Some(step) => Plan::Do(step),
        None if observation.cluster.condition.is_some() => Plan::Do(Step::RemoveConditions),
        None if observation.cluster.view.deleting => deletion::release(observation).unwrap_or(Plan::Steady),
        None => Plan::Steady,
    }
}

/// Lifts our pause of one control plane of those that are `wanted`.
fn lift(observation: &Observation, wanted: impl Fn(&Held) -> bool) -> Option<Step> {
    let ours = |held: &Held| held.pause == Pause::Ours && wanted(held);
    if observation.held().is_some_and(|held| ours(&held)) {
        return Some(Step::Unpause);
    }
    observation.former.iter().find(|held| ours(held)).cloned().map(Step::UnpauseFormer)
}

/// When to look again, whatever the watches tell: as the plan says, and at what it has asked for in vain. Neither Machines nor
/// KubeadmConfigs are watched, nor what is in the Kubernetes cluster.
pub fn due(observation: &Observation, plan: &Plan) -> Option<Duration> {
    let in_vain = matches!(observation.reads.used, Some(Used::Unknown | Used::NoMachine)) || keeps_others(observation);
    let hold = plan.hold().and_then(|hold| hold.again);
    hold.into_iter().chain(in_vain.then_some(MACHINES)).min()
}

/// Whether machines that join later would use other endpoints than those of the control plane, or may.
fn keeps_others(observation: &Observation) -> bool {
    match (&observation.reads.joining, observation.found_control_plane()) {
        (Some(Joining::With(list)), Some(control_plane)) => {
            !list.is_empty() && *list != control_plane.real_endpoints().into_iter().collect()
        }
        (Some(Joining::Unknown(_)), _) => true,
        _ => false,
    }
}

/// When to look a kind up again: the longer our condition has not been True, the later.
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
