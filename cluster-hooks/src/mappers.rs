//! Which changes of other objects reconcile a Cluster: those of its etcd, its control plane and the Secrets between the
//! two. The hook follows a watch from the first time that it reads from it.

use crate::observation::names_of;
use api::names::CLUSTER_NAME_LABEL;
use controller_support::external::{ClusterView, Reference};
use controller_support::{Cached, Index};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::reflector::ObjectRef;

/// Clusters by what they refer to.
const BY_REFERENCE: Index = Index::new("reference", |cluster| references(&ClusterView::read(cluster)));

/// The Clusters whose plan may change because an object has changed. The cost depends only on how many these are.
pub fn concerned(clusters: &Cached, resource: &ApiResource, changed: &DynamicObject) -> Vec<ObjectRef<DynamicObject>> {
    let namespace = changed.namespace().unwrap_or_default();
    let referring = key(&resource.group, &resource.kind, &changed.name_any());
    let mut concerned = clusters.by_index(&BY_REFERENCE, &namespace, &referring);
    if let Some(labelled) = labelled(resource, changed).and_then(|name| clusters.get(&namespace, name))
        && !concerned.iter().any(|cluster| cluster.name_any() == labelled.name_any())
    {
        concerned.push(labelled);
    }
    concerned.iter().map(|cluster| ObjectRef::from_obj_with(cluster.as_ref(), clusters.resource().clone())).collect()
}

/// What a Cluster refers to: its control plane, its etcd, and the Secrets between the two.
fn references(cluster: &ClusterView) -> Vec<String> {
    let etcd = cluster.etcd.iter().filter_map(|etcd| etcd.as_ref().ok());
    let objects = cluster.control_plane.iter().chain(etcd);
    let secrets = cluster.etcd.iter().flat_map(|_| names_of(&cluster.name));
    let objects = objects.map(|Reference { group, kind, name }| key(group, kind, name));
    objects.chain(secrets.map(|name| key("", "Secret", &name))).collect()
}

/// The Cluster that an object's label names. Machines have the label, and so does an etcd object of any kind that the
/// Cluster no longer names. Secrets do not count: the Cluster has labelled Secrets that the hook does not read.
fn labelled<'a>(resource: &ApiResource, object: &'a DynamicObject) -> Option<&'a String> {
    let is_secret = resource.kind == "Secret" && resource.group.is_empty();
    object.labels().get(CLUSTER_NAME_LABEL).filter(|_| !is_secret)
}

fn key(group: &str, kind: &str, name: &str) -> String {
    format!("{kind}.{group}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::GroupVersionKind;
    use serde_json::json;

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
    fn a_change_concerns_the_cluster_in_the_labels() {
        let object = json!({"metadata": {"name": "demo-1", "labels": {CLUSTER_NAME_LABEL: "demo"}}});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let of = |group: &str, kind: &str| {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
            labelled(&resource, &object).map(String::as_str)
        };
        // An etcd of any provider that the Cluster no longer names is among them.
        for (group, kind) in [("cluster.x-k8s.io", "Machine"), ("example.org", "OtherEtcd"), ("example.org", "Secret")]
        {
            assert_eq!(of(group, kind), Some("demo"), "{kind}");
        }
        assert_eq!(of("", "Secret"), None);
    }
}
