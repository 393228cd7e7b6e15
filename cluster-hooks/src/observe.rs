//! All reads, and the clock. Nearly everything comes out of shared watches; what costs a request says so.

mod workload;

use crate::adapter::{KUBEADM, Lookup};
use crate::context::Context;
use crate::observation::{
    Claim, ClusterState, ControlPlane, ControlPlaneView, Etcd, EtcdView, Held, HookedMachine, Joining, Need,
    Observation, Reads, SHARED_CERTIFICATES, Secrets, Shared, Used, WrittenEndpoints, configured, field_manager,
    hooked, is_paused_by_us, names_of,
};
use api::names;
use controller_support::external::{Reference, api_group, secret_text};
use controller_support::kinds::{CLUSTER_API_CONTRACTS, ETCD_PROVIDER_CONTRACTS};
use controller_support::{Error, Index, KindError, Result, ResultExt, apply};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DynamicObject, ListParams, PartialObjectMeta};
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads everything about a Cluster that costs no request, or next to none. None: it has nothing to do with us.
pub async fn observe(context: &Context, cluster: &Arc<DynamicObject>, reads: &Reads) -> Result<Option<Observation>> {
    let cluster = ClusterState::read(&context.written.newest(cluster.clone()));
    if cluster.view.etcd.is_none() && cluster.condition.is_none() && !cluster.view.deleting {
        return Ok(None);
    }
    let mut found = if reads.etcd_gone { gone(&cluster) } else { etcd(context, &cluster).await? };
    let named = matches!(&found, Etcd::Found(etcd) if !matches!(etcd.claim, Claim::Theirs(_)));
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
        let has_endpoints = control_plane.has_endpoints();
        observation.written = written;
        // Before the endpoints are written no Secret matters, and none may be there.
        if has_endpoints {
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

/// Whole seconds: finer ones do not survive Cluster API's own writes of the same list.
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
        // Another provider's kind in the field that is not ours alone: that provider takes care of it.
        Err(KindError::NoContract { .. }) if !cluster.by_annotation => return Ok(Etcd::NotNamed),
        Err(error) if error.is_user_error() => {
            return Ok(Etcd::Invalid { message: error.to_string(), retryable: true });
        }
        Err(error) => return Err(error.into()),
    };
    let watch = context.watch(&resource, None).await?;
    let namespace = &cluster.view.namespace;
    Ok(match watch.get(namespace, &reference.name) {
        None => Etcd::Missing(reference.clone()),
        Some(cached) => {
            let exists = |name: &str| context.clusters.get(namespace, name).is_some();
            Etcd::Found(Box::new(EtcdView::read(&context.written.newest(cached), reference, &cluster.view, exists)))
        }
    })
}

/// An etcd of any provider that the Cluster has claimed and no longer names. Its Machines would keep a Cluster that is being
/// deleted.
async fn left_behind(context: &Context, cluster: &ClusterState) -> Result<Option<Etcd>> {
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
            // The permission for another provider's kind may be missing. A Cluster is deleted all the same.
            Err(error) if group != names::ETCD_CLUSTER_GROUP => {
                tracing::warn!(%error, "not looked at for what the Cluster has left behind");
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut all = watch.in_namespace(&cluster.view.namespace).into_iter().map(read);
        if let Some(etcd) = all.find(|etcd| matches!(etcd.claim, Claim::Ours | Claim::OfNamesake)) {
            return Ok(Some(Etcd::Found(Box::new(etcd))));
        }
    }
    Ok(None)
}

/// Every kind whose CRD says that it satisfies the etcd-provider contract. One request, now and then.
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
        // The permission for another kind than KubeadmControlPlane may be missing. A Cluster is deleted all the same, and what
        // we may not read we have not paused.
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
        // Our pause may be on it: its provider's upgrade may have taken the annotation from the CRD.
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

/// Control planes with our pause that the Cluster no longer refers to: of the kinds that this process has come across. A
/// Cluster that is being deleted may have had a KubeadmControlPlane before this process began.
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

