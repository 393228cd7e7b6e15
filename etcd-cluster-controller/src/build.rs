//! Desired objects. Pure: every name follows from the EtcdCluster and the Machine's name.

mod machine;
mod secrets;
mod template;
#[cfg(test)]
mod tests;

pub use machine::{MachineParts, config, infrastructure, machine};
pub(crate) use secrets::{CERT, KEY};
pub use secrets::{ca_secret, client_secret, control_plane_ca_secret, init_secret};
pub use template::template_owners;

use api::{EtcdCluster, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Fingerprint of all that a Machine is made from. Machines carry it, so that a change of the spec can be told.
#[must_use]
pub fn spec_hash(etcd: &EtcdCluster) -> String {
    let spec = &etcd.spec;
    let template = &spec.infrastructure_template;
    // The group and not the version: serving a newer one changes nothing.
    let parts =
        json!([[template.group(), template.kind, template.name], spec.etcdadm_config_spec, spec.machine_template]);
    let digest = Sha256::digest(parts.to_string());
    digest.iter().take(8).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Owner reference to the EtcdCluster. Only Machines and Secrets have it as their controller: configs and
/// infrastructure get the Machine for that from Cluster API.
fn owner(etcd: &EtcdCluster, controller: bool) -> OwnerReference {
    OwnerReference {
        api_version: EtcdCluster::api_version(&()).into_owned(),
        kind: EtcdCluster::kind(&()).into_owned(),
        name: etcd.name_any(),
        uid: etcd.uid().unwrap_or_default(),
        controller: Some(controller),
        block_owner_deletion: Some(true),
    }
}

/// Labels on everything that belongs to an EtcdCluster.
fn labels(etcd: &EtcdCluster, cluster: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (names::CLUSTER_NAME_LABEL.to_owned(), cluster.to_owned()),
        (names::ETCD_CLUSTER_LABEL.to_owned(), etcd.name_any()),
    ])
}
