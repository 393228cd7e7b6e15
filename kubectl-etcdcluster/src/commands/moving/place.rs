//! A management cluster, limited to the namespace that is moved: reads and writes.

use crate::FIELD_MANAGER;
use crate::connection::{Connection, Options};
use crate::moving::{
    CLASS_PAUSE, CLASSES, CLUSTER_PAUSE, CLUSTERCTL_LABEL, CLUSTERS, ETCD_CLUSTERS, Found, NODE, Rank, Side,
    is_of_move, shared_class,
};
use crate::reader::{Reader, dynamic};
use crate::snapshot::Snapshot;
use anyhow::{Context, Result};
use api::conditions::PAUSED;
use api::{EtcdCluster, names};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The kinds that are deleted last, in this order, after clusterctl was interrupted: while its Cluster exists,
/// everything is paused, and a ClusterClass that is in use may not be deleted.
const LAST: [&str; 3] = [ETCD_CLUSTERS, CLUSTERS, CLASSES];

/// A management cluster, limited to the namespace that is moved: reads and writes.
pub(super) struct Place {
    reader: Reader,
    pub(super) namespace: String,
    /// Kinds that clusterctl moves out of this management cluster.
    own: Vec<Kind>,
    /// Kinds that clusterctl moves out of the source. They apply to both sides.
    kinds: Vec<Kind>,
}

/// A kind that clusterctl discovers.
#[derive(Clone)]
struct Kind {
    resource: ApiResource,
    rank: Rank,
}

impl Place {
    /// Connects, and reads which kinds clusterctl moves.
    pub(super) async fn connect(options: &Options) -> Result<Self> {
        let Connection { client, namespace } = options.connect().await?;
        let own = kinds(&client).await.context("list the kinds that clusterctl moves")?;
        Ok(Self { reader: Reader::new(client).await?, namespace, kinds: own.clone(), own })
    }

    /// The same place as the target of a move. As in clusterctl, the kinds of the source apply.
    pub(super) fn with_kinds_of(mut self, source: &Self) -> Self {
        self.kinds = source.own.clone();
        self
    }