/// What the machines of a control plane were started with, by the API server's present word. One request, and for a
/// KubeadmControlPlane two more; only when its machines have rolled.
async fn used(context: &Context, cluster: &ClusterState, control_plane: &ControlPlaneView) -> Result<Used> {
    let (reference, view) = (&control_plane.reference, &cluster.view);
    let resource = context.shared.kinds.find(&reference.group, &reference.kind, CLUSTER_API_CONTRACTS).await?;
    let live = apply::get_live(&context.shared.client, &resource, &view.namespace, &reference.name).await?;
    // A watch that is behind shows it in a moment, and it is asked again.
    if live.and_then(|live| live.resource_version()).as_deref() != Some(&*control_plane.resource_version) {
        return Ok(Used::Unknown);
    }
    if !control_plane.adapter.kubeadm {
        return Ok(Used::OfSpec);
    }
    let machines = control_plane_machines(context, names::CLUSTER_GROUP, "Machine", cluster).await?;
    let configs = control_plane_machines(context, names::BOOTSTRAP_GROUP, "KubeadmConfig", cluster).await?;
    Ok(configured(&machines, &configs))
}

/// What machines are started with that join later. One request, and one to the Kubernetes cluster itself; only when a list
/// of endpoints is about to be retired, or the record of them is lost.
async fn joining(context: &Context, cluster: &ClusterState) -> Result<Joining> {
    let name = format!("{}-kubeconfig", cluster.view.name);
    let secret = secret(context, &cluster.view.namespace, &name).await?;
    Ok(match secret.as_ref().and_then(|secret| secret_text(secret, "value")) {
        Some(kubeconfig) => workload::read(&kubeconfig).await,
        None => Joining::Unknown(format!("there is no kubeconfig in Secret {name}")),
    })
}

/// The Machines of a control plane, or what they were made from, as the API server has them now. One request.
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

/// The Cluster is the one that the API server has now. One request.
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

/// Who, apart from us, has written the endpoints last. One request: watches do not keep the managers of fields.
async fn last_manager(context: &Context, cluster: &ClusterState, control_plane: &ControlPlaneView) -> Result<String> {
    let reference = &control_plane.reference;
    let resource = context.shared.kinds.find(&reference.group, &reference.kind, CLUSTER_API_CONTRACTS).await?;
    let live = apply::get_live(&context.shared.client, &resource, &cluster.view.namespace, &reference.name).await?;
    let managed = live.and_then(|object| object.metadata.managed_fields).unwrap_or_default();
    let manager = field_manager(&managed, &control_plane.adapter.endpoints_path(), context.name);
    Ok(manager.map_or_else(|| "a client that is not known".to_owned(), |name| format!("field manager {name}")))
}

