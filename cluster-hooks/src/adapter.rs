//! Where a kind of control plane keeps the endpoints of an external etcd. A further provider is one more entry here.

use controller_support::loose::Reference;
use serde_json::{Value, json};

/// One kind of control plane.
#[derive(Debug, PartialEq, Eq)]
pub struct Adapter {
    group: &'static str,
    kind: &'static str,
    /// Path of the object that says that etcd is external; `endpoints` is a field of it.
    external: &'static [&'static str],
}

const ADAPTERS: &[Adapter] = &[Adapter {
    group: "controlplane.cluster.x-k8s.io",
    kind: "KubeadmControlPlane",
    external: &["spec", "kubeadmConfigSpec", "clusterConfiguration", "etcd", "external"],
}];

impl Adapter {
    /// The adapter for the kind that a Cluster refers to.
    pub fn of(reference: &Reference) -> Option<&'static Self> {
        ADAPTERS.iter().find(|adapter| adapter.group == reference.group && adapter.kind == reference.kind)
    }

    /// The kinds that are known, for messages.
    pub fn known_kinds() -> String {
        ADAPTERS.iter().map(|adapter| adapter.kind).collect::<Vec<_>>().join(", ")
    }

    /// The field that must be there for etcd to be external, as a person would write it.
    pub fn field(&self) -> String {
        self.external.join(".")
    }

    /// The endpoints as they stand, in their order. None: etcd is not external.
    pub fn endpoints(&self, data: &Value) -> Option<Vec<String>> {
        let external = self.external.iter().try_fold(data, |value, key| value.get(key))?.as_object()?;
        let endpoints = external.get("endpoints").and_then(Value::as_array);
        Some(endpoints.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// The merge patch that sets the endpoints and nothing else.
    pub fn patch(&self, endpoints: &[String]) -> Value {
        self.external.iter().rev().fold(json!({"endpoints": endpoints}), |inner, key| json!({*key: inner}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeadm() -> &'static Adapter {
        let reference = Reference {
            group: "controlplane.cluster.x-k8s.io".to_owned(),
            kind: "KubeadmControlPlane".to_owned(),
            name: "demo".to_owned(),
        };
        Adapter::of(&reference).unwrap()
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let endpoints = vec!["https://10.0.0.1:2379".to_owned(), "https://10.0.0.2:2379".to_owned()];
        let patch = kubeadm().patch(&endpoints);
        assert_eq!(kubeadm().endpoints(&patch), Some(endpoints));
        assert_eq!(patch.as_object().unwrap().len(), 1);
    }

    #[test]
    fn a_control_plane_with_local_etcd_has_none() {
        for etcd in [json!({}), json!({"local": {}}), json!({"external": null})] {
            let data = json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": etcd}}}});
            assert_eq!(kubeadm().endpoints(&data), None);
        }
        assert_eq!(kubeadm().endpoints(&json!({})), None);
    }
}