    /// Leases of the namespace.
    pub(super) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.reader.client.clone(), &self.namespace)
    }

    /// What tells one management cluster from another.
    pub(super) async fn identity(&self) -> Result<Option<String>> {
        let namespaces: Api<Namespace> = Api::all(self.reader.client.clone());
        let found = namespaces.get_metadata_opt("kube-system").await.context("read namespace kube-system")?;
        Ok(found.and_then(|namespace| namespace.uid()))
    }

    /// Kinds that clusterctl moves, as `Kind.group`, each with its resource.
    pub(super) fn movable(&self) -> BTreeMap<String, String> {
        let kinds = self.own.iter().map(|kind| &kind.resource);
        kinds.map(|kind| (format!("{}.{}", kind.kind, kind.group), resource(kind))).collect()
    }

    /// The EtcdClusters, with what belongs to them.
    pub(super) async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        self.reader.all(Some(&self.namespace)).await
    }

    /// All that a move needs to know of this side. Only the metadata of Secrets is read.
    pub(super) async fn side(&self) -> Result<Side> {
        let mut found = Vec::new();
        for kind in &self.kinds {
            let name = resource(&kind.resource);
            let objects = self.metadata(&kind.resource).await?;
            found.extend(objects.iter().map(|metadata| Found::read(&name, kind.rank, metadata)));
        }
        let paused = self.clusters().await?.iter().all(is_paused);
        Ok(Side { paused, ..Side::of(&found) })
    }

    /// Paused Clusters and ClusterClasses. With `moving`, those that an earlier attempt has paused are left out.
    pub(super) async fn paused(&self, moving: bool) -> Result<Vec<String>> {
        let of_others = |object: &ObjectMeta, pause: &[&str]| !(moving && is_of_move(object, pause));
        let mut found = Vec::new();
        for cluster in self.clusters().await? {
            let annotated = cluster.annotations().contains_key(names::PAUSED_ANNOTATION);
            if annotated || (is_paused(&cluster) && of_others(&cluster.metadata, &CLUSTER_PAUSE)) {
                found.push(format!("Cluster {}", cluster.name_any()));
            }
        }
        for (_, class) in self.paused_classes().await? {
            if of_others(&class, &CLASS_PAUSE) {
                found.push(format!("ClusterClass {}", class.name.unwrap_or_default()));
            }
        }
        Ok(found)
    }

    /// Why Clusters of any namespace prevent a move of this one with its ClusterClasses.
    pub(super) async fn shared_classes(&self) -> Result<Vec<String>> {
        let everywhere = dynamic(&self.reader.client, None, &self.reader.clusters);
        let clusters = everywhere.list(&ListParams::default()).await.context("list Clusters of all namespaces")?;
        Ok(clusters.items.iter().filter_map(|cluster| shared_class(cluster, &self.namespace)).collect())
    }

    /// Removes the pauses that a move has set on Clusters and ClusterClasses. Other pauses stay.
    pub(super) async fn resume_clusters(&self) -> Result<()> {
        for (kind, class) in self.paused_classes().await? {
            if is_of_move(&class, &CLASS_PAUSE) {
                self.change(&kind, &class.name.unwrap_or_default(), &annotation(false)).await?;
            }
        }
        let of_move = |cluster: &&DynamicObject| is_paused(cluster) && is_of_move(&cluster.metadata, &CLUSTER_PAUSE);
        for cluster in self.clusters().await?.iter().filter(of_move) {
            self.change(&self.reader.clusters, &cluster.name_any(), &json!({"spec": {"paused": null}})).await?;
        }
        Ok(())
    }

    /// Pauses the Clusters, as clusterctl does.
    pub(super) async fn pause_clusters(&self) -> Result<()> {
        for cluster in self.clusters().await?.iter().filter(|cluster| !is_paused(cluster)) {
            self.change(&self.reader.clusters, &cluster.name_any(), &json!({"spec": {"paused": true}})).await?;
        }
        Ok(())
    }

    /// Pauses the EtcdClusters, or removes the pause of a move.
    pub(super) async fn pause_etcds(&self, pause: bool) -> Result<()> {
        let kind = ApiResource::erase::<EtcdCluster>(&());
        for snapshot in self.snapshots().await? {
            if has_pause(&snapshot.etcd) != pause {
                self.change(&kind, &snapshot.etcd.name_any(), &annotation(pause)).await?;
            }
        }
        Ok(())
    }

    /// Pauses the Machines of etcd, or removes the pause of a move.
    pub(super) async fn pause_machines(&self, pause: bool) -> Result<()> {
        for machine in self.machines().await? {
            if has_pause(&machine) != pause {
                self.change(&self.reader.machines, &machine.name_any(), &annotation(pause)).await?;
            }
        }
        Ok(())
    }

    /// A Machine of etcd that Cluster API still works on.
    pub(super) async fn machine_at_work(&self) -> Result<Option<String>> {
        let machines = self.machines().await?;
        Ok(machines.iter().find(|machine| !machine_says_paused(machine)).map(ResourceExt::name_any))
    }

    /// Sets a Node in the status of those Machines of etcd that have none, or removes this Node again.
    pub(super) async fn set_nodes(&self, set: bool) -> Result<()> {
        let reference = match self.reader.machines.version.as_str() {
            "v1beta1" => json!({"apiVersion": "v1", "kind": "Node", "name": NODE}),
            _ => json!({"name": NODE}),
        };
        for machine in self.machines().await? {
            let node = machine.data.pointer("/status/nodeRef/name").and_then(Value::as_str).unwrap_or_default();
            let patch = match (set, node) {
                (true, "") => json!({"status": {"nodeRef": reference}}),
                (false, NODE) => json!({"status": {"nodeRef": null}}),
                _ => continue,
            };
            let (api, name) = (self.api(&self.reader.machines), machine.name_any());
            let patched = api.patch_status(&name, &parameters(), &Patch::Merge(&patch)).await;
            patched.with_context(|| format!("change the status of Machine {name}"))?;
        }
        Ok(())
    }

    /// Deletes all objects that the other side has too, without any controller acting on it: the second half of
    /// `clusterctl move`.
    pub(super) async fn take_away(&self, moved: &Side) -> Result<()> {
        let mut kinds: Vec<&ApiResource> = self.kinds.iter().map(|kind| &kind.resource).collect();
        kinds.sort_by_key(|kind| LAST.iter().position(|last| *last == resource(kind)));
        for kind in kinds {
            let api = self.api(kind);
            for (_, name) in moved.objects.iter().filter(|(of, _)| *of == resource(kind)) {
                let doing = || format!("take {} {name} away", resource(kind));
                let mark = json!({"metadata": {"annotations": {names::DELETE_FOR_MOVE_ANNOTATION: ""}}});
                let marked = api.patch_metadata(name, &parameters(), &Patch::Merge(&mark)).await;
                if_there(marked).with_context(doing)?;
                if_there(api.delete(name, &DeleteParams::background()).await).with_context(doing)?;
                let free = json!({"metadata": {"finalizers": null}});
                if_there(api.patch_metadata(name, &parameters(), &Patch::Merge(&free)).await).with_context(doing)?;
            }
        }
        Ok(())
    }

    /// Metadata of all objects of a kind. One that is not served has none.
    async fn metadata(&self, kind: &ApiResource) -> Result<Vec<ObjectMeta>> {
        match self.api(kind).list_metadata(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(error).with_context(|| format!("list {}", resource(kind))),
            Ok(list) => Ok(list.items.into_iter().map(|object| object.metadata).collect()),
        }
    }

    /// ClusterClasses with the annotation of a pause, each with its kind.
    async fn paused_classes(&self) -> Result<Vec<(ApiResource, ObjectMeta)>> {
        let classes = self.kinds.iter().map(|kind| &kind.resource).find(|kind| resource(kind) == CLASSES);
        let Some(kind) = classes else { return Ok(Vec::new()) };
        let is_paused = |object: &ObjectMeta| {
            object.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(names::PAUSED_ANNOTATION))
        };
        let found = self.metadata(kind).await?;
        Ok(found.into_iter().filter(is_paused).map(|class| (kind.clone(), class)).collect())
    }

    fn api(&self, kind: &ApiResource) -> Api<DynamicObject> {
        dynamic(&self.reader.client, Some(&self.namespace), kind)
    }

    async fn clusters(&self) -> Result<Vec<DynamicObject>> {
        let list = self.api(&self.reader.clusters).list(&ListParams::default()).await;
        Ok(list.context("list Clusters")?.items)
    }

    /// Machines of etcd.
    async fn machines(&self) -> Result<Vec<DynamicObject>> {
        let of_etcd = ListParams::default().labels(names::ETCD_CLUSTER_LABEL);
        Ok(self.api(&self.reader.machines).list(&of_etcd).await.context("list Machines")?.items)
    }

    async fn change(&self, kind: &ApiResource, name: &str, patch: &Value) -> Result<()> {
        let changed = self.api(kind).patch_metadata(name, &parameters(), &Patch::Merge(patch)).await;
        changed.map(drop).with_context(|| format!("change {} {name}", kind.kind))
    }
}