/// Secrets of a provider that labels them, as ours does, are in a watch once they are there. Others, and those that do not
/// exist, cost a request each.
async fn secrets(context: &Context, observation: &Observation) -> Result<Secrets> {
    let resource = ApiResource::erase::<Secret>(&());
    let watch = context.watch(&resource, Some(names::ETCD_CLUSTER_LABEL)).await?;
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

/// Three requests in a handover. They may be others', so they are not ours to watch.
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

/// What Cluster API waits for before it deletes the control plane, etcd's own Machines apart. Up to four requests (one as
/// long as a Machine is left), and only while the Cluster is being deleted.
async fn workers(context: &Context, cluster: &ClusterState) -> Result<Vec<String>> {
    let providers = providers(context).await?;
    for kind in ["Machine", "MachineDeployment", "MachineSet", "MachinePool"] {
        let found = match of_cluster(context, cluster, kind).await {
            Ok(found) => found,
            // They are an option. Of the others nothing is known then, which is not that there are none.
            Err(error) if kind == "MachinePool" && is_not_served(&error) => continue,
            Err(error) => return Err(error),
        };
        let counts = |object: &&PartialObjectMeta<DynamicObject>| match kind {
            "Machine" => is_worker(object.labels(), object.owner_references(), &providers),
            "MachinePool" => is_looked_after(&object.metadata, cluster, now().0),
            _ => true,
        };
        let workers: Vec<String> =
            found.iter().filter(counts).map(|object| format!("{kind} {}", object.name_any())).collect();
        if !workers.is_empty() {
            return Ok(workers);
        }
    }
    Ok(Vec::new())
}

/// Members' Machines that etcd has left behind: they carry its pre-terminate hook, and the etcd object that they belong
/// to is gone. Those of one that is there are that one's, also if another Cluster uses it. One request, and
/// one for each Machine with such an owner.
async fn left_machines(context: &Context, cluster: &ClusterState) -> Result<Vec<HookedMachine>> {
    let mut left = Vec::new();
    for machine in of_cluster(context, cluster, "Machine").await? {
        let etcd = machine.owner_references().iter().find(|owner| owner.controller == Some(true) && is_etcd(owner));
        match etcd {
            Some(etcd) if is_there(context, &cluster.view.namespace, etcd).await? => {}
            _ => left.push(machine),
        }
    }
    Ok(hooked(&left))
}

fn is_etcd(owner: &OwnerReference) -> bool {
    (api_group(&owner.api_version), &*owner.kind) == ETCD_CLUSTER
}

/// Whether the EtcdCluster exists, read live. One request.
async fn is_there(context: &Context, namespace: &str, etcd: &OwnerReference) -> Result<bool> {
    let resource = match context.shared.kinds.find(ETCD_CLUSTER.0, ETCD_CLUSTER.1, ETCD_PROVIDER_CONTRACTS).await {
        Ok(resource) => resource,
        Err(error) if error.is_user_error() => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let live = apply::get_live(&context.shared.client, &resource, namespace, &etcd.name).await?;
    Ok(live.is_some_and(|live| live.metadata.uid.as_deref() == Some(&*etcd.uid)))
}

/// Neither the kind nor a version of it that we could use.
fn is_not_served(error: &Error) -> bool {
    error.is_not_found() || matches!(error, Error::Kind(error) if error.is_user_error())
}

/// A MachinePool that its controller has not made the Cluster's in this time belongs to nobody.
const ADOPTION: SignedDuration = SignedDuration::from_mins(5);

/// Cluster API looks after a MachinePool unless its feature gate is off. Once it has deleted all that the Cluster owns,
/// it has deleted that one too; one that it has not deleted it does not wait for, and nobody deletes it. With the gate
/// on it waits for those of the Cluster that it does not own as well: a pool gets its owner from its own controller.
///
/// Source: Cluster API 1.14.0, reconcileDelete and getDescendants of core/reconcilers/cluster.
fn is_looked_after(machine_pool: &ObjectMeta, cluster: &ClusterState, now: Timestamp) -> bool {
    let owned = machine_pool.owner_references.iter().flatten().any(|owner| owner.uid == cluster.view.uid);
    let created = machine_pool.creation_timestamp.as_ref();
    let young = created.is_some_and(|created| now.duration_since(created.0) < ADOPTION);
    !cluster.children_deleted || machine_pool.deletion_timestamp.is_some() || (young && !owned)
}

/// Every object of a kind of Cluster API's that the Cluster has. One request.
async fn of_cluster(
    context: &Context,
    cluster: &ClusterState,
    kind: &str,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>> {
    let selector = ListParams::default().labels(&format!("{}={}", names::CLUSTER_NAME_LABEL, cluster.view.name));
    let list = |resource: ApiResource| {
        let objects = apply::dynamic(&context.shared.client, &resource, &cluster.view.namespace);
        let selector = selector.clone();
        async move { objects.list_metadata(&selector).await }
    };
    let (kinds, doing) = (&context.shared.kinds, format!("listing {kind}s"));
    Ok(kinds.ask_unwatched((names::CLUSTER_GROUP, kind), CLUSTER_API_CONTRACTS, &doing, list).await?.items)
}

/// Group and kind of this project's etcd.
const ETCD_CLUSTER: (&str, &str) = (names::ETCD_CLUSTER_GROUP, "EtcdCluster");
/// Label of the Machines of control planes.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";

/// Neither a control plane's nor etcd's: that of any etcd. A Cluster that has named another one before still has its Machines,
/// and they go with that one, after the workers.
fn is_worker(labels: &BTreeMap<String, String>, owners: &[OwnerReference], providers: &[(String, String)]) -> bool {
    let provider = |owner: &OwnerReference| {
        let group = api_group(&owner.api_version);
        providers.iter().any(|known| *known == (group.to_owned(), owner.kind.clone()))
    };
    let of_etcd = labels.contains_key(names::ETCD_CLUSTER_LABEL)
        || owners.iter().any(|owner| owner.controller == Some(true) && provider(owner));
    !labels.contains_key(CONTROL_PLANE_LABEL) && !of_etcd
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use serde_json::json;

    #[test]
    fn machine_pools_that_cluster_api_does_not_look_after_are_not_waited_for() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let age = ADOPTION.as_secs();
        let cluster = |reason: &str| {
            let conditions = json!([{"type": "Deleting", "status": "True", "reason": reason}]);
            let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": "demo", "uid": "cluster-2"}, "status": {"conditions": conditions}});
            ClusterState::read(&serde_json::from_value(cluster).unwrap())
        };
        for (deleting, owner, deleted, age, expected) in [
            ("", "cluster-2", false, age, true),
            ("", "cluster-2", true, age, true),
            ("WaitingForWorkersDeletion", "cluster-2", true, age, true),
            ("WaitingForWorkersDeletion", "cluster-2", false, age, false),
            ("WaitingForWorkersDeletion", "cluster-2", false, 0, false),
            // Its controller may be about to adopt it, or somebody has taken its owner in a restore.
            ("WaitingForWorkersDeletion", "", false, 0, true),
            ("WaitingForWorkersDeletion", "", false, age - 1, true),
            ("WaitingForWorkersDeletion", "", false, age, false),
            ("WaitingForWorkersDeletion", "cluster-1", false, age - 1, true),
            ("WaitingForWorkersDeletion", "cluster-1", false, age, false),
        ] {
            let pool = ObjectMeta {
                creation_timestamp: Some(Time(at(0))),
                deletion_timestamp: deleted.then(|| Time(at(0))),
                owner_references: Some(vec![OwnerReference { uid: owner.to_owned(), ..OwnerReference::default() }]),
                ..ObjectMeta::default()
            };
            let case = format!("{deleting} {owner} {deleted} {age}");
            assert_eq!(is_looked_after(&pool, &cluster(deleting), at(age)), expected, "{case}");
        }
    }

    #[test]
    fn a_kind_that_is_not_served_is_told_from_an_api_server_that_does_not_answer() {
        let kind = || "MachinePool.cluster.x-k8s.io".to_owned();
        let answered = |code| {
            let status = Status { code, ..Status::default() };
            Box::new(kube::Error::Api(Box::new(status)))
        };
        let listed = |code| Error::Api { doing: "listing MachinePools".to_owned(), source: answered(code) };
        let looked_up = |code| Error::Kind(KindError::Api { kind: kind(), source: answered(code) });
        let label = "cluster.x-k8s.io/v1beta2".to_owned();
        for (error, expected) in [
            (Error::Kind(KindError::NotServed { kind: kind() }), true),
            (Error::Kind(KindError::NoContract { kind: kind(), label }), true),
            (listed(404), true),
            (listed(403), false),
            (listed(503), false),
            (looked_up(503), false),
        ] {
            assert_eq!(is_not_served(&error), expected, "{error}");
        }
    }

    #[test]
    fn machines_of_an_etcd_cluster_are_known_by_their_owner() {
        let owner = |api_version: &str, kind: &str| OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            ..OwnerReference::default()
        };
        assert!(is_etcd(&owner("etcdcluster.cluster.x-k8s.io/v1alpha4", "EtcdCluster")));
        assert!(!is_etcd(&owner("example.org/v1", "EtcdCluster")));
        assert!(!is_etcd(&owner("cluster.x-k8s.io/v1beta2", "Cluster")));
    }

    #[test]
    fn machines_of_the_control_plane_and_of_any_etcd_are_not_workers() {
        let providers = [("example.org".to_owned(), "OtherEtcd".to_owned())];
        let is_worker = |labels: &BTreeMap<_, _>, owners: &[OwnerReference]| is_worker(labels, owners, &providers);
        let label = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let owner = |api_version: &str, kind: &str, controller| OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            controller: Some(controller),
            ..OwnerReference::default()
        };
        let none = BTreeMap::new();
        assert!(!is_worker(&label(CONTROL_PLANE_LABEL, ""), &[]));
        assert!(!is_worker(&none, &[owner("example.org/v1", "OtherEtcd", true)]));
        assert!(!is_worker(&label(names::ETCD_CLUSTER_LABEL, "demo-etcd"), &[]));
        assert!(
            !is_worker(&label(names::ETCD_CLUSTER_LABEL, "named before"), &[]),
            "it would keep the Cluster forever"
        );
        let set = owner("cluster.x-k8s.io/v1beta2", "MachineSet", true);
        assert!(is_worker(&none, &[owner("example.org/v1", "OtherEtcd", false), set]));
        assert!(is_worker(&none, &[owner("example.com/v1", "OtherEtcd", true)]), "a kind of another group");
        assert!(is_worker(&none, &[]));
    }
}
