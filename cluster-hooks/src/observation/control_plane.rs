//! A control plane of a kind that we know.

use crate::adapter::Adapter;
use api::names;
use controller_support::loose::Reference;
use kube::ResourceExt;
use kube::api::DynamicObject;

/// The control plane of a Cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlPlane {
    /// The Cluster names none.
    Unset,
    /// It names one that is not there.
    Missing(Reference),
    /// It names one of a kind that is not served, or that we do not know how to tell about etcd.
    Unknown {
        /// What is wrong.
        message: String,
        /// Whether something else than the Cluster may cure it: then it is worth looking again.
        may_pass: bool,
    },
    /// It is there.
    Found(ControlPlaneView),
}

/// Who pauses a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Nobody, and our marker is not there.
    None,
    /// We do: marker and value are ours.
    Ours,
    /// The user does.
    Users,
    /// The user does, over a pause of ours: the marker is still there.
    UsersOverOurs,
    /// Nobody: the user has taken our pause away and left the marker.
    TakenAway,
}

/// What we need of a control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlPlaneView {
    /// How to tell it about etcd.
    pub adapter: &'static Adapter,
    /// Group, kind and name.
    pub reference: Reference,
    /// Resource version.
    pub resource_version: String,
    /// It is being deleted.
    pub deleting: bool,
    /// It has had an API server: both contracts say so.
    pub initialized: bool,
    /// Endpoints of the external etcd. None: it is not made for external etcd.
    pub endpoints: Option<Vec<String>>,
    /// Who pauses it.
    pub pause: Pause,
}

impl ControlPlaneView {
    /// Reads a control plane.
    pub fn read(object: &DynamicObject, reference: &Reference, adapter: &'static Adapter) -> Self {
        let flag = |pointer: &str| object.data.pointer(pointer).and_then(serde_json::Value::as_bool).unwrap_or(false);
        Self {
            adapter,
            reference: reference.clone(),
            resource_version: object.resource_version().unwrap_or_default(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            initialized: flag("/status/initialization/controlPlaneInitialized") || flag("/status/initialized"),
            endpoints: adapter.endpoints(&object.data),
            pause: pause(object),
        }
    }

    /// There are endpoints, and not only the placeholder.
    pub fn has_endpoints(&self) -> bool {
        self.endpoints.iter().flatten().any(|endpoint| endpoint != names::PLACEHOLDER_ENDPOINT)
    }
}

fn pause(object: &DynamicObject) -> Pause {
    let value = object.annotations().get(names::PAUSED_ANNOTATION).map(String::as_str);
    let marker = object.annotations().contains_key(names::PAUSED_BY_HOOK_ANNOTATION);
    match (value, marker) {
        (None, false) => Pause::None,
        (None, true) => Pause::TakenAway,
        (Some(names::PAUSED_BY_HOOK_VALUE), true) => Pause::Ours,
        (Some(_), true) => Pause::UsersOverOurs,
        (Some(_), false) => Pause::Users,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_marker_and_value_together_make_a_pause_ours() {
        let read = |annotations: serde_json::Value| {
            let object = json!({"metadata": {"name": "cp", "annotations": annotations}});
            pause(&serde_json::from_value(object).unwrap())
        };
        let (paused, marker, value) =
            (names::PAUSED_ANNOTATION, names::PAUSED_BY_HOOK_ANNOTATION, names::PAUSED_BY_HOOK_VALUE);
        assert_eq!(read(json!({})), Pause::None);
        assert_eq!(read(json!({paused: value, marker: "x"})), Pause::Ours);
        assert_eq!(read(json!({paused: value})), Pause::Users);
        assert_eq!(read(json!({paused: "", marker: "x"})), Pause::UsersOverOurs);
        assert_eq!(read(json!({marker: "x"})), Pause::TakenAway);
    }
}
