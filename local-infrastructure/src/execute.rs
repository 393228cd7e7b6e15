//! Everything that is written for a LocalMachine.

use crate::{
    context::Context,
    crd::{FIELD_MANAGER, FINALIZER, GROUP, LocalMachine, LocalMachineStatus, provider_id},
    hardware::NewMachine,
    machine::Error as MachineError,
    plan::{BootstrapData, Observation, Step},
};
use controller_support::{Result, ResultExt, apply::apply_status};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

/// What became of a step.
pub enum Outcome {
    /// It is done; this is the object now.
    Done(Box<LocalMachine>),
    /// It is done, and the object is let go.
    Gone,
    /// The machine itself could not be made, started or removed.
    Failed(String),
}

/// Takes one step.
///
/// # Errors
/// If the API server refuses a write.
pub(crate) async fn execute(
    context: &Context,
    object: &LocalMachine,
    observation: &Observation,
    step: Step,
) -> Result<Outcome> {
    let done = |object: LocalMachine| Outcome::Done(Box::new(object));
    match step {
        Step::Adopt => write(context, object, true, object.spec.provider_id.as_deref()).await.map(done),
        Step::Create => match create(context, object, observation).await {
            Ok(()) => Ok(done(object.clone())),
            Err(error) => Ok(Outcome::Failed(error.to_string())),
        },
        Step::Start => match start(context, object).await {
            Ok(()) => Ok(done(object.clone())),
            Err(error) => Ok(Outcome::Failed(error.to_string())),
        },
        Step::Publish => {
            let id = provider_id(&object.namespace().unwrap_or_default(), &object.name_any());
            write(context, object, true, Some(&id)).await.map(done)
        }
        Step::Destroy => match destroy(context, object).await {
            Ok(()) => match write(context, object, false, object.spec.provider_id.as_deref()).await {
                Err(error) if error.is_not_found() => Ok(Outcome::Gone),
                other => other.map(|_| Outcome::Gone),
            },
            Err(error) => Ok(Outcome::Failed(error.to_string())),
        },
    }
}

async fn create(context: &Context, object: &LocalMachine, observation: &Observation) -> Result<(), MachineError> {
    let BootstrapData::Ready(user_data) = &observation.bootstrap_data else { return Ok(()) };
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let host_name = observation.owner.as_ref().map_or_else(|| name.clone(), |owner| owner.name.clone());
    let uid = object.uid().unwrap_or_default();
    let new = NewMachine { namespace, name, uid, host_name, user_data: user_data.clone() };
    let hardware = context.hardware.clone();
    blocking(move || hardware.create(new)).await
}

async fn start(context: &Context, object: &LocalMachine) -> Result<(), MachineError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let hardware = context.hardware.clone();
    blocking(move || hardware.start(&namespace, &name)).await
}

async fn destroy(context: &Context, object: &LocalMachine) -> Result<(), MachineError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let hardware = context.hardware.clone();
    blocking(move || hardware.destroy(&namespace, &name)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MachineError> + Send + 'static,
) -> Result<T, MachineError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| MachineError::Process { machine: String::new(), what: error.to_string() })?
}

/// Applies everything of ours outside the status. The uid makes sure that an object that is gone is not made again.
async fn write(
    context: &Context,
    object: &LocalMachine,
    finalizer: bool,
    provider_id: Option<&str>,
) -> Result<LocalMachine> {
    let name = object.name_any();
    let mut desired = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "kind": "LocalMachine",
        "metadata": {"name": name, "uid": object.uid()},
        "spec": {},
    });
    if finalizer {
        desired["metadata"]["finalizers"] = json!([FINALIZER]);
    }
    if let Some(id) = provider_id {
        desired["spec"]["providerID"] = json!(id);
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api(context, object)
        .patch(&name, &parameters, &Patch::Apply(&desired))
        .await
        .doing(|| format!("applying LocalMachine {name}"))
}

/// Applies the status.
///
/// # Errors
/// If the API server refuses it.
pub(crate) async fn write_status(
    context: &Context,
    object: &LocalMachine,
    status: &LocalMachineStatus,
) -> Result<LocalMachine> {
    let name = object.name_any();
    let desired = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "kind": "LocalMachine",
        "metadata": {"name": name, "uid": object.uid()},
        "status": status,
    });
    apply_status(&api(context, object), FIELD_MANAGER, &name, &desired).await
}

fn api(context: &Context, object: &LocalMachine) -> Api<LocalMachine> {
    Api::namespaced(context.shared.client.clone(), &object.namespace().unwrap_or_default())
}
