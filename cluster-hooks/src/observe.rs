//! All reads, and the clock. Nearly everything comes from shared watches. The comment on a function says if it costs
//! requests.

mod deletion;
mod workload;

use crate::adapter::{KUBEADM, Lookup};
use crate::context::Context;
use crate::mappers::referring;
use crate::observation::{
    Claim, ClusterState, ControlPlane, ControlPlaneView, Etcd, EtcdView, Held, Joining, Need, Observation, Reads,
    SHARED_CERTIFICATES, Secrets, Shared, Used, WrittenEndpoints, configured, field_manager, is_paused_by_us, names_of,
};
use api::names;
use controller_support::external::{Reference, secret_text};
use controller_support::kinds::{CLUSTER_API_CONTRACTS, ETCD_PROVIDER_CONTRACTS};
use controller_support::{Cached, Error, Index, KindError, Result, ResultExt, apply};
use deletion::{left_machines, workers};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt};
use std::sync::Arc;

/// Label of the Machines of control planes.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";

/// Reads everything about a Cluster that costs no request, or hardly any. None: the Cluster does not concern us.
pub async fn observe(context: &Context, cluster: &Arc<DynamicObject>, reads: &Reads) -> Result<Option<Observation>> {
    let cluster = ClusterState::read(&context.written.newest(cluster.clone()));
    if cluster.view.etcd.is_none() && cluster.condition.is_none() && !cluster.view.deleting {
        return Ok(None);
    }
    let mut found = if reads.etcd_gone { gone(&cluster) } else { etcd(context, &cluster).await? };
    let named = matches!(&found, Etcd::Found(etcd) if !matches!(etcd.claim, Claim::Theirs(_)));
    if cluster.view.deleting
        && let Etcd::Found(etcd) = &mut found
    {
        etcd.named_by_another = named_by_another(context, &cluster, etcd);
    }
    if cluster.view.deleting && !named && !reads.etcd_gone {
        match left_behind(context, &cluster).await? {
            Some(left) => found = left,
            None if cluster.view.etcd.is_none()
                && cluster.condition.is_none()
                && left_machines(context, &cluster).await?.is_empty() =>
            {
                return Ok(None);
            }
            None => {}
        }
    }
    let control_plane = control_plane(context, &cluster).await?;
    let former = former(context, &cluster).await;
    let mut observation = Observation {
        now: now(),
        cluster,
        etcd: found,
        written: None,
        control_plane,
        former,
        secrets: Secrets::default(),
        reads: reads.clone(),
    };
    let view = &observation.cluster.view;
    if let Some(control_plane) = observation.found_control_plane().filter(|_| !view.is_paused() && !view.deleting) {
        let remembered = context.endpoints.get(&control_plane.uid);
        let written = WrittenEndpoints::later(control_plane.written.clone(), remembered);
        let needs_secrets = control_plane.needs_secrets();
        observation.written = written;
        if needs_secrets {
            observation.secrets = secrets(context, &observation).await?;
        }
    }
    Ok(Some(observation))
}

/// Answers a [`Need`].
pub async fn read(context: &Context, observation: &Observation, need: Need, reads: &mut Reads) -> Result<()> {
    let cluster = &observation.cluster;
    match (need, observation.found_control_plane()) {
        (Need::Used, Some(control_plane)) => reads.used = Some(used(context, cluster, control_plane).await?),
        (Need::FieldManager, Some(control_plane)) => {
            reads.field_manager = Some(last_manager(context, cluster, control_plane).await?);
        }
        (Need::Joining, ..) => reads.joining = Some(joining(context, cluster).await?),
        (Need::Current, ..) => reads.is_current = current(context, cluster).await?,
        (Need::SharedCertificates, ..) => reads.shared = Some(shared(context, cluster).await?),
        (Need::Hooked, ..) => reads.hooked = Some(left_machines(context, cluster).await?),
        (Need::Workers, ..) => reads.workers = Some(workers(context, cluster).await?),
        (Need::Used | Need::FieldManager, ..) => {
            return Err(Error::Internal(format!("{need:?} was asked for of an object that was not observed")));
        }
    }
    Ok(())
}

