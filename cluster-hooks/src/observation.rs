//! Everything that a decision depends on, as plain data. The views are tolerant readers, and use neither a client nor a
//! clock.

mod control_plane;
mod etcd;
mod hooked;
mod joining;
mod kubeadm;
mod rollout;
mod secrets;
mod used;
mod written;

pub use control_plane::{
    ControlPlane, ControlPlaneView, ETCD_GONE_ANNOTATION, Held, Pause, REMEDIATION_IN_PROGRESS, is_paused_by_us,
};
pub use etcd::{Claim, Etcd, EtcdView};
pub use hooked::{HookedMachine, hooked};
pub use joining::{Joining, KUBEADM_CONFIG, joining};
pub use kubeadm::{Kubeadm, SHARED_CERTIFICATES};
pub use secrets::{KeyPair, PUBLISHED_BY_HOOK_ANNOTATION, Published, Secrets, Shared, names_of};
pub use used::{Used, configured};
pub use written::{WRITTEN_ENDPOINTS_ANNOTATION, WrittenEndpoints, field_manager};

use api::conditions::MANAGED_EXTERNAL_ETCD_READY;
use api::names;
use controller_support::external::ClusterView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use std::sync::Arc;

/// What is known of a Cluster and of the objects around it.
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
    /// Other control planes that carry our pause: the Cluster referred to them before.
    pub former: Vec<Held>,
    /// The Secrets between etcd and the control plane. Empty unless the control plane has endpoints, is initialized, or
    /// has no place for endpoints: until then, nothing depends on the Secrets.
    pub secrets: Secrets,
    /// The endpoints that were written into the control plane last, by its annotation or by what this process
    /// remembers, whichever is later.
    pub written: Option<WrittenEndpoints>,
    /// What the requests of this reconcile have returned.
    pub reads: Reads,
}

/// A read that costs requests. The plan asks for it when the decision depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// [`Reads::used`].
    Used,
    /// [`Reads::joining`].
    Joining,
    /// [`Reads::shared`].
    SharedCertificates,
    /// [`Reads::workers`].
    Workers,
    /// [`Reads::hooked`].
    Hooked,
    /// [`Reads::field_manager`].
    FieldManager,
    /// [`Reads::is_current`].
    Current,
}

/// Answers to the [`Need`]s of one reconcile. None: not asked for yet.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Endpoints that the machines of the control plane were started with.
    pub used: Option<Used>,
    /// Endpoints that further machines of a KubeadmControlPlane would join with.
    pub joining: Option<Joining>,
    /// The certificates that control-plane machines share, as far as their Secrets exist.
    pub shared: Option<Vec<Shared>>,
    /// Workers that are left, as `Kind name`: those of the first kind that has any.
    pub workers: Option<Vec<String>>,
    /// Machines of the Cluster that carry the pre-terminate hook of etcd's members, and belong to no etcd object that
    /// exists.
    pub hooked: Option<Vec<HookedMachine>>,
    /// Who wrote the endpoints of the control plane last, other than us.
    pub field_manager: Option<String>,
    /// Whether this Cluster is the one that the API server has under its name now.
    pub is_current: bool,
    /// The client Secret that was created in this reconcile.
    pub published: Option<Arc<DynamicObject>>,
    /// Etcd was deleted in this reconcile, and is gone.
    pub etcd_gone: bool,
}

/// What we need of the Cluster beyond the shared view.
#[derive(Clone, Debug)]
pub struct ClusterState {
    /// The shared view.
    pub view: ClusterView,
    /// Resource version.
    pub resource_version: String,
    /// Generation of its spec.
    pub generation: Option<i64>,
    /// A ClusterClass writes its control plane, and would revert what we write.
    pub topology: bool,
    /// Why its parts may not be deleted yet, although it is being deleted: see [`before_delete_hook`].
    pub before_delete_hook: Option<String>,
    /// It is being deleted, and Cluster API has deleted everything that it deletes with a Cluster, except the control
    /// plane and the infrastructure.
    pub children_deleted: bool,
    /// Etcd is named by our annotation, and not by `spec.managedExternalEtcdRef`, which other providers use too.
    pub by_annotation: bool,
    /// It has `spec.controlPlaneEndpoint`.
    pub endpoint: bool,
    /// Our condition, if it has one.
    pub condition: Option<Condition>,
    /// All of its conditions.
    pub conditions: Vec<Value>,
    /// `status.managedExternalEtcdReady` and `status.managedExternalEtcdInitialized`, if the Cluster uses
    /// `spec.managedExternalEtcdRef`: its CRD has these fields then.
    pub mirror: Option<(bool, bool)>,
}

