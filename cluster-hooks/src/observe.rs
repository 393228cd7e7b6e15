//! All reads, and the clock. Nearly everything comes out of shared watches; what costs a request says so.

use crate::adapters::NoAdapter;
use crate::controller::Context;
use crate::observation::{
    Claim, ClusterState, ControlPlane, ControlPlaneMachine, ControlPlaneView, Etcd, EtcdView, Observation, Pause,
    SHARED_CERTIFICATES, Secrets, Shared, names_of,
};
use crate::plan::retires;
use api::names;
use controller_support::kinds::{CLUSTER_API_CONTRACTS, Contracts, ETCD_PROVIDER_CONTRACTS};
use controller_support::loose::Reference;
use controller_support::{Cached, Error, KindError, Result, ResultExt, apply};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, TypeMeta};
use kube::discovery::ApiResource;
use std::sync::Arc;

/// What this reconcile has done itself and the watches need not know yet.
#[derive(Default)]
pub struct Recent {
    /// There is a client Secret that the watch does not know: look.
    pub published_unseen: bool,
    /// The etcd object is gone.
    pub etcd_gone: bool,
    /// A Machine could not be deleted that the control plane wants replaced: not again in this reconcile.
    pub remediation_refused: bool,
}

/// Reads everything about a Cluster. None: it has nothing to do with us.
pub async fn observe(context: &Context, cluster: &Arc<DynamicObject>, recent: &Recent) -> Result<Option<Observation>> {
    let cluster = ClusterState::read(&context.written.pick(cluster.clone()));
    if cluster.view.etcd.is_none() && cluster.condition.is_none() && !cluster.view.deleting {
        return Ok(None);
    }
    let mut etcd = if recent.etcd_gone { gone(&cluster) } else { etcd(context, &cluster).await? };
    let named = matches!(&etcd, Etcd::Found(etcd) if !matches!(etcd.claim, Claim::Theirs(_)));
    if cluster.view.deleting && !named && !recent.etcd_gone {
        match left_behind(context, &cluster).await? {
            Some(left) => etcd = left,
            None if cluster.view.etcd.is_none() && cluster.condition.is_none() => return Ok(None),
            None => {}
        }
    }
    let control_plane = control_plane(context, &cluster).await?;
    let mut observation = Observation {
        now: now(),
        cluster,
        etcd,
        control_plane,
        secrets: Secrets::default(),
        workers: Vec::new(),
        machines: Vec::new(),
    };
    let view = &observation.cluster.view;
    if view.paused {
        return Ok(Some(observation));
    }
    if !view.deleting {
        // Before the endpoints are written no Secret matters, and none may be there.
        if observation.found_control_plane().is_some_and(ControlPlaneView::has_endpoints) {
            observation.secrets = secrets(context, &observation, recent).await?;
        }
        let kubeadm = observation.found_control_plane().is_some_and(|c| c.kubeadm.is_some());
        if kubeadm && observation.about_to_release() {
            observation.secrets.shared = shared(context, &observation.cluster).await?;
        }
        let kubeadm = |c: &ControlPlaneView| c.kubeadm.is_some() && c.initialized;
        if !recent.remediation_refused && observation.found_control_plane().is_some_and(kubeadm) {
            observation.machines = machines(context, &observation.cluster).await?;
        }
    } else if let Some(etcd) = observation.found_etcd().filter(|etcd| !etcd.deleting) {
        observation.workers = workers(context, &observation.cluster, etcd).await?;
    }
    if retires(&observation)
        && let Some(cached) = observation.found_control_plane()
    {
        observation.control_plane = live_control_plane(context, cached, &observation.cluster.view.namespace).await?;
    }
    Ok(Some(observation))
}

/// The same with the Cluster, etcd, the control plane and its Machines as the API server has them now. None: one of them is
/// gone. Four requests, for what cannot be undone.
pub async fn observe_live(context: &Context, observation: &Observation) -> Result<Option<Observation>> {
    let (Some(etcd), Some(control_plane)) = (observation.found_etcd(), observation.found_control_plane()) else {
        return Ok(None);
    };
    let (kinds, namespace, name) =
        (&context.shared.kinds, &observation.cluster.view.namespace, &observation.cluster.view.name);
    let clusters = context.clusters.resource();
    let Some(cluster) = get_live(context, clusters, namespace, name).await? else { return Ok(None) };
    let cluster = ClusterState::read(&cluster);
    let reference = &etcd.reference;
    let etcds = kinds.find(&reference.group, &reference.kind, ETCD_PROVIDER_CONTRACTS).await?;
    let Some(etcd) = get_live(context, &etcds, namespace, &reference.name).await? else { return Ok(None) };
    // Its claim was checked when it was made.
    let etcd = EtcdView::read(&etcd, reference, &cluster.view, |_| true);
    let control_plane = live_control_plane(context, control_plane, namespace).await?;
    let resource = kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let selector = format!("{CONTROL_PLANE_LABEL},{}={name}", names::CLUSTER_NAME_LABEL);
    let machines = apply::dynamic(&context.shared.client, &resource, namespace);
    let machines = machines.list(&ListParams::default().labels(&selector)).await;
    let machines = machines.doing(|| format!("listing the control plane's Machines of {name}"))?.items;
    Ok(Some(Observation {
        cluster,
        etcd: Etcd::Found(Box::new(etcd)),
        control_plane,
        machines: machines.iter().map(|found| ControlPlaneMachine::read(found, &resource.api_version)).collect(),
        ..observation.clone()
    }))
}

