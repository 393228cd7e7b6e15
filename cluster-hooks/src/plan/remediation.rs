//! Control-plane nodes that a MachineHealthCheck wants replaced.
//!
//! A KubeadmControlPlane does that itself. That of Cluster API 1.14.0 looks at its own etcd first, also where etcd is
//! external and there is nothing to look at, and defers the remediation for ever. What it has checked by then holds. What
//! it would have checked afterwards is ours to check: how etcd is, and that another API server is left.

use super::Step;
use crate::observation::{ControlPlaneMachine, ControlPlaneView, Observation, Pause};
use serde_json::json;

/// Deletes the Machine as the KubeadmControlPlane would, while etcd is Ready; and notes it, as long as it is on its way.
pub(super) fn plan(observation: &Observation) -> Option<Step> {
    let control_plane = observation.found_control_plane()?;
    let at_rest = control_plane.pause == Pause::None && !control_plane.deleting && control_plane.initialized;
    // It replaces one at a time, and says so on itself from the deletion of the old one to the creation of the new one.
    if !at_rest || control_plane.remediating {
        return None;
    }
    if let Some(note) = note(control_plane, &observation.machines) {
        return Some(Step::NoteRemediation(note));
    }
    if !observation.found_etcd().is_some_and(|etcd| etcd.ready && !etcd.deleting) {
        return None;
    }
    candidate(&observation.machines, &control_plane.uid).cloned().map(Step::Remediate)
}

/// What the control plane would note of the Machine that is being deleted in place of it. The time is that of the deletion:
/// the control plane drops a note that is older than its newest Machine, so one that comes too late does no harm.
fn note(control_plane: &ControlPlaneView, machines: &[ControlPlaneMachine]) -> Option<String> {
    let kubeadm = control_plane.kubeadm.as_ref()?;
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