impl ClusterState {
    /// Reads a Cluster of any version.
    pub fn read(cluster: &DynamicObject) -> Self {
        let view = ClusterView::read(cluster);
        let data = &cluster.data;
        let conditions = data.pointer(conditions_path(&view.api_version)).and_then(Value::as_array);
        let condition =
            |type_: &str| conditions.into_iter().flatten().find(|condition| condition["type"] == type_).cloned();
        let topology = data.pointer("/spec/topology").is_some_and(Value::is_object);
        let deleting = condition("Deleting").and_then(|deleting| deleting["reason"].as_str().map(str::to_owned));
        let flag = |pointer: &str| data.pointer(pointer).and_then(Value::as_bool).unwrap_or(false);
        Self {
            resource_version: cluster.resource_version().unwrap_or_default(),
            generation: cluster.metadata.generation,
            endpoint: endpoint(data),
            topology,
            children_deleted: deleting.as_deref().is_some_and(|reason| AFTER_THE_HOOK.contains(&reason)),
            before_delete_hook: before_delete_hook(cluster, topology, deleting.unwrap_or_default()),
            by_annotation: cluster.annotations().contains_key(names::MANAGED_ETCD_ANNOTATION),
            condition: condition(MANAGED_EXTERNAL_ETCD_READY)
                .and_then(|condition| serde_json::from_value(condition).ok()),
            conditions: conditions.cloned().unwrap_or_default(),
            mirror: data
                .pointer("/spec/managedExternalEtcdRef")
                .map(|_| (flag("/status/managedExternalEtcdReady"), flag("/status/managedExternalEtcdInitialized"))),
            view,
        }
    }
}

/// The annotation that Cluster API sets once all `BeforeClusterDelete` hooks of its runtime extensions have let a
/// Cluster go.
const OK_TO_DELETE_ANNOTATION: &str = "runtime.cluster.x-k8s.io/ok-to-delete";
/// Reasons of the Cluster's condition `Deleting` that come after those hooks, when everything that the Cluster owns is
/// being deleted. Without runtime extensions, the annotation is missing, and only these reasons show that the hooks are
/// done.
const AFTER_THE_HOOK: [&str; 4] = [
    "WaitingForWorkersDeletion",
    "WaitingForControlPlaneDeletion",
    "WaitingForInfrastructureDeletion",
    "DeletionCompleted",
];

/// The reason of the condition `Deleting` as long as a `BeforeClusterDelete` hook may still be running. Such a hook
/// needs the API server, and therefore etcd. Only Clusters with a topology have such hooks.
///
/// Source: Cluster API 1.14.0, reconcileDelete of core/reconcilers/cluster.
fn before_delete_hook(cluster: &DynamicObject, topology: bool, deleting: String) -> Option<String> {
    let done = cluster.annotations().contains_key(OK_TO_DELETE_ANNOTATION) || AFTER_THE_HOOK.contains(&&*deleting);
    (topology && cluster.metadata.deletion_timestamp.is_some() && !done).then_some(deleting)
}

/// Whether host and port are both set, as Cluster API requires.
fn endpoint(cluster: &Value) -> bool {
    let endpoint = &cluster["spec"]["controlPlaneEndpoint"];
    endpoint["host"].as_str().is_some_and(|host| !host.is_empty())
        && endpoint["port"].as_i64().is_some_and(|port| port != 0)
}

/// Path of the conditions of the v1beta2 style. The list that v1beta1 calls `conditions` has another shape and no keys,
/// so server-side apply of one entry would remove the others.
pub fn conditions_path(api_version: &str) -> &'static str {
    if api_version.ends_with("/v1beta1") { "/status/v1beta2/conditions" } else { "/status/conditions" }
}

