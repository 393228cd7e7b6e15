//! The CustomResourceDefinitions, as they are installed.

use crate::{EtcdCluster, EtcdadmConfig, EtcdadmConfigTemplate};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

/// Every CRD of this project. Version v1alpha4 is served beside v1beta1 with the same schema, so that manifests of the
/// managed-external-etcd proposal apply unchanged.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    [EtcdCluster::crd(), EtcdadmConfig::crd(), EtcdadmConfigTemplate::crd()]
        .into_iter()
        .map(|mut crd| {
            let versions = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
            versions.filter_map(|schema| schema.open_api_v3_schema.as_mut()).for_each(null_is_absent);
            serve_v1alpha4(crd)
        })
        .collect()
}

/// The API server drops a null from a field that is not nullable before it evaluates rules, so that an empty `users:`
/// means the same as no `users`. In a nullable field, rules would treat the null as a value.
fn null_is_absent(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(null_is_absent);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        null_is_absent(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        null_is_absent(values);
    }
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
