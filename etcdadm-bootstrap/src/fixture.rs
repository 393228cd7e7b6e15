//! The starting point of the unit tests: a config for which nothing is missing.

use crate::build::{CertificateAuthority, SecretValues};
use crate::observation::{DataSecret, FoundValues, Guard, Init, Lock, Observation};
use api::EtcdadmConfig;
use controller_support::external::{ClusterView, MachineView};
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const CERT: &str = include_str!("build/testdata/rsa-ca.crt");
pub(crate) const KEY: &str = include_str!("build/testdata/rsa-ca.key");

pub(crate) fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn config(value: Value) -> EtcdadmConfig {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn machine() -> DynamicObject {
    object(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {
            "name": "demo-etcd-0", "namespace": "default", "uid": "machine-uid",
            "labels": {"cluster.x-k8s.io/cluster-name": "demo", "cluster.x-k8s.io/etcd-cluster": "demo-etcd"},
            "ownerReferences": [{
                "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster", "name": "demo-etcd",
                "uid": "etcd-uid", "controller": true
            }]
        },
        "spec": {
            "clusterName": "demo",
            "bootstrap": {"configRef": {
                "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "EtcdadmConfig", "name": "demo-etcd-0"
            }}
        }
    }))
}

pub(crate) fn cluster() -> DynamicObject {
    object(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "demo", "namespace": "default", "uid": "cluster-uid"},
        "status": {"initialization": {"infrastructureProvisioned": true}}
    }))
}

/// The first Machine of a cluster, which holds the lock.
pub(crate) fn ready_to_init() -> Observation {
    Observation {
        now: Timestamp::from_second(1_000_000).unwrap(),
        config: Arc::new(config(json!({
            "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "EtcdadmConfig",
            "metadata": {
                "name": "demo-etcd-0", "namespace": "default", "uid": "config-uid", "generation": 1,
                "labels": {"cluster.x-k8s.io/cluster-name": "demo"}
            },
            "spec": {}
        }))),
        machine: Some(MachineView::read(&machine())),
        cluster: Some(ClusterView::read(&cluster())),
        data_secret: DataSecret::Absent,
        authority: Some(CertificateAuthority::from_pem(CERT.as_bytes(), KEY.as_bytes())),
        init: None,
        init_is_live: false,
        lock: Lock::Ours,
        guard: Some(Guard::NotInitialized),
        secret_values: Some(FoundValues::All(SecretValues::default())),
        refused: None,
    }
}

/// The same after the cluster has been initialized, right before the data is made.
pub(crate) fn ready_to_join() -> Observation {
    Observation {
        init: Some(init("https://10.0.0.1:2379, https://[fd00::2]:2379")),
        init_is_live: true,
        lock: Lock::Free,
        guard: None,
        ..ready_to_init()
    }
}

/// An init Secret that admits every Machine.
pub(crate) fn init(client_urls: &str) -> Init {
    Init { client_urls: client_urls.to_owned(), cluster_id: None, admitted: None }
}
