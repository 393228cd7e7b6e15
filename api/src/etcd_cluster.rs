//! EtcdCluster: a managed etcd cluster whose members are Machines of Cluster API.

mod begun;
mod machine_template;
mod rollout;

pub use machine_template::{MachineDeletion, MachineTemplate, MachineTemplateSpec};
pub use rollout::{RollingUpdate, RolloutBefore, RolloutStrategy, RolloutType};

use crate::etcdadm_config::EtcdadmConfigSpec;
use crate::meta::AddressType;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Stricter than OpenAPI's `date-time`: an object with a time that we cannot read could not be read at all. The second part
/// refuses days that no month has.
const TIME_RULE: &str = "self.matches(r'^2[0-9]{3}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3])(:[0-5][0-9]){2}([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$') && timestamp(self) > timestamp('1990-01-01T00:00:00Z')";

/// What the etcd cluster should be.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "etcdcluster.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    shortname = "etcd",
    category = "cluster-api",
    namespaced,
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    doc = "EtcdCluster is a managed etcd cluster for the control plane of a Cluster: one Machine for each member.",
    label("cluster.x-k8s.io/provider", "bootstrap-etcdadm"),
    label("cluster.x-k8s.io/v1beta1", "v1alpha4_v1beta1"),
    label("cluster.x-k8s.io/v1beta2", "v1alpha4_v1beta1"),
    label("clusterctl.cluster.x-k8s.io", ""),
    label("clusterctl.cluster.x-k8s.io/move-hierarchy", "true"),
    label("etcdcluster.cluster.x-k8s.io/provider-contract-v1", "v1alpha4_v1beta1"),
    label("visualizer.cluster.x-k8s.io", ""),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",
        description = "Cluster that it is for"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        description = "Whether all wanted members are healthy voters and the control plane has what it needs"
    ),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Available')].status",
        description = "Whether etcd can be written to: a quorum of the voters is healthy, and no alarm forbids writes"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        description = "Why it is ready or not"
    ),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas", description = "Wanted members"),
    printcolumn(
        name = "Healthy",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "Healthy voters"
    ),
    printcolumn(
        name = "UpToDate",
        type_ = "integer",
        json_path = ".status.updatedReplicas",
        description = "Machines that match the spec"
    ),
    printcolumn(
        name = "Paused",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Paused')].status",
        priority = 1,
        description = "Whether the Cluster or the EtcdCluster is paused"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version", description = "etcd version"),
    printcolumn(
        name = "NewVersion",
        type_ = "string",
        json_path = ".metadata.annotations['etcdcluster\\.cluster\\.x-k8s\\.io/etcd-version']",
        priority = 1,
        description = "etcd version that new members get: what a rollout leads to"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Endpoints",
        type_ = "string",
        json_path = ".status.endpoints",
        priority = 1,
        description = "Client URLs of the voters, as published to the control plane"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1,
        description = "What is waited for"
    ),
    printcolumn(
        name = "Rollout",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='MachinesUpToDate')].message",
        priority = 1,
        description = "How far a rollout is, where it leads to, and what it waits for; empty without one"
    ),
    validation = Rule::new("size(self.metadata.name) <= 50").message("metadata.name must have at most 50 characters: names and labels of the members' Machines are made from it"),
    validation = Rule::new("self.spec.replicas > 1 || !has(self.spec.rolloutStrategy) || !has(self.spec.rolloutStrategy.rollingUpdate) || !has(self.spec.rolloutStrategy.rollingUpdate.maxSurge) || self.spec.rolloutStrategy.rollingUpdate.maxSurge > 0").message("maxSurge must be at least 1 with one replica: with 0 a member leaves before its replacement joins, and the only one has all the data").field_path(".spec.rolloutStrategy.rollingUpdate.maxSurge")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// Members of the cluster: 1, 3, 5 or 7. May be changed later: Machines are added, or deleted once their members may
    /// leave etcd.
    #[serde(default = "default_replicas")]
    #[x_kube(validation = Rule::new("self in [1, 3, 5, 7]").message("replicas must be 1, 3, 5 or 7: an even number of members survives no more failures than one less, and more than 7 slow every write down"))]
    pub replicas: i32,

    /// Template of the infrastructure that each member's Machine runs on, in the namespace of the EtcdCluster.
    pub infrastructure_template: InfrastructureTemplateRef,

    /// How each member is set up.
    #[serde(default)]
    pub etcdadm_config_spec: EtcdadmConfigSpec,

    /// When a member counts as unhealthy.
    #[serde(default)]
    pub health_check: HealthCheck,

    /// What is done about a voter that counts as unhealthy.
    #[serde(default)]
    pub remediation: Remediation,

    /// What is done about Machines that no longer match the spec.
    #[serde(default)]
    pub rollout_strategy: RolloutStrategy,

    /// From this time on, Machines that were made before it are replaced as if they did not match the spec. With
    /// `rolloutStrategy.type: OnDelete` they are only counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 64))]
    #[x_kube(validation = Rule::new(TIME_RULE).message("must be a time such as 2026-11-23T04:00:00Z"))]
    pub rollout_after: Option<Time>,

    /// Machines are replaced before something of theirs ends.
    #[serde(default)]
    pub rollout_before: RolloutBefore,

    /// What the members' Machines carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_template: Option<MachineTemplate>,

    /// Kinds of address to reach the members by, the preferred first. A Machine's first address of the first kind that
    /// it has is used. Default: InternalIP, ExternalIP, InternalDNS, ExternalDNS, Hostname.
    #[serde(default = "default_address_types")]
    #[schemars(length(min = 1, max = 5))]
    #[x_kube(validation = Rule::new("self.all(a, self.exists_one(b, a == b))").message("addressTypes names one kind twice"))]
    pub address_types: Vec<AddressType>,

    /// Whether a client certificate for Prometheus is kept in the Secret `CLUSTER-etcd-metrics-client` (`tls.crt`,
    /// `tls.key`, `ca.crt`), for etcd's own metrics on the client port. This certificate also gives full access to
    /// etcd's data, so restrict who may read the Secret. Default false. When it is set back to false, the Secret stays,
    /// and is not renewed.
    #[serde(default)]
    pub metrics_client_secret: bool,
}