impl Observation {
    /// The control plane, if it exists and we know its kind.
    pub fn found_control_plane(&self) -> Option<&ControlPlaneView> {
        match &self.control_plane {
            ControlPlane::Found(view) => Some(view),
            ControlPlane::Unset | ControlPlane::Missing(_) | ControlPlane::Unknown { .. } => None,
        }
    }

    /// The control plane, if it exists, whatever its kind.
    pub fn held(&self) -> Option<Held> {
        match &self.control_plane {
            ControlPlane::Found(view) => Some(view.held()),
            ControlPlane::Unknown { held, .. } => held.clone(),
            ControlPlane::Unset | ControlPlane::Missing(_) => None,
        }
    }

    /// The etcd object, if it exists.
    pub fn found_etcd(&self) -> Option<&EtcdView> {
        match &self.etcd {
            Etcd::Found(view) => Some(view),
            Etcd::NotNamed | Etcd::Invalid { .. } | Etcd::Missing(_) => None,
        }
    }

    /// UIDs of the objects that steps write to.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        let etcd = self.found_etcd().map(|etcd| &etcd.uid);
        let control_plane = match &self.control_plane {
            ControlPlane::Found(view) => Some(&view.uid),
            ControlPlane::Unknown { held, .. } => held.as_ref().map(|held| &held.uid),
            ControlPlane::Unset | ControlPlane::Missing(_) => None,
        };
        let published = self.secrets.published.as_ref().map(|published| &published.uid);
        let former = self.former.iter().map(|held| &held.uid);
        let all = [Some(&self.cluster.view.uid), etcd, control_plane, published].into_iter().flatten();
        all.chain(former).map(String::as_str)
    }

    /// Whether the control plane has received everything that it needs and has been released, now or earlier. It is
    /// then never held back again because etcd is not Ready. If somebody else publishes the client Secret, only our
    /// pause holds the control plane back, so a control plane with our pause does not count as released.
    pub fn released(&self) -> bool {
        let unpaused =
            |c: &ControlPlaneView| c.pause != Pause::Ours && c.has_endpoints() && self.secrets.published.is_some();
        self.found_control_plane().is_some_and(|c| c.initialized || unpaused(c))
    }

    /// Whether everything for the release of the control plane exists, and the release is still up to us: the gate is
    /// closed, or our pause is set.
    pub fn about_to_release(&self) -> bool {
        let Secrets { ca, published, staged, .. } = &self.secrets;
        let pairs = published.is_some() || matches!(staged, Some(Ok(_)));
        let held = |c: &ControlPlaneView| !c.initialized && (c.pause == Pause::Ours || published.is_none());
        *ca && pairs && self.found_etcd().is_some_and(EtcdView::usable) && self.found_control_plane().is_some_and(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cluster_is_not_taken_apart_before_its_hooks_have_let_it_go() {
        let read = |topology: Value, annotations: Value, reason: &str| {
            let mut cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {
                "name": "demo", "deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations},
                "spec": {"topology": topology}});
            cluster["status"]["conditions"] = json!([{"type": "Deleting", "status": "True", "reason": reason}]);
            ClusterState::read(&serde_json::from_value(cluster).unwrap())
        };
        let hook = |topology, annotations, reason| read(topology, annotations, reason).before_delete_hook;
        let class = json!({"classRef": {"name": "class"}});
        assert_eq!(
            hook(class.clone(), json!({}), "WaitingForBeforeDeleteHook").as_deref(),
            Some("WaitingForBeforeDeleteHook")
        );
        assert_eq!(hook(class.clone(), json!({}), "").as_deref(), Some(""), "it has not been told yet");
        assert_eq!(hook(class.clone(), json!({}), "InternalError").as_deref(), Some("InternalError"));
        assert_eq!(hook(class.clone(), json!({OK_TO_DELETE_ANNOTATION: ""}), "WaitingForBeforeDeleteHook"), None);
        assert_eq!(hook(class, json!({}), "WaitingForWorkersDeletion"), None, "without runtime extensions");
        assert_eq!(hook(Value::Null, json!({}), ""), None, "without a topology");
        for (reason, expected) in [("", false), ("InternalError", false), ("WaitingForWorkersDeletion", true)] {
            assert_eq!(read(Value::Null, json!({}), reason).children_deleted, expected, "{reason}");
        }
    }
}
