//! The template of the members' Machines.

use crate::meta::TemplateMeta;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Metadata and fields of the members' Machines.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.metadata.labels) || !('cluster.x-k8s.io/control-plane' in self.metadata.labels)").message("label cluster.x-k8s.io/control-plane must not be on etcd's Machines: the control plane would take them for its own"))]
pub struct MachineTemplate {
    /// Labels and annotations of new Machines, their configs and their infrastructure. The label
    /// `cluster.x-k8s.io/control-plane` is not allowed.
    #[serde(default)]
    pub metadata: TemplateMeta,
    /// Fields of the Machines. A change applies in place, and replaces no Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<MachineTemplateSpec>,
}

/// Fields of the Machines. A change applies in place, and replaces no Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineTemplateSpec {
    /// How long Cluster API tries to drain and delete a Machine's Node before it deletes the Machine anyway. A change
    /// applies to existing Machines too. A timeout that is not set has Cluster API's default. If `deletion` is not set,
    /// Machines are left as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<MachineDeletion>,
}

/// How long Cluster API tries to drain and delete a Machine's Node. A timeout that is not set has Cluster API's
/// default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeletion {
    /// Seconds for draining the Node. 0, Cluster API's default, means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_drain_timeout_seconds: Option<i32>,
    /// Seconds for detaching the Node's volumes. 0, Cluster API's default, means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_volume_detach_timeout_seconds: Option<i32>,
    /// Seconds for deleting the Node. 0 means no limit. Cluster API's default is 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_deletion_timeout_seconds: Option<i32>,
}
