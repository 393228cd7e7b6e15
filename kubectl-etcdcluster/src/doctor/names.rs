//! Names from which others are made.

use super::{Finding, Installation, Subject};

/// An EtcdCluster's, by its CRD.
const ETCD: usize = 50;
/// A label's value, which the name of a Cluster becomes.
const LABEL: usize = 63;

pub(super) fn check(subject: &Subject, _: &Installation) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = subject.name();
    if name.len() > ETCD {
        found.push(Finding::fault(
            format!("EtcdCluster {name}: {} characters, and {ETCD} at most are accepted", name.len()),
            "choose a shorter name: names and labels of Machines are made from it",
        ));
    }
    let cluster = subject.cluster_name().unwrap_or_default();
    if cluster.len() > LABEL {
        found.push(Finding::fault(
            format!("Cluster {cluster}: {} characters, and a label has {LABEL} at most", cluster.len()),
            "choose a shorter name: everything of the Cluster has it as a label",
        ));
    }
    if found.is_empty() {
        found.push(Finding::ok(format!("EtcdCluster {name}: short enough")));
    }
    found
}
