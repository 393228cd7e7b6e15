//! All writes: takes the steps that the plan asks for.

use crate::build;
use crate::context::Context;
use crate::observation::{
    ClusterState, ControlPlaneView, EtcdView, Held, HookedMachine, Observation, Reads, WrittenEndpoints,
};
use crate::plan::{Plan, Step};
use crate::status;
use api::conditions::reasons;
use api::names;
use controller_support::error::{answer, code};
use controller_support::external::Reference;
use controller_support::kinds::{CLUSTER_API_CONTRACTS, ETCD_PROVIDER_CONTRACTS};
use controller_support::{Error, Result, ResultExt, apply};
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The outcome of a step.
#[derive(Debug)]
pub enum Outcome {
    /// The step was taken. The next one is planned from a new observation.
    Done,
    /// The object has changed since it was observed: nothing was written.
    Outdated,
    /// The API server does not accept, or does not keep, what we write into the control plane.
    Refused(String),
}

/// Takes a step.
pub async fn execute(context: &Context, observation: &Observation, step: &Step, reads: &mut Reads) -> Result<Outcome> {
    let cluster = &observation.cluster;
    match step {
        Step::Read(need) => Err(Error::Internal(format!("{need:?} is not a write"))),
        Step::ClaimEtcd => claim(context, cluster, etcd_of(observation)?).await,
        Step::Announce(hold) => {
            let announced = status::announcement(cluster, hold, &observation.now);
            condition(context, cluster, &announced).await
        }
        Step::RecordEndpointsInUse { lists, retire } => {
            let etcd = etcd_of(observation)?;
            let outcome = patch_etcd(context, cluster, etcd, &build::patch::endpoints_in_use(etcd, lists)).await?;
            if *retire {
                let urls = || lists.urls().into_iter().collect::<Vec<_>>().join(", ");
                let note = || format!("API servers use only these endpoints of etcd: {}", urls());
                record_event(context, cluster, &outcome, "RollOut", "ControlPlaneRolledOut", note).await;
            }
            Ok(outcome)
        }
        Step::Pause => {
            let control_plane = control_plane_of(observation)?;
            let outcome =
                change(context, cluster, &control_plane.reference, &build::patch::pause(control_plane)).await?;
            let note = || status::pause_note(observation, control_plane);
            record_event(context, cluster, &outcome, "Pause", "ControlPlaneHeldBack", note).await;
            Ok(outcome)
        }
        Step::Unpause => {
            let held = observation.held().ok_or_else(|| missing("control plane"))?;
            unpause(context, cluster, &held).await
        }
        Step::UnpauseFormer(held) => unpause(context, cluster, held).await,
        Step::WriteEndpoints { endpoints, overwritten_by } => {
            let control_plane = control_plane_of(observation)?;
            let written = WrittenEndpoints::after(observation.written.as_ref(), endpoints, &observation.now);
            let objects = context.api(&control_plane.reference, CLUSTER_API_CONTRACTS, &cluster.view.namespace).await?;
            let outcome = write_endpoints(context, &objects, control_plane, written).await?;
            let using = || format!("{} uses etcd at {}", control_plane.reference, endpoints.join(", "));
            if let (Some(by), Outcome::Done) = (overwritten_by, &outcome) {
                let found = control_plane.endpoints.as_deref().unwrap_or_default().join(", ");
                let note = format!("{by} had written {found}: {}", using());
                let about = object_reference(cluster);
                context.events.warning(&about, "WriteEndpoints", reasons::ENDPOINTS_REVERTED_BY_OTHERS, note).await;
            } else {
                record_event(context, cluster, &outcome, "WriteEndpoints", "EtcdEndpointsWritten", using).await;
            }
            Ok(outcome)
        }
        Step::PublishClient(pair) => {
            let secret = build::secret::client(&cluster.view, etcd_of(observation)?, pair);
            let outcome = publish(context, cluster, &secret, reads).await?;
            let note = || format!("Secret {} lets API servers use etcd", secret.name_any());
            record_event(context, cluster, &outcome, "Publish", "EtcdClientCertificatePublished", note).await;
            Ok(outcome)
        }
        Step::UpdateClient(pair) => {
            let etcd = etcd_of(observation)?;
            let published = observation.secrets.published.as_ref().ok_or_else(|| missing("client Secret"))?;
            let body = build::secret::update(&cluster.view, etcd, published, pair);
            let name = names::apiserver_client_secret(&cluster.view.name);
            let outcome = patch(context, &context.secrets(&cluster.view.namespace), &name, &body).await?;
            reads.published = None;
            let note = || format!("updated Secret {name} with the certificate that etcd's provider has renewed");
            record_event(context, cluster, &outcome, "Publish", "EtcdClientCertificateUpdated", note).await;
            Ok(outcome)
        }
        Step::ConfirmDeletion => {
            let etcd = etcd_of(observation)?;
            patch_etcd(context, cluster, etcd, &build::patch::confirm_deletion(etcd)).await
        }
        Step::DeleteEtcd => delete_etcd(context, cluster, etcd_of(observation)?, reads).await,
        Step::ReleaseMachines(machines) => release(context, cluster, machines, reads).await,
        Step::WakeControlPlane => {
            let control_plane = control_plane_of(observation)?;
            change(context, cluster, &control_plane.reference, &build::patch::wake(control_plane)).await
        }
        Step::RemoveConditions => match remove_health(context, observation).await? {
            Outcome::Done => remove_condition(context, cluster).await,
            other => Ok(other),
        },
    }
}

