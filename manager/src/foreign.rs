//! Another provider's CRD under the name of ours. EKS Anywhere has one, with another schema: its provider and this one
//! would both make bootstrap data for every EtcdadmConfig.

use api::names::BOOTSTRAP_GROUP;
use controller_support::kinds::Contracts;
use controller_support::{Error, KindError, Kinds, Result};
use kube::discovery::ApiResource;

/// The contract of Cluster API that our CRD satisfies, and the other one does not.
const CONTRACT: Contracts = &["cluster.x-k8s.io/v1beta2"];

/// Looks at the CRD of EtcdadmConfigs once.
///
/// # Errors
/// [`Error::Refused`] if it is another provider's. If it is not there, or the API server does not answer.
pub async fn refuse(kinds: &Kinds) -> Result<()> {
    judge(kinds.find(BOOTSTRAP_GROUP, "EtcdadmConfig", CONTRACT).await)
}

fn judge(found: Result<ApiResource, KindError>) -> Result<()> {
    match found {
        Ok(_) => Ok(()),
        Err(KindError::NoContract { label, .. }) => Err(Error::Refused(format!(
            "CRD etcdadmconfigs.{BOOTSTRAP_GROUP} is another provider's, such as that of EKS Anywhere: it has no label {label}. Two providers cannot share it: use another management cluster. If it is this provider's and has lost its labels, apply it again"
        ))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::EtcdadmConfig;
    use kube::{CustomResourceExt, ResourceExt};

    #[test]
    fn another_providers_crd_is_refused_and_a_missing_one_is_waited_for() {
        assert!(EtcdadmConfig::crd().labels().contains_key(CONTRACT[0]));
        assert!(judge(Ok(ApiResource::erase::<EtcdadmConfig>(&()))).is_ok());
        let (kind, label) = (format!("EtcdadmConfig.{BOOTSTRAP_GROUP}"), CONTRACT[0].to_owned());
        let refused = judge(Err(KindError::NoContract { kind: kind.clone(), label })).unwrap_err();
        assert!(matches!(&refused, Error::Refused(why) if why.contains("is another provider's")), "{refused}");
        let missing = judge(Err(KindError::NotServed { kind })).unwrap_err();
        assert!(missing.to_string().contains("does not exist"), "{missing}");
    }
}
