//! How long Cluster API tries to drain and delete the Nodes of existing Machines. These timeouts change in place, as
//! with a KubeadmControlPlane, even if a Machine is already being deleted. No Machine is replaced for them.

use super::machines::machines;
use crate::CONTROLLER;
use crate::build::{same_timeouts, wanted_timeouts};
use crate::context::Context;
use crate::observation::Observation;
use crate::plan::is_left_alone;
use crate::put_off::PUT_OFF;
use api::etcd_cluster::MachineDeletion;
use controller_support::apply;
use controller_support::external::MachineView;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::time::Duration;

/// What is put off after a failure.
const WHAT: &str = "deletion-timeouts";

/// Sets the timeouts where they differ. Nothing depends on them, so a failure is only logged, and it is tried again
/// much later. Returns when, if something is left.
pub(crate) async fn set_deletion_timeouts(context: &Context, observation: &Observation) -> Option<Duration> {
    // Earlier versions of the API have other fields. Every release of Cluster API that this provider works with serves
    // this version.
    if context.machines.resource().version != "v1beta2" {
        return None;
    }
    let wanted = wanted_timeouts(&observation.etcd)?;
    let mut again = None;
    for machine in differing(observation, wanted) {
        if context.put_off.has(&machine.uid, WHAT) {
            again = Some(PUT_OFF);
            continue;
        }
        let api = machines(context, &observation.etcd);
        let answer = apply::merge::<DynamicObject>(&api, CONTROLLER, &machine.name, &patch(machine, wanted)).await;
        if let Err(error) = answer {
            context.put_off.put(&machine.uid, WHAT);
            again = Some(PUT_OFF);
            let etcd = observation.etcd.name_any();
            tracing::warn!(%error, etcd, "the deletion timeouts of a Machine were not set");
        }
    }
    again
}

/// The patch of a Machine. It has the UID, because another Machine may have the name by now. A timeout that is not set
/// goes back to the default of Cluster API.
fn patch(machine: &MachineView, wanted: MachineDeletion) -> Value {
    let deletion = json!({
        "nodeDrainTimeoutSeconds": wanted.node_drain_timeout_seconds,
        "nodeVolumeDetachTimeoutSeconds": wanted.node_volume_detach_timeout_seconds,
        "nodeDeletionTimeoutSeconds": wanted.node_deletion_timeout_seconds,
    });
    json!({"metadata": {"uid": machine.uid}, "spec": {"deletion": deletion}})
}

/// Machines that have other timeouts. None during a pause.
fn differing(observation: &Observation, wanted: MachineDeletion) -> Vec<&MachineView> {
    if is_left_alone(observation) {
        return Vec::new();
    }
    let differs = |machine: &&MachineView| !same_timeouts(machine.deletion_timeouts, wanted);
    observation.machines.values().filter(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, name};

    fn drain(seconds: i32) -> MachineDeletion {
        MachineDeletion { node_drain_timeout_seconds: Some(seconds), ..MachineDeletion::default() }
    }

    #[test]
    fn machines_that_have_something_else_are_changed() {
        let mut story = Story::with_voters(3, 3);
        for index in 0..3 {
            // As Cluster API makes them.
            let machine = story.observation.machines.get_mut(&name(index)).unwrap();
            machine.deletion_timeouts.node_deletion_timeout_seconds = Some(10);
        }
        let changed = |story: &Story, wanted: MachineDeletion| {
            differing(&story.observation, wanted).into_iter().map(|machine| machine.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(changed(&story, drain(60)), [name(0), name(1), name(2)]);
        assert_eq!(changed(&story, MachineDeletion::default()), [""; 0]);
        story.observation.machines.get_mut(&name(1)).unwrap().deletion_timeouts = drain(60);
        story.delete(2);
        assert_eq!(changed(&story, drain(60)), [name(0), name(2)], "also one that is being deleted");
        assert_eq!(changed(&story, MachineDeletion::default()), [name(1)], "it is taken back");
        story.cluster().paused_by = Some("spec.paused".to_owned());
        assert_eq!(changed(&story, drain(60)), [""; 0]);
    }

    #[test]
    fn what_is_not_set_is_taken_away() {
        let story = Story::with_voters(1, 1);
        let patch = patch(&story.observation.machines[&name(0)], drain(60));
        assert_eq!(patch["metadata"]["uid"], "uid-0");
        let expected = json!({"nodeDrainTimeoutSeconds": 60, "nodeVolumeDetachTimeoutSeconds": null,
            "nodeDeletionTimeoutSeconds": null});
        assert_eq!(patch["spec"], json!({"deletion": expected}));
    }
}