/// Applies our condition to the Cluster, unless the Cluster has changed since the condition was computed.
pub async fn condition(context: &Context, cluster: &ClusterState, condition: &Condition) -> Result<Outcome> {
    let body = build::status::condition(cluster, condition);
    let clusters = apply::dynamic(&context.shared.client, context.clusters.resource(), &cluster.view.namespace);
    let answer = apply::apply_status::<DynamicObject>(&clusters, context.name, &cluster.view.name, &body).await;
    remember_status(context, &cluster.view.uid, Some(condition), answer)
}

/// Does the same, and writes a warning event if a person has to change something and the reason is new.
pub async fn report(context: &Context, cluster: &ClusterState, plan: &Plan, said: Condition) -> Result<Outcome> {
    let outcome = condition(context, cluster, &said).await?;
    if let Outcome::Done = outcome {
        tracing::info!(status = said.status, reason = said.reason, message = said.message, "etcd");
        let changed = cluster.condition.as_ref().is_none_or(|before| before.reason != said.reason);
        if let (Plan::Block(_), true) = (plan, changed) {
            context.events.warning(&object_reference(cluster), "Handover", &said.reason, said.message).await;
        }
    }
    Ok(outcome)
}

async fn remove_condition(context: &Context, cluster: &ClusterState) -> Result<Outcome> {
    outcome(context, merge_cluster_status(context, cluster, &build::status::without_condition(cluster)).await)
}

/// Applies our condition to the control plane, unless that has changed since the condition was computed.
pub async fn health(context: &Context, observation: &Observation, condition: &Condition) -> Result<Outcome> {
    let (control_plane, namespace) = (control_plane_of(observation)?, &observation.cluster.view.namespace);
    let body = build::status::health(control_plane, namespace, condition);
    let objects = context.api(&control_plane.reference, CLUSTER_API_CONTRACTS, namespace).await?;
    let answer = apply::apply_status(&objects, context.name, &control_plane.reference.name, &body).await;
    remember_status(context, &control_plane.uid, Some(condition), answer)
}

async fn remove_health(context: &Context, observation: &Observation) -> Result<Outcome> {
    let Some((control_plane, type_)) = status::health::removable(observation) else { return Ok(Outcome::Done) };
    let (namespace, name) = (&observation.cluster.view.namespace, &control_plane.reference.name);
    let objects = context.api(&control_plane.reference, CLUSTER_API_CONTRACTS, namespace).await?;
    let body = build::status::without_health(control_plane, type_);
    let answer = merge_status(context, &objects, name, &body).await;
    remember_status(context, "", None, answer.doing(|| format!("writing the status of {}", control_plane.reference)))
}

/// Writes the fields of the managed-external-etcd proposal.
pub async fn mirror(context: &Context, cluster: &ClusterState, body: &Value) -> Result<Outcome> {
    remember_status(context, "", None, merge_cluster_status(context, cluster, body).await)
}

async fn merge_cluster_status(context: &Context, cluster: &ClusterState, body: &Value) -> Result<DynamicObject> {
    let name = &cluster.view.name;
    let clusters = apply::dynamic(&context.shared.client, context.clusters.resource(), &cluster.view.namespace);
    merge_status(context, &clusters, name, body).await.doing(|| format!("writing the status of Cluster {name}"))
}

/// Changes some fields of a status that others write too.
async fn merge_status(
    context: &Context,
    objects: &Api<DynamicObject>,
    name: &str,
    body: &Value,
) -> kube::Result<DynamicObject> {
    let parameters = PatchParams { field_manager: Some(context.name.to_owned()), ..PatchParams::default() };
    objects.patch_status(name, &parameters, &Patch::Merge(body)).await
}

