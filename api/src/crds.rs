//! The CustomResourceDefinitions, as they are installed.

use crate::{EtcdCluster, EtcdadmConfig, EtcdadmConfigTemplate};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// Every CRD of this project. Version v1alpha4 is served beside v1beta1 with the same schema, so that manifests of the
/// managed-external-etcd proposal apply as they stand.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    [EtcdCluster::crd(), EtcdadmConfig::crd(), EtcdadmConfigTemplate::crd()].into_iter().map(serve_v1alpha4).collect()
}

fn serve_v1alpha4(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut old = crd.spec.versions[0].clone();
    old.name = "v1alpha4".to_owned();
    old.storage = false;
    crd.spec.versions.insert(0, old);
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_served_and_one_is_stored() {
        for crd in all() {
            let versions: Vec<(&str, bool, bool)> =
                crd.spec.versions.iter().map(|v| (v.name.as_str(), v.served, v.storage)).collect();
            assert_eq!(versions, [("v1alpha4", true, false), ("v1beta1", true, true)], "{:?}", crd.metadata.name);
        }
    }
}
