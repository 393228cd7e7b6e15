//! Cluster API's Cluster.

use super::{Reference, api_group, failure_domains, flag};
use api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use std::collections::BTreeSet;

/// What we need of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// `apiVersion` it was read in.
    pub api_version: String,
    /// When it was created.
    pub created: Option<Time>,
    /// It is being deleted.
    pub deleting: bool,
    /// What pauses it, for people: `spec.paused`, the pause annotation, or both.
    pub paused_by: Option<String>,
    /// The infrastructure.
    pub infrastructure: Option<Reference>,
    /// The infrastructure is provisioned: v1beta2's `infrastructureProvisioned` or v1beta1's `infrastructureReady`.
    pub infrastructure_ready: bool,
    /// Failure domains for control planes, by name. The infrastructure reports them when it is ready.
    pub failure_domains: BTreeSet<String>,
    /// The control plane.
    pub control_plane: Option<Reference>,
    /// The etcd that the Cluster names: by the annotation, or by `spec.managedExternalEtcdRef` if the CRD has it. The
    /// annotation wins. `Err`: what is wrong with the annotation.
    pub etcd: Option<Result<Reference, String>>,
}

impl ClusterView {
    /// Reads a Cluster of any version.
    #[must_use]
    pub fn read(cluster: &DynamicObject) -> Self {
        let data = &cluster.data;
        let annotation = cluster.annotations().get(names::MANAGED_ETCD_ANNOTATION);
        Self {
            name: cluster.name_any(),
            namespace: cluster.namespace().unwrap_or_default(),
            uid: cluster.uid().unwrap_or_default(),
            api_version: cluster.types.as_ref().map(|t| t.api_version.clone()).unwrap_or_default(),
            created: cluster.creation_timestamp(),
            deleting: cluster.metadata.deletion_timestamp.is_some(),
            paused_by: paused_by(cluster),
            infrastructure: Reference::read(data.pointer("/spec/infrastructureRef")),
            infrastructure_ready: flag(
                data,
                &["/status/initialization/infrastructureProvisioned", "/status/infrastructureReady"],
            ),
            failure_domains: failure_domains::read(data),
            control_plane: Reference::read(data.pointer("/spec/controlPlaneRef")),
            etcd: match annotation {
                Some(text) => Some(etcd_reference(text)),
                None => Reference::read(data.pointer("/spec/managedExternalEtcdRef")).map(Ok),
            },
        }
    }

    /// Whether the Cluster is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused_by.is_some()
    }

    /// Says that it is paused, and by which field or annotation, for people.
    #[must_use]
    pub fn pause(&self) -> Option<String> {
        self.paused_by.as_ref().map(|by| format!("Cluster {} is paused by {by}", self.name))
    }

    /// Whether the Cluster names the EtcdCluster `name`.
    #[must_use]
    pub fn names_etcd_cluster(&self, name: &str) -> bool {
        matches!(&self.etcd, Some(Ok(etcd)) if etcd.kind == "EtcdCluster" && etcd.group == names::ETCD_CLUSTER_GROUP && etcd.name == name)
    }

    /// Whether an owner is a Cluster of this name that is not this one. Only one of the two exists.
    #[must_use]
    pub fn is_namesake(&self, owner: &OwnerReference) -> bool {
        is_cluster(owner) && owner.name == self.name && owner.uid != self.uid
    }

    /// The owners of an object, with this Cluster among them, but not as the controller. An earlier Cluster of the same
    /// name is left out: it is gone, and the garbage collector would delete the object with it.
    #[must_use]
    pub fn among(&self, owners: &[OwnerReference], block_owner_deletion: Option<bool>) -> Vec<OwnerReference> {
        let others = owners.iter().filter(|owner| owner.uid != self.uid && !self.is_namesake(owner));
        let ours = OwnerReference {
            api_version: self.api_version.clone(),
            kind: "Cluster".to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: None,
            block_owner_deletion,
        };
        others.cloned().chain([ours]).collect()
    }
}

/// Says what is paused, and by which field or annotation, for people: an object, its Cluster, or both. Otherwise,
/// somebody could lift one pause and wait in vain.
#[must_use]
pub fn pause_of<K: Resource<DynamicType = ()>>(object: &K, cluster: Option<&ClusterView>) -> Option<String> {
    let annotation = names::PAUSED_ANNOTATION;
    let own = object.annotations().contains_key(annotation);
    let own = own.then(|| format!("{} {} is paused by annotation {annotation}", K::kind(&()), object.name_any()));
    let all: Vec<String> = own.into_iter().chain(cluster.and_then(ClusterView::pause)).collect();
    (!all.is_empty()).then(|| all.join(", and "))
}

