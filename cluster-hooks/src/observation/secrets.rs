//! The Secrets between etcd and the control plane.

use api::names;
use controller_support::external::secret_bytes;
use k8s_openapi::ByteString;
use kube::ResourceExt;
use kube::api::DynamicObject;
use std::fmt;

/// Marks the client Secret as published by the hook: only such a Secret is ever changed.
pub const PUBLISHED_BY_HOOK_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/published-by-hook";

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// Certificate.
    pub certificate: ByteString,
    /// Private key.
    pub key: ByteString,
}

/// Never shows the key: plans are logged.
impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyPair(..)")
    }
}

impl KeyPair {
    /// Reads `tls.crt` and `tls.key`. None if one is missing or empty.
    pub fn read(secret: &DynamicObject) -> Option<Self> {
        let value = |key: &str| secret_bytes(secret, key).filter(|bytes| !bytes.is_empty()).map(ByteString);
        Some(Self { certificate: value("tls.crt")?, key: value("tls.key")? })
    }
}

/// The client Secret that the control plane reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// It carries [`PUBLISHED_BY_HOOK_ANNOTATION`]. Otherwise it is the provider's or the user's, and the hook does not
    /// change it.
    pub ours: bool,
    /// UID.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
    /// UIDs of its owners.
    pub owners: Vec<String>,
    /// Its certificate and key, if both are present.
    pub pair: Option<KeyPair>,
}

/// A Secret with a certificate that all control-plane machines share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Its name.
    pub name: String,
    /// It has a `tls.crt`.
    pub certificate: bool,
    /// It has a `tls.key`.
    pub key: bool,
}

impl Shared {
    /// Reads a Secret. The key itself is not kept.
    pub fn read(secret: &DynamicObject) -> Self {
        Self { name: secret.name_any(), certificate: has(secret, "tls.crt"), key: has(secret, "tls.key") }
    }
}

fn has(secret: &DynamicObject, key: &str) -> bool {
    secret_bytes(secret, key).is_some_and(|bytes| !bytes.is_empty())
}

/// What we need of the Secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// `{cluster}-etcd` exists and has a `tls.crt`.
    pub ca: bool,
    /// `{cluster}-etcd` has a `tls.key`, which it should not have.
    pub ca_key: bool,
    /// The certificate that the provider has staged. `Err`: the Secret exists and cannot be used.
    pub staged: Option<Result<KeyPair, String>>,
    /// `{cluster}-apiserver-etcd-client`.
    pub published: Option<Published>,
}

impl Secrets {
    /// Reads what was found.
    pub fn read(ca: Option<&DynamicObject>, staged: Option<&DynamicObject>, published: Option<&DynamicObject>) -> Self {
        Self {
            ca: ca.is_some_and(|secret| has(secret, "tls.crt")),
            ca_key: ca.is_some_and(|secret| has(secret, "tls.key")),
            staged: staged.map(|secret| {
                KeyPair::read(secret)
                    .ok_or_else(|| format!("Secret {} must have tls.crt and tls.key", secret.name_any()))
            }),
            published: published.map(|secret| Published {
                ours: secret.annotations().contains_key(PUBLISHED_BY_HOOK_ANNOTATION),
                uid: secret.uid().unwrap_or_default(),
                resource_version: secret.resource_version().unwrap_or_default(),
                owners: secret.owner_references().iter().map(|owner| owner.uid.clone()).collect(),
                pair: KeyPair::read(secret),
            }),
        }
    }
}

/// Names of the Secrets of a Cluster: CA, staged and published client certificate.
pub fn names_of(cluster: &str) -> [String; 3] {
    [
        names::control_plane_ca_secret(cluster),
        names::staged_apiserver_client_secret(cluster),
        names::apiserver_client_secret(cluster),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn half_a_pair_is_an_error_and_a_key_is_never_shown() {
        let secret =
            |data| serde_json::from_value::<DynamicObject>(json!({"metadata": {"name": "s"}, "data": data})).unwrap();
        let full = secret(json!({"tls.crt": "Y2VydA==", "tls.key": "a2V5"}));
        let pair = KeyPair::read(&full).unwrap();
        assert_eq!((pair.certificate.0.as_slice(), pair.key.0.as_slice()), (&b"cert"[..], &b"key"[..]));
        assert_eq!(format!("{pair:?}"), "KeyPair(..)");
        let half = secret(json!({"tls.crt": "Y2VydA==", "tls.key": ""}));
        assert!(matches!(
            Secrets::read(Some(&half), Some(&half), None),
            Secrets { ca: true, staged: Some(Err(_)), .. }
        ));
    }
}
