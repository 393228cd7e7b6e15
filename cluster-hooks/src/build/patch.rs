//! Merge patches of objects that others own. Each carries the resource version that it was made for (`release`: the
//! UID), and the API server refuses it if the object has changed since. So a manager that is behind cannot undo what
//! another manager or a user has done.

use crate::observation::{
    ControlPlaneView, ETCD_GONE_ANNOTATION, EtcdView, Held, HookedMachine, REMEDIATION_IN_PROGRESS,
    WRITTEN_ENDPOINTS_ANNOTATION, WrittenEndpoints,
};
use api::endpoints::EndpointLists;
use api::names;
use controller_support::external::ClusterView;
use serde_json::{Value, json};

/// Adds the Cluster's label and owner reference. A merge patch replaces lists, so the patch repeats the other owners.
/// The Cluster does not become the owner with `controller: true`: it does not manage etcd, and the provider may want
/// another object in that place.
pub fn claim(etcd: &EtcdView, cluster: &ClusterView) -> Value {
    json!({"metadata": {
        "resourceVersion": etcd.resource_version,
        "labels": {names::CLUSTER_NAME_LABEL: cluster.name},
        "ownerReferences": cluster.among(&etcd.owners, Some(true)),
    }})
}

/// The note that a KubeadmControlPlane makes of a remediation that is under way.
pub fn remediation_in_progress(control_plane: &ControlPlaneView, note: &str) -> Value {
    annotation(&control_plane.resource_version, REMEDIATION_IN_PROGRESS, &json!(note))
}

/// Records which lists of endpoints may be in use.
pub fn endpoints_in_use(etcd: &EtcdView, lists: &EndpointLists) -> Value {
    annotation(&etcd.resource_version, names::ENDPOINTS_IN_USE_ANNOTATION, &json!(lists.to_string()))
}

/// Confirms that an etcd that has begun may be deleted. The value is the name of the etcd object.
pub fn confirm_deletion(etcd: &EtcdView) -> Value {
    annotation(&etcd.resource_version, names::CONFIRM_DELETION_ANNOTATION, &json!(etcd.reference.name))
}

/// Pauses the control plane. The value says that the pause is ours.
pub fn pause(control_plane: &ControlPlaneView) -> Value {
    annotation(&control_plane.resource_version, names::PAUSED_ANNOTATION, &json!(names::PAUSED_BY_HOOK_VALUE))
}

/// Removes the pause.
pub fn unpause(held: &Held) -> Value {
    annotation(&held.resource_version, names::PAUSED_ANNOTATION, &Value::Null)
}

/// Removes the pre-terminate hook of etcd's members from a Machine. The patch carries the UID and not the resource
/// version, because the Machine's controllers write to it all the time.
pub fn release(machine: &HookedMachine) -> Value {
    json!({"metadata": {"uid": machine.uid, "annotations": {names::PRE_TERMINATE_HOOK_ANNOTATION: null}}})
}

/// Makes the control plane's controller reconcile again, because its object has changed.
pub fn wake(control_plane: &ControlPlaneView) -> Value {
    annotation(&control_plane.resource_version, ETCD_GONE_ANNOTATION, &json!("true"))
}

/// Writes the endpoints and the record of them, and nothing else.
pub fn endpoints(control_plane: &ControlPlaneView, written: &WrittenEndpoints) -> Value {
    let record = json!(written.to_string());
    let mut patch = annotation(&control_plane.resource_version, WRITTEN_ENDPOINTS_ANNOTATION, &record);
    patch["spec"] = control_plane.adapter.patch(&written.endpoints)["spec"].take();
    patch
}

fn annotation(resource_version: &str, name: &str, value: &Value) -> Value {
    json!({"metadata": {"resourceVersion": resource_version, "annotations": {name: value}}})
}