/// Whole seconds: finer ones do not survive Cluster API's own writes of the same list.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
fn now() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

fn gone(cluster: &ClusterState) -> Etcd {
    match &cluster.view.etcd {
        Some(Ok(reference)) => Etcd::Missing(reference.clone()),
        Some(Err(_)) | None => Etcd::NotNamed,
    }
}

async fn etcd(context: &Context, cluster: &ClusterState) -> Result<Etcd> {
    let reference = match &cluster.view.etcd {
        None => return Ok(Etcd::NotNamed),
        Some(Err(message)) => return Ok(Etcd::Invalid { message: message.clone(), retryable: false }),
        Some(Ok(reference)) => reference,
    };
    let resource = match find(context, reference, ETCD_PROVIDER_CONTRACTS).await? {
        Ok(resource) => resource,
        Err(message) => return Ok(Etcd::Invalid { message, retryable: true }),
    };
    let watch = watch(context, &resource, None).await?;
    let namespace = &cluster.view.namespace;
    Ok(match watch.get(namespace, &reference.name) {
        None => Etcd::Missing(reference.clone()),
        Some(cached) => {
            let exists = |name: &str| context.clusters.get(namespace, name).is_some();
            Etcd::Found(Box::new(EtcdView::read(&context.written.pick(cached), reference, &cluster.view, exists)))
        }
    })
}

