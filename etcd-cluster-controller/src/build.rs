//! Desired objects. Pure: every name follows from the EtcdCluster and the Machine's name.

mod deletion_timeouts;
mod expiry;
mod machine;
mod secrets;
mod template;
#[cfg(test)]
mod tests;
mod up_to_date;

pub use deletion_timeouts::{same_timeouts, wanted_timeouts};
pub use expiry::{certificate_expires, expires_soon, replaced_before_expiry};
pub use machine::{MachineParts, config, infrastructure, machine};
pub(crate) use secrets::{CA, CERT, KEY};
pub use secrets::{InitContent, ca_secret, client_secret, control_plane_ca_secret, init_secret, metrics_client_secret};
pub use template::template_owners;
pub(crate) use up_to_date::is_cloned_from_template;
pub use up_to_date::{is_up_to_date, matches_config, replaces_from};

use api::version::DEFAULT_ETCD_VERSION;
use api::{EtcdCluster, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use std::collections::BTreeMap;

/// The etcd version of new members: the pinned version. It follows the spec, unless the spec asks for a version that
/// the members cannot go to.
#[must_use]
pub fn version(etcd: &EtcdCluster) -> &str {
    let pinned = etcd.annotations().get(names::PINNED_VERSION_ANNOTATION).map(String::as_str);
    pinned.or_else(|| etcd.spec.etcdadm_config_spec.etcd_version()).unwrap_or(DEFAULT_ETCD_VERSION)
}

/// The annotations on a clone and on its Machine that say what the infrastructure was cloned from. They are Cluster
/// API's own.
fn cloned_from(etcd: &EtcdCluster) -> [(String, String); 2] {
    let template = &etcd.spec.infrastructure_template;
    [
        (names::CLONED_FROM_NAME_ANNOTATION.to_owned(), template.name.clone()),
        (names::CLONED_FROM_GROUP_KIND_ANNOTATION.to_owned(), format!("{}.{}", template.kind, template.group())),
    ]
}

/// Owner reference to the EtcdCluster. It is the controller reference only on Machines and Secrets. On configs and
/// infrastructure, Cluster API makes the Machine the controller.
fn owner(etcd: &EtcdCluster, controller: bool) -> OwnerReference {
    let reference = etcd.owner_ref(&()).unwrap_or_default();
    OwnerReference { controller: Some(controller), block_owner_deletion: Some(true), ..reference }
}

/// Labels on everything that belongs to an EtcdCluster.
pub(crate) fn labels(etcd: &EtcdCluster, cluster: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (names::CLUSTER_NAME_LABEL.to_owned(), cluster.to_owned()),
        (names::ETCD_CLUSTER_LABEL.to_owned(), etcd.name_any()),
    ])
}
