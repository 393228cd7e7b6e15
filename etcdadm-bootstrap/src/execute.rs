//! All writes. Each can be repeated, and none overwrites what others have written.

use crate::CONTROLLER;
use crate::context::{Context, LockRecord, Reads};
use crate::observation::{DataSecret, Observation};
use crate::observe;
use crate::plan::{Plan, Step};
use crate::status::{differs, newly_blocked};
use api::EtcdadmConfig;
use api::etcdadm_config::EtcdadmConfigStatus;
use controller_support::apply::StatusWrite;
use controller_support::error::answer;
use controller_support::{Error, Result, apply};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use kube::{Resource, ResourceExt};
use serde_json::json;

/// The outcome of a write that requires the object to be as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done.
    Done,
    /// What the decision was based on has changed: nothing was written, and everything is decided again.
    Outdated,
}

/// Takes one step. Its results go into `reads`.
///
/// # Errors
/// If the API server does not answer, or refuses a read or a write.
pub(crate) async fn execute(
    context: &Context,
    observation: &Observation,
    step: &Step,
    reads: &mut Reads,
) -> Result<()> {
    match step {
        Step::Read(need) => Err(Error::Internal(format!("{need:?} is not a write"))),
        Step::TakeLock(lock) => take_lock(context, lock, reads).await,
        Step::TakeOverLock { lock, from, resource_version } => {
            if take_over_lock(context, lock, resource_version, reads).await? == Outcome::Outdated {
                return Ok(());
            }
            let note = format!(
                "Machine {from} was to initialize etcd and no longer exists; Machine {} initializes it instead",
                machine_name(observation)
            );
            event(context, &observation.config, "InitLockTakenOver", &note).await;
            Ok(())
        }
        Step::CreateDataSecret { secret, init } => create_data_secret(context, observation, secret, *init, reads).await,
    }
}

/// Writes the result of a reconcile: the status if it differs, then events, whose failure is only logged.
///
/// # Errors
/// If the API server does not accept the status.
pub(crate) async fn report(
    context: &Context,
    config: &EtcdadmConfig,
    status: &EtcdadmConfigStatus,
    plan: &Plan,
    reads: &Reads,
) -> Result<Outcome> {
    let before = config.status.as_ref();
    let outcome = if differs(before, status) { write_status(context, config, status).await? } else { Outcome::Done };
    // What was created stays, even if everything is decided again.
    if let Some(note) = &reads.created {
        event(context, config, "BootstrapDataCreated", note).await;
    }
    if let Some(blocked) = newly_blocked(before, plan).filter(|_| outcome == Outcome::Done) {
        let about = config.object_ref(&());
        context.events.warning(&about, "Bootstrap", blocked.reason, blocked.message.clone()).await;
    }
    Ok(outcome)
}

fn machine_name(observation: &Observation) -> &str {
    observation.machine.as_ref().map_or("", |machine| machine.name.as_str())
}

async fn event(context: &Context, config: &EtcdadmConfig, reason: &str, note: &str) {
    context.events.normal(&config.object_ref(&()), "Bootstrap", reason, note).await;
}

/// A config that no longer exists needs no status.
async fn write_status(context: &Context, config: &EtcdadmConfig, status: &EtcdadmConfigStatus) -> Result<Outcome> {
    let api: Api<EtcdadmConfig> = Api::namespaced(context.client.clone(), &config.namespace().unwrap_or_default());
    match apply::write_status(&api, CONTROLLER, config, status).await? {
        StatusWrite::Written(answer) => context.written.remember(*answer),
        StatusWrite::Gone => {}
        StatusWrite::Outdated => {
            apply::read_after_conflict(&api, &context.written, config).await;
            return Ok(Outcome::Outdated);
        }
    }
    Ok(Outcome::Done)
}

/// Creates the lock. If it exists already, the watch is behind, and the lock is read.
async fn take_lock(context: &Context, lock: &ConfigMap, reads: &mut Reads) -> Result<()> {
    let (namespace, name) = (lock.namespace().unwrap_or_default(), lock.name_any());
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    match apply::create(&api, CONTROLLER, lock).await {
        Ok(created) => reads.set_lock(Some(LockRecord::from(&created))),
        Err(error) if error.is_conflict() => reads.set_lock(observe::init_lock(context, &namespace, &name).await?),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Replaces holder, owner and labels of the lock, but only in the version that was read. If another Machine was faster,
/// or the lock is gone, it is read again.
async fn take_over_lock(
    context: &Context,
    lock: &ConfigMap,
    resource_version: &str,
    reads: &mut Reads,
) -> Result<Outcome> {
    let (namespace, name) = (lock.namespace().unwrap_or_default(), lock.name_any());
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    let patch = json!({
        "metadata": {
            "resourceVersion": resource_version,
            "labels": lock.metadata.labels,
            "ownerReferences": lock.metadata.owner_references,
        },
        "data": lock.data,
    });
    match apply::merge::<ConfigMap>(&api, CONTROLLER, &name, &patch).await {
        Ok(taken) => reads.set_lock(Some(LockRecord::from(&taken))),
        Err(error) if error.is_conflict() || error.is_not_found() => {
            reads.set_lock(observe::init_lock(context, &namespace, &name).await?);
            return Ok(Outcome::Outdated);
        }
        Err(error) => return Err(error),
    }
    Ok(Outcome::Done)
}

/// Creates the bootstrap Secret. If a Secret of that name exists already, its owner is read.
async fn create_data_secret(
    context: &Context,
    observation: &Observation,
    secret: &Secret,
    init: bool,
    reads: &mut Reads,
) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &secret.namespace().unwrap_or_default());
    match apply::create(&api, CONTROLLER, secret).await {
        Ok(_) => {
            reads.data_secret = Some(DataSecret::Ours);
            let does = if init { "initializes" } else { "joins" };
            reads.created = Some(format!("created bootstrap data: Machine {} {does} etcd", machine_name(observation)));
        }
        Err(error) if error.is_conflict() => {
            reads.data_secret = Some(observe::data_secret(context, &observation.config).await?);
        }
        Err(Error::Api { source, .. }) if controller_support::error::is_invalid(&source) => {
            reads.refused = Some(answer(&source));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
