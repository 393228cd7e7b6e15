//! Decides what to do next about a LocalCluster. Pure.

use super::observation::Observation;
use crate::crd::{FINALIZER, conditions};
use controller_support::{Plan, plan::wait};
use kube::ResourceExt;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Reserve an address, and keep our finalizer on the LocalCluster until the address is released.
    GiveEndpoint,
    /// Release the address, and remove our finalizer.
    Release,
}

pub(super) fn plan(observation: &Observation) -> Plan<Step> {
    let object = &observation.object;
    if observation.is_paused() {
        return wait(conditions::IS_PAUSED, "");
    }
    if observation.is_deleting() {
        let held = object.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
        return if held { Plan::Do(Step::Release) } else { Plan::Steady };
    }
    if observation.cluster.is_none() {
        return wait(conditions::WAITING_FOR_CLUSTER, "No Cluster refers to this LocalCluster");
    }
    if object.spec.control_plane_endpoint.is_none() { Plan::Do(Step::GiveEndpoint) } else { Plan::Steady }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::observe::now;
    use controller_support::external::ClusterView;
    use kube::api::DynamicObject;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn cluster(paused: bool) -> ClusterView {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "demo"}, "spec": {"paused": paused},
        }))
        .expect("a Cluster");
        ClusterView::read(&object)
    }

    /// `paused`: whether its Cluster is paused. `None`: it has no Cluster.
    pub(in crate::cluster) fn observation(change: &Value, paused: Option<bool>) -> Observation {
        let mut object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "LocalCluster",
            "metadata": {"name": "demo"}, "spec": {},
        });
        for (key, value) in change.as_object().expect("an object") {
            for (inner, value) in value.as_object().expect("an object") {
                object[key][inner] = value.clone();
            }
        }
        let object = serde_json::from_value(object).expect("a LocalCluster");
        Observation { now: now(), cluster: paused.map(cluster), object }
    }

    #[rstest]
    #[case::new(json!({}), None, "WaitingForCluster")]
    #[case::owned(json!({}), Some(false), "GiveEndpoint")]
    #[case::paused(json!({}), Some(true), "Paused")]
    #[case::paused_itself(
        json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}), Some(false), "Paused"
    )]
    #[case::users_endpoint(
        json!({"spec": {"controlPlaneEndpoint": {"host": "example.test", "port": 443}}}), Some(false), "Steady"
    )]
    #[case::deleted(
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER]}}), None, "Release"
    )]
    #[case::paused_deletion(
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER]}}), Some(true), "Paused"
    )]
    #[case::let_go(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), Some(false), "Steady")]
    fn one_thing_follows(#[case] change: Value, #[case] paused: Option<bool>, #[case] expected: &str) {
        let summary = match plan(&observation(&change, paused)) {
            Plan::Steady => "Steady".to_owned(),
            Plan::Wait(hold) | Plan::Block(hold) => hold.reason.to_owned(),
            Plan::Do(step) => format!("{step:?}"),
        };
        assert_eq!(summary, expected);
    }
}
