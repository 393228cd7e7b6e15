//! The control plane of a Cluster.

use super::conditions_path;
use super::etcd::list;
use super::kubeadm::Kubeadm;
use super::rollout::Rollout;
use super::written::{WRITTEN_ENDPOINTS_ANNOTATION, WrittenEndpoints};
use crate::adapter::Adapter;
use api::names;
use controller_support::external::Reference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use std::sync::Arc;

/// The annotation that a KubeadmControlPlane carries from the deletion of a Machine that it replaces until it creates
/// the next one. Meanwhile, it replaces no other Machine.
///
/// Source: `RemediationInProgressAnnotation` in Cluster API 1.14.0, controlplane/kubeadm.
pub const REMEDIATION_IN_PROGRESS: &str = "controlplane.cluster.x-k8s.io/remediation-in-progress";

/// The control plane of a Cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlPlane {
    /// The Cluster names none.
    Unset,
    /// It names one that does not exist.
    Missing(Reference),
    /// It names one of a kind that is not served, that we may not read, or that we do not know how to give an external
    /// etcd.
    Unknown {
        /// What is wrong.
        message: String,
        /// The kind exists, and its CRD does not say how to give it an external etcd.
        unsupported: bool,
        /// What is known of it nevertheless, if it exists.
        held: Option<Held>,
    },
    /// It exists.
    Found(Box<ControlPlaneView>),
}

/// Annotation on a control plane that is being deleted: etcd is gone. Its only use is that the control plane's
/// controller reconciles at once. That controller may be in a back-off of many minutes, because it has failed to reach
/// its API server.
pub const ETCD_GONE_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/etcd-gone";

/// Who pauses a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Nobody.
    None,
    /// We do: the value of the annotation is ours.
    Ours,
    /// The user does.
    Users,
}

/// What we need of a control plane to lift our pause. None of this depends on its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Group, kind and name.
    pub reference: Reference,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// It is being deleted.
    pub deleting: bool,
    /// Who pauses it.
    pub pause: Pause,
}

impl Held {
    /// Reads an object of any kind.
    pub fn read(object: &DynamicObject, reference: &Reference) -> Self {
        Self {
            reference: reference.clone(),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            pause: pause(object),
        }
    }
}

/// What we need of a control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlPlaneView {
    /// How to give it an external etcd.
    pub adapter: Arc<Adapter>,
    /// Group, kind and name.
    pub reference: Reference,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// It is being deleted.
    pub deleting: bool,
    /// It has had an API server: both contracts report this.
    pub initialized: bool,
    /// Endpoints of the external etcd. None: it is not made for external etcd.
    pub endpoints: Option<Vec<String>>,
    /// The endpoints that we wrote into it last, according to its annotation.
    pub written: Option<WrittenEndpoints>,
    /// That annotation exists and is not a record: in this way, a person says that we gave it nothing.
    pub given_nothing: bool,
    /// Who pauses it.
    pub pause: Pause,
    /// How far the rollout of its present spec is.
    pub rollout: Rollout,
    /// `apiVersion` that it is read and written in.
    pub api_version: String,
    /// Its conditions.
    pub conditions: Vec<Value>,
    /// Where they are, as a JSON pointer.
    pub conditions_path: &'static str,
    /// It carries [`ETCD_GONE_ANNOTATION`].
    pub told_that_etcd_is_gone: bool,
    /// It notes that it is replacing a Machine.
    pub remediating: bool,
    /// What kubeadm requires of it. None: its machines are not made by kubeadm, or etcd is not external.
    pub kubeadm: Option<Kubeadm>,
}