/// Evaluates the answer to a write of a status. If the object is gone, there is no status to write. If it has changed
/// since it was observed, nothing was written.
fn remember_status(
    context: &Context,
    uid: &str,
    condition: Option<&Condition>,
    answer: Result<DynamicObject>,
) -> Result<Outcome> {
    match answer {
        Ok(object) => {
            remember(context, object);
            if let Some(condition) = condition {
                context.reported.insert(uid.to_owned(), condition.clone());
            }
            Ok(Outcome::Done)
        }
        Err(error) if error.is_not_found() => Ok(Outcome::Done),
        Err(error) if error.is_conflict() => Ok(Outcome::Outdated),
        Err(error) => Err(error),
    }
}

async fn publish(context: &Context, cluster: &ClusterState, secret: &Secret, reads: &mut Reads) -> Result<Outcome> {
    let secrets: Api<Secret> = Api::namespaced(context.shared.client.clone(), &cluster.view.namespace);
    match apply::create(&secrets, context.name, secret).await {
        Ok(created) => {
            let object = serde_json::to_value(&created).and_then(serde_json::from_value::<DynamicObject>);
            reads.published = Some(Arc::new(object.map_err(|error| Error::Internal(error.to_string()))?));
            Ok(Outcome::Done)
        }
        // Somebody else has made the Secret, or we did a moment ago. It is read before anything else is decided.
        Err(error) if error.is_conflict() => Ok(Outcome::Outdated),
        Err(error) => Err(error),
    }
}

async fn delete_etcd(context: &Context, cluster: &ClusterState, etcd: &EtcdView, reads: &mut Reads) -> Result<Outcome> {
    let reference = &etcd.reference;
    let objects = context.api(reference, ETCD_PROVIDER_CONTRACTS, &cluster.view.namespace).await?;
    let this_one = Preconditions { uid: Some(etcd.uid.clone()), resource_version: None };
    match apply::delete(&objects, &reference.kind, &reference.name, this_one).await {
        Ok(Some(object)) => remember(context, object),
        Ok(None) => reads.etcd_gone = true,
        Err(error) if error.is_not_found() => {
            reads.etcd_gone = true;
            return Ok(Outcome::Done);
        }
        Err(error) if error.is_conflict() => return Ok(Outcome::Outdated),
        Err(error) => return Err(error),
    }
    let note = || format!("{reference} is deleted: no worker is left");
    record_event(context, cluster, &Outcome::Done, "Delete", "DeletingEtcd", note).await;
    Ok(Outcome::Done)
}

async fn release(
    context: &Context,
    cluster: &ClusterState,
    machines: &[HookedMachine],
    reads: &mut Reads,
) -> Result<Outcome> {
    reads.hooked = None;
    let resource = context.shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let objects = apply::dynamic(&context.shared.client, &resource, &cluster.view.namespace);
    for machine in machines {
        if let Outcome::Outdated = patch(context, &objects, &machine.name, &build::patch::release(machine)).await? {
            return Ok(Outcome::Outdated);
        }
        let note = || format!("Machine {} is let go: it waited for an etcd that is gone", machine.name);
        record_event(context, cluster, &Outcome::Done, "Delete", "MachineReleased", note).await;
    }
    Ok(Outcome::Done)
}

/// Writes the endpoints, and makes sure that the control plane keeps them. The field of a kind other than
/// KubeadmControlPlane is known only from an annotation, so a dry run tries it first. If the API server dropped
/// endpoints that are recorded as written, it would look as if somebody else had removed them.
async fn write_endpoints(
    context: &Context,
    objects: &Api<DynamicObject>,
    control_plane: &ControlPlaneView,
    written: WrittenEndpoints,
) -> Result<Outcome> {
    let (adapter, reference) = (&control_plane.adapter, &control_plane.reference);
    let body = build::patch::endpoints(control_plane, &written);
    // A webhook may change their order, which makes no difference.
    let wanted: BTreeSet<String> = written.endpoints.iter().cloned().collect();
    let keeps = |answer: &DynamicObject| {
        let kept: BTreeSet<String> = adapter.endpoints(&answer.data).into_iter().flatten().collect();
        kept == wanted
    };
    if !adapter.kubeadm
        && let Ok(answer) = apply::try_merge(objects, context.name, &reference.name, &body).await
        && !keeps(&answer)
    {
        return Ok(drops_endpoints(control_plane));
    }
    let answer = apply::merge(objects, context.name, &reference.name, &body).await;
    let kept = answer.as_ref().is_ok_and(keeps);
    let outcome = refused(reference, outcome(context, answer))?;
    if !matches!(outcome, Outcome::Done) {
        return Ok(outcome);
    }
    if !kept {
        return Ok(drops_endpoints(control_plane));
    }
    context.endpoints.insert(control_plane.uid.clone(), written);
    Ok(Outcome::Done)
}

