//! The state of a cluster at the end of a story, without what differs from run to run, so that two ends can be
//! compared.

mod normal;

use crate::bed::ClusterHandle;
use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use normal::Names;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Kinds of our own: their objects are compared as a whole.
const OURS: [&str; 2] = ["EtcdCluster", "EtcdadmConfig"];
/// Kinds of other projects: metadata and spec of their objects are compared.
const SHARED: [&str; 7] = [
    "Cluster",
    "KubeadmConfig",
    "KubeadmControlPlane",
    "LocalCluster",
    "LocalMachine",
    "LocalMachineTemplate",
    "Machine",
];

/// The objects of a namespace, by kind and name.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot(BTreeMap<String, Value>);

impl Snapshot {
    /// The present state of everything in the namespace of `handle`.
    ///
    /// Addresses, IDs, times and generated names are replaced by what they stand for. Of Secrets and ConfigMaps, only
    /// the keys are compared. The status of other projects' objects is not compared.
    ///
    /// # Errors
    /// When something cannot be read.
    pub async fn of(handle: &ClusterHandle) -> Result<Self> {
        let mut objects = Vec::new();
        for kind in OURS.into_iter().chain(SHARED) {
            for object in handle.api(kind).list(&ListParams::default()).await?.items {
                objects.push((kind, serde_json::to_value(&object)?));
            }
        }
        for secret in handle.secrets().list(&ListParams::default()).await?.items {
            objects.push(("Secret", serde_json::to_value(&secret)?));
        }
        let maps: Api<ConfigMap> = Api::namespaced(handle.api("Cluster").into_client(), &handle.namespace);
        for map in maps.list(&ListParams::default()).await?.items {
            objects.push(("ConfigMap", serde_json::to_value(&map)?));
        }
        let names = Names::in_objects(&handle.namespace, &objects);
        let normal = objects.into_iter().map(|(kind, object)| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            (names.replace(&format!("{kind} {name}")), names.normal(compared(kind, object)))
        });
        Ok(Self(normal.collect()))
    }

    /// Where the two differ, with both values: `EtcdCluster demo-etcd /spec/replicas: 3, and not 1`.
    #[must_use]
    pub fn differences(&self, wanted: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let names: BTreeSet<&String> = self.0.keys().chain(wanted.0.keys()).collect();
        for name in names {
            match (self.0.get(name), wanted.0.get(name)) {
                (Some(have), Some(want)) => normal::differences(&mut found, &format!("{name} "), have, want),
                (Some(_), None) => found.push(format!("{name} should not be there")),
                (None, _) => found.push(format!("{name} is missing")),
            }
        }
        found
    }
}

/// The part of an object that has to be equal.
fn compared(kind: &str, mut object: Value) -> Value {
    match kind {
        "Secret" | "ConfigMap" => {
            let keys = |data: &Value| data.as_object().map(|data| data.keys().cloned().collect::<Vec<_>>());
            json!({"metadata": object["metadata"], "type": object["type"], "keys": keys(&object["data"])})
        }
        kind if OURS.contains(&kind) => object,
        _ => {
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            object
        }
    }
}
