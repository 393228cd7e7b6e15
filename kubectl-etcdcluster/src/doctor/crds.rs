//! The CRDs of this provider and of Cluster API.

use super::{Finding, Installation};
use crate::facts::Crd;
use crate::gather::crd_names;
use api::names::{BOOTSTRAP_GROUP, ETCD_CLUSTER_GROUP, ETCD_PROVIDER_CONTRACT_LABEL};
use controller_support::foreign;

const VERSION: &str = "v1beta1";
const APPLY: &str = "install the provider's CRDs: kubectl apply --server-side -k config/crd, or clusterctl";

pub(super) fn check(installation: &Installation) -> Vec<Finding> {
    let crds = match &installation.crds {
        Err(why) => return super::unread("CRDs", why),
        Ok(crds) => crds,
    };
    let mut found = Vec::new();
    for name in crd_names() {
        let crd = crds.iter().find(|crd| crd.name == name);
        // The CRDs of the Cluster API core have no such labels: their contracts have the names of their versions.
        let is_core = name.ends_with(".cluster.x-k8s.io") && name.matches('.').count() == 3;
        found.extend(match crd {
            None if is_core => {
                Some(Finding::fault(format!("{name} is missing"), "install Cluster API: clusterctl init"))
            }
            None => Some(Finding::fault(format!("{name} is missing"), APPLY)),
            Some(crd) if is_core => core(crd),
            Some(crd) => ours(crd),
        });
    }
    if found.is_empty() {
        found
            .push(Finding::ok(format!("{} CRDs, with {VERSION} and the labels of their contracts", crd_names().len())));
    }
    found
}

fn core(crd: &Crd) -> Option<Finding> {
    let is_known = crd.served.iter().any(|version| matches!(version.as_str(), "v1beta1" | "v1beta2"));
    let served = crd.served.join(", ");
    (!is_known).then(|| {
        Finding::fault(
            format!("{} serves {served}, and neither v1beta1 nor v1beta2", crd.name),
            "install Cluster API 1.12 to 1.14",
        )
    })
}

/// The other owner of a CRD of ours: EKS Anywhere has a CRD with the same name, which has an earlier contract only.
fn other_owner(crd: &Crd) -> Option<String> {
    crd.name.ends_with(&format!(".{BOOTSTRAP_GROUP}")).then(|| foreign::evidence(&crd.labels))?
}

fn ours(crd: &Crd) -> Option<Finding> {
    if let Some(owner) = other_owner(crd) {
        return Some(Finding::fault(
            format!("{} is another provider's, such as that of EKS Anywhere: {owner}. Two cannot share it", crd.name),
            "use another management cluster, and do not apply this provider's CRDs here",
        ));
    }
    if !crd.served.iter().any(|version| version == VERSION) {
        return Some(Finding::fault(format!("{} does not serve {VERSION}", crd.name), APPLY));
    }
    let mut labels = vec!["cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"];
    if crd.name.ends_with(&format!("s.{ETCD_CLUSTER_GROUP}")) {
        labels.push(ETCD_PROVIDER_CONTRACT_LABEL);
    }
    let lacking: Vec<&str> = labels.into_iter().filter(|label| !crd.versions_for(label).contains(&VERSION)).collect();
    (!lacking.is_empty())
        .then(|| Finding::fault(format!("{} has no {VERSION} in its label {}", crd.name, lacking.join(", ")), APPLY))
}
