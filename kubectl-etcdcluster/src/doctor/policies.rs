//! The admission policies, each with its binding.

use super::{Finding, Installation};

/// What each policy prevents, by the name of the policy and of its binding.
const POLICIES: [(&str, &str); 2] = [
    ("capi-etcdadm-etcdcluster-deletion", "an EtcdCluster with data is deleted without a question"),
    ("capi-etcdadm-etcd-endpoints", "a manifest that is applied again sets the placeholder for a moment"),
];

pub(super) fn check(installation: &Installation) -> Vec<Finding> {
    let installed = match &installation.policies {
        Err(why) => return super::unread("admission policies", why),
        Ok(installed) => installed,
    };
    let lacking: Vec<Finding> = POLICIES
        .iter()
        .filter(|(name, _)| !installed.contains(*name))
        .map(|(name, without)| {
            Finding::warning(
                format!("policy {name} or its binding is missing: without it {without}"),
                "kubectl apply --server-side -k config/admission. Before Kubernetes 1.36 there is only the one about deletion",
            )
        })
        .collect();
    if lacking.is_empty() { vec![Finding::ok(format!("{} installed and bound", POLICIES.len()))] } else { lacking }
}
