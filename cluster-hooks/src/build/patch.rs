//! Merge patches on objects that others own. Each carries the resource version that it was made for, and is refused if
//! the object has changed since: a manager that is behind cannot undo what another one, or a user, has done.

use crate::observation::{
    ControlPlaneView, ETCD_GONE_ANNOTATION, EtcdView, Held, HookedMachine, REMEDIATION_IN_PROGRESS,
    WRITTEN_ENDPOINTS_ANNOTATION, WrittenEndpoints,
};
use api::endpoints::EndpointLists;
use api::names;
use controller_support::external::ClusterView;
use serde_json::{Value, json};

/// The Cluster's label and owner reference. A merge patch replaces lists, so the other owners are in it as well. Not as the
/// controller: the Cluster does not manage etcd, and a provider may want that place for something of its own.
pub fn claim(etcd: &EtcdView, cluster: &ClusterView) -> Value {
    json!({"metadata": {
        "resourceVersion": etcd.resource_version,
        "labels": {names::CLUSTER_NAME_LABEL: cluster.name},
        "ownerReferences": cluster.among(&etcd.owners, Some(true)),
    }})
}

/// What a KubeadmControlPlane notes of a remediation that goes on.
pub fn remediation_in_progress(control_plane: &ControlPlaneView, note: &str) -> Value {
    annotation(&control_plane.resource_version, REMEDIATION_IN_PROGRESS, &json!(note))
}

/// Which lists of endpoints may be in use.
pub fn endpoints_in_use(etcd: &EtcdView, lists: &EndpointLists) -> Value {
    annotation(&etcd.resource_version, names::ENDPOINTS_IN_USE_ANNOTATION, &json!(lists.to_string()))
}

/// The word that a begun etcd may be deleted: its own name.
pub fn confirm_deletion(etcd: &EtcdView) -> Value {
    annotation(&etcd.resource_version, names::CONFIRM_DELETION_ANNOTATION, &json!(etcd.reference.name))
}

/// Our pause, known by its value.
pub fn pause(control_plane: &ControlPlaneView) -> Value {
    annotation(&control_plane.resource_version, names::PAUSED_ANNOTATION, &json!(names::PAUSED_BY_HOOK_VALUE))
}

/// No pause.
pub fn unpause(held: &Held) -> Value {
    annotation(&held.resource_version, names::PAUSED_ANNOTATION, &Value::Null)
}

/// A Machine without the pre-terminate hook of etcd's members. With the UID, and not the version: its controllers write
/// to it all the time.
pub fn release(machine: &HookedMachine) -> Value {
    json!({"metadata": {"uid": machine.uid, "annotations": {names::PRE_TERMINATE_HOOK_ANNOTATION: null}}})
}

/// A reason for the control plane's controller to look again.
pub fn wake(control_plane: &ControlPlaneView) -> Value {
    annotation(&control_plane.resource_version, ETCD_GONE_ANNOTATION, &json!("true"))
}

/// The endpoints and the record of them, and nothing else.
pub fn endpoints(control_plane: &ControlPlaneView, written: &WrittenEndpoints) -> Value {
    let record = json!(written.to_string());
    let mut patch = annotation(&control_plane.resource_version, WRITTEN_ENDPOINTS_ANNOTATION, &record);
    patch["spec"] = control_plane.adapter.patch(&written.endpoints)["spec"].take();
    patch
}

fn annotation(resource_version: &str, name: &str, value: &Value) -> Value {
    json!({"metadata": {"resourceVersion": resource_version, "annotations": {name: value}}})
}