fn default_replicas() -> i32 {
    3
}

fn default_address_types() -> Vec<AddressType> {
    use AddressType::{ExternalDNS, ExternalIP, Hostname, InternalDNS, InternalIP};
    vec![InternalIP, ExternalIP, InternalDNS, ExternalDNS, Hostname]
}

/// Reference to an infrastructure template.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.apiVersion) != has(self.apiGroup)").message("set either apiGroup (the served version is found) or apiVersion, not both or neither"))]
pub struct InfrastructureTemplateRef {
    /// Group and version of the template, such as `infrastructure.cluster.x-k8s.io/v1beta1`. Only the group is used:
    /// the version is the one that the API server serves for Cluster API's contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[^/\s]+/[^/\s]+$')").message("apiVersion must be <group>/<version>, such as infrastructure.cluster.x-k8s.io/v1beta1"))]
    pub api_version: Option<String>,
    /// Group of the template, such as `infrastructure.cluster.x-k8s.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("!self.contains('/')").message("apiGroup must be a group without a version, such as infrastructure.cluster.x-k8s.io"))]
    pub api_group: Option<String>,
    /// Kind of the template; must end in `Template`.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.endsWith('Template') && self != 'Template'").message("kind must be that of a template, such as DockerMachineTemplate"))]
    pub kind: String,
    /// Name of the template.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// May be given if it is the EtcdCluster's own namespace; another one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

impl InfrastructureTemplateRef {
    /// API group of the template, without a version.
    #[must_use]
    pub fn group(&self) -> &str {
        match (&self.api_group, &self.api_version) {
            (Some(group), _) => group,
            (None, Some(version)) => version.split_once('/').map_or("", |(group, _)| group),
            (None, None) => "",
        }
    }
}

/// When a member counts as unhealthy.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.unhealthyAfterSeconds >= self.intervalSeconds").message("unhealthyAfterSeconds must be at least intervalSeconds: one check has to fail first"))]
pub struct HealthCheck {
    /// Seconds between two checks of a member. Default 10.
    #[serde(default = "default_interval")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: i32,
    /// Seconds of failing checks after which a member counts as unhealthy. Default 60.
    #[serde(default = "default_unhealthy_after")]
    #[schemars(range(min = 1, max = 86400))]
    pub unhealthy_after_seconds: i32,
    /// Seconds that a Machine has to become a member, from the moment it may boot. After that, MachineNotBooting is
    /// reported, and the next Machine is admitted if that is safe. After twice as long, or up to six times where others before it
    /// did not become members either, the Machine is replaced, unless `remediation.mode` is Report. Default 600.
    #[serde(default = "default_grace")]
    #[schemars(range(min = 1, max = 86400))]
    pub startup_grace_seconds: i32,
}

fn default_interval() -> i32 {
    10
}
fn default_unhealthy_after() -> i32 {
    60
}
fn default_grace() -> i32 {
    600
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            interval_seconds: default_interval(),
            unhealthy_after_seconds: default_unhealthy_after(),
            startup_grace_seconds: default_grace(),
        }
    }
}

