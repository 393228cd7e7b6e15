//! Deleting a control-plane Machine in place of a control plane that defers it.

use super::{Outcome, control_plane_of, named, object_reference, record_event};
use crate::controller::Context;
use crate::observation::{ControlPlaneMachine, Observation};
use crate::observe::{Recent, observe_live};
use crate::plan::{Plan, Step, plan};
use api::names;
use controller_support::apply::dynamic;
use controller_support::error::{answer, is_conflict, is_invalid, is_not_found};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Result, ResultExt};
use kube::api::{DeleteParams, Preconditions};

/// Decides once more, on what the API server has now: what the watches say of pauses, of etcd and of the other Machines may
/// be old, and a deletion cannot be undone.
pub(super) async fn execute(
    context: &Context,
    observation: &Observation,
    machine: &ControlPlaneMachine,
    recent: &mut Recent,
) -> Result<Outcome> {
    let Some(present) = observe_live(context, observation).await? else { return Ok(Outcome::Outdated) };
    let Plan::Do(Step::Remediate(present)) = plan(&present) else { return Ok(Outcome::Outdated) };
    if present.uid != machine.uid {
        return Ok(Outcome::Outdated);
    }
    let cluster = &observation.cluster;
    let resource = context.shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let machines = dynamic(&context.shared.client, &resource, &cluster.view.namespace);
    let preconditions =
        Preconditions { uid: Some(present.uid.clone()), resource_version: Some(present.resource_version.clone()) };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match machines.delete(&present.name, &parameters).await {
        Ok(_) => {}
        Err(error) if is_conflict(&error) || is_not_found(&error) => return Ok(Outcome::Outdated),
        // Somebody protects it. Everything else goes on.
        Err(error) if is_invalid(&error) => {
            let note = format!("Machine {} is unhealthy and cannot be deleted: {}", present.name, answer(&error));
            tracing::warn!("{note}");
            context
                .events
                .warning(&object_reference(cluster), "Remediate", "ControlPlaneMachineNotDeleted", note)
                .await;
            recent.remediation_refused = true;
            return Ok(Outcome::Done);
        }
        Err(error) => return Err(error).doing(|| format!("deleting Machine {}", present.name)),
    }
    let control_plane = control_plane_of(observation)?;
    record_event(context, cluster, &Outcome::Done, "Remediate", "ControlPlaneMachineDeleted", || {
        format!(
            "Machine {} is unhealthy and {} could not look at etcd, which is well: it is replaced",
            present.name,
            named(control_plane)
        )
    })
    .await;
    // The watch tells that the Machine goes.
    Ok(Outcome::Outdated)
}
