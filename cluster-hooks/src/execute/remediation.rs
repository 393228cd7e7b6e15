//! Deleting a control-plane Machine in place of a control plane that defers it.

use super::{Outcome, change, control_plane_of, named, tell};
use crate::build;
use crate::controller::Context;
use crate::observation::{ControlPlaneMachine, Observation};
use crate::observe::CONTROL_PLANE_LABEL;
use crate::plan::candidate;
use api::names;
use controller_support::apply::dynamic;
use controller_support::error::{is_conflict, is_not_found};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Result, ResultExt};
use kube::api::{DeleteParams, ListParams, Preconditions};

/// Looks once more, at what the API server has now: a Machine that another one has just begun to replace stays.
pub(super) async fn execute(
    context: &Context,
    observation: &Observation,
    machine: &ControlPlaneMachine,
    note: &str,
) -> Result<Outcome> {
    let (cluster, control_plane) = (&observation.cluster, control_plane_of(observation)?);
    let resource = context.shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let machines = dynamic(&context.shared.client, &resource, &cluster.view.namespace);
    let name = &cluster.view.name;
    let selector = ListParams::default().labels(&format!("{CONTROL_PLANE_LABEL},{}={name}", names::CLUSTER_NAME_LABEL));
    let list = machines.list(&selector).await.doing(|| format!("listing the control plane's Machines of {name}"))?;
    let present: Vec<_> =
        list.items.iter().map(|found| ControlPlaneMachine::read(found, &resource.api_version)).collect();
    let Some(present) = candidate(&present, &control_plane.uid).filter(|found| found.uid == machine.uid) else {
        return Ok(Outcome::Stale);
    };
    let preconditions =
        Preconditions { uid: Some(present.uid.clone()), resource_version: Some(present.resource_version.clone()) };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match machines.delete(&present.name, &parameters).await {
        Ok(_) => {}
        Err(error) if is_conflict(&error) || is_not_found(&error) => return Ok(Outcome::Stale),
        Err(error) => return Err(error).doing(|| format!("deleting Machine {}", present.name)),
    }
    tell(context, cluster, &Outcome::Done, "Remediate", "ControlPlaneMachineDeleted", || {
        format!(
            "Machine {} is unhealthy and {} could not look at etcd, which is well: it is replaced",
            present.name,
            named(control_plane)
        )
    })
    .await;
    // It comes late at worst: then the retry is not counted.
    change(context, cluster, control_plane, &build::patch::remediation_in_progress(control_plane, note)).await?;
    // The watch tells that the Machine goes.
    Ok(Outcome::Stale)
}