fn drops_endpoints(control_plane: &ControlPlaneView) -> Outcome {
    Outcome::Refused(format!(
        "{} does not keep {}.endpoints, its CRD has no such field: annotation {} of the CRD must name the object that has \
         the field endpoints",
        control_plane.reference,
        control_plane.adapter.field(),
        names::EXTERNAL_ETCD_PATH_ANNOTATION
    ))
}

async fn unpause(context: &Context, cluster: &ClusterState, held: &Held) -> Result<Outcome> {
    let outcome = change(context, cluster, &held.reference, &build::patch::unpause(held)).await?;
    let note = || format!("{} is no longer held back", held.reference);
    record_event(context, cluster, &outcome, "Release", "ControlPlaneReleased", note).await;
    Ok(outcome)
}

/// Patches the control plane. Its webhooks may refuse the patch.
async fn change(context: &Context, cluster: &ClusterState, reference: &Reference, body: &Value) -> Result<Outcome> {
    let objects = context.api(reference, CLUSTER_API_CONTRACTS, &cluster.view.namespace).await?;
    refused(reference, patch(context, &objects, &reference.name, body).await)
}

/// If the API server refuses the content (400, 422), the control plane has to be changed, and a condition says so. A
/// missing permission (403) is our own problem and stays an error.
fn refused(control_plane: &Reference, result: Result<Outcome>) -> Result<Outcome> {
    match result {
        Err(Error::Api { source, .. }) if [400, 422].contains(&code(&source)) => {
            Ok(Outcome::Refused(format!("{control_plane} cannot be changed: {}", answer(&source))))
        }
        other => other,
    }
}

/// Claims the live etcd object. While etcd comes up, its object changes all the time, and the resource version of the
/// watch is outdated soon. Only the owners must not have changed since they were observed.
async fn claim(context: &Context, cluster: &ClusterState, etcd: &EtcdView) -> Result<Outcome> {
    let (reference, view) = (&etcd.reference, &cluster.view);
    let resource = context.shared.kinds.find(&reference.group, &reference.kind, ETCD_PROVIDER_CONTRACTS).await?;
    let live = apply::get_live(&context.shared.client, &resource, &view.namespace, &reference.name).await?;
    let exists = |name: &str| context.clusters.get(&view.namespace, name).is_some();
    let live = live.map(|live| EtcdView::read(&live, reference, view, exists));
    match live.filter(|live| etcd.is_still_open(live)) {
        Some(live) => patch_etcd(context, cluster, &live, &build::patch::claim(&live, view)).await,
        None => Ok(Outcome::Outdated),
    }
}

async fn patch_etcd(context: &Context, cluster: &ClusterState, etcd: &EtcdView, body: &Value) -> Result<Outcome> {
    let objects = context.api(&etcd.reference, ETCD_PROVIDER_CONTRACTS, &cluster.view.namespace).await?;
    patch(context, &objects, &etcd.reference.name, body).await
}

/// Patches metadata or spec. If the object is gone or has changed since it was observed, nothing is written.
pub async fn patch(context: &Context, objects: &Api<DynamicObject>, name: &str, body: &Value) -> Result<Outcome> {
    outcome(context, apply::merge(objects, context.name, name, body).await)
}

fn outcome(context: &Context, answer: Result<DynamicObject>) -> Result<Outcome> {
    match answer {
        Ok(object) => {
            remember(context, object);
            Ok(Outcome::Done)
        }
        Err(error) if error.is_conflict() || error.is_not_found() => Ok(Outcome::Outdated),
        Err(error) => Err(error),
    }
}

fn remember(context: &Context, mut object: DynamicObject) {
    object.metadata.managed_fields = None;
    context.written.remember(object);
}

