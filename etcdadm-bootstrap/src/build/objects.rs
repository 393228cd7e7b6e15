//! Desired objects: the bootstrap Secret and the init lock.

use super::Rendered;
use api::{EtcdCluster, EtcdadmConfig, names};
use controller_support::external::{ClusterView, MachineView};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

/// Key of the lock's content.
pub const LOCK_INFORMATION: &str = "lock-information";

/// Content of the lock.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LockInformation {
    /// The Machine that initializes.
    #[serde(rename = "machineName")]
    pub machine_name: String,
    /// Its UID: a later Machine may have the same name. Locks of EKS Anywhere do not have it.
    #[serde(default, rename = "machineUID")]
    pub machine_uid: Option<String>,
}

impl LockInformation {
    /// Whether this Machine holds the lock. Without a UID in the lock, the name decides.
    #[must_use]
    pub fn is(&self, name: &str, uid: &str) -> bool {
        self.machine_name == name && self.machine_uid.as_deref().is_none_or(|holder| holder == uid)
    }
}

/// The Secret with the bootstrap data, by Cluster API's bootstrap contract.
#[must_use]
pub fn data_secret(config: &EtcdadmConfig, cluster: &ClusterView, machine: &MachineView, data: Rendered) -> Secret {
    let values = [("value", data.value), ("format", data.format.to_owned())];
    Secret {
        metadata: ObjectMeta {
            name: Some(config.name_any()),
            namespace: config.namespace(),
            labels: Some(labels(cluster, machine)),
            owner_references: Some(config.controller_owner_ref(&()).into_iter().collect()),
            ..ObjectMeta::default()
        },
        type_: Some(names::CLUSTER_SECRET_TYPE.to_owned()),
        data: Some(values.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes()))).collect()),
        ..Secret::default()
    }
}

/// The lock, held by a Machine. It is deleted with the EtcdCluster that controls the Machine, or else with the Cluster.
#[must_use]
pub fn lock(cluster: &ClusterView, machine: &MachineView) -> ConfigMap {
    let content = json!({"machineName": machine.name, "machineUID": machine.uid}).to_string();
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(names::init_lock(&cluster.name)),
            namespace: Some(machine.namespace.clone()),
            labels: Some(labels(cluster, machine)),
            owner_references: Some(vec![lock_owner(cluster, machine)]),
            ..ObjectMeta::default()
        },
        data: Some([(LOCK_INFORMATION.to_owned(), content)].into_iter().collect()),
        ..ConfigMap::default()
    }
}

/// The EtcdCluster that controls the Machine, as (name, UID).
#[must_use]
pub fn etcd_cluster_of(machine: &MachineView) -> Option<(&str, &str)> {
    let controller = machine.controller.as_ref()?;
    let is_etcd = controller.group == names::ETCD_CLUSTER_GROUP && controller.kind == EtcdCluster::kind(&());
    is_etcd.then_some((controller.name.as_str(), controller.uid.as_str()))
}

fn lock_owner(cluster: &ClusterView, machine: &MachineView) -> OwnerReference {
    let (api_version, kind, name, uid) = match etcd_cluster_of(machine) {
        Some((name, uid)) => (EtcdCluster::api_version(&()), EtcdCluster::kind(&()), name, uid),
        None => (cluster.api_version.as_str().into(), "Cluster".into(), cluster.name.as_str(), cluster.uid.as_str()),
    };
    OwnerReference {
        api_version: api_version.into_owned(),
        kind: kind.into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

/// Always both labels. The watches select by the second one, whatever its value.
fn labels(cluster: &ClusterView, machine: &MachineView) -> BTreeMap<String, String> {
    let etcd = machine.labels.get(names::ETCD_CLUSTER_LABEL).cloned().unwrap_or_default();
    [(names::CLUSTER_NAME_LABEL, cluster.name.clone()), (names::ETCD_CLUSTER_LABEL, etcd)]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}