/// The time in whole seconds. Cluster API drops fractions when it writes the same list of conditions.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
pub fn now() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

fn gone(cluster: &ClusterState) -> Etcd {
    match &cluster.view.etcd {
        Some(Ok(reference)) => Etcd::Missing(reference.clone()),
        Some(Err(_)) | None => Etcd::NotNamed,
    }
}

/// The etcd that the Cluster names.
pub async fn etcd(context: &Context, cluster: &ClusterState) -> Result<Etcd> {
    let reference = match &cluster.view.etcd {
        None => return Ok(Etcd::NotNamed),
        Some(Err(message)) => return Ok(Etcd::Invalid { message: message.clone(), retryable: false }),
        Some(Ok(reference)) => reference,
    };
    let resource = match context.shared.kinds.find(&reference.group, &reference.kind, ETCD_PROVIDER_CONTRACTS).await {
        Ok(resource) => resource,
        // Other providers use this field too. The kind is another provider's, which takes care of it.
        Err(KindError::NoContract { .. }) if !cluster.by_annotation => return Ok(Etcd::NotNamed),
        Err(error) if error.is_user_error() => {
            return Ok(Etcd::Invalid { message: error.to_string(), retryable: true });
        }
        Err(error) => return Err(error.into()),
    };
    let watch = match context.watch(&resource, None).await {
        Ok(watch) => watch,
        // The permission for another provider's kind may be missing. That does not stop the deletion of the Cluster.
        Err(error @ Error::Refused(_)) if cluster.view.deleting && reference.group != names::ETCD_CLUSTER_GROUP => {
            return Ok(Etcd::Invalid { message: error.to_string(), retryable: true });
        }
        Err(error) => return Err(error),
    };
    let namespace = &cluster.view.namespace;
    Ok(match watch.get(namespace, &reference.name) {
        None => Etcd::Missing(reference.clone()),
        Some(cached) => {
            let exists = |name: &str| context.clusters.get(namespace, name).is_some();
            let etcd = EtcdView::read(&context.written.newest(cached), reference, &cluster.view, exists);
            Etcd::Found(Box::new(of_secrets(context, etcd, cluster, exists).await?))
        }
    })
}

/// Looks at the Secrets of an etcd where its marks do not say whose it is.
async fn of_secrets(
    context: &Context,
    etcd: EtcdView,
    cluster: &ClusterState,
    exists: impl Fn(&str) -> bool,
) -> Result<EtcdView> {
    if etcd.claim != Claim::Free {
        return Ok(etcd);
    }
    let secrets = labelled_secrets(context).await?.in_namespace(&cluster.view.namespace);
    Ok(etcd.with_secrets(secrets.iter().map(AsRef::as_ref), &cluster.view, exists))
}

/// An etcd object of any provider that the Cluster has claimed and no longer names. Its Machines would block the
/// deletion of the Cluster. One that lacks a mark, and that another Cluster names, comes last.
async fn left_behind(context: &Context, cluster: &ClusterState) -> Result<Option<Etcd>> {
    let mut handed_over = None;
    for (group, kind) in providers(context).await? {
        let resource = match context.shared.kinds.find(&group, &kind, ETCD_PROVIDER_CONTRACTS).await {
            Ok(resource) => resource,
            Err(error) if error.is_user_error() => continue,
            Err(error) => return Err(error.into()),
        };
        let read = |object: Arc<DynamicObject>| {
            let reference = Reference { group: group.clone(), kind: kind.clone(), name: object.name_any() };
            EtcdView::read(&context.written.newest(object), &reference, &cluster.view, |_| true)
        };
        let watch = match context.watch(&resource, None).await {
            Ok(watch) => watch,
            // The permission for another provider's kind may be missing. That does not stop the deletion of the
            // Cluster.
            Err(error) if group != names::ETCD_CLUSTER_GROUP => {
                tracing::warn!(%error, "not looked at for what the Cluster has left behind");
                continue;
            }
            Err(error) => return Err(error),
        };
        let exists = |name: &str| context.clusters.get(&cluster.view.namespace, name).is_some();
        for object in watch.in_namespace(&cluster.view.namespace) {
            let mut etcd = of_secrets(context, read(object), cluster, exists).await?;
            if !etcd.is_left_by(&cluster.view) {
                continue;
            }
            etcd.named_by_another = named_by_another(context, cluster, &etcd);
            if etcd.named_by_another.is_none() {
                return Ok(Some(Etcd::Found(Box::new(etcd))));
            }
            handed_over = Some(Etcd::Found(Box::new(etcd)));
        }
    }
    Ok(handed_over)
}

