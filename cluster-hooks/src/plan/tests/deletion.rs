use super::*;
use crate::observation::HookedMachine;

#[test]
fn workers_first_then_etcd() {
    let mut world = World::applied();
    world.settle();
    world.delete_cluster();
    world.workers = vec!["Machine demo-worker-1".to_owned(), "Machine demo-worker-2".to_owned()];
    insta::assert_snapshot!(world.story(), @r"
    Unpause
    wait: WaitingForWorkersDeletion | etcd is deleted after the workers; left are Machine demo-worker-1, Machine demo-worker-2 | Some(5s)
    ");
    assert!(!world.paused(), "a paused control plane is never deleted");
    world.workers.clear();
    insta::assert_snapshot!(world.story(), @r"
    ConfirmDeletion
    DeleteEtcd
    wait: WaitingForEtcdDeletion | EtcdCluster demo-etcd is being deleted | Some(5s)
    ");
    let why = "1 Machine is being deleted: demo-etcd-0";
    let conditions = json!([{"type": "Ready", "status": "True", "reason": "Ready", "message": ""},
        {"type": "Deleting", "status": "True", "reason": "Deleting", "message": why}]);
    world.etcd.as_mut().unwrap()["status"] = json!({"ready": true, "conditions": conditions});
    insta::assert_snapshot!(world.story(), @"wait: WaitingForEtcdDeletion | EtcdCluster demo-etcd is being deleted: Deleting: 1 Machine is being deleted: demo-etcd-0 | Some(5s)");
    world.etcd = None;
    insta::assert_snapshot!(world.story(), @"wait: EtcdDeleted | EtcdCluster demo-etcd is gone; Cluster API deletes the control plane and the infrastructure next | None");
}

/// A deletion of the Cluster in the foreground deletes etcd too, before the workers. Etcd's provider waits for our
/// confirmation.
#[test]
fn etcd_that_was_deleted_before_the_workers_gets_the_word_after_them() {
    let mut world = World::applied();
    world.settle();
    world.delete_cluster();
    world.etcd.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.workers = vec!["Machine demo-worker-1".to_owned()];
    let (steps, end) = world.settle();
    assert_eq!(steps, [Step::Unpause]);
    assert!(matches!(&end, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_WORKERS_DELETION), "{end:?}");
    world.workers.clear();
    insta::assert_snapshot!(world.story(), @r"
    ConfirmDeletion
    wait: WaitingForEtcdDeletion | EtcdCluster demo-etcd is being deleted | Some(5s)
    ");
}

/// Its owner is this Cluster, and its Machines are this Cluster's.
#[test]
fn etcd_that_is_handed_over_waits_for_a_person() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.delete_cluster();
    world.settle();
    let mut observation = world.observe();
    let Etcd::Found(etcd) = &mut observation.etcd else { panic!("{:?}", observation.etcd) };
    (etcd.deleting, etcd.deletion_confirmed) = (false, false);
    etcd.named_by_another = Some("taker".to_owned());
    let plan = plan(&observation);
    let Plan::Wait(hold) = &plan else { panic!("{plan:?}") };
    insta::assert_snapshot!(hold.message, @"EtcdCluster demo-etcd has Machines of this Cluster, and Cluster taker names it. Its deletion would lose its data: save a snapshot if you need that, then have Cluster taker name another etcd, or none");
    assert_eq!((hold.reason, hold.again), (reasons::ETCD_BELONGS_TO_ANOTHER_CLUSTER, Some(PEOPLE)));
}

#[test]
fn it_comes_to_an_end_in_every_state() {
    let applied = World::applied();
    let mut handed_over = World::applied().etcd_ready();
    handed_over.settle();
    let mut waiting = World::applied();
    waiting.settle();
    let worlds = [
        World { etcd: None, ..applied.clone() },
        World { etcd_kind: false, ..waiting.clone() },
        World { control_plane: None, ..applied.clone() },
        World { control_plane: None, etcd: None, ..applied.clone() },
        applied,
        waiting,
        handed_over,
    ];
    for mut world in worlds {
        world.delete_cluster();
        let (_, end) = world.settle();
        assert!(matches!(&end, Plan::Steady | Plan::Wait(_)), "{end:?}");
        assert!(!world.paused(), "our pause would keep the control plane");
        let etcd_goes = world.etcd.as_ref().is_none_or(|etcd| etcd["metadata"]["deletionTimestamp"].is_string());
        assert!(etcd_goes || !world.etcd_kind);
    }
}

/// clusterctl deletes the Cluster last. The Cluster then has this annotation and is paused. A Cluster that has only
/// kept the annotation is deleted like any other.
#[test]
fn a_mark_that_a_move_has_left_keeps_no_cluster() {
    let mut world = World::applied();
    world.settle();
    world.cluster["metadata"]["annotations"][names::DELETE_FOR_MOVE_ANNOTATION] = json!("");
    world.delete_cluster();
    let mut paused = world.clone();
    assert_eq!(world.settle().0, [Step::Unpause, Step::ConfirmDeletion, Step::DeleteEtcd]);
    paused.cluster["spec"]["paused"] = json!(true);
    let (_, plan) = paused.plan();
    assert!(matches!(&plan, Plan::Wait(hold) if hold.reason == reasons::PAUSED), "{plan:?}");
}

#[test]
fn a_users_pause_stays_in_a_deletion_too() {
    let mut world = World::applied();
    world.user_pause();
    world.delete_cluster();
    assert_eq!(world.settle().0, [Step::ConfirmDeletion, Step::DeleteEtcd]);
    assert!(world.paused());
    world.etcd = None;
    insta::assert_snapshot!(world.story(), @"wait: ControlPlanePaused | EtcdCluster demo-etcd is gone; KubeadmControlPlane demo-cp is paused by its user, and is deleted once annotation cluster.x-k8s.io/paused is removed | None");
    assert!(world.paused());
}

#[test]
fn etcd_of_another_cluster_is_not_deleted() {
    let mut world = World::applied();
    world.etcd.as_mut().unwrap()["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "other", "uid": "cluster-2"}]);
    world.delete_cluster();
    assert_eq!(world.settle(), (vec![], Plan::Steady));
}

/// The garbage collector has deleted etcd together with the earlier Cluster, and etcd's provider waits for our
/// confirmation.
#[test]
fn etcd_of_an_earlier_cluster_of_the_same_name_gets_the_word() {
    let mut world = World::applied();
    world.settle();
    world.cluster["metadata"]["uid"] = json!("cluster-2");
    world.etcd.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.settle();
    world.delete_cluster();
    assert_eq!(plan(&world.observe()), Plan::Do(Step::Read(Need::Current)));
    let (steps, end) = world.settle();
    assert_eq!(steps, [Step::Unpause, Step::ConfirmDeletion]);
    assert!(matches!(end, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_ETCD_DELETION));
}

#[test]
fn etcd_stays_until_the_hooks_of_the_cluster_have_let_it_go() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.cluster["spec"]["topology"] = json!({"classRef": {"name": "class"}});
    world.delete_cluster();
    let (steps, end) = world.settle();
    assert_eq!(steps, []);
    assert!(matches!(end, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_BEFORE_DELETE_HOOK));
    world.cluster["metadata"]["annotations"]["runtime.cluster.x-k8s.io/ok-to-delete"] = json!("");
    assert_eq!(world.settle().0, [Step::ConfirmDeletion, Step::DeleteEtcd]);
}

#[test]
fn a_control_plane_that_is_being_deleted_is_woken_once_when_etcd_is_gone() {
    let mut world = World::applied();
    world.settle();
    world.delete_cluster();
    world.settle();
    world.etcd = None;
    assert_eq!(world.settle().0, [], "its deletion will wake it");
    world.control_plane.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(world.settle().0, [Step::WakeControlPlane]);
    assert_eq!(world.settle().0, []);
}

/// The CRD of another kind of control plane has lost its annotation in an upgrade of its provider.
#[test]
fn our_pause_is_lifted_from_a_control_plane_of_a_kind_that_is_no_longer_known() {
    let mut waiting = World::applied();
    waiting.settle();
    waiting.adapter = false;
    assert!(waiting.paused());
    let mut world = waiting.clone();
    world.delete_cluster();
    assert_eq!(world.settle().0, [Step::Unpause, Step::ConfirmDeletion, Step::DeleteEtcd]);
    let mut world = waiting.clone();
    world.cluster["metadata"]["annotations"] = json!({});
    assert_eq!(world.settle().0, [Step::Unpause, Step::RemoveConditions]);
    let mut world = waiting;
    world.control_plane.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(world.settle().0, [Step::Unpause]);
}

/// The Cluster refers to another control plane now.
#[test]
fn our_pause_is_lifted_from_a_control_plane_of_before_when_it_would_keep_something() {
    let mut waiting = World::applied();
    waiting.settle();
    waiting.former.clone_from(&waiting.control_plane);
    waiting.former.as_mut().unwrap()["metadata"]["name"] = json!("demo-former");
    let lifts = |world: &mut World| {
        let steps: Vec<String> = world.settle().0.iter().map(name).collect();
        steps.iter().any(|step| step == "UnpauseFormer")
    };
    assert!(!lifts(&mut waiting.clone()), "it would make machines of the placeholder");
    let mut world = waiting.clone();
    world.delete_cluster();
    assert!(lifts(&mut world), "the Cluster goes");
    let mut world = waiting.clone();
    world.former.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(lifts(&mut world), "it goes");
    let mut world = waiting;
    world.cluster["metadata"]["annotations"] = json!({});
    assert!(lifts(&mut world), "the Cluster names no etcd");
}

/// This holds whatever else is wrong at that time.
#[test]
fn our_pause_is_lifted_from_a_control_plane_that_is_deleted_alone() {
    let mut waiting = World::applied();
    waiting.settle();
    waiting.control_plane.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut theirs = waiting.clone();
    theirs.etcd.as_mut().unwrap()["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "other", "uid": "cluster-9"}]);
    let mut local = waiting;
    local.control_plane.as_mut().unwrap()["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"] =
        json!({"local": {}});
    for mut world in [theirs, local] {
        assert_eq!(world.settle().0, [Step::Unpause]);
        assert!(!world.paused());
    }
}

/// After a restore without owner references, or after somebody removed the finalizer from the etcd object.
#[test]
fn machines_that_an_etcd_has_left_behind_are_let_go_after_the_workers() {
    let hooked = vec![HookedMachine { name: "demo-etcd-0".to_owned(), uid: "machine-1".to_owned() }];
    let left_behind = World { etcd: None, hooked: hooked.clone(), ..World::applied() };
    for etcd_kind in [true, false] {
        let mut world = World { etcd_kind, etcd: World::applied().etcd.filter(|_| !etcd_kind), ..left_behind.clone() };
        world.settle();
        assert_eq!(world.hooked, hooked, "nobody deletes anything");
        world.delete_cluster();
        world.workers = vec!["Machine demo-worker-1".to_owned()];
        assert!(matches!(world.settle().1, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_WORKERS_DELETION));
        assert_eq!(world.hooked, hooked, "the workers need etcd");
        world.workers.clear();
        assert_eq!(world.settle().0, [Step::ReleaseMachines(hooked.clone())]);
        assert_eq!(world.settle().0, []);
    }
}

/// The Cluster no longer leads to the etcd that these Machines belonged to.
#[test]
fn machines_that_an_etcd_has_left_behind_are_let_go_whatever_the_cluster_names() {
    let hooked = vec![HookedMachine { name: "demo-etcd-0".to_owned(), uid: "machine-1".to_owned() }];
    let mut unnamed = World { etcd: None, ..World::applied() };
    unnamed.cluster["metadata"]["annotations"] = json!({});
    let mut garbled = World { etcd: None, ..World::applied() };
    garbled.cluster["metadata"]["annotations"] = json!({names::MANAGED_ETCD_ANNOTATION: "no/etcd/at all"});
    let mut theirs = World::applied();
    theirs.etcd.as_mut().unwrap()["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "other", "uid": "cluster-2"}]);
    for world in [unnamed, garbled, theirs] {
        let mut world = World { hooked: hooked.clone(), ..world };
        world.settle();
        assert_eq!(world.hooked, hooked, "the Cluster stays, and may use that etcd still");
        world.delete_cluster();
        world.cluster["spec"]["topology"] = json!({"classRef": {"name": "class"}});
        assert!(matches!(world.settle().1, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_BEFORE_DELETE_HOOK));
        assert_eq!(world.hooked, hooked, "runtime extensions need etcd");
        world.cluster["spec"]["topology"] = json!(null);
        world.workers = vec!["Machine demo-worker-1".to_owned()];
        assert!(matches!(world.settle().1, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_WORKERS_DELETION));
        assert_eq!(world.hooked, hooked, "the workers need etcd");
        world.workers.clear();
        assert_eq!(world.settle(), (vec![Step::ReleaseMachines(hooked.clone())], Plan::Steady));
        assert_eq!(world.settle(), (vec![], Plan::Steady));
    }
}
