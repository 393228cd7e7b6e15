//! All writes for a LocalCluster.

use super::{context::Context, observation::Observation, plan::Step, status::status};
use crate::{
    crd::{Endpoint, LocalCluster},
    machine::Error as MachineError,
    write::{write, write_status},
};
use controller_support::{Error, Plan, Result};
use kube::ResourceExt;

/// The field of the spec that we may set.
const ENDPOINT: &str = "controlPlaneEndpoint";

/// Takes one step. Returns the current object; `None` when our finalizer is removed.
///
/// # Errors
/// If there is no free address, or the API server refuses the write.
pub(super) async fn execute(context: &Context, observation: &Observation, step: Step) -> Result<Option<LocalCluster>> {
    let (client, object) = (&context.shared.client, &observation.object);
    let owner = format!("cluster/{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    let failed = |error: MachineError| Error::Infrastructure(error.to_string());
    match step {
        Step::GiveEndpoint => {
            let endpoint = Endpoint::at(context.hardware.reserve(&owner).map_err(failed)?);
            write(client, object, true, (ENDPOINT, Some(&endpoint))).await.map(Some)
        }
        Step::Release => {
            context.hardware.release(&owner).map_err(failed)?;
            match write(client, object, false, (ENDPOINT, object.spec.control_plane_endpoint.as_ref())).await {
                Err(error) if error.is_not_found() => Ok(None),
                other => other.map(|_| None),
            }
        }
    }
}

/// Writes the result of a reconcile, if it differs. Writes nothing if our finalizer is already removed.
///
/// # Errors
/// If the API server refuses the status, or somebody else has changed the object.
pub(super) async fn report(context: &Context, observation: &Observation, plan: &Plan<Step>) -> Result<()> {
    let object = &observation.object;
    if observation.is_deleting() && *plan == Plan::Steady {
        return Ok(());
    }
    let after = status(observation, plan);
    if object.status.as_ref() == Some(&after) {
        context.written.remember(object.clone());
    } else {
        write_status(&context.shared.client, &context.written, object, &after).await?;
    }
    Ok(())
}
