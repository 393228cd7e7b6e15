use super::*;

#[test]
fn workers_first_then_etcd() {
    let mut world = World::applied();
    world.settle();
    world.delete_cluster();
    world.workers = vec!["Machine demo-worker-1".to_owned(), "Machine demo-worker-2".to_owned()];
    insta::assert_snapshot!(world.story(), @r"
    Unpause
    wait: WaitingForWorkersDeletion | etcd is deleted after the workers: Machine demo-worker-1, Machine demo-worker-2 still there | Some(5s)
    ");
    assert!(!world.paused(), "a paused control plane is never deleted");
    world.workers.clear();
    insta::assert_snapshot!(world.story(), @r"
    DeleteEtcd
    wait: WaitingForEtcdDeletion | EtcdCluster demo-etcd is being deleted | None
    ");
    world.etcd = None;
    insta::assert_snapshot!(world.story(), @"wait: EtcdDeleted | EtcdCluster demo-etcd is gone; the control plane and the infrastructure follow | None");
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
        let ours = world.annotations().contains_key(names::PAUSED_BY_HOOK_ANNOTATION);
        assert!(!ours, "our pause would keep the control plane");
        let etcd_goes = world.etcd.as_ref().is_none_or(|etcd| etcd["metadata"]["deletionTimestamp"].is_string());
        assert!(etcd_goes || !world.etcd_kind);
    }
}

#[test]
fn a_users_pause_stays_in_a_deletion_too() {
    let mut world = World::applied();
    world.user_pause();
    world.delete_cluster();
    assert_eq!(world.settle().0, [Step::DeleteEtcd]);
    assert!(world.paused());
    world.etcd = None;
    insta::assert_snapshot!(world.story(), @"wait: ControlPlanePaused | EtcdCluster demo-etcd is gone; KubeadmControlPlane demo-cp is paused by its user: without annotation cluster.x-k8s.io/paused it goes | None");
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
