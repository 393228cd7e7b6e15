//! Labels, annotations, finalizers, ports, paths and the names of Secrets: what two parts, or we and another provider,
//! must agree on to the letter.

/// API group of [`crate::EtcdCluster`].
pub const ETCD_CLUSTER_GROUP: &str = "etcdcluster.cluster.x-k8s.io";
/// API group of [`crate::EtcdadmConfig`].
pub const BOOTSTRAP_GROUP: &str = "bootstrap.cluster.x-k8s.io";
/// API group of Cluster API's Cluster and Machine.
pub const CLUSTER_GROUP: &str = "cluster.x-k8s.io";

pub use etcd_values::endpoint::{CLIENT_PORT, PEER_PORT};

/// Finalizer of an EtcdCluster: its Machines are deleted before it is.
pub const ETCD_CLUSTER_FINALIZER: &str = "etcdcluster.cluster.x-k8s.io";

/// Finalizer of a Machine (Cluster API's own).
pub const MACHINE_FINALIZER: &str = "machine.cluster.x-k8s.io";

/// Label on everything that belongs to a Cluster (Cluster API's own).
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Label on Machines, configs and Secrets of an EtcdCluster: its name.
pub const ETCD_CLUSTER_LABEL: &str = "cluster.x-k8s.io/etcd-cluster";

/// Label on objects that only the manager with this value of `--watch-filter` reconciles (Cluster API's own).
pub const WATCH_FILTER_LABEL: &str = "cluster.x-k8s.io/watch-filter";

/// Annotation on a Cluster that names its etcd: `<name>` of an EtcdCluster, or `<kind>.<group>/<name>`.
pub const MANAGED_ETCD_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/managed-external-etcd";
/// Cluster API's pause annotation. Its presence pauses; the value does not matter to Cluster API.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Annotation on a Machine that MachineHealthChecks leave alone. Cluster API's own.
pub const SKIP_REMEDIATION_ANNOTATION: &str = "cluster.x-k8s.io/skip-remediation";
/// Annotation on a Machine that is to be replaced, whatever its health. Cluster API's own, for MachineHealthChecks.
pub const REMEDIATE_MACHINE_ANNOTATION: &str = "cluster.x-k8s.io/remediate-machine";
/// Annotation on a Machine that goes first when there are too many. Cluster API's own, for MachineSets and control
/// planes.
pub const DELETE_MACHINE_ANNOTATION: &str = "cluster.x-k8s.io/delete-machine";
/// Annotation on a Machine that was made as a replacement, because a member has failed or its Machine was marked for
/// remediation: the record of that replacement, as in `status.lastRemediation`.
pub const REMEDIATION_FOR_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/remediation-for";
/// Annotation on a Machine that this provider deletes while its EtcdCluster stays: why it does so. A Machine that is
/// being deleted without this annotation was deleted by a person.
pub const DELETED_FOR_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/deleted-for";
/// Value of [`PAUSED_ANNOTATION`] when the Cluster hook has set it. The hook lifts no other pause. If a user pauses the
/// object too, that changes the value, and the pause is the user's.
pub const PAUSED_BY_HOOK_VALUE: &str = "waiting-for-managed-external-etcd";
/// Annotation on an EtcdCluster: the recorded etcd cluster ID, in hexadecimal. Members of any other etcd cluster are
/// never adopted.
pub const CLUSTER_ID_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/cluster-id";
/// Annotation on an EtcdCluster: the etcd version in force when the spec has none. It is pinned at creation, and
/// follows `spec.etcdadmConfigSpec.version` from then on, so neither a newer manager nor a removed field changes the
/// version.
pub const PINNED_VERSION_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/etcd-version";
/// Annotation on an EtcdCluster and on each EtcdadmConfig made for it: etcd's `max-learners`. It is `3` if the first
/// etcd was 3.6 or later, else `1`. It never changes once a machine can boot: members with different values drop each
/// other's learners.
pub const MAX_LEARNERS_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/max-learners";
/// Annotation on an EtcdCluster: the highest number used in the name of a Machine. It never decreases.
pub const LAST_NAME_NUMBER_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/last-name-number";
/// Annotation on an EtcdCluster: the cluster ID (hexadecimal) of a restored etcd that a person accepts.
pub const ACCEPT_CLUSTER_ID_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/accept-cluster-id";
/// Annotation on an EtcdCluster: its own name, which confirms that it may be deleted with its data.
pub const CONFIRM_DELETION_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/confirm-deletion";
/// Annotation on every object that `clusterctl move` moves away, in place of all the object's other annotations: the
/// object is in another management cluster by now. clusterctl's own.
pub const DELETE_FOR_MOVE_ANNOTATION: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";
/// Annotation on an EtcdCluster that would lose something in a move at the moment. clusterctl's own: clusterctl then
/// waits for a while.
pub const BLOCK_MOVE_ANNOTATION: &str = "clusterctl.cluster.x-k8s.io/block-move";
/// Label on objects that `clusterctl move` moves although no moved object owns them. clusterctl's own, on objects and
/// on CRDs.
pub const MOVE_LABEL: &str = "clusterctl.cluster.x-k8s.io/move";
/// The same, for an object together with everything that it owns.
pub const MOVE_HIERARCHY_LABEL: &str = "clusterctl.cluster.x-k8s.io/move-hierarchy";
/// Value of [`PAUSED_ANNOTATION`] when `kubectl etcdcluster move` has set it. The command lifts no other pause.
pub const PAUSED_FOR_MOVE_VALUE: &str = "moving-to-another-management-cluster";
/// Annotation on every member Machine: Cluster API keeps the machine running until the member has left etcd.
pub const PRE_TERMINATE_HOOK_ANNOTATION: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd-member";
/// Value of [`PRE_TERMINATE_HOOK_ANNOTATION`]: who removes the annotation.
pub const PRE_TERMINATE_HOOK_OWNER: &str = "etcd-cluster-controller";

