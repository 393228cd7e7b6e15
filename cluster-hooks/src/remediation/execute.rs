//! All writes: deletes the Machine, or writes the note about it.

use super::observation::{ControlPlaneMachine, Observation};
use super::plan::Step;
use crate::build;
use crate::context::{Context, REFUSED};
use crate::execute::{Outcome, object_reference, patch, record_event};
use api::names;
use controller_support::error::{answer, is_invalid};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Error, Result, apply};
use kube::api::Preconditions;

/// Takes a step.
pub(super) async fn execute(context: &Context, observation: &Observation, step: &Step) -> Result<Outcome> {
    match step {
        Step::Delete(machine) => delete(context, observation, machine).await,
        Step::Note(note) => {
            let (control_plane, namespace) = (&observation.control_plane, &observation.cluster.view.namespace);
            let objects = context.api(&control_plane.reference, CLUSTER_API_CONTRACTS, namespace).await?;
            let body = build::patch::remediation_in_progress(control_plane, note);
            patch(context, &objects, &control_plane.reference.name, &body).await
        }
    }
}

async fn delete(context: &Context, observation: &Observation, machine: &ControlPlaneMachine) -> Result<Outcome> {
    let (cluster, name) = (&observation.cluster, &machine.name);
    let resource = context.shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let machines = apply::dynamic(&context.shared.client, &resource, &cluster.view.namespace);
    let preconditions =
        Preconditions { uid: Some(machine.uid.clone()), resource_version: Some(machine.resource_version.clone()) };
    match apply::delete(&machines, "Machine", name, preconditions).await {
        Ok(_) => {}
        Err(error) if error.is_conflict() || error.is_not_found() => return Ok(Outcome::Outdated),
        // Something protects the Machine, such as a webhook or a policy.
        Err(Error::Api { source, .. }) if is_invalid(&source) => {
            let (answer, again) = (answer(&source), REFUSED.as_secs());
            let note = format!("Machine {name} is unhealthy and cannot be deleted: {answer}; tried again in {again} s");
            tracing::warn!("{note}");
            let about = object_reference(cluster);
            context.events.warning(&about, "Remediate", "ControlPlaneMachineNotDeleted", note.clone()).await;
            return Ok(Outcome::Refused(note));
        }
        Err(error) => return Err(error),
    }
    let by = &observation.control_plane.reference;
    let note =
        || format!("{by} defers replacing unhealthy Machine {name} although etcd is ready: it is deleted and replaced");
    record_event(context, cluster, &Outcome::Done, "Remediate", "ControlPlaneMachineDeleted", note).await;
    Ok(Outcome::Done)
}
