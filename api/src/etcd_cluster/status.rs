//! The status of an EtcdCluster: what is known of the etcd cluster, and what must not be forgotten of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Observed state of an EtcdCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// Whether all wanted members are healthy voters whose endpoints are published, and the certificates exist.
    #[serde(default)]
    pub ready: bool,
    /// Whether the first member has come up. It never goes back to false.
    #[serde(default)]
    pub initialized: bool,
    /// Whether all wanted members have existed at the same time at least once. It never goes back to false.
    #[serde(default)]
    pub creation_complete: bool,
    /// Number of Machines of this EtcdCluster that are not being deleted.
    #[serde(default)]
    pub replicas: i32,
    /// Number of healthy voters.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Number of healthy voters that answer their checks at the moment. A voter that has begun to fail is still counted
    /// in `readyReplicas`, but not here.
    #[serde(default)]
    pub available_replicas: i32,
    /// Number of Machines that match the present spec, under the name that version v1beta2 of Cluster API's contract
    /// has for it.
    #[serde(default)]
    pub up_to_date_replicas: i32,
    /// Same as `upToDateReplicas`, under the name that version v1beta1 of Cluster API's contract has for it.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Same as `endpoints`, under the name that the managed-external-etcd proposal uses.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Client URLs of the voters, sorted, separated by commas. The list follows the membership, and not the health of
    /// the voters at the moment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoints: String,
    /// Lists of endpoints that API servers may be using, as the Cluster hook's annotation
    /// `etcdcluster.cluster.x-k8s.io/endpoints-in-use` last had them: commas separate the URLs of a list, and
    /// semicolons the lists. The field counts if somebody has replaced the object, and the annotation is gone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoints_in_use: String,
    /// Highest number used in the name of a Machine, as the annotation `etcdcluster.cluster.x-k8s.io/last-name-number`
    /// last had it. The larger of the two counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_name_number: Option<i64>,
    /// Label selector of the Machines, for the scale subresource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Name of the Secret with the first member's address. It is set once the cluster is initialized.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub init_machine_address: String,
    /// Lowest etcd version that a member runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// etcd's cluster ID, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "String::is_empty")]
    pub cluster_id: String,
    /// Members of the etcd cluster, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub members: Vec<MemberStatus>,
    /// Operation on etcd's membership that is in progress. The controller writes it before it begins the operation, and
    /// clears it when it sees that the operation is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// Members that have left etcd, or are about to leave it, and whose Machines still exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub removed_members: Vec<RemovedMember>,
    /// UIDs of Machines that are released without having become members. The controller writes each UID before it
    /// releases the Machine. Before etcd has begun, an etcd that such a Machine initializes in its last moments is not
    /// taken for the etcd of this EtcdCluster. Afterwards, such a Machine counts as a voter that is down as long as it
    /// exists: it may still join, and is destroyed then.
    #[serde(default, rename = "releasedMachineUIDs", skip_serializing_if = "Vec::is_empty")]
    pub released_machine_uids: Vec<String>,
    /// Latest replacement of an unhealthy member, or of a member whose Machine is marked for remediation. The
    /// controller writes it before it does anything, and keeps it for the limits of `spec.remediation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_remediation: Option<LastRemediation>,
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions of the EtcdCluster, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberRole {
    /// It counts for the quorum.
    Voter,
    /// It receives the data, and does not count for the quorum.
    Learner,
}

/// Health of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Health {
    /// It answers its checks, or has not failed them for `unhealthyAfterSeconds` yet.
    Healthy,
    /// It has failed its checks for `unhealthyAfterSeconds` without a gap.
    Unhealthy,
    /// It could not be checked. It does not count as healthy, and nothing is held against it. A member that begins to
    /// fail before it was ever recorded as Healthy is Unknown until it has failed for `unhealthyAfterSeconds`. A member
    /// that was Unhealthy stays Unhealthy until it answers.
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

