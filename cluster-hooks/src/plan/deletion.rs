//! A Cluster that is being deleted. Cluster API deletes the control plane only once no other Machine is left, and to it
//! etcd's Machines are other Machines: they have to go after the workers, and before the control plane.

use super::{Plan, Step, WORKERS, claimed_by_another, look_again, wait};
use crate::observation::{Etcd, Observation, Pause};
use api::conditions::reasons;
use api::names;
use controller_support::loose::Reference;

pub(super) fn plan(observation: &Observation) -> Plan {
    // A paused control plane is never deleted.
    if observation.found_control_plane().is_some_and(|control_plane| control_plane.pause == Pause::Ours) {
        return Plan::Do(Step::Unpause);
    }
    match &observation.etcd {
        // Another Cluster's etcd is none of our business, and none at all needs nothing: the rest is Cluster API's.
        _ if claimed_by_another(observation).is_some() => Plan::Steady,
        Etcd::NotNamed | Etcd::Invalid { retryable: false, .. } => Plan::Steady,
        Etcd::Missing(etcd) => without_etcd(observation, etcd),
        // Its Machines, if there are any, would keep the Cluster.
        Etcd::Invalid { message, retryable: true } => {
            wait(reasons::ETCD_KIND_INVALID, message.clone(), Some(look_again(observation)))
        }
        Etcd::Found(etcd) if etcd.deleting => {
            let message = format!("{} {} is being deleted", etcd.reference.kind, etcd.reference.name);
            wait(reasons::WAITING_FOR_ETCD_DELETION, message, None)
        }
        Etcd::Found(_) if !observation.workers.is_empty() => {
            let message = format!("etcd is deleted after the workers: {} still there", observation.workers.join(", "));
            wait(reasons::WAITING_FOR_WORKERS_DELETION, message, Some(WORKERS))
        }
        Etcd::Found(_) => Plan::Do(Step::DeleteEtcd),
    }
}

/// The rest is Cluster API's, unless a user has to allow it.
fn without_etcd(observation: &Observation, etcd: &Reference) -> Plan {
    let gone = format!("{} {} is gone", etcd.kind, etcd.name);
    let users = |pause: Pause| matches!(pause, Pause::Users | Pause::UsersOverOurs);
    match observation.found_control_plane().filter(|control_plane| users(control_plane.pause)) {
        Some(control_plane) => {
            let (kind, name) = (&control_plane.reference.kind, &control_plane.reference.name);
            let annotation = names::PAUSED_ANNOTATION;
            let message =
                format!("{gone}; {kind} {name} is paused by its user: without annotation {annotation} it goes");
            wait(reasons::CONTROL_PLANE_PAUSED, message, None)
        }
        None => wait(reasons::ETCD_DELETED, format!("{gone}; the control plane and the infrastructure follow"), None),
    }
}
