//! Whether etcd has begun, and which one it is.

use super::EtcdCluster;
use crate::names;

impl EtcdCluster {
    /// The recorded cluster ID of etcd, in hexadecimal: that of the annotation, or else that of the status. A move or a
    /// restore may lose one of them. If somebody empties the annotation, the next etcd that answers must not be adopted
    /// as ours.
    #[must_use]
    pub fn recorded_cluster_id(&self) -> Option<&str> {
        let annotated = self.metadata.annotations.as_ref().and_then(|all| all.get(names::CLUSTER_ID_ANNOTATION));
        let annotated = annotated.map(String::as_str).filter(|id| !id.is_empty());
        let status = || self.status.as_ref().map(|status| status.cluster_id.as_str());
        annotated.or_else(status).filter(|id| !id.is_empty())
    }

    /// Whether etcd has begun, according to the object. Then no Machine may initialize etcd any more: that would make a
    /// second, empty etcd.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.recorded_cluster_id().is_some() || self.status.as_ref().is_some_and(|status| status.initialized)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_etcd_has_begun_as_soon_as_anything_tells_of_it() {
        let table = [
            ("new", None, None, false),
            ("a status that says nothing", None, Some(json!({})), false),
            ("initialized", None, Some(json!({"initialized": true})), true),
            ("status lost in a restore", Some("c1"), None, true),
            ("annotation lost", None, Some(json!({"clusterID": "c1"})), true),
            ("annotation emptied", Some(""), Some(json!({"clusterID": "c1"})), true),
            ("annotation of no ID", Some(""), None, false),
        ];
        for (case, annotation, status, expected) in table {
            let annotations = annotation.map(|id| json!({(names::CLUSTER_ID_ANNOTATION): id}));
            let etcd: EtcdCluster = serde_json::from_value(json!({
                "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
                "metadata": {"name": "demo-etcd", "annotations": annotations},
                "spec": {"infrastructureTemplate": {"apiVersion": "x/v1", "kind": "XMachineTemplate", "name": "demo"}},
                "status": status
            }))
            .expect("an EtcdCluster");
            assert_eq!(etcd.has_begun(), expected, "{case}");
        }
    }
}
