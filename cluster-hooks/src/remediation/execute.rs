//! Deletes the Machine, or notes it.

use super::Observation;
use super::machine::ControlPlaneMachine;
use super::plan::{Step, plan};
use crate::build;
use crate::context::Context;
use crate::execute::{Outcome, object_reference, patch, record_event};
use crate::observation::{ClusterState, ControlPlaneView, EtcdView};
use crate::observe::control_plane_machines;
use api::names;
use controller_support::error::{answer, is_invalid};
use controller_support::kinds::{CLUSTER_API_CONTRACTS, ETCD_PROVIDER_CONTRACTS};
use controller_support::{Error, Result, apply};
use kube::api::Preconditions;
use kube::runtime::controller::Action;
use std::time::Duration;

/// After a write that was refused because something has changed: the watch is about to tell.
const CATCH_UP: Duration = Duration::from_millis(200);
/// After a deletion that somebody has refused.
const PROTECTED: Duration = Duration::from_secs(60);

/// Takes a step. What follows is planned when the watches tell of it.
pub(super) async fn execute(context: &Context, observation: &Observation, step: &Step) -> Result<Action> {
    match step {
        Step::Delete(machine) => delete(context, observation, machine).await,
        Step::Note(note) => {
            let control_plane = &observation.control_plane;
            let namespace = &observation.cluster.view.namespace;
            let objects = context.api(&control_plane.reference, CLUSTER_API_CONTRACTS, namespace).await?;
            let body = build::patch::remediation_in_progress(control_plane, note);
            patch(context, &objects, &control_plane.reference.name, &body).await?;
            Ok(Action::requeue(CATCH_UP))
        }
    }
}

/// Decides once more, on what the API server has now: what the watches say of pauses, of etcd and of the other Machines may be
/// old, and a deletion cannot be undone.
async fn delete(context: &Context, observation: &Observation, machine: &ControlPlaneMachine) -> Result<Action> {
    let live = observe_live(context, observation).await?;
    let Some(Step::Delete(live)) = live.as_ref().and_then(plan) else { return Ok(Action::requeue(CATCH_UP)) };
    if live.uid != machine.uid {
        return Ok(Action::requeue(CATCH_UP));
    }
    let cluster = &observation.cluster;
    let resource = context.shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let machines = apply::dynamic(&context.shared.client, &resource, &cluster.view.namespace);
    let preconditions =
        Preconditions { uid: Some(live.uid.clone()), resource_version: Some(live.resource_version.clone()) };
    match apply::delete(&machines, "Machine", &live.name, preconditions).await {
        Ok(_) => {}
        Err(error) if error.is_conflict() || error.is_not_found() => return Ok(Action::requeue(CATCH_UP)),
        // Somebody protects it.
        Err(Error::Api { source, .. }) if is_invalid(&source) => {
            let note = format!("Machine {} is unhealthy and cannot be deleted: {}", live.name, answer(&source));
            tracing::warn!("{note}");
            let about = object_reference(cluster);
            context.events.warning(&about, "Remediate", "ControlPlaneMachineNotDeleted", note).await;
            return Ok(Action::requeue(PROTECTED));
        }
        Err(error) => return Err(error),
    }
    let note = || {
        let control_plane = &observation.control_plane.reference;
        format!(
            "Machine {} is unhealthy; {control_plane} defers its replacement although etcd is ready: it is deleted",
            live.name
        )
    };
    record_event(context, cluster, &Outcome::Done, "Remediate", "ControlPlaneMachineDeleted", note).await;
    Ok(Action::await_change())
}

/// The same as the API server has it now. None: something of it is gone. Four requests.
async fn observe_live(context: &Context, observation: &Observation) -> Result<Option<Observation>> {
    let Observation { cluster, etcd, control_plane, .. } = observation;
    let (kinds, namespace) = (&context.shared.kinds, &cluster.view.namespace);
    let found =
        apply::get_live(&context.shared.client, context.clusters.resource(), namespace, &cluster.view.name).await?;
    let Some(cluster) = found.map(|cluster| ClusterState::read(&cluster)) else { return Ok(None) };
    let reference = &etcd.reference;
    let resource = kinds.find(&reference.group, &reference.kind, ETCD_PROVIDER_CONTRACTS).await?;
    let Some(etcd) = apply::get_live(&context.shared.client, &resource, namespace, &reference.name).await? else {
        return Ok(None);
    };
    // Its claim was checked when it was made.
    let etcd = EtcdView::read(&etcd, reference, &cluster.view, |_| true);
    let (reference, adapter) = (&control_plane.reference, control_plane.adapter.clone());
    let resource = kinds.find(&reference.group, &reference.kind, CLUSTER_API_CONTRACTS).await?;
    let Some(object) = apply::get_live(&context.shared.client, &resource, namespace, &reference.name).await? else {
        return Ok(None);
    };
    let control_plane = ControlPlaneView::read(&object, reference, &resource.api_version, adapter);
    let resource = kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let machines = control_plane_machines(context, names::CLUSTER_GROUP, "Machine", &cluster).await?;
    let machines = machines.iter().map(|machine| ControlPlaneMachine::read(machine, &resource.api_version)).collect();
    Ok(Some(Observation { cluster, etcd, control_plane, machines }))
}