/// Another Cluster that names an etcd that lacks a mark, and that is not being deleted: a person may be handing the
/// etcd over.
fn named_by_another(context: &Context, cluster: &ClusterState, etcd: &EtcdView) -> Option<String> {
    if etcd.claim != Claim::Free {
        return None;
    }
    let naming = referring(&context.clusters, &cluster.view.namespace, &etcd.reference);
    let living = naming.iter().filter(|other| other.metadata.deletion_timestamp.is_none());
    let mut names = living.map(|other| other.name_any());
    names.find(|name| *name != cluster.view.name)
}

/// Every kind whose CRD says that it satisfies the etcd-provider contract. One request, unless the list is cached.
async fn providers(context: &Context) -> Result<Vec<(String, String)>> {
    if let Some(known) = context.providers.get(&()) {
        return Ok(known);
    }
    let crds: Api<CustomResourceDefinition> = Api::all(context.shared.client.clone());
    let labelled = ListParams::default().labels(names::ETCD_PROVIDER_CONTRACT_LABEL);
    let crds = crds.list(&labelled).await.doing(|| "listing the CRDs of etcd providers".to_owned())?;
    let kinds: Vec<_> = crds.items.into_iter().map(|crd| (crd.spec.group, crd.spec.names.kind)).collect();
    context.providers.insert((), kinds.clone());
    Ok(kinds)
}

/// The control plane of a Cluster.
pub async fn control_plane(context: &Context, cluster: &ClusterState) -> Result<ControlPlane> {
    let Some(reference) = &cluster.view.control_plane else { return Ok(ControlPlane::Unset) };
    let unknown = |message, unsupported| Ok(ControlPlane::Unknown { message, unsupported, held: None });
    let adapter = match context.adapters.find(&context.shared.kinds, reference).await? {
        Lookup::Found(adapter) => Ok(adapter),
        Lookup::NoAnnotation(message) => Err(message),
        Lookup::NoKind(message) => return unknown(message, false),
    };
    let resource =
        match (context.shared.kinds.find(&reference.group, &reference.kind, CLUSTER_API_CONTRACTS).await, &adapter) {
            (Ok(resource), _) => resource,
            (Err(error), Err(message)) if error.is_user_error() => return unknown(message.clone(), true),
            (Err(error), _) if error.is_user_error() => return unknown(error.to_string(), false),
            (Err(error), _) => return Err(error.into()),
        };
    let watch = match (context.watch(&resource, None).await, &adapter) {
        (Ok(watch), _) => watch,
        // The permission for a kind other than KubeadmControlPlane may be missing. That does not stop the deletion of
        // the Cluster: if we may not read an object, we have not paused it.
        (Err(error), Ok(adapter)) if !adapter.kubeadm && cluster.view.deleting => {
            return unknown(error.to_string(), false);
        }
        (Err(error), Err(message)) if cluster.view.deleting || matches!(error, Error::Refused(_)) => {
            return unknown(message.clone(), true);
        }
        (Err(error), _) => return Err(error),
    };
    context.keep_control_planes(&watch);
    let Some(cached) = watch.get(&cluster.view.namespace, &reference.name) else {
        return match adapter {
            Ok(_) => Ok(ControlPlane::Missing(reference.clone())),
            Err(message) => unknown(message, true),
        };
    };
    let object = context.written.newest(cached);
    Ok(match adapter {
        Ok(adapter) => {
            let view = ControlPlaneView::read(&object, reference, &resource.api_version, adapter);
            ControlPlane::Found(Box::new(view))
        }
        // It may carry our pause: an upgrade of its provider may have removed the annotation from the CRD.
        Err(message) => {
            ControlPlane::Unknown { message, unsupported: true, held: Some(Held::read(&object, reference)) }
        }
    })
}