/// Whether an owner is a Cluster.
#[must_use]
pub fn is_cluster(owner: &OwnerReference) -> bool {
    owner.kind == "Cluster" && api_group(&owner.api_version) == names::CLUSTER_GROUP
}

/// What pauses an object that has `spec.paused`. The annotation of objects that clusterctl moves away is not a pause:
/// clusterctl also pauses the Cluster, and deletes it last. If the annotation is left on a Cluster, nothing removes it,
/// and the deletion of that Cluster still has to finish.
fn paused_by(cluster: &DynamicObject) -> Option<String> {
    let field = flag(&cluster.data, &["/spec/paused"]).then(|| "spec.paused".to_owned());
    let annotation = cluster.annotations().contains_key(names::PAUSED_ANNOTATION);
    let annotation = annotation.then(|| format!("annotation {}", names::PAUSED_ANNOTATION));
    let all: Vec<String> = field.into_iter().chain(annotation).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

/// Reads `<name>` (an EtcdCluster) or `<kind>.<group>/<name>`.
fn etcd_reference(text: &str) -> Result<Reference, String> {
    let invalid = || {
        format!(
            "annotation {}: {text:?} is neither the name of an EtcdCluster nor <kind>.<group>/<name>",
            names::MANAGED_ETCD_ANNOTATION
        )
    };
    let (kind, group, name) = match text.split_once('/') {
        None => ("EtcdCluster", names::ETCD_CLUSTER_GROUP, text),
        Some((kind_group, name)) => {
            let (kind, group) = kind_group.split_once('.').ok_or_else(invalid)?;
            (kind, group, name)
        }
    };
    if kind.is_empty() || group.is_empty() || name.is_empty() || name.contains(['/', ' ']) {
        return Err(invalid());
    }
    Ok(Reference { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cluster(value: serde_json::Value) -> ClusterView {
        ClusterView::read(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn both_contracts_are_read() {
        for status in
            [json!({"infrastructureReady": true}), json!({"initialization": {"infrastructureProvisioned": true}})]
        {
            let view = cluster(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "demo"}, "status": status
            }));
            assert!(view.infrastructure_ready && !view.is_paused() && !view.deleting);
        }
    }

    #[test]
    fn what_pauses_a_cluster_is_named() {
        let paused_by = |annotations: serde_json::Value, paused: bool| {
            cluster(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": "demo", "annotations": annotations}, "spec": {"paused": paused}
            }))
            .paused_by
        };
        let annotated = json!({names::PAUSED_ANNOTATION: ""});
        assert_eq!(paused_by(json!({}), false), None);
        assert_eq!(paused_by(json!({}), true).as_deref(), Some("spec.paused"));
        assert_eq!(paused_by(annotated.clone(), false).as_deref(), Some("annotation cluster.x-k8s.io/paused"));
        assert_eq!(paused_by(annotated, true).as_deref(), Some("spec.paused and annotation cluster.x-k8s.io/paused"));
        let moved = json!({names::DELETE_FOR_MOVE_ANNOTATION: ""});
        assert_eq!(paused_by(moved.clone(), false), None, "else it is never deleted");
        assert_eq!(paused_by(moved, true).as_deref(), Some("spec.paused"), "as clusterctl leaves it");
    }

    #[test]
    fn etcd_is_named_by_annotation_before_reference() {
        let named = |annotation: &str| {
            cluster(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": "demo", "annotations": {names::MANAGED_ETCD_ANNOTATION: annotation}},
                "spec": {"managedExternalEtcdRef": {"apiVersion": "g/v1", "kind": "Other", "name": "other"}}
            }))
        };
        assert!(named("demo-etcd").names_etcd_cluster("demo-etcd"));
        assert!(named("EtcdCluster.etcdcluster.cluster.x-k8s.io/demo-etcd").names_etcd_cluster("demo-etcd"));
        assert!(!named("OtherEtcd.example.org/demo-etcd").names_etcd_cluster("demo-etcd"));
        for bad in ["", "EtcdCluster/x", "a/b/c", ".g/x", "two words"] {
            assert!(matches!(named(bad).etcd, Some(Err(_))), "{bad}");
        }
    }
}
