//! How Machines that do not match the spec are replaced.

use super::EtcdClusterSpec;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the controller does about Machines that no longer match the spec: those with another etcd version, another
/// `etcdadmConfigSpec` or another infrastructure template.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.rollingUpdate) || self.type == 'RollingUpdate' || (has(self.rollingUpdate.maxSurge) && self.rollingUpdate.maxSurge == 0)").message("rollingUpdate is only for type RollingUpdate: with OnDelete a person decides how many Machines there are. maxSurge 0 is for both"))]
pub struct RolloutStrategy {
    /// How such Machines are replaced. RollingUpdate: the controller replaces them with Machines that match, new
    /// members first, as far as that is safe. OnDelete: they stay until a person deletes them. Defaults to
    /// RollingUpdate.
    #[serde(default, rename = "type")]
    pub type_: RolloutType,
    /// How many Machines a rollout may use. Only for type RollingUpdate, except that `maxSurge: 0` is also allowed with
    /// OnDelete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// How many Machines a rollout may use.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How many Machines more than `replicas` there may be in a rollout while API servers use the endpoints of the
    /// members. Defaults to 1, 3, 3, 4 for 1, 3, 5, 7 replicas, or to more if the API servers still use a longer list:
    /// with that, the control plane rolls out once for one rollout of etcd. With fewer than 2, 3, 4 for 3, 5, 7 replicas, it rolls out twice. If no API server uses the
    /// endpoints, there is one Machine more.
    ///
    /// 0 is for infrastructure that has no room for another Machine. For every replacement, whatever the reason, a
    /// member then leaves before the Machine of its replacement is made. Until the new member votes, etcd survives one
    /// failure less. The control plane rolls out three times for one rollout of etcd. 0 is not allowed with one
    /// replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 7))]
    pub max_surge: Option<i32>,
}

/// When Machines are replaced because something on them expires soon.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutBefore {
    /// Days before the expiry of a member's certificate at which the member's Machine is replaced, as if it did not
    /// match the spec: a new Machine gets a new certificate. A member's certificate is valid for a year. The Machine is
    /// not replaced if the CA expires within this many days as well. Defaults to 45.
    #[serde(default = "default_certificates_expiry_days")]
    #[schemars(range(min = 7, max = 180))]
    pub certificates_expiry_days: i32,
}

/// Earlier than the alert on certificates, which fires 30 days before they expire.
fn default_certificates_expiry_days() -> i32 {
    45
}

impl Default for RolloutBefore {
    fn default() -> Self {
        Self { certificates_expiry_days: default_certificates_expiry_days() }
    }
}

/// How outdated Machines are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutType {
    /// The controller replaces them.
    #[default]
    RollingUpdate,
    /// They stay until a person deletes them.
    OnDelete,
}

impl EtcdClusterSpec {
    /// Whether a member leaves before its replacement joins (`maxSurge: 0`). The only member never does.
    #[must_use]
    pub fn removes_first(&self) -> bool {
        let given = self.rollout_strategy.rolling_update.as_ref().and_then(|given| given.max_surge);
        given == Some(0) && self.replicas > 1
    }
}
