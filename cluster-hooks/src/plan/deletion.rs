//! The deletion of a Cluster. Cluster API deletes the control plane only once no other Machine is left, and counts
//! etcd's Machines among the others. So they have to go after the workers and before the control plane.

use super::{PEOPLE, Plan, Step, WORKERS, claimed_by_another, lift, look_again, wait};
use crate::observation::{Etcd, Need, Observation, Pause};
use api::conditions::reasons;
use api::names;
use controller_support::external::Reference;

pub(super) fn plan(observation: &Observation) -> Plan {
    // The etcd of another Cluster is left alone. Without etcd there is little to do: Cluster API does the rest.
    let ours = claimed_by_another(observation).is_none()
        && !matches!(observation.etcd, Etcd::Invalid { retryable: false, .. });
    if let Some(wait) = extensions_first(observation).filter(|_| ours) {
        return wait;
    }
    // A paused control plane is never deleted.
    if let Some(step) = lift(observation, |_| true) {
        return Plan::Do(step);
    }
    match &observation.etcd {
        _ if !ours => release(observation).unwrap_or(Plan::Steady),
        Etcd::NotNamed => Plan::Steady,
        Etcd::Missing(etcd) => release(observation).unwrap_or_else(|| without_etcd(observation, etcd)),
        Etcd::Invalid { message, .. } => release(observation)
            .unwrap_or_else(|| wait(reasons::ETCD_KIND_INVALID, message.clone()).again(look_again(observation))),
        // A person is handing it over. Its data must not go unasked, but its Machines keep this Cluster.
        Etcd::Found(etcd) if let Some(other) = &etcd.named_by_another => {
            let message = format!(
                "{} has Machines of this Cluster, and Cluster {other} names it. Its deletion would lose its data: save a \
                 snapshot if you need that, then have Cluster {other} name another etcd, or none",
                etcd.reference
            );
            wait(reasons::ETCD_BELONGS_TO_ANOTHER_CLUSTER, message).again(PEOPLE)
        }
        // If somebody deleted the etcd object too early, its deletion waits for our confirmation too.
        Etcd::Found(etcd) if etcd.deleting && etcd.deletion_confirmed => {
            // Nothing tells that it is gone if it has neither label nor owner.
            wait(reasons::WAITING_FOR_ETCD_DELETION, etcd.describe("is being deleted")).again(WORKERS)
        }
        Etcd::Found(etcd) => workers_first(observation).unwrap_or(match etcd.deletion_confirmed {
            false => Plan::Do(Step::ConfirmDeletion),
            true => Plan::Do(Step::DeleteEtcd),
        }),
    }
}

/// Runtime extensions may need the API server, and so etcd.
fn extensions_first(observation: &Observation) -> Option<Plan> {
    let reason = observation.cluster.before_delete_hook.as_deref()?;
    let so_far =
        if reason.is_empty() { String::new() } else { format!(" (condition Deleting of the Cluster says {reason})") };
    let message = format!(
        "the runtime extensions that must agree before a Cluster is deleted have not agreed yet{so_far}; until they \
         do, etcd and the control plane stay as they are"
    );
    Some(wait(reasons::WAITING_FOR_BEFORE_DELETE_HOOK, message))
}

/// The workers need the API server, and so etcd.
fn workers_first(observation: &Observation) -> Option<Plan> {
    let Some(workers) = &observation.reads.workers else { return Some(Plan::Do(Step::Read(Need::Workers))) };
    let message = format!("etcd is deleted after the workers; left are {}", workers.join(", "));
    (!workers.is_empty()).then(|| wait(reasons::WAITING_FOR_WORKERS_DELETION, message).again(WORKERS))
}

/// Releases Machines of members that etcd has left behind: after a restore without owner references, or after somebody
/// removed the finalizer from the etcd object. Cluster API or the garbage collector deletes these Machines, but their
/// pre-terminate hook waits for etcd's controller, which no longer has their etcd object. The Cluster waits for them,
/// no matter which etcd it names, or whether it names one.
pub(super) fn release(observation: &Observation) -> Option<Plan> {
    let Some(hooked) = &observation.reads.hooked else { return Some(Plan::Do(Step::Read(Need::Hooked))) };
    if hooked.is_empty() {
        return None;
    }
    let wait = extensions_first(observation).or_else(|| workers_first(observation));
    Some(wait.unwrap_or_else(|| Plan::Do(Step::ReleaseMachines(hooked.clone()))))
}

/// Once etcd is gone, Cluster API does the rest, unless a user's pause prevents it.
fn without_etcd(observation: &Observation, etcd: &Reference) -> Plan {
    let gone = format!("{etcd} is gone");
    match observation.held() {
        Some(held) if held.pause == Pause::Users => {
            let (control_plane, annotation) = (&held.reference, names::PAUSED_ANNOTATION);
            let message = format!(
                "{gone}; {control_plane} is paused by its user, and is deleted once annotation {annotation} is removed"
            );
            wait(reasons::CONTROL_PLANE_PAUSED, message)
        }
        _ if observation.found_control_plane().is_some_and(|c| c.deleting && !c.told_that_etcd_is_gone) => {
            Plan::Do(Step::WakeControlPlane)
        }
        _ => wait(
            reasons::ETCD_DELETED,
            format!("{gone}; Cluster API deletes the control plane and the infrastructure next"),
        ),
    }
}
