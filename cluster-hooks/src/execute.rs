//! All writes: one step, as planned.

mod remediation;

use crate::build;
use crate::controller::{Context, NAME};
use crate::observation::{ClusterState, ControlPlaneView, EtcdView, Observation};
use crate::observe::Recent;
use crate::plan::{Step, retires};
use api::names;
use controller_support::apply::{self, dynamic};
use controller_support::error::{answer, is_conflict, is_invalid, is_not_found};
use controller_support::kinds::{CLUSTER_API_CONTRACTS, Contracts, ETCD_PROVIDER_CONTRACTS};
use controller_support::loose::Reference;
use controller_support::{Error, Result, ResultExt};
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt};
use serde_json::Value;
use std::sync::Arc;

/// How a step went.
#[derive(Debug)]
pub enum Outcome {
    /// Done. What follows is planned anew.
    Done,
    /// The object has changed since it was observed: nothing was written.
    Outdated,
    /// The API server refuses what we want of the control plane.
    Refused(String),
}

/// Takes a step.
pub async fn execute(
    context: &Context,
    observation: &Observation,
    step: &Step,
    recent: &mut Recent,
) -> Result<Outcome> {
    let cluster = &observation.cluster;
    match step {
        Step::ClaimEtcd => {
            let etcd = etcd_of(observation)?;
            let objects = objects(context, cluster, &etcd.reference, ETCD_PROVIDER_CONTRACTS).await?;
            let body = build::patch::claim(etcd, &cluster.view);
            patch(context, &objects, &etcd.reference.name, &body).await
        }
        Step::RecordEndpointsInUse(endpoints) => {
            let etcd = etcd_of(observation)?;
            let objects = objects(context, cluster, &etcd.reference, ETCD_PROVIDER_CONTRACTS).await?;
            let body = build::patch::endpoints_in_use(etcd, endpoints);
            let outcome = patch(context, &objects, &etcd.reference.name, &body).await?;
            if retires(observation) {
                record_event(context, cluster, &outcome, "RollOut", "ControlPlaneRolledOut", || {
                    format!("no API server uses other endpoints of etcd than {}", endpoints.join(", "))
                })
                .await;
            }
            Ok(outcome)
        }
        Step::Pause => {
            let control_plane = control_plane_of(observation)?;
            let outcome = change(context, cluster, control_plane, &build::patch::pause(control_plane)).await?;
            record_event(context, cluster, &outcome, "Pause", "ControlPlanePaused", || {
                format!("{} waits until etcd is ready", named(control_plane))
            })
            .await;
            Ok(outcome)
        }
        Step::Unpause => {
            let control_plane = control_plane_of(observation)?;
            let outcome = change(context, cluster, control_plane, &build::patch::unpause(control_plane)).await?;
            record_event(context, cluster, &outcome, "Release", "ControlPlaneReleased", || {
                format!("{} is not held back any more", named(control_plane))
            })
            .await;
            Ok(outcome)
        }
        Step::DropMarker => {
            let control_plane = control_plane_of(observation)?;
            change(context, cluster, control_plane, &build::patch::drop_marker(control_plane)).await
        }
        Step::WriteEndpoints(endpoints) => {
            let control_plane = control_plane_of(observation)?;
            let body = build::patch::endpoints(control_plane, endpoints);
            let outcome = change(context, cluster, control_plane, &body).await?;
            record_event(context, cluster, &outcome, "WriteEndpoints", "EtcdEndpointsWritten", || {
                format!("{} uses etcd at {}", named(control_plane), endpoints.join(", "))
            })
            .await;
            Ok(outcome)
        }
        Step::PublishClient(pair) => {
            let secret = build::secret::client(&cluster.view, etcd_of(observation)?, pair);
            let outcome = publish(context, cluster, &secret, recent).await?;
            record_event(context, cluster, &outcome, "Publish", "EtcdClientCertificatePublished", || {
                format!("Secret {} lets API servers use etcd", names::apiserver_client_secret(&cluster.view.name))
            })
            .await;
            Ok(outcome)
        }
        Step::UpdateClient(pair) => {
            let etcd = etcd_of(observation)?;
            let published = observation.secrets.published.as_ref().ok_or_else(|| missing("client Secret"))?;
            let body = build::secret::update(&cluster.view, etcd, published, pair);
            let name = names::apiserver_client_secret(&cluster.view.name);
            let outcome = outcome(apply::merge(&secrets(context, cluster), NAME, &name, &body).await, context)?;
            record_event(context, cluster, &outcome, "Publish", "EtcdClientCertificateUpdated", || {
                format!("Secret {name} follows etcd's provider")
            })
            .await;
            Ok(outcome)
        }
        Step::Remediate(machine) => remediation::execute(context, observation, machine, recent).await,
        Step::NoteRemediation(note) => {
            let control_plane = control_plane_of(observation)?;
            let body = build::patch::remediation_in_progress(control_plane, note);
            change(context, cluster, control_plane, &body).await
        }
        Step::DeleteEtcd => delete_etcd(context, cluster, etcd_of(observation)?, recent).await,
        Step::RemoveHealth => write_health(context, observation, None).await,
        Step::RemoveCondition => write_condition(context, cluster, None).await,
    }
}