impl ControlPlaneView {
    /// Reads a control plane that is read and written in `api_version`.
    pub fn read(object: &DynamicObject, reference: &Reference, api_version: &str, adapter: Arc<Adapter>) -> Self {
        let data = &object.data;
        let flag = |pointer: &str| data.pointer(pointer).and_then(Value::as_bool).unwrap_or(false);
        // The providers of other kinds number their versions as they like.
        let conditions_path = if adapter.kubeadm { conditions_path(api_version) } else { "/status/conditions" };
        let kubeadm = adapter.external(data).filter(|_| adapter.kubeadm);
        let written = WrittenEndpoints::read(object);
        Self {
            reference: reference.clone(),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            initialized: flag("/status/initialization/controlPlaneInitialized") || flag("/status/initialized"),
            endpoints: adapter.endpoints(data),
            given_nothing: written.is_none() && object.annotations().contains_key(WRITTEN_ENDPOINTS_ANNOTATION),
            written,
            pause: pause(object),
            rollout: Rollout::read(object),
            api_version: api_version.to_owned(),
            told_that_etcd_is_gone: object.annotations().contains_key(ETCD_GONE_ANNOTATION),
            conditions: data.pointer(conditions_path).and_then(Value::as_array).cloned().unwrap_or_default(),
            conditions_path,
            remediating: object.annotations().contains_key(REMEDIATION_IN_PROGRESS),
            kubeadm: kubeadm.map(|external| Kubeadm::read(data, external)),
            adapter,
        }
    }

    /// The part that does not depend on its kind.
    pub fn held(&self) -> Held {
        Held {
            reference: self.reference.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            deleting: self.deleting,
            pause: self.pause,
        }
    }

    /// One of its conditions, if it can be read.
    pub fn condition(&self, type_: &str) -> Option<Condition> {
        let condition = self.conditions.iter().find(|condition| condition["type"] == type_)?;
        serde_json::from_value(condition.clone()).ok()
    }

    /// The endpoints without the placeholder: sorted, each once. An entry that a user wrote may be a list in itself.
    /// API servers split it too.
    pub fn real_endpoints(&self) -> Vec<String> {
        let mut endpoints = list(&self.endpoints.as_deref().unwrap_or_default().join(","));
        endpoints.retain(|endpoint| endpoint != names::PLACEHOLDER_ENDPOINT);
        endpoints
    }

    /// The endpoints with the placeholder: sorted, each once. People may write them in another order, which makes no
    /// difference.
    pub fn sorted_endpoints(&self) -> Vec<String> {
        let mut endpoints = self.endpoints.clone().unwrap_or_default();
        endpoints.sort();
        endpoints.dedup();
        endpoints
    }

    /// There are endpoints, and not only the placeholder.
    pub fn has_endpoints(&self) -> bool {
        let urls = self.endpoints.iter().flatten().flat_map(|entry| entry.split(',')).map(str::trim);
        urls.into_iter().any(|url| !url.is_empty() && url != names::PLACEHOLDER_ENDPOINT)
    }

    /// Whether the decision depends on the Secrets. It does not before the endpoints are written, when the Secrets need
    /// not exist. A control plane that is initialized has had endpoints, whatever its field contains now. If the
    /// control plane has no place for endpoints, the Secrets show whether another control plane has used etcd.
    pub fn needs_secrets(&self) -> bool {
        self.initialized || self.has_endpoints() || self.endpoints.is_none()
    }
}

/// Whether we pause an object.
pub fn is_paused_by_us(object: &DynamicObject) -> bool {
    pause(object) == Pause::Ours
}

fn pause(object: &DynamicObject) -> Pause {
    match object.annotations().get(names::PAUSED_ANNOTATION).map(String::as_str) {
        None => Pause::None,
        Some(names::PAUSED_BY_HOOK_VALUE) => Pause::Ours,
        Some(_) => Pause::Users,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_value_alone_tells_whose_pause_it_is() {
        let read = |annotations: serde_json::Value| {
            let object = json!({"metadata": {"name": "cp", "annotations": annotations}});
            pause(&serde_json::from_value(object).unwrap())
        };
        assert_eq!(read(json!({})), Pause::None);
        assert_eq!(read(json!({names::PAUSED_ANNOTATION: names::PAUSED_BY_HOOK_VALUE})), Pause::Ours);
        for users in ["", "true", "mine"] {
            assert_eq!(read(json!({names::PAUSED_ANNOTATION: users})), Pause::Users);
        }
    }
}
