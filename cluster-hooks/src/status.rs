//! The condition `ManagedExternalEtcdReady` of the Cluster: derived from the plan, never read back by it.

use crate::observation::{Etcd, Observation, Pause};
use crate::plan::Plan;
use api::conditions::{Draft, MANAGED_EXTERNAL_ETCD_READY, reasons, settle};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::time::Duration;

/// Etcd's own message may change with every member: between two writes that change no more than that.
const MESSAGES: Duration = Duration::from_secs(5);

/// What is to be done about the condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// It is right, or not ours to say.
    Nothing,
    /// Write it.
    Write(Condition),
    /// Only the message is out of date: write it after so long.
    Later(Duration),
}

/// Compares the condition with what the plan says. `since_write`: time since this process has written it, if it has.
pub fn report(observation: &Observation, plan: &Plan, since_write: Option<Duration>) -> Report {
    let Some(draft) = draft(observation, plan) else { return Report::Nothing };
    let cluster = &observation.cluster;
    let before: Vec<Condition> = cluster.condition.iter().cloned().collect();
    let Some(after) = settle(&before, vec![draft], cluster.generation, &observation.now).pop() else {
        return Report::Nothing;
    };
    let Some(before) = &cluster.condition else { return Report::Write(after) };
    if *before == after {
        return Report::Nothing;
    }
    let message_only = Condition { message: after.message.clone(), ..before.clone() } == after;
    match since_write {
        Some(elapsed) if message_only && elapsed < MESSAGES => Report::Later(MESSAGES.saturating_sub(elapsed)),
        _ => Report::Write(after),
    }
}

fn draft(observation: &Observation, plan: &Plan) -> Option<Draft> {
    if observation.etcd == Etcd::NotNamed {
        return None;
    }
    match plan {
        // More is to be done before anything can be said.
        Plan::Do(_) => None,
        // A paused Cluster is left alone, its status included.
        Plan::Wait(hold) if hold.reason == reasons::PAUSED => None,
        Plan::Wait(hold) | Plan::Block(hold) => {
            Some(Draft::new(MANAGED_EXTERNAL_ETCD_READY, false, hold.reason, hold.message.clone()))
        }
        // Etcd is gone, or was never there: the rest of the deletion is Cluster API's.
        Plan::Steady if observation.cluster.view.deleting => None,
        Plan::Steady => {
            let paused = observation.found_control_plane().is_some_and(|c| c.pause == Pause::Users);
            let message =
                if paused { "etcd has been handed over; the control plane is paused by its user" } else { "" };
            Some(Draft::new(MANAGED_EXTERNAL_ETCD_READY, true, reasons::READY, message))
        }
    }
}

#[cfg(test)]
mod tests;