/// Applies our condition, or takes it away.
pub async fn write_condition(
    context: &Context,
    cluster: &ClusterState,
    condition: Option<&Condition>,
) -> Result<Outcome> {
    let body = build::status::condition(cluster, condition);
    let clusters = dynamic(&context.shared.client, context.clusters.resource(), &cluster.view.namespace);
    let answer = apply::apply_status::<DynamicObject>(&clusters, NAME, &cluster.view.name, &body).await;
    or_gone(outcome(answer, context))
}

/// Writes our condition into the control plane, or takes it away.
pub async fn write_health(
    context: &Context,
    observation: &Observation,
    condition: Option<&Condition>,
) -> Result<Outcome> {
    let control_plane = control_plane_of(observation)?;
    let Some(body) = build::status::health(control_plane, condition) else { return Ok(Outcome::Done) };
    let name = &control_plane.reference.name;
    let objects = objects(context, &observation.cluster, &control_plane.reference, CLUSTER_API_CONTRACTS).await?;
    let parameters = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
    let answer = objects.patch_status(name, &parameters, &Patch::Merge(&body)).await;
    or_gone(outcome(answer.doing(|| format!("writing the status of {}", named(control_plane))), context))
}

/// Writes the fields of the managed-external-etcd proposal.
pub async fn write_mirror(context: &Context, cluster: &ClusterState, body: &Value) -> Result<Outcome> {
    let name = &cluster.view.name;
    let clusters = dynamic(&context.shared.client, context.clusters.resource(), &cluster.view.namespace);
    let parameters = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
    let answer = clusters.patch_status(name, &parameters, &Patch::Merge(body)).await;
    or_gone(outcome(answer.doing(|| format!("writing the status of Cluster {name}")), context))
}

/// What is gone has no status.
fn or_gone(result: Result<Outcome>) -> Result<Outcome> {
    match result {
        Err(Error::Api { source, .. }) if is_not_found(&source) => Ok(Outcome::Done),
        other => other,
    }
}

async fn publish(context: &Context, cluster: &ClusterState, secret: &Secret, recent: &mut Recent) -> Result<Outcome> {
    let resource = ApiResource::erase::<Secret>(&());
    let (namespace, name) = (&cluster.view.namespace, secret.name_any());
    let typed: Api<Secret> = Api::namespaced(context.shared.client.clone(), namespace);
    match apply::create(&typed, NAME, secret).await {
        Ok(answer) => {
            let value = serde_json::to_value(&answer).map_err(|error| Error::Internal(error.to_string()))?;
            let mut object: DynamicObject =
                serde_json::from_value(value).map_err(|error| Error::Internal(error.to_string()))?;
            object.types = Some(kube::api::TypeMeta { api_version: resource.api_version, kind: resource.kind });
            context.secret_cache.remember(namespace, &name, Some(Arc::new(object)));
            Ok(Outcome::Done)
        }
        // Somebody else's, or ours of a moment ago: look at it before anything else is decided.
        Err(Error::Api { source, .. }) if is_conflict(&source) => {
            context.secret_cache.forget(namespace, &name);
            recent.published_unseen = true;
            Ok(Outcome::Outdated)
        }
        Err(error) => Err(error),
    }
}

