//! Which etcd the Cluster names, and which Cluster that etcd belongs to.

use super::*;

#[test]
fn etcd_of_another_cluster_is_not_touched() {
    let mut world = World::applied().etcd_ready();
    world.etcd.as_mut().unwrap()["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "other", "uid": "cluster-2"}]);
    insta::assert_snapshot!(world.story(), @"block: EtcdBelongsToAnotherCluster | EtcdCluster demo-etcd belongs to Cluster other: change or remove the annotation etcdcluster.cluster.x-k8s.io/managed-external-etcd of Cluster demo | Some(60s)");

    let mut world = World::applied().etcd_ready();
    world.etcd.as_mut().unwrap()["metadata"]["labels"] = json!({names::CLUSTER_NAME_LABEL: "other"});
    world.others.push("other".to_owned());
    assert!(matches!(world.settle(), (steps, Plan::Block(_)) if steps.is_empty()));
    world.others.clear();
    assert_eq!(world.settle().1, Plan::Steady, "a label of a Cluster that is gone binds nobody");
}

/// `kubectl replace` has removed the label and the owner of an etcd that another Cluster uses.
#[test]
fn etcd_whose_secrets_are_for_another_cluster_is_not_touched_either() {
    let mut world = World::applied().etcd_ready();
    let etcd = world.etcd.as_mut().unwrap();
    (etcd["metadata"]["labels"], etcd["metadata"]["ownerReferences"]) = (json!(null), json!(null));
    made_for(&mut world, "other");
    assert!(world.clone().settle().0.contains(&Step::ClaimEtcd), "the other Cluster is gone");
    world.others.push("other".to_owned());
    let ours =
        json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "demo", "uid": "cluster-1"}]);
    let mut owned = world.clone();
    owned.etcd.as_mut().unwrap()["metadata"]["ownerReferences"] = ours;
    assert!(owned.settle().0.contains(&Step::ClaimEtcd), "an owner reference is proof");
    let mut empty = world.clone();
    empty.etcd.as_mut().unwrap()["status"] = json!(null);
    assert!(
        empty.settle().0.contains(&Step::ClaimEtcd),
        "the other Cluster has named it by mistake, and it has no data"
    );
    assert!(matches!(world.settle(), (steps, Plan::Block(_)) if steps.is_empty()));
    world.delete_cluster();
    let steps = world.settle().0;
    assert!(!steps.contains(&Step::ClaimEtcd) && !steps.contains(&Step::DeleteEtcd), "{steps:?}");
}

/// Gives etcd a Secret that its provider has made for a Cluster.
fn made_for(world: &mut World, cluster: &str) {
    let uid = world.etcd.as_ref().unwrap()["metadata"]["uid"].clone();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{cluster}-etcd"),
        "labels": {names::CLUSTER_NAME_LABEL: cluster, names::ETCD_CLUSTER_LABEL: "demo-etcd"},
        "ownerReferences": [{"apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
            "name": "demo-etcd", "uid": uid}]}});
    world.secrets.insert(format!("{cluster}-etcd"), secret);
}

/// A Cluster that is being deleted looks for what it has left behind.
#[test]
fn etcd_without_a_mark_is_left_by_the_cluster_in_its_secrets() {
    let mut world = World::applied().etcd_ready();
    let etcd = world.etcd.as_mut().unwrap();
    (etcd["metadata"]["labels"], etcd["metadata"]["ownerReferences"]) = (json!(null), json!(null));
    let is_left = |world: &World| {
        let observation = world.observe();
        observation.found_etcd().unwrap().is_left_by(&observation.cluster.view)
    };
    assert!(!is_left(&world), "nothing says that it was ever named");
    made_for(&mut world, "demo");
    assert!(is_left(&world));
    world.others.push("other".to_owned());
    made_for(&mut world, "other");
    assert!(!is_left(&world), "it may be the other one's by now");
}

/// Somebody removed the finalizer of the Cluster, and then applied the Cluster again.
#[test]
fn etcd_of_an_earlier_cluster_of_the_same_name_is_taken_over() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.cluster["metadata"]["uid"] = json!("cluster-2");
    let observation = world.observe();
    assert_eq!(
        plan(&observation),
        Plan::Do(Step::Read(Need::Current)),
        "the watch may be behind, and the other one alive"
    );
    assert_eq!(world.settle(), (vec![Step::ClaimEtcd], Plan::Steady));
    let owners = &world.etcd.as_ref().unwrap()["metadata"]["ownerReferences"];
    assert_eq!((owners.as_array().unwrap().len(), &owners[0]["uid"]), (1, &json!("cluster-2")), "{owners}");
}

#[test]
fn a_kind_that_is_not_there_is_looked_for_less_and_less_often() {
    let mut world = World { etcd_kind: false, ..World::applied() };
    insta::assert_snapshot!(world.story(), @r"
    Announce
    Pause
    block: EtcdKindInvalid | no such kind | Some(10s)
    ");
    let since = |second: &str, status: &str| {
        let mut world = world.clone();
        world.cluster["status"] = json!({"conditions": [{"type": "ManagedExternalEtcdReady", "status": status,
            "reason": "x", "message": "", "lastTransitionTime": second}]});
        match world.settle().1 {
            Plan::Block(hold) => hold.again.unwrap().as_secs(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(since("1970-01-01T00:16:15Z", "False"), 25);
    assert_eq!(since("1970-01-01T00:00:00Z", "False"), 60);
    assert_eq!(since("1970-01-01T00:00:00Z", "True"), 10);

    world.cluster["metadata"]["annotations"][names::MANAGED_ETCD_ANNOTATION] = json!("two words");
    assert!(matches!(world.settle().1, Plan::Block(Hold { again: None, .. })));
}

#[test]
fn a_cluster_that_names_no_etcd_any_more_is_left_clean() {
    let mut world = World::applied();
    world.settle();
    world.cluster["metadata"]["annotations"] = json!({});
    world.cluster["status"] = json!({"conditions": [{"type": "ManagedExternalEtcdReady", "status": "False",
        "reason": "x", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"}]});
    assert_eq!(world.settle(), (vec![Step::Unpause, Step::RemoveConditions], Plan::Steady));
}

/// A watch that is behind may show a Cluster that is gone. Etcd would be deleted together with that Cluster.
#[test]
fn which_cluster_is_alive_is_read_before_etcd_is_claimed_or_deleted() {
    let mut world = World::applied();
    assert_eq!(plan(&world.observe()), Plan::Do(Step::Read(Need::Current)));
    world.delete_cluster();
    assert_eq!(plan(&world.observe()), Plan::Do(Step::Read(Need::Current)));
}
