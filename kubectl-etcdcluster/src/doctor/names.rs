//! The names that other names and labels are made from.

use super::{Finding, Installation, Subject};

/// The longest name of an EtcdCluster, according to its CRD.
const ETCD: usize = 50;
/// The longest value of a label. The name of a Cluster is used as one.
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
