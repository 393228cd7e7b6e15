//! What is sent, to the letter.

use super::*;
use crate::model::World;
use crate::observation::Observation;
use insta::assert_json_snapshot;
use serde_json::json;

fn observed() -> Observation {
    let mut world = World::applied().etcd_ready();
    world.etcd.as_mut().unwrap()["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.org/v1", "kind": "Fleet", "name": "fleet", "uid": "fleet-1", "controller": true}]);
    let observation = world.observe();
    world.settle();
    Observation { secrets: world.observe().secrets, ..observation }
}

#[test]
fn patches() {
    let observation = observed();
    let (etcd, control_plane) = (observation.found_etcd().unwrap(), observation.found_control_plane().unwrap());
    assert_json_snapshot!(json!({
        "claim": patch::claim(etcd, &observation.cluster.view),
        "endpoints in use": patch::endpoints_in_use(etcd, &etcd.endpoints),
        "pause": patch::pause(control_plane),
        "unpause": patch::unpause(control_plane),
        "drop marker": patch::drop_marker(control_plane),
        "endpoints": patch::endpoints(control_plane, &etcd.endpoints),
    }));
}

#[test]
fn client_secret() {
    let observation = observed();
    let (etcd, published) = (observation.found_etcd().unwrap(), observation.secrets.published.as_ref().unwrap());
    let pair = observation.secrets.staged.clone().unwrap().unwrap();
    assert_json_snapshot!(json!({
        "created": secret::client(&observation.cluster.view, etcd, &pair),
        "updated": secret::update(&observation.cluster.view, etcd, published, &pair),
    }));
}

#[test]
fn conditions_of_both_versions() {
    let mut observation = observed();
    let condition = serde_json::from_value(json!({"type": "ManagedExternalEtcdReady", "status": "True",
        "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
    .unwrap();
    let v1beta2 = status::condition(&observation.cluster, Some(&condition));
    let removed = status::condition(&observation.cluster, None);
    observation.cluster.view.api_version = "cluster.x-k8s.io/v1beta1".to_owned();
    let v1beta1 = status::condition(&observation.cluster, Some(&condition));
    assert_json_snapshot!(json!({"v1beta2": v1beta2, "removed": removed, "v1beta1": v1beta1}));
}

#[test]
fn the_condition_of_a_control_plane_leaves_the_others_as_they_are() {
    let other = json!({"type": "Available", "status": "True", "reason": "Available", "extra": 1});
    let ours = |status: &str| {
        json!({"type": "EtcdClusterHealthy", "status": status, "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let condition = serde_json::from_value(ours("True")).unwrap();
    let patch = |conditions: &serde_json::Value, condition| {
        let mut observation = observed();
        let crate::observation::ControlPlane::Found(control_plane) = &mut observation.control_plane else { panic!() };
        control_plane.conditions.clone_from(conditions.as_array().unwrap());
        status::health(control_plane, condition).unwrap()
    };
    let list = |body: &serde_json::Value| body["status"]["conditions"].clone();
    let added = patch(&json!([other]), Some(&condition));
    assert_eq!(list(&added), json!([other, ours("True")]));
    assert_eq!(added["metadata"], json!({"resourceVersion": "1"}), "refused if another has changed since");
    assert_eq!(list(&patch(&json!([ours("False"), other]), Some(&condition))), json!([ours("True"), other]));
    assert_eq!(list(&patch(&json!([ours("False"), other]), None)), json!([other]));
}

#[test]
fn the_fields_of_the_proposal_are_mirrored_where_they_are_used() {
    let mut observation = observed();
    assert_eq!(status::mirror(&observation.cluster, observation.found_etcd()), None);
    observation.cluster.mirror = Some((false, false));
    let body = status::mirror(&observation.cluster, observation.found_etcd()).unwrap();
    assert_eq!(body, json!({"status": {"managedExternalEtcdReady": true, "managedExternalEtcdInitialized": true}}));
    observation.cluster.mirror = Some((true, true));
    assert_eq!(status::mirror(&observation.cluster, observation.found_etcd()), None);
}
