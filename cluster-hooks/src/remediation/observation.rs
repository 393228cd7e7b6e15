//! Everything that a decision depends on, as plain data.

use crate::observation::{ClusterState, ControlPlaneView, EtcdView, conditions_path};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

/// The annotation of a Machine that a KubeadmControlPlane has made in place of another one.
///
/// Source: `RemediationForAnnotation` in Cluster API 1.14.0, controlplane/kubeadm.
const REMEDIATION_FOR: &str = "controlplane.cluster.x-k8s.io/remediation-for";

/// What is known of a Cluster with a KubeadmControlPlane and an etcd of a provider.
pub struct Observation {
    /// The Cluster.
    pub cluster: ClusterState,
    /// Its etcd.
    pub etcd: EtcdView,
    /// Its control plane.
    pub control_plane: ControlPlaneView,
    /// The Machines with the label of its control plane.
    pub machines: Vec<ControlPlaneMachine>,
}

/// What the remediation needs of a Machine of a control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlPlaneMachine {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// UID of its controller.
    pub controller: Option<String>,
    /// When its deletion began.
    pub deleting: Option<Timestamp>,
    /// It has become a Node.
    pub joined: bool,
    /// Cluster API calls it Ready.
    pub ready: bool,
    /// A MachineHealthCheck calls it unhealthy.
    pub unhealthy: bool,
    /// It is unhealthy, and the control plane wants to replace it, but says that it could not check its own etcd: see
    /// [`super::plan::Step::Delete`].
    pub deferred: bool,
    /// The remediation in which it was made.
    pub made_in: Option<Remediation>,
}

/// A remediation, as a KubeadmControlPlane notes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remediation {
    /// When it began.
    pub timestamp: Timestamp,
    /// How many remediations preceded it without a healthy time in between.
    pub retry_count: i64,
}

impl ControlPlaneMachine {
    /// Reads a Machine of this version.
    pub fn read(machine: &DynamicObject, api_version: &str) -> Self {
        let conditions = machine.data.pointer(conditions_path(api_version)).and_then(Value::as_array);
        let condition = |type_: &str| conditions.into_iter().flatten().find(|found| found["type"] == type_);
        let is = |type_: &str, status: &str| condition(type_).is_some_and(|found| found["status"] == status);
        let unhealthy = is("HealthCheckSucceeded", "False");
        let controller = machine.owner_references().iter().find(|owner| owner.controller == Some(true));
        Self {
            name: machine.name_any(),
            uid: machine.uid().unwrap_or_default(),
            resource_version: machine.resource_version().unwrap_or_default(),
            controller: controller.map(|owner| owner.uid.clone()),
            deleting: machine.metadata.deletion_timestamp.as_ref().map(|time| time.0),
            joined: machine.data.pointer("/status/nodeRef/name").is_some(),
            ready: is("Ready", "True"),
            unhealthy,
            deferred: unhealthy && condition("OwnerRemediated").is_some_and(is_deferred),
            made_in: machine.annotations().get(REMEDIATION_FOR).and_then(|text| Remediation::read(text)),
        }
    }
}

impl Remediation {
    /// Reads the annotation's JSON. None if it cannot be read.
    fn read(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        Some(Self { timestamp: value["timestamp"].as_str()?.parse().ok()?, retry_count: value["retryCount"].as_i64()? })
    }
}

/// Recognizes the condition of Cluster API 1.14.0, controlplane/kubeadm, remediation.go. Cluster API sets it after it
/// has checked its limits of retries and the other Machines, and before it checks what is left without this Machine.
/// The condition stays if another Machine has been replaced meanwhile, and it is the same if the Nodes could not be
/// listed.
fn is_deferred(condition: &Value) -> bool {
    condition["status"] == "False"
        && condition["reason"] == "RemediationDeferred"
        && condition["message"] == "Failed to check etcd cluster health before remediation"
}
