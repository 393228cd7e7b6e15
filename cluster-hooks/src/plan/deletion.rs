//! A Cluster that is being deleted. Cluster API deletes the control plane only once no other Machine is left, and to it
//! etcd's Machines are other Machines: they have to go after the workers, and before the control plane.

use super::{Plan, Step, WORKERS, claimed_by_another, look_again, wait};
use crate::observation::{Etcd, Observation, Pause};
use api::conditions::reasons;

pub(super) fn plan(observation: &Observation) -> Plan {
    // A paused control plane is never deleted.
    if observation.found_control_plane().is_some_and(|control_plane| control_plane.pause == Pause::Ours) {
        return Plan::Do(Step::Unpause);
    }
    match &observation.etcd {
        // Another Cluster's etcd is none of our business, and none at all needs nothing: the rest is Cluster API's.
        _ if claimed_by_another(observation).is_some() => Plan::Steady,
        Etcd::NotNamed | Etcd::Missing(_) | Etcd::Invalid { may_pass: false, .. } => Plan::Steady,
        // Its Machines, if there are any, would keep the Cluster.
        Etcd::Invalid { message, may_pass: true } => {
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
