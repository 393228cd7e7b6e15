//! EtcdCluster: a managed etcd cluster whose members are Machines of Cluster API.

mod begun;
mod machine_template;
mod rollout;
mod status;

pub use machine_template::{MachineDeletion, MachineTemplate, MachineTemplateSpec};
pub use rollout::{RollingUpdate, RolloutBefore, RolloutStrategy, RolloutType};
pub use status::{
    EtcdClusterStatus, Health, LastRemediation, MemberRole, MemberStatus, Operation, OperationKind, RemovalState,
    RemovedMember,
};

use crate::etcdadm_config::EtcdadmConfigSpec;
use crate::meta::AddressType;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Stricter than OpenAPI's `date-time`: if the object had a time that we cannot read, we could not read the object at
/// all. The second part refuses days that no month has.
const TIME_RULE: &str = "self.matches(r'^2[0-9]{3}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3])(:[0-5][0-9]){2}([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$') && timestamp(self) > timestamp('1990-01-01T00:00:00Z')";

/// Desired state of an EtcdCluster.
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
    /// Number of members of the etcd cluster: 1, 3, 5 or 7. Defaults to 3. You can change it later. The controller then
    /// adds Machines, or deletes the surplus ones, and each of those goes once its member may leave etcd.
    #[serde(default = "default_replicas")]
    #[x_kube(validation = Rule::new("self in [1, 3, 5, 7]").message("replicas must be 1, 3, 5 or 7: an even number of members survives no more failures than one less, and more than 7 slow every write down"))]
    pub replicas: i32,

    /// Reference to the template for the infrastructure of the members' Machines. The template must be in the namespace
    /// of the EtcdCluster.
    pub infrastructure_template: InfrastructureTemplateRef,

    /// How each member is set up: the spec of the EtcdadmConfig that the controller makes for it.
    #[serde(default)]
    pub etcdadm_config_spec: EtcdadmConfigSpec,

    /// How often members are checked, when a member counts as unhealthy, and how long a Machine has to become a member.
    #[serde(default)]
    pub health_check: HealthCheck,

    /// What the controller does about a voter that counts as unhealthy, and about a Machine that is marked for
    /// remediation.
    #[serde(default)]
    pub remediation: Remediation,

    /// What the controller does about Machines that no longer match the spec.
    #[serde(default)]
    pub rollout_strategy: RolloutStrategy,

    /// Time, such as 2026-11-23T04:00:00Z, after which all Machines that were made before it are replaced, as if they
    /// did not match the spec. With `rolloutStrategy.type: OnDelete`, they are only counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 64))]
    #[x_kube(validation = Rule::new(TIME_RULE).message("must be a time such as 2026-11-23T04:00:00Z"))]
    pub rollout_after: Option<Time>,

    /// When Machines are replaced because something on them expires soon.
    #[serde(default)]
    pub rollout_before: RolloutBefore,

    /// Metadata and fields of the members' Machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_template: Option<MachineTemplate>,

    /// Kinds of address at which members are reached, the preferred kind first. The controller takes the first kind of
    /// which a Machine has an address, and uses the Machine's first address of that kind. Defaults to InternalIP,
    /// ExternalIP, InternalDNS, ExternalDNS, Hostname.
    #[serde(default = "default_address_types")]
    #[schemars(length(min = 1, max = 5))]
    #[x_kube(validation = Rule::new("self.all(a, self.exists_one(b, a == b))").message("addressTypes names one kind twice"))]
    pub address_types: Vec<AddressType>,

    /// Whether the controller keeps a client certificate for Prometheus in the Secret `CLUSTER-etcd-metrics-client`
    /// (`tls.crt`, `tls.key`, `ca.crt`). It is for etcd's own metrics on the client port. The certificate also gives
    /// full access to etcd's data, so restrict who may read the Secret. Defaults to false. If you set the field back to
    /// false, the Secret stays, and is no longer renewed.
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
    /// API group and version of the template, such as `infrastructure.cluster.x-k8s.io/v1beta1`. Only the group is
    /// used: the version is the one that the API server serves for Cluster API's contract. Set either this field or
    /// `apiGroup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[^/\s]+/[^/\s]+$')").message("apiVersion must be <group>/<version>, such as infrastructure.cluster.x-k8s.io/v1beta1"))]
    pub api_version: Option<String>,
    /// API group of the template, such as `infrastructure.cluster.x-k8s.io`. Set either this field or `apiVersion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("!self.contains('/')").message("apiGroup must be a group without a version, such as infrastructure.cluster.x-k8s.io"))]
    pub api_group: Option<String>,
    /// Kind of the template. It must end in `Template`.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.endsWith('Template') && self != 'Template'").message("kind must be that of a template, such as DockerMachineTemplate"))]
    pub kind: String,
    /// Name of the template.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the template. If you set it, it must be the EtcdCluster's own namespace.
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

