//! Everything that the plan decides on, as values. The views are read loosely, and without a client or a clock.

mod control_plane;
mod etcd;
mod kubeadm;
mod machine;
mod rollout;
mod secrets;

pub use control_plane::{ControlPlane, ControlPlaneView, Pause, REMEDIATION_IN_PROGRESS};
pub use etcd::{Claim, Etcd, EtcdView};
pub use kubeadm::{Kubeadm, SHARED_CERTIFICATES};
pub use machine::ControlPlaneMachine;
pub use secrets::{KeyPair, PUBLISHED_BY_HOOK_ANNOTATION, Published, Secrets, Shared, names_of};

use api::conditions::MANAGED_EXTERNAL_ETCD_READY;
use controller_support::loose::ClusterView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::DynamicObject;
use serde_json::Value;

/// What is known of a Cluster and of all that hangs on it.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When it was observed.
    pub now: Time,
    /// The Cluster.
    pub cluster: ClusterState,
    /// The etcd that it names.
    pub etcd: Etcd,
    /// Its control plane.
    pub control_plane: ControlPlane,
    /// The Secrets between the two. Empty unless the control plane has endpoints already: nothing depends on them
    /// before.
    pub secrets: Secrets,
    /// Workers that are left, as `Kind/name`; secret_cache up only while the Cluster is being deleted, and only until the
    /// first kind of which there are any.
    pub workers: Vec<String>,
    /// Machines of a KubeadmControlPlane that has had an API server.
    pub machines: Vec<ControlPlaneMachine>,
}

/// What we need of the Cluster beyond the shared view.
#[derive(Clone, Debug)]
pub struct ClusterState {
    /// The shared view.
    pub view: ClusterView,
    /// Generation of its spec.
    pub generation: Option<i64>,
    /// A ClusterClass writes its control plane, and would revert what we write.
    pub topology: bool,
    /// It has `spec.controlPlaneEndpoint`.
    pub endpoint: bool,
    /// Our condition as it stands.
    pub condition: Option<Condition>,
    /// `status.managedExternalEtcdReady` and `status.managedExternalEtcdInitialized` as they stand, where the Cluster
    /// uses `spec.managedExternalEtcdRef`: its CRD has these fields then.
    pub mirror: Option<(bool, bool)>,
}

impl ClusterState {
    /// Reads a Cluster of any version.
    pub fn read(cluster: &DynamicObject) -> Self {
        let view = ClusterView::read(cluster);
        let data = &cluster.data;
        let conditions = data.pointer(conditions_path(&view.api_version)).and_then(Value::as_array);
        let condition = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == MANAGED_EXTERNAL_ETCD_READY)
            .and_then(|condition| serde_json::from_value(condition.clone()).ok());
        let flag = |pointer: &str| data.pointer(pointer).and_then(Value::as_bool).unwrap_or(false);
        Self {
            generation: cluster.metadata.generation,
            endpoint: endpoint(data),
            topology: data.pointer("/spec/topology").is_some_and(Value::is_object),
            condition,
            mirror: data
                .pointer("/spec/managedExternalEtcdRef")
                .map(|_| (flag("/status/managedExternalEtcdReady"), flag("/status/managedExternalEtcdInitialized"))),
            view,
        }
    }
}

/// Both host and port, as Cluster API wants them.
fn endpoint(cluster: &Value) -> bool {
    let endpoint = &cluster["spec"]["controlPlaneEndpoint"];
    endpoint["host"].as_str().is_some_and(|host| !host.is_empty())
        && endpoint["port"].as_i64().is_some_and(|port| port != 0)
}

/// Where conditions of the v1beta2 style stand. The list that v1beta1 calls `conditions` is of another shape, and has
/// no keys: applying one entry would take the others away.
pub fn conditions_path(api_version: &str) -> &'static str {
    if api_version.ends_with("/v1beta1") { "/status/v1beta2/conditions" } else { "/status/conditions" }
}

impl Observation {
    /// The control plane, if it is there and of a kind that we know.
    pub fn found_control_plane(&self) -> Option<&ControlPlaneView> {
        match &self.control_plane {
            ControlPlane::Found(view) => Some(view),
            ControlPlane::Unset | ControlPlane::Missing(_) | ControlPlane::Unknown { .. } => None,
        }
    }

    /// The etcd object, if it is there.
    pub fn found_etcd(&self) -> Option<&EtcdView> {
        match &self.etcd {
            Etcd::Found(view) => Some(view),
            Etcd::NotNamed | Etcd::Invalid { .. } | Etcd::Missing(_) => None,
        }
    }

    /// The control plane has been given all it needs and let go, now or at an earlier time: it is never held back again.
    /// Where somebody else publishes, our pause is all that holds it, so it counts as long as it stands.
    pub fn released(&self) -> bool {
        let let_go =
            |c: &ControlPlaneView| c.pause != Pause::Ours && c.has_endpoints() && self.secrets.published.is_some();
        self.found_control_plane().is_some_and(|c| c.initialized || let_go(c))
    }

    /// All is there to let the control plane go, and it is still ours to do so: the gate is closed, or our pause is on.
    pub fn about_to_release(&self) -> bool {
        let Secrets { ca, published, staged, .. } = &self.secrets;
        let pairs = published.is_some() || matches!(staged, Some(Ok(_)));
        let held = |c: &ControlPlaneView| !c.initialized && (c.pause == Pause::Ours || published.is_none());
        *ca && pairs && self.found_etcd().is_some_and(EtcdView::usable) && self.found_control_plane().is_some_and(held)
    }
}
