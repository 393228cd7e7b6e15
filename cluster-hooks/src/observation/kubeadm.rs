//! What kubeadm requires of a control plane with external etcd, read from a KubeadmControlPlane of any version.

use serde_json::Value;

/// Certificates that all control-plane machines of a Cluster share, by the end of their Secrets' names. Cluster API
/// makes those that the user has not supplied.
pub const SHARED_CERTIFICATES: [&str; 3] = ["ca", "sa", "proxy"];

/// The part of a KubeadmControlPlane that decides whether its machines can use etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeadm {
    /// The wanted number of machines.
    pub replicas: i64,
    /// `caFile`, `certFile` and `keyFile`, in this order; empty if they are missing.
    pub files: [String; 3],
    /// Folder of the shared certificates, without a slash at the end.
    pub certificates: String,
    /// Paths that API servers see in addition to those that kubeadm mounts.
    pub mounts: Vec<String>,
    /// A Machine that was made in a remediation, and is unhealthy again within so many seconds, counts as a retry.
    pub min_healthy_seconds: i64,
}

impl Kubeadm {
    /// Reads a KubeadmControlPlane whose external etcd is `external`.
    pub fn read(data: &Value, external: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let configuration = &data["spec"]["kubeadmConfigSpec"]["clusterConfiguration"];
        let certificates = text(&configuration["certificatesDir"]);
        let mounts = configuration["apiServer"]["extraVolumes"].as_array();
        Self {
            // Cluster API's default is one hour.
            min_healthy_seconds: data["spec"]["remediation"]["minHealthyPeriodSeconds"].as_i64().unwrap_or(3600),
            // The default of the CRD.
            replicas: data["spec"]["replicas"].as_i64().unwrap_or(1),
            files: ["caFile", "certFile", "keyFile"].map(|field| text(&external[field])),
            certificates: match certificates.trim_end_matches('/') {
                "" => "/etc/kubernetes/pki".to_owned(),
                folder => folder.to_owned(),
            },
            mounts: mounts.into_iter().flatten().map(|volume| text(&volume["mountPath"])).collect(),
        }
    }
}