/// Writes an event on the Cluster, if the step was taken.
pub async fn record_event(
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

/// The Cluster, as events refer to it.
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

fn etcd_of(observation: &Observation) -> Result<&EtcdView> {
    observation.found_etcd().ok_or_else(|| missing("etcd"))
}

fn control_plane_of(observation: &Observation) -> Result<&ControlPlaneView> {
    observation.found_control_plane().ok_or_else(|| missing("control plane"))
}

/// The error for a step on something that was not observed. The plan never makes such a step.
fn missing(what: &str) -> Error {
    Error::Internal(format!("a step was planned for a {what} that was not observed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::{Adapter, KUBEADM};
    use controller_support::{Shared, Shutdown};
    use http::{Request, Response};
    use kube::client::Body;
    use kube::core::{GroupVersionKind, Status};
    use kube::discovery::ApiResource;
    use kube::{Client, Config};
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::Mutex;

    /// A context without an API server.
    fn context() -> Arc<Context> {
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let clusters = ApiResource::from_gvk(&GroupVersionKind::gvk(names::CLUSTER_GROUP, "v1beta2", "Cluster"));
        Context::new(&Shared::new(client, Shutdown::new().1), "test", &clusters).0
    }

    /// A stub API server answers patches of a control plane, and keeps the field or drops it.
    #[tokio::test]
    async fn endpoints_that_are_not_kept_are_not_recorded_as_written() {
        for (kubeadm, keeps, expected) in [
            (false, false, &["dryRun"][..]),
            (false, true, &["dryRun", "written"]),
            (true, true, &["written"]),
            (true, false, &["written"]),
        ] {
            let reference = match kubeadm {
                true => {
                    Reference { group: KUBEADM.0.to_owned(), kind: KUBEADM.1.to_owned(), name: "demo-cp".to_owned() }
                }
                false => {
                    Reference { group: "example.org".to_owned(), kind: "Strict".to_owned(), name: "demo-cp".to_owned() }
                }
            };
            let path = [(names::EXTERNAL_ETCD_PATH_ANNOTATION.to_owned(), "spec.etcd".to_owned())];
            let adapter = Adapter::built_in(&reference);
            let adapter = Arc::new(adapter.unwrap_or_else(|| Adapter::announced(&reference, &path.into()).unwrap()));
            let mut object = json!({"apiVersion": "example.org/v1", "kind": "Strict",
                "metadata": {"name": "demo-cp", "uid": "cp-1", "resourceVersion": "1"}});
            object["spec"] = adapter.patch(&[])["spec"].take();
            let view = serde_json::from_value(object.clone()).unwrap();
            let view = ControlPlaneView::read(&view, &reference, "example.org/v1", adapter.clone());
            let endpoints = ["https://10.0.0.1:2379".to_owned(), "https://10.0.0.2:2379".to_owned()];
            if keeps {
                let [first, second] = endpoints.clone();
                object["spec"] = adapter.patch(&[second, first])["spec"].take();
            }
            let requests = Arc::new(Mutex::new(Vec::new()));
            let seen = requests.clone();
            let api_server = move |request: Request<Body>| {
                let dry_run = request.uri().query().is_some_and(|query| query.contains("dryRun=All"));
                seen.lock().unwrap().push(if dry_run { "dryRun" } else { "written" });
                let answer = Response::new(Body::from(object.to_string().into_bytes()));
                async move { Ok::<_, Infallible>(answer) }
            };
            let client = Client::new(tower::service_fn(api_server), "default");
            let context = context();
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&reference.group, "v1", &reference.kind));
            let objects = apply::dynamic(&client, &kind, "default");
            let written = WrittenEndpoints::after(None, &endpoints, &crate::observe::now());
            let outcome = write_endpoints(&context, &objects, &view, written.clone()).await.unwrap();
            assert_eq!(matches!(&outcome, Outcome::Done), keeps, "{outcome:?}");
            assert_eq!(*requests.lock().unwrap(), expected, "kubeadm: {kubeadm} keeps: {keeps}");
            assert_eq!(context.endpoints.get("cp-1"), keeps.then_some(written), "{kubeadm}");
        }
    }

    #[tokio::test]
    async fn a_condition_for_another_version_is_decided_again_and_is_not_an_error() {
        let context = context();
        let condition: Condition = serde_json::from_value(json!({"type": "ManagedExternalEtcdReady", "status": "True",
            "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
        .unwrap();
        let answered = |code: u16| {
            let answer = Err(kube::Error::Api(Box::new(Status { code, ..Status::default() })));
            remember_status(&context, "u", Some(&condition), answer.doing(|| "writing".to_owned()))
        };
        assert!(matches!(answered(409), Ok(Outcome::Outdated)));
        assert!(matches!(answered(404), Ok(Outcome::Done)), "what is gone has no status");
        assert!(answered(403).is_err());
        assert_eq!(context.reported.get("u"), None, "none of them was written");
        let written: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "demo"}})).unwrap();
        assert!(matches!(remember_status(&context, "u", Some(&condition), Ok(written)), Ok(Outcome::Done)));
        assert_eq!(context.reported.get("u"), Some(condition));
    }
}
