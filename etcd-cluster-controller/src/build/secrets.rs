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
/// Key of the certificate of the CA that the others are to be trusted by, in a Secret.
pub(crate) const CA: &str = "ca.crt";

/// The CA: certificate and key. Opaque: a kubeadm control plane takes over a Secret of Cluster API's type that has the name of
/// its own CA, and that of a Cluster `X-managed` has this name.
#[must_use]
pub fn ca_secret(etcd: &EtcdCluster, cluster: &str, cert: &str, key: &str) -> Secret {
    let data = [(CERT, cert), (KEY, key)];
    secret(etcd, cluster, names::ca_secret(cluster), "Opaque", &data)
}

/// The CA certificate for the control plane. Opaque, as the kubeadm control plane would take over a Secret of Cluster
/// API's type; and without a key, which it would write to an empty path.
#[must_use]
pub fn control_plane_ca_secret(etcd: &EtcdCluster, cluster: &str, cert: &str) -> Secret {
    secret(etcd, cluster, names::control_plane_ca_secret(cluster), "Opaque", &[(CERT, cert)])
}

/// The API servers' client certificate, kept ready for the hook to publish.
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

/// What the init Secret says; see [`names::init_secret`].
#[derive(Clone, Copy, Debug, Default)]
pub struct InitContent<'a> {
    /// Address of the first voter.
    pub address: &'a str,
    /// Client URLs of the voters, separated by commas.
    pub client_urls: &'a str,
    /// The cluster's ID in hexadecimal.
    pub cluster_id: &'a str,
    /// The Machines that may join.
    pub admitted: &'a str,
}

/// Where joining members find the cluster, which one it is, and who may join.
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
