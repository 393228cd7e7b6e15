//! What is known of an etcd cluster, and what must not be forgotten of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is known of the etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// All wanted members are healthy voters and the certificates exist.
    #[serde(default)]
    pub ready: bool,
    /// The first member has come up. Never goes back to false.
    #[serde(default)]
    pub initialized: bool,
    /// All wanted members have once been there at the same time. Never goes back to false.
    #[serde(default)]
    pub creation_complete: bool,
    /// Machines of this cluster that are not being deleted.
    #[serde(default)]
    pub replicas: i32,
    /// Healthy voters.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Healthy voters that answer their checks. One that has begun to fail is ready still, and not available.
    #[serde(default)]
    pub available_replicas: i32,
    /// Machines that match the present spec: the name that version v1beta2 of Cluster API's contract has for it.
    #[serde(default)]
    pub up_to_date_replicas: i32,
    /// The same as `upToDateReplicas`: the name that version v1beta1 has for it.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Same as `endpoints`: the name that the managed-external-etcd proposal uses.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Client URLs of the voters, sorted, separated by commas. They follow the membership, not the health of the moment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoints: String,
    /// Endpoints that API servers may be using, separated by commas: what the Cluster hook's annotation last said. It counts
    /// where somebody has replaced the object, and the annotation is gone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoints_in_use: String,
    /// Highest number used in the name of a Machine: what the annotation last said. It counts where somebody has replaced the
    /// object, and the annotation is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_name_number: Option<i64>,
    /// Label selector of the Machines, for the scale subresource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Name of the Secret with the first member's address, once the cluster is initialized.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub init_machine_address: String,
    /// Lowest etcd version that a member runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// etcd's cluster ID, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "String::is_empty")]
    pub cluster_id: String,
    /// The members, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub members: Vec<MemberStatus>,
    /// What is being done to etcd's membership. It is written before it is begun, and cleared when it is seen done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// Members that have left etcd, or are about to, and whose Machines still exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub removed_members: Vec<RemovedMember>,
    /// UIDs of Machines that are let go without having become members: each is written before its Machine is let go.
    /// Before etcd has begun, an etcd that one of them initializes in its last moments is not taken for this
    /// EtcdCluster's. Afterwards, one that exists still is counted as a voter that is down, as it may join and is
    /// destroyed then.
    #[serde(default, rename = "releasedMachineUIDs", skip_serializing_if = "Vec::is_empty")]
    pub released_machine_uids: Vec<String>,
    /// The latest replacement of an unhealthy member, or of one whose Machine is marked for remediation. It is written before
    /// anything is done, and kept for the limits of `spec.remediation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_remediation: Option<LastRemediation>,
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Whether a member votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberRole {
    /// Counts for the quorum.
    Voter,
    /// Receives the data and does not count yet.
    Learner,
}

/// What is known of a member's health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Health {
    /// It answers its checks, or has not failed them for `unhealthyAfterSeconds` yet.
    Healthy,
    /// It has failed its checks for `unhealthyAfterSeconds` without a gap.
    Unhealthy,
    /// It could not be checked. It does not count as healthy, and nothing is held against it. A member that starts to fail
    /// before it was ever recorded as Healthy is Unknown until it has failed for `unhealthyAfterSeconds`; one that was
    /// Unhealthy stays so until it answers.
    #[default]
    Unknown,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationKind {
    /// A member is removed from etcd.
    RemoveMember,
    /// Leadership is moved away from a member that is to be removed.
    MoveLeader,
}

/// A change of etcd's membership or leadership that has been decided on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// What is done.
    pub kind: OperationKind,
    /// Member that it is done to, in hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// UID of that member's Machine; empty if it has none.
    #[serde(default, rename = "machineUID", skip_serializing_if = "String::is_empty")]
    pub machine_uid: String,
    /// When it was decided on.
    pub since: Time,
    /// How many tries to move leadership have failed. Removals are not counted.
    #[serde(default)]
    pub attempt: i32,
}

/// The replacement of an unhealthy member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastRemediation {
    /// Name of the Machine that is replaced.
    pub machine: String,
    /// UID of that Machine.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// When it was decided on.
    pub time: Time,
    /// How many replacements before this one have failed too, each within `minHealthyPeriodSeconds`.
    #[serde(default)]
    pub retry_count: i32,
}

/// How far the removal of a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RemovalState {
    /// It has been decided on, and the member is still there. It stays so where that was called off later, as etcd may
    /// carry out what it was asked for after the answer is no longer waited for.
    Removing,
    /// It has been removed: a linearizable member list no longer has it.
    Removed,
    /// It disappeared from the member list though this provider did not remove it.
    Missing,
}

/// A member that has left etcd, or is about to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedMember {
    /// Member ID, in hexadecimal.
    pub id: String,
    /// Name of its Machine.
    pub machine: String,
    /// UID of its Machine.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// How far the removal is.
    pub state: RemovalState,
    /// Its machine may add itself once more: its etcd had not started when that was found, or it was a learner, which
    /// its own machine removes when its data is lost, and etcd has not confirmed the removal to this provider.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_started: bool,
    /// Since when it is in this state.
    pub since: Time,
}

/// One member of the etcd cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of the member; empty while it has been added and has not started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Member ID, in hexadecimal. It is what identifies a member.
    pub id: String,
    /// Name of its Machine; empty if no Machine of this cluster has the member's address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// Failure domain of its Machine; empty if that has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure_domain: String,
    /// URL for its peers.
    #[serde(default, rename = "peerURL", skip_serializing_if = "String::is_empty")]
    pub peer_url: String,
    /// URL for clients.
    #[serde(default, rename = "clientURL", skip_serializing_if = "String::is_empty")]
    pub client_url: String,
    /// Whether it votes.
    pub role: MemberRole,
    /// Whether it leads.
    #[serde(default)]
    pub leader: bool,
    /// etcd version that it runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// What is known of its health.
    #[serde(default)]
    pub health: Health,
    /// Since when its checks succeed. Not set while they fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Time>,
    /// Since when its checks fail. Not set while they succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_since: Option<Time>,
    /// What the first of its failing checks said, or why nothing is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Size of its database in bytes. Written only when it has changed by a tenth or more, so that a growing database
    /// does not mean a write every few seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_size_bytes: Option<i64>,
    /// When the certificate expires that it serves with, or last did. `spec.rolloutBefore` says when its Machine is replaced
    /// for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expires: Option<Time>,
}
