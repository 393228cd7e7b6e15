//! Our pause of the control plane, and those of users.

use super::*;
use crate::observation::WRITTEN_ENDPOINTS_ANNOTATION;

#[test]
fn our_pause_stays_until_etcd_is_ready_in_the_moment_of_the_release_too() {
    let mut world = World::applied().etcd_ready();
    for _ in 0..6 {
        let (observation, Plan::Do(step)) = world.plan() else { panic!("more steps") };
        world.act(&observation, &step);
    }
    assert!(world.paused() && world.published().is_some());
    world.set_ready(false, ENDPOINTS);
    assert_eq!(world.settle().0, []);
    assert!(world.paused());
    world.set_ready(true, ENDPOINTS);
    assert_eq!(world.settle().0, [Step::Unpause]);
}

#[test]
fn a_running_control_plane_is_never_paused() {
    for status in [json!({"initialized": true}), json!({"initialization": {"controlPlaneInitialized": true}})] {
        let mut world = World::applied();
        world.control_plane.as_mut().unwrap()["status"] = status;
        assert_eq!(world.settle().0, [Step::ClaimEtcd]);
    }
}

#[test]
fn a_users_pause_stays_and_is_no_obstacle() {
    let mut world = World::applied();
    world.user_pause();
    world.settle();
    let mut world = world.etcd_ready();
    assert_eq!(world.settle().1, Plan::Steady);
    assert!(world.paused() && world.published().is_some());
}

#[test]
fn a_users_pause_over_ours_is_the_users() {
    let mut world = World::applied();
    world.settle();
    world.user_pause();
    assert_eq!(world.settle().0, []);
    let mut world = world.etcd_ready();
    assert_eq!(world.settle().1, Plan::Steady);
    assert!(world.paused());
}

#[test]
fn a_pause_that_the_user_takes_away_comes_back_until_the_release() {
    let mut world = World::applied();
    world.settle();
    world.user_unpause();
    assert_eq!(world.settle().0, [Step::Pause]);
    let mut world = world.etcd_ready();
    assert_eq!(world.settle().1, Plan::Steady);
    assert_eq!(world.annotations().keys().collect::<Vec<_>>(), [WRITTEN_ENDPOINTS_ANNOTATION]);
}

#[test]
fn a_kind_that_another_provider_uses_the_field_for_is_no_reason_to_pause() {
    let mut world = World { etcd_kind: false, ..World::applied() };
    world.cluster["metadata"]["annotations"] = json!({});
    world.cluster["spec"]["managedExternalEtcdRef"] =
        json!({"apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdadmCluster", "name": "demo-etcd"});
    let (steps, end) = world.settle();
    assert_eq!(steps, []);
    assert!(matches!(end, Plan::Block(hold) if hold.reason == reasons::ETCD_KIND_INVALID));
    assert!(!world.paused());
}

#[test]
fn a_paused_cluster_is_left_alone() {
    let mut world = World::applied().etcd_ready();
    world.cluster["spec"]["paused"] = json!(true);
    insta::assert_snapshot!(world.story(), @"wait: Paused | Cluster demo is paused by spec.paused: nothing is changed | None");
    world.delete_cluster();
    assert_eq!(world.settle().0, []);
}

#[test]
fn a_control_plane_that_is_deleted_alone_is_not_held() {
    let mut world = World::applied();
    world.settle();
    world.control_plane.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(world.settle().0, [Step::Unpause]);
    let mut world = world.etcd_ready();
    insta::assert_snapshot!(world.story(), @"wait: WaitingForControlPlane | KubeadmControlPlane demo-cp is being deleted | None");
}