/// Control planes with our pause, by the Cluster in their label.
const BY_OUR_PAUSE: Index = Index::new("our pause", |object| {
    let cluster = object.labels().get(names::CLUSTER_NAME_LABEL).filter(|_| is_paused_by_us(object));
    cluster.cloned().into_iter().collect()
});

/// Control planes with our pause that the Cluster no longer refers to, among the kinds that this process has watched so
/// far. For a Cluster that is being deleted, this includes KubeadmControlPlane: the Cluster may have had one before
/// this process started.
async fn former(context: &Context, cluster: &ClusterState) -> Vec<Held> {
    if cluster.view.deleting {
        let kubeadm = context.shared.kinds.find(KUBEADM.0, KUBEADM.1, CLUSTER_API_CONTRACTS).await;
        if let Ok(resource) = kubeadm
            && let Ok(watch) = context.watch(&resource, None).await
        {
            context.keep_control_planes(&watch);
        }
    }
    let (namespace, name) = (&cluster.view.namespace, &cluster.view.name);
    let mut found = Vec::new();
    for watch in context.control_planes() {
        let resource = watch.resource();
        for cached in watch.by_index(&BY_OUR_PAUSE, namespace, name) {
            let object = context.written.newest(cached);
            let reference =
                Reference { group: resource.group.clone(), kind: resource.kind.clone(), name: object.name_any() };
            if cluster.view.control_plane.as_ref() != Some(&reference) && is_paused_by_us(&object) {
                found.push(Held::read(&object, &reference));
            }
        }
    }
    found
}

/// The endpoints that the machines of a control plane were started with, read live. One request, and two more for a
/// KubeadmControlPlane. The plan asks only when its machines have been replaced, or when the record of endpoints in use
/// is lost.
async fn used(context: &Context, cluster: &ClusterState, control_plane: &ControlPlaneView) -> Result<Used> {
    let (reference, view) = (&control_plane.reference, &cluster.view);
    let resource = context.shared.kinds.find(&reference.group, &reference.kind, CLUSTER_API_CONTRACTS).await?;
    let live = apply::get_live(&context.shared.client, &resource, &view.namespace, &reference.name).await?;
    // The watch is about to report the change, and the plan then asks again.
    if live.and_then(|live| live.resource_version()).as_deref() != Some(&*control_plane.resource_version) {
        return Ok(Used::Unknown);
    }
    if !control_plane.adapter.kubeadm {
        return Ok(Used::OfSpec);
    }
    // The configs first: an update in place marks the Machine before it writes the config.
    let configs = control_plane_machines(context, names::BOOTSTRAP_GROUP, "KubeadmConfig", cluster).await?;
    let machines = control_plane_machines(context, names::CLUSTER_GROUP, "Machine", cluster).await?;
    Ok(configured(&machines, &configs))
}

/// The endpoints that further machines would join with. One request, and one to the Kubernetes cluster itself. The plan
/// asks only when a list of endpoints is about to leave the record, or when the record is lost.
async fn joining(context: &Context, cluster: &ClusterState) -> Result<Joining> {
    let name = format!("{}-kubeconfig", cluster.view.name);
    let secret = secret(context, &cluster.view.namespace, &name).await?;
    Ok(match secret.as_ref().and_then(|secret| secret_text(secret, "value")) {
        Some(kubeconfig) => workload::read(&kubeconfig).await,
        None => Joining::Unknown(format!("there is no kubeconfig in Secret {name}")),
    })
}