/// How often members are checked, when a member counts as unhealthy, and how long a Machine has to become a member.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.unhealthyAfterSeconds >= self.intervalSeconds").message("unhealthyAfterSeconds must be at least intervalSeconds: one check has to fail first"))]
pub struct HealthCheck {
    /// Seconds between two checks of a member. Defaults to 10.
    #[serde(default = "default_interval")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: i32,
    /// Seconds for which the checks of a member have to fail until it counts as unhealthy. Must be at least
    /// `intervalSeconds`. Defaults to 60.
    #[serde(default = "default_unhealthy_after")]
    #[schemars(range(min = 1, max = 86400))]
    pub unhealthy_after_seconds: i32,
    /// Seconds that a Machine has to become a member, from the moment it may boot. When they are over,
    /// MachineNotBooting is reported, and the next Machine is admitted if that is safe. After twice this time, the
    /// Machine is replaced, unless `remediation.mode` is Report. If Machines before it did not become members either,
    /// that takes longer: up to six times this time. Defaults to 600.
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

/// A number of seconds as a duration. The schema refuses a value below 1. Here, a negative value gives the default.
fn seconds(seconds: i32, default: fn() -> i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_else(|_| default().unsigned_abs().into()))
}

/// What the controller does about a voter that counts as unhealthy, and about a Machine that is marked for remediation.
/// The limits are those of KubeadmControlPlane's remediation: they apply to a replacement that fails too, and not to
/// several members that fail by themselves.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remediation {
    /// What the controller does about an unhealthy voter. Replace: when a replacement is up, it deletes the voter's
    /// Machine, as far as that is safe. Report: it only reports the voter, and a person deletes the Machine. Defaults
    /// to Replace.
    #[serde(default)]
    pub mode: RemediationMode,
    /// Number of failing replacements in a row that the controller replaces. After that, the next one waits for a
    /// person, or until `minHealthyPeriodSeconds` are over. With 0, the first replacement that fails already waits. If
    /// not set, there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_retry: Option<i32>,
    /// Seconds from the decision to replace a member until its replacement, if that fails too, is replaced. Defaults to
    /// 0. With 0, a replacement that is healthy, but whose Machine is marked for remediation, waits for
    /// `minHealthyPeriodSeconds`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    pub retry_period_seconds: i32,
    /// Seconds from the decision on a replacement in which the replacement, if it fails too, counts as failing for the
    /// reason of its predecessor. Later, its failure counts as a new one. Defaults to 3600. With 0, every failure
    /// counts as a new one, and `maxRetry` and `retryPeriodSeconds` have no effect.
    #[serde(default = "default_min_healthy_period")]
    #[schemars(range(min = 0, max = 604_800))]
    pub min_healthy_period_seconds: i32,
}

/// What the controller does about an unhealthy voter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RemediationMode {
    /// The controller replaces it.
    #[default]
    Replace,
    /// The controller only reports it.
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
