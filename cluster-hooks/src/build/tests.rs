//! The exact content of patches and objects.

use super::*;
use crate::fixture::World;
use crate::observation::{HookedMachine, Observation, WrittenEndpoints};
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
        "endpoints in use": patch::endpoints_in_use(etcd, &api::endpoints::EndpointLists::parse(&etcd.endpoints.join(","))),
        "pause": patch::pause(control_plane),
        "unpause": patch::unpause(&control_plane.held()),
        "release": patch::release(&HookedMachine { name: "demo-etcd-0".to_owned(), uid: "machine-1".to_owned() }),
        "wake": patch::wake(control_plane),
        "confirm deletion": patch::confirm_deletion(etcd),
        "endpoints": patch::endpoints(control_plane, &WrittenEndpoints::after(None, &etcd.endpoints, &observation.now)),
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
    observation.cluster.resource_version = "7".to_owned();
    let v1beta2 = status::condition(&observation.cluster, &condition);
    observation.cluster.conditions = vec![json!(condition), json!({"type": "Available", "status": "True", "extra": 1})];
    let removed = status::without_condition(&observation.cluster);
    observation.cluster.view.api_version = "cluster.x-k8s.io/v1beta1".to_owned();
    let v1beta1 = status::condition(&observation.cluster, &condition);
    assert_json_snapshot!(json!({"v1beta2": v1beta2, "removed": removed, "v1beta1": v1beta1}));
}

#[test]
fn of_a_control_plane_one_condition_alone_is_applied() {
    let observation = observed();
    let condition = serde_json::from_value(json!({"type": "EtcdClusterHealthy", "status": "True", "reason": "Ready",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
    .unwrap();
    let control_plane = observation.found_control_plane().unwrap();
    let body = status::health(control_plane, "default", &condition);
    let read = json!({"name": "demo-cp", "namespace": "default", "uid": "cp-1",
        "resourceVersion": control_plane.resource_version});
    assert_eq!(body["metadata"], read, "refused if it is another one, or has changed");
    assert_eq!(body["apiVersion"], "controlplane.cluster.x-k8s.io/v1beta2");
    assert_eq!(body["status"], json!({"conditions": [condition]}));
    let mut control_plane = control_plane.clone();
    let other = json!({"type": "Available", "status": "True", "reason": "Available", "extra": 1});
    control_plane.conditions = vec![json!(condition), other.clone()];
    let body = status::without_health(&control_plane, "EtcdClusterHealthy");
    assert_eq!(body["status"], json!({"conditions": [other]}), "the others stay as they are");
    assert_eq!(
        body["metadata"],
        json!({"resourceVersion": control_plane.resource_version}),
        "refused if one has changed"
    );
}

#[test]
fn the_fields_of_the_proposal_are_mirrored_where_they_are_used() {
    let mut observation = observed();
    assert_eq!(status::mirror(&observation.cluster, observation.found_etcd()), None);
    observation.cluster.mirror = Some((false, false));
    observation.cluster.resource_version = "7".to_owned();
    let body = status::mirror(&observation.cluster, observation.found_etcd()).unwrap();
    let fields = json!({"managedExternalEtcdReady": true, "managedExternalEtcdInitialized": true});
    assert_eq!(body, json!({"metadata": {"resourceVersion": "7"}, "status": fields}));
    observation.cluster.mirror = Some((true, true));
    assert_eq!(status::mirror(&observation.cluster, observation.found_etcd()), None);
}