/// The kinds that clusterctl moves: Secrets, ConfigMaps, and those whose CRDs have its label.
async fn kinds(client: &Client) -> kube::Result<Vec<Kind>> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crds = crds.list(&ListParams::default().labels(CLUSTERCTL_LABEL)).await?;
    let of_crds = crds.items.iter().filter(|crd| crd.spec.scope == "Namespaced").filter_map(|crd| {
        let version = crd.spec.versions.iter().find(|version| version.storage)?;
        let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural);
        Some(Kind { resource, rank: Rank::of(&crd.metadata) })
    });
    let own = [ApiResource::erase::<Secret>(&()), ApiResource::erase::<ConfigMap>(&())];
    let own = own.map(|resource| Kind { resource, rank: Rank::default() });
    Ok(of_crds.chain(own).collect())
}

/// Resource with its group, as the name of a CRD.
fn resource(kind: &ApiResource) -> String {
    if kind.group.is_empty() { kind.plural.clone() } else { format!("{}.{}", kind.plural, kind.group) }
}

fn is_paused(cluster: &DynamicObject) -> bool {
    cluster.data.pointer("/spec/paused") == Some(&json!(true))
}

/// Whether an object has the pause of a move.
fn has_pause(object: &impl ResourceExt) -> bool {
    object.annotations().get(names::PAUSED_ANNOTATION).is_some_and(|value| value == names::PAUSED_FOR_MOVE_VALUE)
}

fn annotation(pause: bool) -> Value {
    let value = pause.then_some(names::PAUSED_FOR_MOVE_VALUE);
    json!({"metadata": {"annotations": {names::PAUSED_ANNOTATION: value}}})
}

/// Whether Cluster API reports that it does nothing to a Machine. v1beta1 has this condition in another place.
fn machine_says_paused(machine: &DynamicObject) -> bool {
    let lists = ["/status/conditions", "/status/v1beta2/conditions"].map(|path| machine.data.pointer(path));
    let mut conditions = lists.into_iter().flatten().filter_map(Value::as_array).flatten();
    conditions.any(|condition| condition["type"] == PAUSED && condition["status"] == "True")
}

/// An object that is gone needs no change.
fn if_there<T>(answer: kube::Result<T>) -> kube::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
