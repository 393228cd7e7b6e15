//! Secrets of an etcd cluster.

use super::{labels, owner};
use api::{EtcdCluster, names};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use std::collections::BTreeMap;

/// Key of a certificate in a Secret.
pub(crate) const CERT: &str = "tls.crt";
/// Key of a private key in a Secret.
pub(crate) const KEY: &str = "tls.key";
/// Key in a Secret for the certificate of the CA that a client should trust.
pub(crate) const CA: &str = "ca.crt";

/// The Secret with the CA, certificate and key. Its type is Opaque: the kubeadm control plane of a Cluster `X-managed`
/// looks for its own etcd CA under the name that our CA has for the Cluster `X`, and would take over a Secret of
/// Cluster API's type.
#[must_use]
pub fn ca_secret(etcd: &EtcdCluster, cluster: &str, cert: &str, key: &str) -> Secret {
    let data = [(CERT, cert), (KEY, key)];
    secret(etcd, cluster, names::ca_secret(cluster), "Opaque", &data)
}

/// The Secret with the CA certificate for the control plane. Its type is Opaque, because the kubeadm control plane
/// would take over a Secret of Cluster API's type. It has no key, because the kubeadm control plane would write the key
/// to an empty path.
#[must_use]
pub fn control_plane_ca_secret(etcd: &EtcdCluster, cluster: &str, cert: &str) -> Secret {
    secret(etcd, cluster, names::control_plane_ca_secret(cluster), "Opaque", &[(CERT, cert)])
}

/// The API servers' client certificate, staged for the Cluster hook to publish.
#[must_use]
pub fn client_secret(etcd: &EtcdCluster, cluster: &str, cert: &str, key: &str) -> Secret {
    let data = [(CERT, cert), (KEY, key)];
    secret(etcd, cluster, names::staged_apiserver_client_secret(cluster), "Opaque", &data)
}

/// The client certificate for Prometheus, with all that it takes to ask the members.
#[must_use]
pub fn metrics_client_secret(etcd: &EtcdCluster, cluster: &str, ca: &str, (cert, key): (&str, &str)) -> Secret {
    let data = [(CA, ca), (CERT, cert), (KEY, key)];
    secret(etcd, cluster, names::metrics_client_secret(cluster), "Opaque", &data)
}

/// The content of the init Secret; see [`names::init_secret`].
#[derive(Clone, Copy, Debug, Default)]
pub struct InitContent<'a> {
    /// Address of the first voter.
    pub address: &'a str,
    /// Client URLs of the voters, separated by commas.
    pub client_urls: &'a str,
    /// The cluster's ID in hexadecimal.
    pub cluster_id: &'a str,
    /// The Machines that may join, as `api::admission::encode` writes them.
    pub admitted: &'a str,
}

/// The init Secret: where joining members find the voters, which etcd cluster the voters belong to, and which Machines
/// may join.
#[must_use]
pub fn init_secret(etcd: &EtcdCluster, cluster: &str, content: &InitContent<'_>) -> Secret {
    let data = [
        ("address", content.address),
        ("clientUrls", content.client_urls),
        (names::INIT_CLUSTER_ID, content.cluster_id),
        (names::ADMITTED, content.admitted),
    ];
    secret(etcd, cluster, names::init_secret(cluster), names::CLUSTER_SECRET_TYPE, &data)
}

fn secret(etcd: &EtcdCluster, cluster: &str, name: String, type_: &str, data: &[(&str, &str)]) -> Secret {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
    Secret {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: etcd.namespace(),
            labels: Some(labels(etcd, cluster)),
            owner_references: Some(vec![owner(etcd, true)]),
            ..ObjectMeta::default()
        },
        type_: Some(type_.to_owned()),
        data: Some(data.collect::<BTreeMap<_, _>>()),
        ..Secret::default()
    }
}