impl HealthCheck {
    /// Time between two checks of a member.
    #[must_use]
    pub fn interval(&self) -> Duration {
        seconds(self.interval_seconds, default_interval).max(Duration::from_secs(1))
    }

    /// Time of failing checks after which a member counts as unhealthy.
    #[must_use]
    pub fn unhealthy_after(&self) -> Duration {
        seconds(self.unhealthy_after_seconds, default_unhealthy_after)
    }

    /// Time that a Machine has to become a member.
    #[must_use]
    pub fn startup_grace(&self) -> Duration {
        seconds(self.startup_grace_seconds, default_grace)
    }
}

/// The schema refuses what is less than 1.
fn seconds(seconds: i32, default: fn() -> i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_else(|_| default().unsigned_abs().into()))
}

/// What is done about a voter that counts as unhealthy. The limits are those of KubeadmControlPlane's remediation: they are
/// for a replacement that fails too, and not for several members that fail by themselves.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remediation {
    /// Replace: its Machine is deleted when a replacement is up, as far as that is safe. Report: it is only reported, and a
    /// person deletes the Machine. Default Replace.
    #[serde(default)]
    pub mode: RemediationMode,
    /// How many replacements in a row that fail too are replaced. After that the next one waits for a person, or until
    /// `minHealthyPeriodSeconds` are over. Not set: there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_retry: Option<i32>,
    /// Seconds between replacing a member and replacing its replacement that fails too. Default 0. With 0, a replacement that
    /// is healthy, and whose Machine is marked for remediation, waits for `minHealthyPeriodSeconds`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    pub retry_period_seconds: i32,
    /// Seconds after which a failing replacement no longer counts as failing for the reason of its predecessor. Default 3600.
    #[serde(default = "default_min_healthy_period")]
    #[schemars(range(min = 0, max = 604_800))]
    pub min_healthy_period_seconds: i32,
}

/// Whether an unhealthy voter is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RemediationMode {
    /// It is replaced.
    #[default]
    Replace,
    /// It is only reported.
    Report,
}

fn default_min_healthy_period() -> i32 {
    3600
}

impl Default for Remediation {
    fn default() -> Self {
        Self {
            mode: RemediationMode::default(),
            max_retry: None,
            retry_period_seconds: 0,
            min_healthy_period_seconds: default_min_healthy_period(),
        }
    }
}

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
    /// UIDs of Machines that are let go without having become members: each is written before its Machine is let go. Before etcd
    /// has begun, an etcd that one of them initializes in its last moments is not taken for this EtcdCluster's. Afterwards, one
    /// that exists still is counted as a voter that is down, as it may join and is destroyed then.
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
    /// It has been decided on.
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
