//! Cluster API's Machine.

use super::{Reference, addresses, api_group, condition, flag, mark, string};
use api::conditions::{MACHINE_READY, MACHINE_UP_TO_DATE};
use api::etcd_cluster::MachineDeletion;
use api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use std::collections::BTreeMap;

/// An owner of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerView {
    /// API group, without a version.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// The condition `Ready` of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// `Some(true)` is True, `Some(false)` is False, `None` is Unknown.
    pub status: Option<bool>,
    /// Why.
    pub message: String,
}

/// What we need of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineView {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// The version that was read.
    pub resource_version: String,
    /// Cluster it belongs to.
    pub cluster: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// When it was created.
    pub created: Option<Time>,
    /// It is being deleted.
    pub deleting: bool,
    /// When its deletion began.
    pub deleted: Option<Time>,
    /// What its deletion waits for.
    pub finalizers: Vec<String>,
    /// Its controller.
    pub controller: Option<OwnerView>,
    /// Its bootstrap config.
    pub bootstrap_config: Option<Reference>,
    /// Its infrastructure.
    pub infrastructure: Option<Reference>,
    /// The failure domain that it is in: the one that the infrastructure reports (Cluster API 1.13 and later), or else
    /// the one that it was made for.
    pub failure_domain: Option<String>,
    /// Secret with its bootstrap data.
    pub data_secret: Option<String>,
    /// The infrastructure is provisioned.
    pub infrastructure_ready: bool,
    /// Since when the infrastructure is provisioned, if the Machine reports this.
    pub infrastructure_ready_since: Option<Timestamp>,
    /// Addresses as (type, address), in the order of the Machine.
    pub addresses: Vec<(String, String)>,
    /// Who wants it replaced, and why. For people.
    pub marked: Option<String>,
    /// The version that it was made with. For etcd's Machines, this is etcd's version.
    pub version: Option<String>,
    /// Its condition `UpToDate`, if it has one.
    pub up_to_date: Option<bool>,
    /// Its condition `Ready`, if it has one.
    pub ready: Option<Ready>,
    /// How long Cluster API tries to drain and delete its Node. Only for version v1beta2: in other versions, we do not
    /// change these fields.
    pub deletion_timeouts: MachineDeletion,
}

impl MachineView {
    /// Reads a Machine of any version.
    #[must_use]
    pub fn read(machine: &DynamicObject) -> Self {
        let data = &machine.data;
        Self {
            name: machine.name_any(),
            namespace: machine.namespace().unwrap_or_default(),
            uid: machine.uid().unwrap_or_default(),
            resource_version: machine.resource_version().unwrap_or_default(),
            cluster: string(data, "/spec/clusterName")
                .or_else(|| machine.labels().get(names::CLUSTER_NAME_LABEL).cloned())
                .unwrap_or_default(),
            labels: machine.labels().clone(),
            annotations: machine.annotations().clone(),
            created: machine.creation_timestamp(),
            deleting: machine.metadata.deletion_timestamp.is_some(),
            deleted: machine.metadata.deletion_timestamp.clone(),
            finalizers: machine.finalizers().to_vec(),
            controller: machine.owner_references().iter().find(|owner| owner.controller == Some(true)).map(|owner| {
                OwnerView {
                    group: api_group(&owner.api_version).to_owned(),
                    kind: owner.kind.clone(),
                    name: owner.name.clone(),
                    uid: owner.uid.clone(),
                }
            }),
            bootstrap_config: Reference::read(data.pointer("/spec/bootstrap/configRef")),
            infrastructure: Reference::read(data.pointer("/spec/infrastructureRef")),
            failure_domain: string(data, "/status/failureDomain").or_else(|| string(data, "/spec/failureDomain")),
            data_secret: string(data, "/spec/bootstrap/dataSecretName"),
            infrastructure_ready: flag(
                data,
                &["/status/initialization/infrastructureProvisioned", "/status/infrastructureReady"],
            ),
            infrastructure_ready_since: infrastructure_ready_since(data),
            addresses: addresses(data),
            marked: mark::read(machine),
            version: string(data, "/spec/version"),
            up_to_date: any_condition(data, MACHINE_UP_TO_DATE).map(|found| status(found) == Some(true)),
            ready: any_condition(data, MACHINE_READY).map(|found| Ready {
                status: status(found),
                message: found["message"].as_str().unwrap_or_default().to_owned(),
            }),
            deletion_timeouts: deletion_timeouts(data),
        }
    }
}

