//! All writes for a LocalMachine.

use crate::{
    context::Context,
    crd::{LocalMachine, LocalMachineStatus, provider_id},
    hardware::NewMachine,
    machine::Error as MachineError,
    observation::{BootstrapData, Observation},
    plan::Step,
    status::{Transition, status, transitions},
    write::{write, write_status},
};
use controller_support::{Plan, Result};
use kube::{Resource, ResourceExt};

/// The field of the spec that we may set.
const PROVIDER_ID: &str = "providerID";

/// The result of a step.
pub enum Outcome {
    /// The step is done, and this is the current object.
    Done(Box<LocalMachine>),
    /// The step is done, and our finalizer is removed.
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
    let (client, known) = (&context.shared.client, object.spec.provider_id.as_deref());
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let hardware = context.hardware.clone();
    let done = |object: LocalMachine| Outcome::Done(Box::new(object));
    let ended = match step {
        Step::Adopt => return write(client, object, true, (PROVIDER_ID, known)).await.map(done),
        Step::Publish => {
            let id = provider_id(&namespace, &name);
            return write(client, object, true, (PROVIDER_ID, Some(&id))).await.map(done);
        }
        Step::Create => {
            let BootstrapData::Ready(user_data) = &observation.bootstrap_data else { return Ok(done(object.clone())) };
            let host_name = observation.owner.as_ref().map_or_else(|| name.clone(), |owner| owner.name.clone());
            let uid = object.uid().unwrap_or_default();
            let (ip_family, user_data) = (object.spec.ip_family, user_data.clone());
            let new = NewMachine { namespace, name, uid, host_name, ip_family, user_data };
            blocking(move || hardware.create(new)).await
        }
        Step::Start => blocking(move || hardware.start(&namespace, &name)).await,
        Step::Destroy => blocking(move || hardware.destroy(&namespace, &name)).await,
    };
    match ended {
        Err(error) => Ok(Outcome::Failed(error.to_string())),
        Ok(()) if step == Step::Destroy => match write(client, object, false, (PROVIDER_ID, known)).await {
            Err(error) if error.is_not_found() => Ok(Outcome::Gone),
            other => other.map(|_| Outcome::Gone),
        },
        Ok(()) => Ok(done(object.clone())),
    }
}

/// Writes the result of a reconcile: the status if it differs, then the events about its changes. `failure`: why a
/// machine could not be made, started or removed.
///
/// # Errors
/// If the API server refuses the status, or somebody else has changed the object.
pub(crate) async fn report(
    context: &Context,
    object: &LocalMachine,
    observation: &Observation,
    plan: &Plan<Step>,
    failure: Option<&str>,
) -> Result<()> {
    let empty = LocalMachineStatus::default();
    let before = object.status.as_ref().unwrap_or(&empty);
    let after = status(before, object.metadata.generation, observation, plan, failure);
    if object.status.as_ref() == Some(&after) {
        context.written.remember(object.clone());
        return Ok(());
    }
    if !write_status(&context.shared.client, &context.written, object, &after).await? {
        return Ok(());
    }
    let about = object.object_ref(&());
    for Transition { warning, reason, note } in transitions(before, &after) {
        if warning {
            context.events.warning(&about, "Reconcile", reason, note).await;
        } else {
            context.events.normal(&about, "Reconcile", reason, note).await;
        }
    }
    Ok(())
}

async fn blocking(work: impl FnOnce() -> Result<(), MachineError> + Send + 'static) -> Result<(), MachineError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| MachineError::Process { machine: String::new(), what: error.to_string() })?
}
