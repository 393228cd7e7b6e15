//! Another provider's CRD with the same name as ours. EKS Anywhere has one, with another schema. Its provider and this
//! one would both make bootstrap data for every EtcdadmConfig.

use crate::{Error, KindError, Kinds, Result};
use api::names::BOOTSTRAP_GROUP;
use std::collections::BTreeMap;

/// The contract of Cluster API that our CRD satisfies, and the other one does not.
const CONTRACT: &str = "cluster.x-k8s.io/v1beta2";
/// The label that says which provider a CRD belongs to. clusterctl needs it.
const PROVIDER: &str = "cluster.x-k8s.io/provider";
/// Its value for this provider.
const OURS: &str = "bootstrap-etcdadm";
/// Its value for EKS Anywhere. clusterctl merges a CRD that it installs into the existing one: it adds its labels to
/// ours, and replaces our schema. Source: `EtcdAdmBootstrapProviderName` in eks-anywhere, and clusterctl 1.14's
/// `cmd/clusterctl/client/cluster/components.go`.
const EKS_ANYWHERE: &str = "bootstrap-etcdadm-bootstrap";

/// Checks the CRD of EtcdadmConfigs. Costs a request every time.
///
/// # Errors
/// [`Error::Refused`] if it is another provider's. Another error if it does not exist, or the API server does not
/// answer.
pub async fn refuse(kinds: &Kinds) -> Result<()> {
    judge(kinds.labels(BOOTSTRAP_GROUP, "EtcdadmConfig").await)
}

/// What shows that these are the labels of another provider's CRD of EtcdadmConfigs, for people. `None`: nothing does.
#[must_use]
pub fn evidence(labels: &BTreeMap<String, String>) -> Option<String> {
    match labels.get(PROVIDER).map(String::as_str) {
        Some(EKS_ANYWHERE) => Some(format!("its label {PROVIDER} is {EKS_ANYWHERE}")),
        Some(OURS) => None,
        _ if labels.contains_key(CONTRACT) => None,
        _ => Some(format!("it has no label {CONTRACT}")),
    }
}

fn judge(found: Result<BTreeMap<String, String>, KindError>) -> Result<()> {
    let Some(why) = evidence(&found?) else { return Ok(()) };
    Err(Error::Refused(format!(
        "CRD etcdadmconfigs.{BOOTSTRAP_GROUP} is another provider's, such as that of EKS Anywhere: {why}. Two providers cannot share it: use another management cluster. If it is this provider's and has lost its labels, apply it again"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::EtcdadmConfig;
    use kube::{CustomResourceExt, ResourceExt};

    #[test]
    fn another_providers_crd_is_refused_and_a_missing_one_is_waited_for() {
        let ours = EtcdadmConfig::crd().labels().clone();
        assert!(judge(Ok(ours.clone())).is_ok());
        let merged = ours.into_iter().chain([(PROVIDER.to_owned(), EKS_ANYWHERE.to_owned())]).collect();
        let bare = BTreeMap::new();
        for (labels, why) in [(merged, "is bootstrap-etcdadm-bootstrap"), (bare, "no label cluster.x-k8s.io/v1beta2")] {
            let refused = judge(Ok(labels)).unwrap_err();
            assert!(matches!(&refused, Error::Refused(said) if said.contains(why)), "{refused}");
        }
        let missing = judge(Err(KindError::NotServed { kind: "EtcdadmConfig".to_owned() })).unwrap_err();
        assert!(missing.to_string().contains("does not exist"), "{missing}");
    }
}
