//! Which Machine is deleted, and which note is written about it. Pure functions.

use super::observation::{ControlPlaneMachine, Observation};
use crate::observation::{Claim, ControlPlaneView, Pause};
use serde_json::json;

/// What a reconcile decides. Steady: Cluster API needs no help, or not now.
pub(super) type Plan = controller_support::Plan<Step>;

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Delete a Machine that a MachineHealthCheck wants replaced, and whose remediation the control plane defers.
    Delete(ControlPlaneMachine),
    /// Write the note on the control plane that it would write itself: a Machine is being replaced. With the note, the
    /// control plane goes on, and counts retries.
    Note(String),
}

/// Deletes the Machine as the KubeadmControlPlane would, while etcd is Ready. While the Machine is being deleted,
/// writes the note about it.
pub(super) fn plan(observation: &Observation) -> Plan {
    let Observation { cluster, etcd, control_plane, machines } = observation;
    let left_alone = cluster.view.is_paused() || cluster.view.deleting || control_plane.deleting;
    let at_rest = control_plane.pause == Pause::None && control_plane.initialized && control_plane.kubeadm.is_some();
    // The control plane replaces one Machine at a time. Its note says so from the deletion of the old Machine to the
    // creation of the new one.
    if left_alone || !at_rest || control_plane.remediating {
        return Plan::Steady;
    }
    if let Some(note) = note(control_plane, machines) {
        return Plan::Do(Step::Note(note));
    }
    // The state of an etcd that its API servers do not use says nothing about theirs.
    let is_its_own = etcd.claim == Claim::Ours && etcd.has_one_of(&control_plane.real_endpoints());
    if !etcd.ready || etcd.deleting || !is_its_own {
        return Plan::Steady;
    }
    candidate(machines, &control_plane.uid).map_or(Plan::Steady, |wanted| Plan::Do(Step::Delete(wanted.clone())))
}

/// Decides on a deletion again, from live objects: what the watches say about pauses, etcd and other Machines may be
/// outdated, and a deletion cannot be undone. None: the decision is not the same.
pub(super) fn confirm(machine: &ControlPlaneMachine, live: &Observation) -> Option<Step> {
    let Plan::Do(Step::Delete(again)) = plan(live) else { return None };
    (again.uid == machine.uid).then_some(Step::Delete(again))
}

/// The note that the control plane would write about the Machine that is being deleted. Its time is that of the
/// deletion. The control plane drops a note that is older than its newest Machine, so a note that comes too late does
/// no harm.
///
/// There is a note only while there are too few Machines. The control plane removes the note when it makes another
/// Machine. In the middle of a rollout, when there is one more than wanted, it makes none.
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

/// The Machine whose remediation waits only for the check of etcd, if the other Machines allow its deletion: none of
/// them is coming up or being deleted, and at least one is Ready. A Machine that has not become a Node and is unhealthy
/// does not count as coming up.
fn candidate<'a>(machines: &'a [ControlPlaneMachine], control_plane: &str) -> Option<&'a ControlPlaneMachine> {
    if machines.iter().any(|machine| machine.deleting.is_some() || (!machine.joined && !machine.unhealthy)) {
        return None;
    }
    // Like the control plane, this chooses a Machine that never became a Node first.
    let wanted = deferred(machines, control_plane).min_by_key(|machine| (machine.joined, &machine.name))?;
    machines.iter().any(|machine| machine.name != wanted.name && machine.ready).then_some(wanted)
}

fn deferred<'a>(machines: &'a [ControlPlaneMachine], of: &str) -> impl Iterator<Item = &'a ControlPlaneMachine> {
    machines.iter().filter(move |machine| machine.deferred && machine.controller.as_deref() == Some(of))
}

#[cfg(test)]
mod tests;