/// Annotation on a cloned infrastructure object and on its Machine: name of the template (Cluster API's own).
pub const CLONED_FROM_NAME_ANNOTATION: &str = "cluster.x-k8s.io/cloned-from-name";
/// Annotation on a cloned infrastructure object and on its Machine: `<Kind>.<group>` of the template (Cluster API's
/// own).
pub const CLONED_FROM_GROUP_KIND_ANNOTATION: &str = "cluster.x-k8s.io/cloned-from-groupkind";

/// Label on the CRD of an etcd provider: the versions of the kind that satisfy version v1 of the etcd-provider
/// contract, joined by `_` (the way Cluster API labels its own contracts).
pub const ETCD_PROVIDER_CONTRACT_LABEL: &str = "etcdcluster.cluster.x-k8s.io/provider-contract-v1";

/// Annotation on an etcd object: the lists of endpoints that some API server of its Cluster may have been started with,
/// separated by semicolons. The Cluster hook writes it; see the etcd-provider contract and [`crate::endpoints`].
pub const ENDPOINTS_IN_USE_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/endpoints-in-use";

/// Annotation on an EtcdCluster, set by a person. As long as its value is the EtcdCluster's `metadata.generation`,
/// members leave although API servers use their endpoints. It is for a control plane that never rolls out.
pub const IGNORE_ENDPOINTS_IN_USE_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/ignore-endpoints-in-use";

/// Annotation on an EtcdCluster, set by a person: IDs of members that run on no Machine, in hexadecimal, separated by
/// commas. Machines are admitted beside these members as long as the members answer. It is for an etcd that has lost
/// most of its Machines.
pub const ADMIT_BESIDE_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/admit-beside";

