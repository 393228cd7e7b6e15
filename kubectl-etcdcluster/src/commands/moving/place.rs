//! The namespace in one of the two management clusters: reads and writes.

use crate::FIELD_MANAGER;
use crate::connection::{Connection, Options};
use crate::moving::{NODE, Side};
use crate::reader::{Reader, dynamic};
use crate::snapshot::Snapshot;
use anyhow::{Context, Result};
use api::{EtcdCluster, names};
use controller_support::external::api_group;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Label on the CRDs of kinds that clusterctl knows.
const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";
/// What goes last where clusterctl has been cut, in this order: as long as its Cluster is there, everything is paused.
const LAST: [&str; 2] = ["etcdclusters.etcdcluster.cluster.x-k8s.io", CLUSTERS];
const CLUSTERS: &str = "clusters.cluster.x-k8s.io";

/// The namespace in one of the two.
pub(super) struct Place {
    reader: Reader,
    pub(super) namespace: String,
    /// Kinds that clusterctl moves.
    kinds: Vec<ApiResource>,
}

impl Place {
    /// Connects, and asks what clusterctl would move.
    pub(super) async fn connect(options: &Options) -> Result<Self> {
        let Connection { client, namespace } = options.connect().await?;
        let kinds = kinds(&client).await.context("list the kinds that clusterctl moves")?;
        Ok(Self { reader: Reader::new(client).await?, namespace, kinds })
    }

    /// What tells one management cluster from another.
    pub(super) async fn identity(&self) -> Result<Option<String>> {
        let namespaces: Api<Namespace> = Api::all(self.reader.client.clone());
        let found = namespaces.get_metadata_opt("kube-system").await.context("read namespace kube-system")?;
        Ok(found.and_then(|namespace| namespace.uid()))
    }

    /// Kinds that clusterctl moves, as `Kind.group`.
    pub(super) fn movable(&self) -> BTreeSet<String> {
        self.kinds.iter().map(|kind| format!("{}.{}", kind.kind, kind.group)).collect()
    }

    /// The EtcdClusters, with what belongs to them.
    pub(super) async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        self.reader.all(Some(&self.namespace)).await
    }

    /// What a move is about. Of Secrets nothing but metadata is read.
    pub(super) async fn side(&self) -> Result<Side> {
        let mut side = Side { paused: true, ..Side::default() };
        for kind in &self.kinds {
            let list = self.api(kind).list_metadata(&ListParams::default()).await;
            for object in list.with_context(|| format!("list {}", resource(kind)))?.items {
                if resource(kind) != CLUSTERS && !object.owner_references().iter().any(|owner| self.moves(owner)) {
                    continue;
                }
                let pause = object.annotations().get(names::PAUSED_ANNOTATION);
                side.moving |= pause.is_some_and(|value| value == names::PAUSED_FOR_MOVE_VALUE);
                side.marked |= object.annotations().contains_key(names::DELETE_FOR_MOVE_ANNOTATION);
                side.objects.insert((resource(kind), object.name_any()));
            }
        }
        side.paused = self.clusters().await?.iter().all(is_paused);
        Ok(side)
    }

    /// Clusters that somebody has paused.
    pub(super) async fn paused_clusters(&self) -> Result<Vec<String>> {
        let clusters = self.clusters().await?;
        let annotated = |cluster: &DynamicObject| cluster.annotations().contains_key(names::PAUSED_ANNOTATION);
        let paused = clusters.iter().filter(|cluster| is_paused(cluster) || annotated(cluster));
        Ok(paused.map(ResourceExt::name_any).collect())
    }

    /// Takes the pause of Clusters away that clusterctl has set.
    pub(super) async fn resume_clusters(&self) -> Result<()> {
        for cluster in self.clusters().await?.iter().filter(|cluster| is_paused(cluster)) {
            self.change(&self.reader.clusters, &cluster.name_any(), &json!({"spec": {"paused": null}})).await?;
        }
        Ok(())
    }

    /// Pauses the EtcdClusters, or takes the pause of a move away.
    pub(super) async fn pause_etcds(&self, pause: bool) -> Result<()> {
        let kind = ApiResource::erase::<EtcdCluster>(&());
        for snapshot in self.snapshots().await? {
            if has_pause(&snapshot.etcd) != pause {
                self.change(&kind, &snapshot.etcd.name_any(), &annotation(pause)).await?;
            }
        }
        Ok(())
    }

    /// Pauses the Machines of etcd, or takes the pause of a move away.
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
        Ok(machines.iter().find(|machine| !says_paused(machine)).map(ResourceExt::name_any))
    }

    /// Has the Machines of etcd that have no Node name one, or takes that away again.
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

    /// Deletes whatever the other side has too, without anybody acting on it: the second half of `clusterctl move`.
    pub(super) async fn take_away(&self, moved: &Side) -> Result<()> {
        let mut kinds: Vec<&ApiResource> = self.kinds.iter().collect();
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

    /// Whether clusterctl moves objects of the kind of an owner.
    fn moves(&self, owner: &OwnerReference) -> bool {
        let group = api_group(&owner.api_version);
        self.kinds.iter().any(|kind| kind.kind == owner.kind && kind.group == group)
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

/// The kinds that clusterctl moves: those of its CRDs, Secrets and ConfigMaps.
async fn kinds(client: &Client) -> kube::Result<Vec<ApiResource>> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crds = crds.list(&ListParams::default().labels(CLUSTERCTL)).await?;
    let of_crds = crds.items.iter().filter(|crd| crd.spec.scope == "Namespaced").filter_map(|crd| {
        let version = crd.spec.versions.iter().find(|version| version.storage)?;
        let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
        Some(ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural))
    });
    let own = [ApiResource::erase::<Secret>(&()), ApiResource::erase::<ConfigMap>(&())];
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

/// Whether Cluster API says that it does nothing to a Machine. v1beta1 has such conditions elsewhere.
fn says_paused(machine: &DynamicObject) -> bool {
    let lists = ["/status/conditions", "/status/v1beta2/conditions"].map(|path| machine.data.pointer(path));
    let mut conditions = lists.into_iter().flatten().filter_map(Value::as_array).flatten();
    conditions.any(|condition| condition["type"] == "Paused" && condition["status"] == "True")
}

/// What is gone needs no change.
fn if_there<T>(answer: kube::Result<T>) -> kube::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
