//! Which changes of other objects reconcile a Cluster: those of its etcd, its control plane and the Secrets between the
//! two. The hook follows a watch from the first time that it reads from it.

use crate::observation::names_of;
use api::names::CLUSTER_NAME_LABEL;
use controller_support::external::{ClusterView, Reference, is_cluster};
use controller_support::{Cached, Index};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::reflector::ObjectRef;
use std::sync::Arc;

/// Clusters by what they refer to.
const BY_REFERENCE: Index = Index::new("reference", |cluster| references(&ClusterView::read(cluster)));

/// The Clusters whose plan may change because an object has changed. The cost depends only on how many these are.
pub fn concerned(clusters: &Cached, resource: &ApiResource, changed: &DynamicObject) -> Vec<ObjectRef<DynamicObject>> {
    let namespace = changed.namespace().unwrap_or_default();
    let (group, kind) = (resource.group.clone(), resource.kind.clone());
    let mut concerned = referring(clusters, &namespace, &Reference { group, kind, name: changed.name_any() });
    for name in marked(resource, changed) {
        if let Some(cluster) = clusters.get(&namespace, name)
            && !concerned.iter().any(|known| known.name_any() == cluster.name_any())
        {
            concerned.push(cluster);
        }
    }
    concerned.iter().map(|cluster| ObjectRef::from_obj_with(cluster.as_ref(), clusters.resource().clone())).collect()
}

/// The Clusters that refer to an object.
pub fn referring(clusters: &Cached, namespace: &str, object: &Reference) -> Vec<Arc<DynamicObject>> {
    let Reference { group, kind, name } = object;
    clusters.by_index(&BY_REFERENCE, namespace, &key(group, kind, name))
}

/// What a Cluster refers to: its control plane, its etcd, and the Secrets between the two.
fn references(cluster: &ClusterView) -> Vec<String> {
    let etcd = cluster.etcd.iter().filter_map(|etcd| etcd.as_ref().ok());
    let objects = cluster.control_plane.iter().chain(etcd);
    let secrets = cluster.etcd.iter().flat_map(|_| names_of(&cluster.name));
    let objects = objects.map(|Reference { group, kind, name }| key(group, kind, name));
    objects.chain(secrets.map(|name| key("", "Secret", &name))).collect()
}

/// The Clusters that an object's label and owners name. Machines have the label, and so does an etcd object of any kind
/// that the Cluster no longer names, unless it has lost the label. Secrets do not count: the Cluster has labelled
/// Secrets that the hook does not read.
fn marked<'a>(resource: &ApiResource, object: &'a DynamicObject) -> Vec<&'a String> {
    if resource.kind == "Secret" && resource.group.is_empty() {
        return Vec::new();
    }
    let owners = object.owner_references().iter().filter(|owner| is_cluster(owner)).map(|owner| &owner.name);
    object.labels().get(CLUSTER_NAME_LABEL).into_iter().chain(owners).collect()
}

fn key(group: &str, kind: &str, name: &str) -> String {
    format!("{kind}.{group}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::GroupVersionKind;
    use serde_json::{Value, json};

    #[test]
    fn a_change_concerns_the_clusters_that_refer_to_it() {
        let cluster = |etcd: &str| {
            let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {
                "name": "demo", "annotations": {api::names::MANAGED_ETCD_ANNOTATION: etcd}},
                "spec": {"controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "demo-cp"}}});
            ClusterView::read(&serde_json::from_value(cluster).unwrap())
        };
        let secrets = ["demo-etcd", "demo-managed-etcd-apiserver-client", "demo-apiserver-etcd-client"];
        let secrets = secrets.map(|name| key("", "Secret", name));
        let control_plane = key("controlplane.cluster.x-k8s.io", "KubeadmControlPlane", "demo-cp");
        let mut all = vec![control_plane.clone(), key("example.org", "Other", "demo-etcd")];
        all.extend(secrets.clone());
        assert_eq!(references(&cluster("Other.example.org/demo-etcd")), all);
        // Even if the annotation cannot be read now, a valid one may have been there before.
        assert_eq!(
            references(&cluster("no/etcd/at all")),
            [std::slice::from_ref(&control_plane), &secrets[..]].concat()
        );
        let mut without = cluster("x");
        without.etcd = None;
        assert_eq!(references(&without), [control_plane]);
        assert_ne!(key("example.org", "Another", "demo-etcd"), key("example.org", "Other", "demo-etcd"));
    }

    #[test]
    fn a_change_concerns_the_clusters_in_the_label_and_the_owners() {
        let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "demo", "uid": "c1"});
        let stranger = json!({"apiVersion": "example.org/v1", "kind": "Cluster", "name": "other", "uid": "s1"});
        let object =
            |metadata: Value| -> DynamicObject { serde_json::from_value(json!({"metadata": metadata})).unwrap() };
        let of = |group: &str, kind: &str, object: &DynamicObject| -> Vec<String> {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
            marked(&resource, object).into_iter().cloned().collect()
        };
        // An etcd of any provider that the Cluster no longer names is among them.
        for (group, kind) in [("cluster.x-k8s.io", "Machine"), ("example.org", "OtherEtcd"), ("example.org", "Secret")]
        {
            for metadata in
                [json!({"labels": {CLUSTER_NAME_LABEL: "demo"}}), json!({"ownerReferences": [owner, stranger]})]
            {
                assert_eq!(of(group, kind, &object(metadata.clone())), ["demo"], "{kind} {metadata}");
            }
        }
        let both = json!({"labels": {CLUSTER_NAME_LABEL: "demo"}, "ownerReferences": [owner]});
        assert!(of("", "Secret", &object(both)).is_empty());
    }
}