/// Annotation on the CRD of a control-plane provider: path, such as `spec.etcd.external`, of the object in the spec
/// that makes etcd external. `endpoints` is a field of that object.
pub const EXTERNAL_ETCD_PATH_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/external-etcd-path";
/// Annotation on the CRD of a control-plane provider: type of the condition in which the Cluster hook reports on etcd.
pub const EXTERNAL_ETCD_CONDITION_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/external-etcd-condition";

/// Type of Secrets that belong to Cluster API.
pub const CLUSTER_SECRET_TYPE: &str = "cluster.x-k8s.io/secret";

/// Endpoint in a control plane until etcd has endpoints: Cluster API requires at least one, and `.invalid` never
/// resolves (RFC 2606).
pub const PLACEHOLDER_ENDPOINT: &str = "https://placeholder.invalid:2379";

/// Secret with etcd's CA (`tls.crt`, `tls.key`), which signs every certificate of the members.
#[must_use]
pub fn ca_secret(cluster: &str) -> String {
    format!("{cluster}-managed-etcd")
}

/// Secret with etcd's CA certificate for the control plane (`tls.crt` ONLY: a key in it would become a file with an
/// empty path on control-plane machines).
#[must_use]
pub fn control_plane_ca_secret(cluster: &str) -> String {
    format!("{cluster}-etcd")
}

/// Secret with the API servers' client certificate (`tls.crt`, `tls.key`). Published last: no control-plane Machine
/// is made before it exists.
#[must_use]
pub fn apiserver_client_secret(cluster: &str) -> String {
    format!("{cluster}-apiserver-etcd-client")
}

/// Secret in which an etcd provider stages the API servers' client certificate (`tls.crt`, `tls.key`) until the hook
/// publishes it as [`apiserver_client_secret`].
#[must_use]
pub fn staged_apiserver_client_secret(cluster: &str) -> String {
    format!("{cluster}-managed-etcd-apiserver-client")
}

/// Secret with the client certificate for Prometheus (`tls.crt`, `tls.key`) and the CA certificate (`ca.crt`), if
/// `spec.metricsClientSecret` is true.
#[must_use]
pub fn metrics_client_secret(cluster: &str) -> String {
    format!("{cluster}-etcd-metrics-client")
}

/// Secret from which joining members learn where the cluster is: `address` is that of the first member, and
/// `clientUrls` are the client URLs of the present voters, separated by commas. It exists once the cluster is
/// initialized. See also [`INIT_CLUSTER_ID`]. If it has the key [`ADMITTED`], only the Machines that this key names may
/// join.
#[must_use]
pub fn init_secret(cluster: &str) -> String {
    format!("{cluster}-etcd-init")
}

/// Key of the [`init_secret`]: the cluster ID, in hexadecimal. No Machine joins a cluster with another ID: such a
/// cluster may have been given the address of one of the voters.
pub const INIT_CLUSTER_ID: &str = "clusterId";

/// Key of the [`init_secret`]: the Machines that may join or have joined; see [`crate::admission`].
pub const ADMITTED: &str = "admitted";

/// ConfigMap that records which Machine initializes the cluster.
#[must_use]
pub fn init_lock(cluster: &str) -> String {
    format!("{cluster}-etcd-lock")
}

/// URL of a member for clients. An IPv6 address is put in brackets.
#[must_use]
pub fn client_url(host: &str) -> String {
    url(host, CLIENT_PORT)
}

/// URL of a member for its peers. An IPv6 address is put in brackets.
#[must_use]
pub fn peer_url(host: &str) -> String {
    url(host, PEER_PORT)
}

fn url(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("https://[{host}]:{port}")
    } else {
        format!("https://{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_bracketed_once() {
        assert_eq!(client_url("10.0.0.1"), "https://10.0.0.1:2379");
        assert_eq!(client_url("fd00::1"), "https://[fd00::1]:2379");
        assert_eq!(peer_url("[fd00::1]"), "https://[fd00::1]:2380");
    }
}