/// An EtcdCluster that the Cluster has claimed and names no more. Its Machines would keep a Cluster that is being deleted.
async fn left_behind(context: &Context, cluster: &ClusterState) -> Result<Option<Etcd>> {
    let (namespace, kind) = (&cluster.view.namespace, "EtcdCluster");
    let resource = match context.shared.kinds.find(names::ETCD_CLUSTER_GROUP, kind, ETCD_PROVIDER_CONTRACTS).await {
        Ok(resource) => resource,
        Err(error) if KindError::is_users(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let watch = watch(context, &resource, None).await?;
    let read = |object: Arc<DynamicObject>| {
        let name = object.name_any();
        let reference = Reference { group: resource.group.clone(), kind: resource.kind.clone(), name };
        EtcdView::read(&context.written.pick(object), &reference, &cluster.view, |_| true)
    };
    let mut all = watch.select(namespace, |_| true).into_iter().map(read);
    Ok(all.find(|etcd| etcd.claim == Claim::Ours).map(|etcd| Etcd::Found(Box::new(etcd))))
}

async fn control_plane(context: &Context, cluster: &ClusterState) -> Result<ControlPlane> {
    let Some(reference) = &cluster.view.control_plane else { return Ok(ControlPlane::Unset) };
    let unknown = |message, unsupported| Ok(ControlPlane::Unknown { message, unsupported });
    let adapter = match context.adapters.find(&context.shared.kinds, reference).await? {
        Ok(adapter) => adapter,
        Err(NoAdapter::NoAnnotation(message)) => return unknown(message, true),
        Err(NoAdapter::NoKind(message)) => return unknown(message, false),
    };
    let resource = match find(context, reference, CLUSTER_API_CONTRACTS).await? {
        Ok(resource) => resource,
        Err(message) => return unknown(message, false),
    };
    let watch = match watch(context, &resource, None).await {
        Ok(watch) => watch,
        // The permission for another kind than KubeadmControlPlane may be missing. A Cluster is deleted all the same.
        Err(error) if !adapter.kubeadm && cluster.view.deleting => return unknown(error.to_string(), false),
        Err(error) => return Err(error),
    };
    Ok(match watch.get(&cluster.view.namespace, &reference.name) {
        None => ControlPlane::Missing(reference.clone()),
        Some(cached) => {
            let object = context.written.pick(cached);
            let view = ControlPlaneView::read(&object, reference, &resource.api_version, adapter);
            ControlPlane::Found(Box::new(view))
        }
    })
}

/// The control plane as it is now, and not as the watch has seen it last. One request, whenever its machines have rolled.
async fn live_control_plane(context: &Context, cached: &ControlPlaneView, namespace: &str) -> Result<ControlPlane> {
    let reference = &cached.reference;
    let resource = context.shared.kinds.find(&reference.group, &reference.kind, CLUSTER_API_CONTRACTS).await?;
    Ok(match get_live(context, &resource, namespace, &reference.name).await? {
        None => ControlPlane::Missing(reference.clone()),
        Some(object) => {
            let adapter = cached.adapter.clone();
            let view = ControlPlaneView::read(&object, reference, &resource.api_version, adapter);
            ControlPlane::Found(Box::new(view))
        }
    })
}

/// An object as it is now: a list of one, which needs no further permission than a watch does.
async fn get_live(
    context: &Context,
    resource: &ApiResource,
    namespace: &str,
    name: &str,
) -> Result<Option<DynamicObject>> {
    let objects = apply::dynamic(&context.shared.client, resource, namespace);
    let one = ListParams::default().fields(&format!("metadata.name={name}"));
    let mut found = objects.list(&one).await.doing(|| format!("reading {} {name}", resource.kind))?;
    Ok(found.items.pop().map(|mut object| {
        // What is in a list does not say what it is.
        let (api_version, kind) = (resource.api_version.clone(), resource.kind.clone());
        object.types.get_or_insert(TypeMeta { api_version, kind });
        object
    }))
}

/// The outer error is ours or the API server's; the inner one is for the user to cure.
async fn find(context: &Context, reference: &Reference, contracts: Contracts) -> Result<Result<ApiResource, String>> {
    match context.shared.kinds.find(&reference.group, &reference.kind, contracts).await {
        Ok(resource) => Ok(Ok(resource)),
        Err(error) if KindError::is_users(&error) => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// A shared watch whose changes reconcile the Clusters that they concern.
async fn watch(context: &Context, resource: &ApiResource, selector: Option<&str>) -> Result<Cached> {
    let watch = context.shared.caches.watch(resource, selector);
    context.mappers.follow(&watch, selector);
    if watch.ready().await {
        return Ok(watch);
    }
    Err(Error::Internal(format!("no list of {} yet: the API server does not answer, or refuses it", resource.plural)))
}

/// Secrets of a provider that labels them, as ours does, cost no request. Others cost one each, as long as there is
/// something to do.
async fn secrets(context: &Context, observation: &Observation, recent: &Recent) -> Result<Secrets> {
    let resource = ApiResource::erase::<Secret>(&());
    let watch = watch(context, &resource, Some(names::ETCD_CLUSTER_LABEL)).await?;
    let namespace = &observation.cluster.view.namespace;
    let [ca, staged, published] = names_of(&observation.cluster.view.name);
    let read = async |name: &str, look: bool| -> Result<_> {
        if let Some(secret) = watch.get(namespace, name) {
            return Ok(Some(context.written.pick(secret)));
        }
        if let Some(answer) = context.secret_cache.get(namespace, name) {
            return Ok(answer.map(|secret| context.written.pick(secret)));
        }
        if !look {
            return Ok(None);
        }
        let secrets = apply::dynamic(&context.shared.client, &resource, namespace);
        let secret = secrets.get_opt(name).await.doing(|| format!("reading Secret {namespace}/{name}"))?.map(Arc::new);
        // That a Secret is missing is only worth remembering of the one that a provider need not have: two managers of
        // which one has missed the appearance of another would contradict each other.
        if secret.is_some() || name == staged {
            context.secret_cache.remember(namespace, name, secret.clone());
        }
        Ok(secret)
    };
    // Only a handover needs these two.
    let needed = observation.found_etcd().is_some_and(EtcdView::usable);
    let ca = read(&ca, needed).await?;
    let staged_secret = read(&staged, needed).await?;
    // A provider that stages does not publish, and while our pause holds the control plane it does no harm to find out by
    // creating the Secret. Without the pause an overlooked one would mean a pause in the middle of the first Machine's boot.
    let held = observation.found_control_plane().is_some_and(|control_plane| control_plane.pause == Pause::Ours);
    let published = read(&published, !held || staged_secret.is_none() || recent.published_unseen).await?;
    Ok(Secrets::read(ca.as_deref(), staged_secret.as_deref(), published.as_deref()))
}

/// Up to three requests in a handover. Whoever has made them, they are not ours to watch.
async fn shared(context: &Context, cluster: &ClusterState) -> Result<Vec<Shared>> {
    let namespace = &cluster.view.namespace;
    let secrets = apply::dynamic(&context.shared.client, &ApiResource::erase::<Secret>(&()), namespace);
    let mut found = Vec::new();
    for certificate in SHARED_CERTIFICATES {
        let name = format!("{}-{certificate}", cluster.view.name);
        let secret = match context.secret_cache.get(namespace, &name) {
            Some(answer) => answer,
            None => {
                let doing = || format!("reading Secret {namespace}/{name}");
                let answer = secrets.get_opt(&name).await.doing(doing)?.map(Arc::new);
                context.secret_cache.remember(namespace, &name, answer.clone());
                answer
            }
        };
        found.extend(secret.map(|secret| Shared::read(&secret)));
    }
    Ok(found)
}

/// What Cluster API waits for before it deletes the control plane, etcd's own Machines apart. Up to four requests (one as
/// long as a Machine is left), and only while the Cluster is being deleted.
async fn workers(context: &Context, cluster: &ClusterState, etcd: &EtcdView) -> Result<Vec<String>> {
    let selector = ListParams::default().labels(&format!("{}={}", names::CLUSTER_NAME_LABEL, cluster.view.name));
    for kind in ["Machine", "MachineDeployment", "MachineSet", "MachinePool"] {
        let resource = match context.shared.kinds.find(names::CLUSTER_GROUP, kind, CLUSTER_API_CONTRACTS).await {
            Ok(resource) => resource,
            // MachinePools are an option.
            Err(error) if error.is_users() => continue,
            Err(error) => return Err(error.into()),
        };
        let objects = apply::dynamic(&context.shared.client, &resource, &cluster.view.namespace);
        let list = objects.list_metadata(&selector).await.doing(|| format!("listing {}", resource.plural))?;
        let workers: Vec<String> = list
            .items
            .iter()
            .filter(|object| kind != "Machine" || is_worker(object.labels(), object.owner_references(), etcd))
            .map(|object| format!("{kind} {}", object.name_any()))
            .collect();
        if !workers.is_empty() {
            return Ok(workers);
        }
    }
    Ok(Vec::new())
}

/// The control plane's, from a watch that there is only where a KubeadmControlPlane has had an API server.
async fn machines(context: &Context, cluster: &ClusterState) -> Result<Vec<ControlPlaneMachine>> {
    let resource = context.shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let watch = watch(context, &resource, Some(CONTROL_PLANE_LABEL)).await?;
    let ours = |machine: &DynamicObject| machine.labels().get(names::CLUSTER_NAME_LABEL) == Some(&cluster.view.name);
    let found = watch.select(&cluster.view.namespace, ours);
    Ok(found.iter().map(|machine| ControlPlaneMachine::read(machine, &resource.api_version)).collect())
}

/// Label of the Machines of control planes.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";

/// Neither a control plane's nor etcd's.
fn is_worker(labels: &std::collections::BTreeMap<String, String>, owners: &[OwnerReference], etcd: &EtcdView) -> bool {
    let of_etcd = labels.get(names::ETCD_CLUSTER_LABEL).is_some_and(|name| *name == etcd.reference.name)
        || owners.iter().any(|owner| owner.controller == Some(true) && owner.uid == etcd.uid);
    !labels.contains_key(CONTROL_PLANE_LABEL) && !of_etcd
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn machines_of_the_control_plane_and_of_etcd_are_no_workers() {
        let etcd = EtcdView {
            reference: Reference { group: "g".to_owned(), kind: "K".to_owned(), name: "demo-etcd".to_owned() },
            api_version: "g/v1".to_owned(),
            uid: "e".to_owned(),
            resource_version: "1".to_owned(),
            deleting: false,
            ready: false,
            initialized: false,
            endpoints: Vec::new(),
            in_use: None,
            available: false,
            condition: None,
            owners: Vec::new(),
            claim: Claim::Ours,
        };
        let label = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let owner = |uid: &str, controller| OwnerReference {
            uid: uid.to_owned(),
            controller: Some(controller),
            ..OwnerReference::default()
        };
        let none = BTreeMap::new();
        assert!(!is_worker(&label(CONTROL_PLANE_LABEL, ""), &[], &etcd));
        assert!(!is_worker(&none, &[owner("e", true)], &etcd));
        assert!(!is_worker(&label(names::ETCD_CLUSTER_LABEL, "demo-etcd"), &[], &etcd));
        assert!(is_worker(&none, &[owner("e", false), owner("ms", true)], &etcd));
        assert!(is_worker(&label(names::ETCD_CLUSTER_LABEL, "other"), &[], &etcd));
    }
}