async fn delete_etcd(
    context: &Context,
    cluster: &ClusterState,
    etcd: &EtcdView,
    recent: &mut Recent,
) -> Result<Outcome> {
    let reference = &etcd.reference;
    let objects = objects(context, cluster, reference, ETCD_PROVIDER_CONTRACTS).await?;
    let parameters = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(etcd.uid.clone()), resource_version: None }),
        ..DeleteParams::background()
    };
    match objects.delete(&reference.name, &parameters).await {
        Ok(answer) => match answer.left() {
            Some(object) => context.written.remember(object),
            None => recent.etcd_gone = true,
        },
        Err(error) if is_not_found(&error) => {
            recent.etcd_gone = true;
            return Ok(Outcome::Done);
        }
        Err(error) if is_conflict(&error) => return Ok(Outcome::Outdated),
        Err(error) => return Err(error).doing(|| format!("deleting {} {}", reference.kind, reference.name)),
    }
    record_event(context, cluster, &Outcome::Done, "Delete", "DeletingEtcd", || {
        format!("no worker is left: {} {} is deleted", reference.kind, reference.name)
    })
    .await;
    Ok(Outcome::Done)
}

/// A patch of the control plane, whose webhooks may not like it.
async fn change(
    context: &Context,
    cluster: &ClusterState,
    control_plane: &ControlPlaneView,
    body: &Value,
) -> Result<Outcome> {
    let objects = objects(context, cluster, &control_plane.reference, CLUSTER_API_CONTRACTS).await?;
    match patch(context, &objects, &control_plane.reference.name, body).await {
        Err(Error::Api { source, .. }) if is_invalid(&source) => {
            Ok(Outcome::Refused(format!("{} cannot be changed: {}", named(control_plane), answer(&source))))
        }
        other => other,
    }
}

async fn patch(context: &Context, objects: &Api<DynamicObject>, name: &str, body: &Value) -> Result<Outcome> {
    match outcome(apply::merge(objects, NAME, name, body).await, context) {
        // It has gone since.
        Err(Error::Api { source, .. }) if is_not_found(&source) => Ok(Outcome::Outdated),
        other => other,
    }
}

/// The API of a kind that has been observed: its version is known, and no request is made.
async fn objects(
    context: &Context,
    cluster: &ClusterState,
    reference: &Reference,
    contracts: Contracts,
) -> Result<Api<DynamicObject>> {
    let resource = context.shared.kinds.find(&reference.group, &reference.kind, contracts).await?;
    Ok(dynamic(&context.shared.client, &resource, &cluster.view.namespace))
}

fn secrets(context: &Context, cluster: &ClusterState) -> Api<DynamicObject> {
    dynamic(&context.shared.client, &ApiResource::erase::<Secret>(&()), &cluster.view.namespace)
}

fn outcome(answer: Result<DynamicObject>, context: &Context) -> Result<Outcome> {
    match answer {
        Ok(mut object) => {
            object.metadata.managed_fields = None;
            context.written.remember(object);
            Ok(Outcome::Done)
        }
        Err(Error::Api { source, .. }) if is_conflict(&source) => Ok(Outcome::Outdated),
        Err(error) => Err(error),
    }
}

async fn record_event(
    context: &Context,
    cluster: &ClusterState,
    outcome: &Outcome,
    action: &str,
    reason: &str,
    note: impl FnOnce() -> String,
) {
    if matches!(outcome, Outcome::Done) {
        let note = note();
        tracing::info!(reason, "{note}");
        context.events.normal(&object_reference(cluster), action, reason, note).await;
    }
}

/// What events are about.
pub fn object_reference(cluster: &ClusterState) -> ObjectReference {
    ObjectReference {
        api_version: Some(cluster.view.api_version.clone()),
        kind: Some("Cluster".to_owned()),
        name: Some(cluster.view.name.clone()),
        namespace: Some(cluster.view.namespace.clone()),
        uid: Some(cluster.view.uid.clone()),
        ..ObjectReference::default()
    }
}

fn named(control_plane: &ControlPlaneView) -> String {
    format!("{} {}", control_plane.reference.kind, control_plane.reference.name)
}

fn etcd_of(observation: &Observation) -> Result<&EtcdView> {
    observation.found_etcd().ok_or_else(|| missing("etcd"))
}

fn control_plane_of(observation: &Observation) -> Result<&ControlPlaneView> {
    observation.found_control_plane().ok_or_else(|| missing("control plane"))
}

/// A step is planned only for what was observed.
fn missing(what: &str) -> Error {
    Error::Internal(format!("a step was planned for a {what} that was not observed"))
}
