//! Everything that is written for a LocalCluster.

use super::{context::Context, observation::Observation, plan::Step, status::status};
use crate::{
    crd::{Endpoint, LocalCluster},
    machine::Error as MachineError,
    write::{write, write_status},
};
use controller_support::{Error, Plan, Result};
use kube::ResourceExt;

/// The field of the spec that is ours to set.
const ENDPOINT: &str = "controlPlaneEndpoint";

/// Takes one step. Answers the object as it is now; `None`: it is let go.
///
/// # Errors
/// If no address can be had, or the API server refuses the write.
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

/// Writes what a reconcile came to, if it differs. What has been let go gets nothing more.
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
