//! Control-plane nodes that a MachineHealthCheck wants replaced.
//!
//! A KubeadmControlPlane does that itself. That of Cluster API 1.14.0 looks at its own etcd first, also where etcd is
//! external and there is nothing to look at, and defers the remediation for ever. All other checks it has made by then. The
//! one that is left is ours to make: how etcd is.

use super::Step;
use crate::observation::{ControlPlaneMachine, Observation, Pause};
use serde_json::json;

/// Deletes the Machine as the KubeadmControlPlane would, while etcd is Ready.
pub(super) fn plan(observation: &Observation) -> Option<Step> {
    let control_plane = observation.found_control_plane()?;
    let kubeadm = control_plane.kubeadm.as_ref()?;
    let at_rest = control_plane.pause == Pause::None && !control_plane.deleting && control_plane.initialized;
    if !at_rest || !observation.found_etcd().is_some_and(|etcd| etcd.ready && !etcd.deleting) {
        return None;
    }
    let machine = candidate(&observation.machines, &control_plane.uid)?;
    let now = observation.now.0;
    let recent = machine
        .made_in
        .as_ref()
        .filter(|before| now.duration_since(before.timestamp).as_secs() < kubeadm.min_healthy_seconds);
    let note = json!({
        "machine": machine.name,
        "timestamp": now.to_string(),
        "retryCount": recent.map_or(0, |before| before.retry_count + 1),
    });
    Some(Step::Remediate { machine: machine.clone(), note: note.to_string() })
}

/// The Machine whose remediation waits for nothing but a look at etcd, if the others allow that it goes: none of them is
/// on its way, and one at least serves.
pub fn candidate<'a>(machines: &'a [ControlPlaneMachine], control_plane: &str) -> Option<&'a ControlPlaneMachine> {
    if machines.iter().any(|machine| machine.deleting || !machine.joined) {
        return None;
    }
    let wanted = machines.iter().find(|m| m.deferred && m.controller.as_deref() == Some(control_plane))?;
    machines.iter().any(|machine| machine.name != wanted.name && machine.ready).then_some(wanted)
}