/// A condition, whatever its status.
fn any_condition<'a>(data: &'a Value, type_: &str) -> Option<&'a Value> {
    data.pointer("/status/conditions")?.as_array()?.iter().find(|found| found["type"] == type_)
}

fn status(condition: &Value) -> Option<bool> {
    match condition["status"].as_str() {
        Some("True") => Some(true),
        Some("False") => Some(false),
        _ => None,
    }
}

fn deletion_timeouts(data: &Value) -> MachineDeletion {
    let seconds = |field: &str| {
        let seconds = data.pointer(&format!("/spec/deletion/{field}"))?.as_i64()?;
        i32::try_from(seconds).ok()
    };
    MachineDeletion {
        node_drain_timeout_seconds: seconds("nodeDrainTimeoutSeconds"),
        node_volume_detach_timeout_seconds: seconds("nodeVolumeDetachTimeoutSeconds"),
        node_deletion_timeout_seconds: seconds("nodeDeletionTimeoutSeconds"),
    }
}

/// When condition `InfrastructureReady` became true.
fn infrastructure_ready_since(data: &Value) -> Option<Timestamp> {
    condition(data, "InfrastructureReady", "True")?["lastTransitionTime"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_is_read() {
        let machine: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": "demo-etcd-0", "namespace": "default", "uid": "u", "resourceVersion": "7",
                "ownerReferences": [
                {"apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster", "name": "demo-etcd", "uid": "e", "controller": true}]},
            "spec": {"clusterName": "demo", "failureDomain": "a", "bootstrap": {"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "EtcdadmConfig", "name": "demo-etcd-0"}}},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}], "initialization": {"infrastructureProvisioned": true}}
        }))
        .unwrap();
        let view = MachineView::read(&machine);
        assert_eq!((view.cluster.as_str(), view.resource_version.as_str()), ("demo", "7"));
        assert_eq!(view.controller.unwrap().uid, "e");
        assert_eq!(view.bootstrap_config.unwrap().name, "demo-etcd-0");
        assert_eq!(view.addresses, [("InternalIP".to_owned(), "10.0.0.2".to_owned())]);
        assert!(view.infrastructure_ready);
        assert_eq!(view.failure_domain.as_deref(), Some("a"));
        assert_eq!(view.infrastructure_ready_since, None);
    }

    #[test]
    fn what_a_machine_says_of_itself_is_read() {
        let machine: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "demo-etcd-0"},
            "spec": {"version": "v3.6.15",
                "deletion": {"nodeDrainTimeoutSeconds": 60, "nodeDeletionTimeoutSeconds": 10}},
            "status": {"conditions": [{"type": "UpToDate", "status": "False"},
                {"type": "Ready", "status": "Unknown", "message": "* NodeHealthy: Waiting for a Node"}]}
        }))
        .unwrap();
        let view = MachineView::read(&machine);
        assert_eq!((view.version.as_deref(), view.up_to_date), (Some("v3.6.15"), Some(false)));
        let message = "* NodeHealthy: Waiting for a Node".to_owned();
        assert_eq!(view.ready, Some(Ready { status: None, message }));
        let timeouts = MachineDeletion {
            node_drain_timeout_seconds: Some(60),
            node_volume_detach_timeout_seconds: None,
            node_deletion_timeout_seconds: Some(10),
        };
        assert_eq!(view.deletion_timeouts, timeouts);
        let bare: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "demo-etcd-0"}})).unwrap();
        let view = MachineView::read(&bare);
        assert_eq!((view.version, view.up_to_date, view.ready), (None, None, None));
        assert_eq!(view.deletion_timeouts, MachineDeletion::default());
    }

    #[test]
    fn what_the_infrastructure_reports_comes_first() {
        let since = |status: &str| {
            let machine: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "demo-etcd-0"},
                "spec": {"failureDomain": "a"},
                "status": {"failureDomain": "b", "conditions": [
                    {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:09Z"},
                    {"type": "InfrastructureReady", "status": status, "lastTransitionTime": "2026-01-01T00:00:10Z"}]}
            }))
            .unwrap();
            let view = MachineView::read(&machine);
            assert_eq!(view.failure_domain.as_deref(), Some("b"));
            view.infrastructure_ready_since.map(|since| since.to_string())
        };
        assert_eq!(since("True").as_deref(), Some("2026-01-01T00:00:10Z"));
        assert_eq!(since("False"), None);
    }
}
