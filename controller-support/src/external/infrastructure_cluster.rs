//! The infrastructure of a Cluster, such as a DevCluster or a Metal3Cluster.
//!
//! Source: Cluster API's contract for such kinds, `InfraCluster: initialization completed` and `failure domains`.

use super::{failure_domains, flag};
use kube::api::DynamicObject;
use std::collections::BTreeSet;

/// What we need of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfrastructureClusterView {
    /// It is provisioned and stays: v1beta2's `initialization.provisioned` or v1beta1's `ready`. From then on, Cluster
    /// API copies what it reports. An object that is being deleted belongs to an earlier Cluster of the same name.
    pub provisioned: bool,
    /// Failure domains for control planes, by name.
    pub failure_domains: BTreeSet<String>,
}

impl InfrastructureClusterView {
    /// Reads the infrastructure of a Cluster, of any kind and version.
    #[must_use]
    pub fn read(infrastructure: &DynamicObject) -> Self {
        let data = &infrastructure.data;
        Self {
            provisioned: infrastructure.metadata.deletion_timestamp.is_none()
                && flag(data, &["/status/initialization/provisioned", "/status/ready"]),
            failure_domains: failure_domains::read(data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn view(status: &Value) -> InfrastructureClusterView {
        let object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "AnyCluster",
            "metadata": {"name": "demo"}, "status": status});
        InfrastructureClusterView::read(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn both_contracts_are_read() {
        let v1beta2 =
            json!({"initialization": {"provisioned": true}, "failureDomains": [{"name": "a", "controlPlane": true}]});
        let v1beta1 = json!({"ready": true, "failureDomains": {"a": {"controlPlane": true}}});
        for status in [v1beta2, v1beta1] {
            let expected = InfrastructureClusterView { provisioned: true, failure_domains: ["a".to_owned()].into() };
            assert_eq!(view(&status), expected);
        }
        assert!(!view(&json!({"initialization": {"provisioned": false}})).provisioned);
        assert!(!view(&Value::Null).provisioned);
        let mut earlier: DynamicObject =
            serde_json::from_value(json!({"metadata": {"name": "demo"}, "status": {"ready": true}})).unwrap();
        assert!(InfrastructureClusterView::read(&earlier).provisioned);
        earlier.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-11-24T00:00:00Z")).unwrap());
        assert!(!InfrastructureClusterView::read(&earlier).provisioned, "it goes with an earlier Cluster");
    }
}
