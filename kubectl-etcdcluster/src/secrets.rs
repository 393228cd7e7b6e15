//! The parts of a Secret that may be shown: its name, the names and lengths of its values, and the public part of
//! certificates. Pure.

use crate::certificates::{Certificate, certificates};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use std::collections::BTreeMap;

/// A Secret without its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretSummary {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Type, such as `cluster.x-k8s.io/secret`.
    #[serde(rename = "type")]
    pub type_: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Kinds and names of its owners.
    pub owners: Vec<String>,
    /// Its values.
    pub keys: BTreeMap<String, ValueSummary>,
}

/// A value of a Secret, without its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueSummary {
    /// Its length.
    pub bytes: usize,
    /// The certificates in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<Certificate>,
}

impl SecretSummary {
    /// The parts of a Secret that may be shown.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        let values = secret.data.iter().flatten().map(|(key, value)| {
            let summary = ValueSummary { bytes: value.0.len(), certificates: certificates(&value.0) };
            (key.clone(), summary)
        });
        Self {
            namespace: secret.namespace().unwrap_or_default(),
            name: secret.name_any(),
            type_: secret.type_.clone().unwrap_or_default(),
            created: secret.creation_timestamp().map(|time| time.0),
            deleting: secret.metadata.deletion_timestamp.is_some(),
            labels: secret.labels().clone(),
            owners: secret.owner_references().iter().map(|owner| format!("{} {}", owner.kind, owner.name)).collect(),
            keys: values.collect(),
        }
    }

    /// The certificates under a key.
    #[must_use]
    pub fn certificates(&self, key: &str) -> &[Certificate] {
        self.keys.get(key).map_or(&[], |value| value.certificates.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn no_value_is_told(values in proptest::collection::btree_map("k[0-9]", "[A-Za-z0-9]{8,40}", 1..4)) {
            let mut secret: Secret = serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "n"}})).unwrap();
            let bytes = |value: &String| ByteString(value.clone().into_bytes());
            secret.data = Some(values.iter().map(|(key, value)| (key.clone(), bytes(value))).collect());
            secret.metadata.annotations = Some([("last".to_owned(), values.values().next().unwrap().clone())].into());
            let told = serde_json::to_string(&SecretSummary::new(&secret)).unwrap();
            for (key, value) in &values {
                let encoded = serde_json::to_value(bytes(value)).unwrap();
                prop_assert!(!told.contains(value.as_str()) && !told.contains(encoded.as_str().unwrap()), "{told}");
                prop_assert!(told.contains(&format!("\"{key}\":{{\"bytes\":{}}}", value.len())), "{told}");
            }
        }
    }
}
