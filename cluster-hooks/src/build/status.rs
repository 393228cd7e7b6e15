//! What the hook writes into the status of a Cluster and of its control plane: our condition and, if the Cluster's CRD
//! has them, the fields of the managed-external-etcd proposal.

use crate::observation::{ClusterState, ControlPlaneView, EtcdView, conditions_path};
use api::conditions::MANAGED_EXTERNAL_ETCD_READY;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

/// The Cluster with our condition, for server-side apply.
pub fn condition(cluster: &ClusterState, condition: &Condition) -> Value {
    let view = &cluster.view;
    let status = nest(conditions_path(&view.api_version), json!([condition]));
    json!({
        "apiVersion": view.api_version,
        "kind": "Cluster",
        "metadata": read(&view.name, &view.namespace, &view.uid, &cluster.resource_version),
        "status": status["status"],
    })
}

/// Merge patch that removes our condition from a Cluster. Server-side apply without the condition would leave it there
/// if another field manager owns it too, such as the tool that restored the Cluster.
pub fn without_condition(cluster: &ClusterState) -> Value {
    without(
        &cluster.conditions,
        conditions_path(&cluster.view.api_version),
        MANAGED_EXTERNAL_ETCD_READY,
        &cluster.resource_version,
    )
}

/// The control plane with our condition, for server-side apply.
pub fn health(control_plane: &ControlPlaneView, namespace: &str, condition: &Condition) -> Value {
    let (name, status) = (&control_plane.reference.name, nest(control_plane.conditions_path, json!([condition])));
    json!({
        "apiVersion": control_plane.api_version,
        "kind": control_plane.reference.kind,
        "metadata": read(name, namespace, &control_plane.uid, &control_plane.resource_version),
        "status": status["status"],
    })
}

/// Merge patch that removes our condition from a control plane. Server-side apply without the condition would leave
/// those of its fields that the control plane's own controller has written, and the API server refuses an incomplete
/// condition.
pub fn without_health(control_plane: &ControlPlaneView, type_: &str) -> Value {
    without(&control_plane.conditions, control_plane.conditions_path, type_, &control_plane.resource_version)
}

fn without(conditions: &[Value], path: &str, type_: &str, resource_version: &str) -> Value {
    let left: Vec<&Value> = conditions.iter().filter(|condition| condition["type"] != type_).collect();
    let mut patch = nest(path, json!(left));
    patch["metadata"] = json!({"resourceVersion": resource_version});
    patch
}

/// Merge patch of the fields of the proposal. None: the Cluster does not have them, no etcd was found, or they are
/// correct already.
pub fn mirror(cluster: &ClusterState, etcd: Option<&EtcdView>) -> Option<Value> {
    let before = cluster.mirror?;
    let etcd = etcd?;
    let after = (etcd.usable(), before.1 || etcd.initialized || etcd.ready);
    (before != after).then(|| {
        json!({
            "metadata": {"resourceVersion": cluster.resource_version},
            "status": {"managedExternalEtcdReady": after.0, "managedExternalEtcdInitialized": after.1},
        })
    })
}

/// The object and version that a condition was computed from. No other version gets the condition.
fn read(name: &str, namespace: &str, uid: &str, version: &str) -> Value {
    json!({"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version})
}

fn nest(pointer: &str, value: Value) -> Value {
    pointer.rsplit('/').filter(|key| !key.is_empty()).fold(value, |inner, key| json!({key: inner}))
}