/// A change of etcd's membership or leadership that the controller has decided on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// What the operation does. RemoveMember: a member is removed from etcd. MoveLeader: leadership is moved away from
    /// a member that is to be removed.
    pub kind: OperationKind,
    /// ID of the member that is removed, or that leadership is moved away from, in hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// UID of that member's Machine. Empty if the member has no Machine.
    #[serde(default, rename = "machineUID", skip_serializing_if = "String::is_empty")]
    pub machine_uid: String,
    /// Time at which the controller decided on the operation.
    pub since: Time,
    /// Number of failed attempts to move leadership. Attempts to remove a member are not counted.
    #[serde(default)]
    pub attempt: i32,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            OperationKind::RemoveMember => "the removal of",
            OperationKind::MoveLeader => "moving leadership away from",
        };
        write!(f, "{what} member {}", self.member_id)
    }
}

/// The replacement of an unhealthy member, or of a member whose Machine is marked for remediation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastRemediation {
    /// Name of the Machine that is replaced.
    pub machine: String,
    /// UID of that Machine.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// Time at which the controller decided on the replacement.
    pub time: Time,
    /// Number of replacements in a row before this one that failed too, or were marked, each within
    /// `minHealthyPeriodSeconds`.
    #[serde(default)]
    pub retry_count: i32,
}

/// State of the removal of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RemovalState {
    /// The controller has decided on it, and the member is still there. The state stays so if the removal is called off
    /// later: etcd may carry out a request after nobody waits for the answer any more.
    Removing,
    /// The member has been removed: a linearizable member list no longer has it.
    Removed,
    /// The member disappeared from the member list, and this provider did not remove it.
    Missing,
}

/// A member that has left etcd, or is about to leave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedMember {
    /// ID of the member, in hexadecimal.
    pub id: String,
    /// Name of the member's Machine.
    pub machine: String,
    /// UID of the member's Machine.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// State of the removal. Removing: the controller has decided on it, and the member is still there; the state stays
    /// so if the removal is called off later, because etcd may still carry it out. Removed: etcd no longer lists the
    /// member. Missing: the member disappeared from the member list, and this provider did not remove it.
    pub state: RemovalState,
    /// Whether the member's machine may add itself to etcd once more. This is so if the member's etcd had not started
    /// when the removal was found, or if the member was a learner and etcd has not confirmed its removal to this
    /// provider: a machine that loses the data of its learner removes that learner itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_started: bool,
    /// Time since which the removal is in this state.
    pub since: Time,
}

/// Observed state of one member of the etcd cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of the member. Empty while the member has been added but has not started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// ID of the member, in hexadecimal. It alone identifies the member.
    pub id: String,
    /// Name of the member's Machine. It stays when that Machine is gone. Empty if no Machine of this EtcdCluster has ever
    /// had the member.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// Failure domain of the member's Machine. Empty if the Machine has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure_domain: String,
    /// URL at which the member serves the other members.
    #[serde(default, rename = "peerURL", skip_serializing_if = "String::is_empty")]
    pub peer_url: String,
    /// URL at which the member serves clients.
    #[serde(default, rename = "clientURL", skip_serializing_if = "String::is_empty")]
    pub client_url: String,
    /// Role of the member. Voter: it counts for the quorum. Learner: it receives the data, and does not count for the
    /// quorum.
    pub role: MemberRole,
    /// Whether the member is etcd's leader.
    #[serde(default)]
    pub leader: bool,
    /// etcd version that the member runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Health of the member. Healthy: it answers its checks, or has not failed them for `unhealthyAfterSeconds` yet.
    /// Unhealthy: it has failed them for that long without a gap. Unknown: nothing certain is known, for example
    /// because it could not be checked.
    #[serde(default)]
    pub health: Health,
    /// Time since which the member's checks succeed. Not set while they fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Time>,
    /// Time since which the member's checks fail. Not set while they succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_since: Option<Time>,
    /// What the first of the member's failing checks reported, or why nothing is known of its health.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Size of the member's database, in bytes. The field changes only when the size has changed by a tenth or more, so
    /// that a growing database does not cause a write every few seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_size_bytes: Option<i64>,
    /// Time at which the certificate that the member serves with, or last served with, expires. `spec.rolloutBefore`
    /// says how long before that the member's Machine is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expires: Option<Time>,
}
