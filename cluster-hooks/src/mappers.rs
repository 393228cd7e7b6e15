//! What reconciles a Cluster besides its own changes: those of its etcd, its control plane and the Secrets between
//! them. A watch is followed once somebody reads it.

use crate::observation::names_of;
use api::names::CLUSTER_NAME_LABEL;
use controller_support::external::{ClusterView, Reference};
use controller_support::{Cached, Shutdown};
use futures::StreamExt;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::reflector::ObjectRef;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedSender;

/// Turns changes of other objects into reconciles of Clusters.
pub struct Mappers {
    clusters: Cached,
    followed: Mutex<HashSet<(ApiResource, Option<String>)>>,
    sender: UnboundedSender<ObjectRef<DynamicObject>>,
    shutdown: Shutdown,
}

impl Mappers {
    /// Reconciles go to `sender`.
    pub fn new(clusters: Cached, sender: UnboundedSender<ObjectRef<DynamicObject>>, shutdown: Shutdown) -> Self {
        Self { clusters, followed: Mutex::default(), sender, shutdown }
    }

    /// Follows a watch until shutdown. Once is enough: it is known by its kind and selector.
    pub fn follow(&self, watch: &Cached, selector: Option<&str>) {
        let key = (watch.resource().clone(), selector.map(str::to_owned));
        if !self.followed.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
            return;
        }
        let changes = watch.changes().take_until(self.shutdown.clone().requested());
        let (clusters, sender, resource) = (self.clusters.clone(), self.sender.clone(), watch.resource().clone());
        tokio::spawn(async move {
            futures::pin_mut!(changes);
            while let Some(object) = changes.next().await {
                let reference =
                    Reference { group: resource.group.clone(), kind: resource.kind.clone(), name: object.name_any() };
                for cluster in clusters.select(&object.namespace().unwrap_or_default(), |cluster| {
                    concerns(&ClusterView::read(cluster), &reference, object.labels().get(CLUSTER_NAME_LABEL))
                }) {
                    let cluster = ObjectRef::from_obj_with(cluster.as_ref(), clusters.resource().clone());
                    if sender.send(cluster).is_err() {
                        return;
                    }
                }
            }
        });
    }
}

/// Whether a change of an object may change what is planned for a Cluster of the same namespace. `of` is the Cluster's name
/// in the object's labels.
fn concerns(cluster: &ClusterView, changed: &Reference, of: Option<&String>) -> bool {
    let is_secret = changed.kind == "Secret" && changed.group.is_empty();
    cluster.control_plane.as_ref() == Some(changed)
        // Machines, and an etcd of whatever kind that the Cluster no longer names.
        || (!is_secret && of == Some(&cluster.name))
        || cluster.etcd.as_ref().is_some_and(|etcd| {
            etcd.as_ref() == Ok(changed) || (is_secret && names_of(&cluster.name).contains(&changed.name))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_concerns_the_clusters_that_refer_to_it() {
        let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {
            "name": "demo", "annotations": {api::names::MANAGED_ETCD_ANNOTATION: "Other.example.org/demo-etcd"}},
            "spec": {"controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "demo-cp"}}});
        let cluster = ClusterView::read(&serde_json::from_value(cluster).unwrap());
        let concerned = |group: &str, kind: &str, name: &str| {
            let changed = Reference { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() };
            concerns(&cluster, &changed, None)
        };
        assert!(concerned("controlplane.cluster.x-k8s.io", "KubeadmControlPlane", "demo-cp"));
        assert!(concerned("example.org", "Other", "demo-etcd"));
        for secret in ["demo-etcd", "demo-managed-etcd-apiserver-client", "demo-apiserver-etcd-client"] {
            assert!(concerned("", "Secret", secret), "{secret}");
        }
        assert!(!concerned("", "Secret", "other-etcd"));
        assert!(!concerned("example.org", "Another", "demo-etcd"));
        // An etcd of any provider that the Cluster no longer names is among them.
        for (group, kind) in [("cluster.x-k8s.io", "Machine"), ("example.org", "OtherEtcd")] {
            let changed = Reference { group: group.to_owned(), kind: kind.to_owned(), name: "demo-1".to_owned() };
            assert!(concerns(&cluster, &changed, Some(&"demo".to_owned())));
            assert!(!concerns(&cluster, &changed, Some(&"other".to_owned())));
        }
    }
}
