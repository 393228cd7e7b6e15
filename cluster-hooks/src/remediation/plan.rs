//! Which Machine goes, and what is noted of it. Pure.

use super::observation::{ControlPlaneMachine, Observation};
use crate::observation::{Claim, ControlPlaneView, Pause};
use serde_json::json;

/// What a reconcile comes to. Steady: Cluster API needs no help, or not now.
pub(super) type Plan = controller_support::Plan<Step>;

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Delete a Machine that a MachineHealthCheck wants replaced and the control plane defers.
    Delete(ControlPlaneMachine),
    /// Note on the control plane that a Machine is being replaced, as it would itself: so that it goes on, and counts retries.
    Note(String),
}

/// Deletes the Machine as the KubeadmControlPlane would, while etcd is Ready; and notes it, as long as it is on its way.
pub(super) fn plan(observation: &Observation) -> Plan {
    let Observation { cluster, etcd, control_plane, machines } = observation;
    let left_alone = cluster.view.is_paused() || cluster.view.deleting || control_plane.deleting;
    let at_rest = control_plane.pause == Pause::None && control_plane.initialized && control_plane.kubeadm.is_some();
    // It replaces one at a time, and says so on itself from the deletion of the old one to the creation of the new one.
    if left_alone || !at_rest || control_plane.remediating {
        return Plan::Steady;
    }
    if let Some(note) = note(control_plane, machines) {
        return Plan::Do(Step::Note(note));
    }
    // Another etcd than the one that its API servers use says nothing of that one.
    let is_its_own = etcd.claim == Claim::Ours && etcd.has_one_of(&control_plane.real_endpoints());
    if !etcd.ready || etcd.deleting || !is_its_own {
        return Plan::Steady;
    }
    candidate(machines, &control_plane.uid).map_or(Plan::Steady, |wanted| Plan::Do(Step::Delete(wanted.clone())))
}

/// Decides on a deletion again, on what the API server has now: pauses, etcd and other Machines in the watches may be
/// old, and a deletion cannot be undone. None: it does not come out the same.
pub(super) fn confirm(machine: &ControlPlaneMachine, live: &Observation) -> Option<Step> {
    let Plan::Do(Step::Delete(again)) = plan(live) else { return None };
    (again.uid == machine.uid).then_some(Step::Delete(again))
}

/// What the control plane would note of the Machine that is being deleted in place of it. The time is that of the deletion:
/// the control plane drops a note that is older than its newest Machine, so one that comes too late does no harm.
///
/// Only while there are too few Machines: the control plane removes the note when it makes another one, and in the middle of a
/// rollout, when there is one more than wanted, it makes none.
fn note(control_plane: &ControlPlaneView, machines: &[ControlPlaneMachine]) -> Option<String> {
    let kubeadm = control_plane.kubeadm.as_ref()?;
    let ours = |machine: &&ControlPlaneMachine| machine.controller.as_deref() == Some(&*control_plane.uid);
    let left = machines.iter().filter(ours).filter(|machine| machine.deleting.is_none()).count();
    if i64::try_from(left).is_ok_and(|left| left >= kubeadm.replicas) {
        return None;
    }
    let (machine, since) = deferred(machines, &control_plane.uid).find_map(|m| m.deleting.map(|since| (m, since)))?;
    let healthy_for = |timestamp| since.duration_since(timestamp).as_secs();
    let retried = machine.made_in.as_ref().filter(|m| healthy_for(m.timestamp) < kubeadm.min_healthy_seconds);
    let note = json!({
        "machine": machine.name,
        "timestamp": since.to_string(),
        "retryCount": retried.map_or(0, |before| before.retry_count + 1),
    });
    Some(note.to_string())
}

/// The Machine whose remediation waits for nothing but a look at etcd, if the others allow that it goes: none of them is
/// on its way, and one at least serves. One that does not become a Node and is unhealthy is not on its way.
fn candidate<'a>(machines: &'a [ControlPlaneMachine], control_plane: &str) -> Option<&'a ControlPlaneMachine> {
    if machines.iter().any(|machine| machine.deleting.is_some() || (!machine.joined && !machine.unhealthy)) {
        return None;
    }
    // Of several that one first which never became a Node, as the control plane has it.
    let wanted = deferred(machines, control_plane).min_by_key(|machine| (machine.joined, &machine.name))?;
    machines.iter().any(|machine| machine.name != wanted.name && machine.ready).then_some(wanted)
}

fn deferred<'a>(machines: &'a [ControlPlaneMachine], of: &str) -> impl Iterator<Item = &'a ControlPlaneMachine> {
    machines.iter().filter(move |machine| machine.deferred && machine.controller.as_deref() == Some(of))
}

#[cfg(test)]
mod tests;