/// The Machines of a control plane, or the objects that they were made from, read live. One request.
pub async fn control_plane_machines(
    context: &Context,
    group: &str,
    kind: &str,
    cluster: &ClusterState,
) -> Result<Vec<DynamicObject>> {
    let (namespace, name) = (&cluster.view.namespace, &cluster.view.name);
    let selector = format!("{CONTROL_PLANE_LABEL},{}={name}", names::CLUSTER_NAME_LABEL);
    let selector = ListParams::default().labels(&selector);
    let list = |resource: ApiResource| {
        let (objects, selector) = (apply::dynamic(&context.shared.client, &resource, namespace), selector.clone());
        async move { objects.list(&selector).await }
    };
    let doing = format!("listing {kind}s of the control plane of Cluster {name}");
    Ok(context.shared.kinds.ask_unwatched((group, kind), CLUSTER_API_CONTRACTS, &doing, list).await?.items)
}

/// Makes sure that the API server still has this Cluster, and not another one of the same name. One request.
async fn current(context: &Context, cluster: &ClusterState) -> Result<bool> {
    let (view, resource) = (&cluster.view, context.clusters.resource());
    let live = apply::get_live(&context.shared.client, resource, &view.namespace, &view.name).await?;
    if live.and_then(|live| live.uid()).as_deref() != Some(&*view.uid) {
        return Err(Error::NotReady(format!(
            "Cluster {} is not the one that was observed: the watch is behind",
            view.name
        )));
    }
    Ok(true)
}

/// Who wrote the endpoints last, other than us. One request, because watches do not keep the managed fields.
async fn last_manager(context: &Context, cluster: &ClusterState, control_plane: &ControlPlaneView) -> Result<String> {
    let reference = &control_plane.reference;
    let resource = context.shared.kinds.find(&reference.group, &reference.kind, CLUSTER_API_CONTRACTS).await?;
    let live = apply::get_live(&context.shared.client, &resource, &cluster.view.namespace, &reference.name).await?;
    let managed = live.and_then(|object| object.metadata.managed_fields).unwrap_or_default();
    let manager = field_manager(&managed, &control_plane.adapter.endpoints_path(), context.name);
    Ok(manager.map_or_else(|| "a client that is not known".to_owned(), |name| format!("field manager {name}")))
}

/// Reads the Secrets. Those of a provider that labels them, as ours does, are in a watch once they exist. Secrets
/// without the label, and those that do not exist, cost one request each.
async fn secrets(context: &Context, observation: &Observation) -> Result<Secrets> {
    let watch = labelled_secrets(context).await?;
    let namespace = &observation.cluster.view.namespace;
    let read = async |name: &str| -> Result<_> {
        match watch.get(namespace, name) {
            Some(cached) => Ok(Some(context.written.newest(cached))),
            None => secret(context, namespace, name).await.map(|secret| secret.map(Arc::new)),
        }
    };
    let [ca, staged, published] = names_of(&observation.cluster.view.name);
    let published = match &observation.reads.published {
        Some(published) => Some(published.clone()),
        None => read(&published).await?,
    };
    // Only a handover needs these two.
    let (ca, staged) = match observation.found_etcd().is_some_and(EtcdView::usable) {
        true => (read(&ca).await?, read(&staged).await?),
        false => (None, None),
    };
    Ok(Secrets::read(ca.as_deref(), staged.as_deref(), published.as_deref()))
}

/// The watch of the Secrets that etcd providers make.
async fn labelled_secrets(context: &Context) -> Result<Cached> {
    context.watch(&ApiResource::erase::<Secret>(&()), Some(names::ETCD_CLUSTER_LABEL)).await
}

/// Reads the shared certificates. Three requests in a handover: these Secrets may belong to others, so they do not have
/// the label that we watch.
async fn shared(context: &Context, cluster: &ClusterState) -> Result<Vec<Shared>> {
    let mut found = Vec::new();
    for certificate in SHARED_CERTIFICATES {
        let name = format!("{}-{certificate}", cluster.view.name);
        found.extend(secret(context, &cluster.view.namespace, &name).await?.map(|secret| Shared::read(&secret)));
    }
    Ok(found)
}

async fn secret(context: &Context, namespace: &str, name: &str) -> Result<Option<DynamicObject>> {
    context.secrets(namespace).get_opt(name).await.doing(|| format!("reading Secret {namespace}/{name}"))
}
