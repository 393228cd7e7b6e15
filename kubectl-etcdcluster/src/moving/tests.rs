//! A move at each point where it may be interrupted, and each obstacle before it begins.

use super::*;
use crate::fixture::{Scene, name};
use api::EtcdClusterStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

const CLUSTER: &str = "clusters.cluster.x-k8s.io/demo";
const ETCD: &str = "etcdclusters.etcdcluster.cluster.x-k8s.io/demo-etcd";
const MACHINE: &str = "machines.cluster.x-k8s.io/demo-etcd-0";
const SECRET: &str = "secrets/demo-etcd-0";
const INFRASTRUCTURE: &str = "devmachines.infrastructure.cluster.x-k8s.io/demo-etcd-0";
const TEMPLATE: &str = "devmachinetemplates.infrastructure.cluster.x-k8s.io/etcd";
const ALL: [&str; 4] = [CLUSTER, ETCD, MACHINE, SECRET];

fn side(objects: &[&str]) -> Side {
    let split = |object: &&str| object.split_once('/').map(|(resource, name)| (resource.to_owned(), name.to_owned()));
    Side { objects: objects.iter().filter_map(split).collect(), ..Side::default() }
}

/// A side with the pauses that a move sets.
fn moving(objects: &[&str]) -> Side {
    Side { moving: true, paused: true, ..side(objects) }
}

#[test]
fn a_move_is_gone_on_with_from_wherever_it_was_cut() {
    let cases = [
        ("nothing there", side(&[]), side(&[]), Progress::Nothing),
        ("nothing of a Cluster", side(&[SECRET]), side(&[]), Progress::Nothing),
        ("before", side(&ALL), side(&[]), Progress::NotBegun),
        ("prepared", moving(&ALL), side(&[]), Progress::NotBegun),
        (
            "a template of somebody's is in the target",
            moving(&ALL),
            side(&["things.example.org/a"]),
            Progress::NotBegun,
        ),
        ("the Cluster is made", moving(&ALL), Side { moving: false, ..moving(&[CLUSTER]) }, Progress::Created),
        ("two are made", moving(&ALL), moving(&[CLUSTER, ETCD]), Progress::Created),
        ("all are made", moving(&ALL), moving(&ALL), Progress::Created),
        ("cut before clusterctl paused again", Side { paused: false, ..moving(&ALL) }, moving(&ALL), Progress::Created),
        ("the target was resumed", moving(&ALL), Side { paused: false, ..moving(&ALL) }, Progress::Unclear),
        ("given up, the first is marked", moving(&ALL), Side { marked: true, ..moving(&ALL) }, Progress::GivingUp),
        ("given up, cut later", moving(&ALL), Side { deleting: true, ..moving(&[CLUSTER, ETCD]) }, Progress::GivingUp),
        ("given up, and all is gone", moving(&ALL), side(&[SECRET]), Progress::NotBegun),
        (
            "both lose something",
            moving(&[CLUSTER, ETCD, MACHINE]),
            Side { deleting: true, ..moving(&ALL) },
            Progress::Unclear,
        ),
        ("the target has more, and not all", moving(&ALL), moving(&[ETCD, "things.example.org/a"]), Progress::Unclear),
        ("the first is marked", Side { marked: true, ..moving(&ALL) }, moving(&ALL), Progress::Leaving),
        ("the first is gone", moving(&[CLUSTER, ETCD, MACHINE]), moving(&ALL), Progress::Leaving),
        // clusterctl's mark has replaced our pause, or the object is gone.
        ("the Cluster is left", Side { moving: false, ..moving(&[CLUSTER]) }, moving(&ALL), Progress::Leaving),
        ("all are gone", side(&[]), moving(&ALL), Progress::Arrived),
        ("it was ended", side(&[]), side(&ALL), Progress::Nothing),
        ("the source was resumed", side(&ALL), moving(&ALL), Progress::Unclear),
        ("the source was resumed, and has gone on", side(&[CLUSTER, ETCD]), moving(&ALL), Progress::Unclear),
        ("the target has them from elsewhere", side(&ALL), side(&ALL), Progress::Unclear),
    ];
    for (what, source, target, expected) in cases {
        assert_eq!(progress(&source, &target), expected, "{what}");
    }
}

fn movable() -> BTreeSet<String> {
    ["DevMachine.infrastructure.cluster.x-k8s.io".to_owned()].into()
}

/// A healthy EtcdCluster that a Cluster owns, with this change.
fn changed(change: impl FnOnce(&mut Scene)) -> Snapshot {
    let mut scene = Scene::new(3);
    scene.etcd["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "demo", "uid": "cluster-uid"}]);
    for machine in &mut scene.machines {
        let name = machine["metadata"]["name"].clone();
        machine["spec"]["infrastructureRef"] =
            json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevMachine", "name": name});
    }
    change(&mut scene);
    scene.read()
}

fn annotate(object: &mut Value, annotation: &str, value: &str) {
    object["metadata"]["annotations"][annotation] = json!(value);
}

fn is_said(snapshot: &Snapshot, expected: &str) {
    let found = of_etcd_cluster(snapshot, &movable());
    assert!(found.iter().any(|obstacle| obstacle.contains(expected)), "{expected}: {found:?}");
}

type Change = fn(&mut Scene);

#[test]
fn what_would_be_left_behind_keeps_a_move_from_beginning() {
    assert_eq!(of_etcd_cluster(&changed(|_| {}), &movable()), Vec::<String>::new());
    let cases: [(&str, Change); 9] = [
        ("it is paused by somebody", |scene| annotate(&mut scene.etcd, names::PAUSED_ANNOTATION, "true")),
        ("Machine demo-etcd-0 is paused", |scene| annotate(&mut scene.machines[0], names::PAUSED_ANNOTATION, "")),
        ("no Cluster names it", |scene| scene.cluster["metadata"]["annotations"] = json!({})),
        ("no Cluster owns it", |scene| scene.etcd["metadata"]["ownerReferences"] = json!([])),
        ("DevMachine.other.example.org would stay", |scene| {
            scene.machines[0]["spec"]["infrastructureRef"]["apiGroup"] = json!("other.example.org");
        }),
        ("its controller says", |scene| annotate(&mut scene.etcd, names::BLOCK_MOVE_ANNOTATION, "true")),
        ("Machine demo-etcd-1 is being deleted", |scene| scene.delete(1)),
        ("not every Machine has a member", |scene| {
            scene.machine(3);
        }),
        ("it has 3 Machines, and 5 are wanted", |scene| scene.etcd["spec"]["replicas"] = json!(5)),
    ];
    for (expected, change) in cases {
        is_said(&changed(change), expected);
    }
}

/// An object whose UID is its resource and name, with these owners.
fn owned(object: &str, owners: &[&str]) -> Found {
    let (resource, name) = object.split_once('/').unwrap();
    let owner = |uid: &&str| OwnerReference { uid: (*uid).to_owned(), ..OwnerReference::default() };
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(object.to_owned()),
        owner_references: Some(owners.iter().map(owner).collect()),
        ..ObjectMeta::default()
    };
    Found::read(resource, Rank::default(), &metadata)
}

#[test]
fn what_would_stay_because_of_its_owners_keeps_a_move_from_beginning() {
    let snapshot = changed(|_| {});
    let kinds = [("DevMachine", INFRASTRUCTURE), ("DevMachineTemplate", TEMPLATE)].map(|(kind, object)| {
        let (resource, _) = object.split_once('/').unwrap();
        (format!("{kind}.infrastructure.cluster.x-k8s.io"), resource.to_owned())
    });
    let resources = BTreeMap::from(kinds);
    // The objects as our controller and Cluster API make them, except for one.
    let obstacles = |other: &str, owners: &[&str]| {
        let usual: [(&str, &[&str]); 5] = [
            (CLUSTER, &[]),
            (ETCD, &[CLUSTER]),
            (MACHINE, &[ETCD]),
            (INFRASTRUCTURE, &[ETCD, MACHINE]),
            (TEMPLATE, &[CLUSTER]),
        ];
        let found = usual.map(|(object, usual)| owned(object, if object == other { owners } else { usual }));
        of_staying(&snapshot, &resources, &Side::of(&found))
    };
    assert_eq!(obstacles("", &[]), [""; 0]);
    assert_eq!(obstacles(TEMPLATE, &[CLUSTER, ETCD]), [""; 0], "a second owner that is moved");
    let cases: [(&str, &[&str], &str); 5] = [
        (ETCD, &[CLUSTER, "fleet"], "it would stay behind, with all"),
        (MACHINE, &[ETCD, "fleet"], "Machine demo-etcd-0 would stay behind, with all"),
        (INFRASTRUCTURE, &[ETCD, MACHINE, "fleet"], "DevMachine demo-etcd-0 would stay behind, with all"),
        (TEMPLATE, &[], "DevMachineTemplate etcd would stay behind: "),
        (TEMPLATE, &[CLUSTER, "fleet"], "DevMachineTemplate etcd would stay behind: "),
    ];
    for (object, owners, expected) in cases {
        let (found, expected) = (obstacles(object, owners), format!("EtcdCluster default/demo-etcd: {expected}"));
        assert!(found.len() == 1 && found[0].starts_with(&expected), "{expected}: {found:?}");
    }
    let command = "kubectl -n default label devmachinetemplates.infrastructure.cluster.x-k8s.io etcd clusterctl.cluster.x-k8s.io/move=";
    let found = obstacles(TEMPLATE, &[]);
    assert!(found[0].ends_with(command), "{found:?}");
}

/// clusterctl would pause them, and nobody would resume them.
#[test]
fn every_cluster_that_would_stay_keeps_a_move_from_beginning() {
    let other = CLUSTER.replace("/demo", "/other");
    let found = [owned(CLUSTER, &[]), owned(ETCD, &[CLUSTER]), owned(&other, &["fleet"])];
    let said = of_clusters("default", &Side::of(&found));
    assert!(said.len() == 1 && said[0].starts_with("Cluster default/other would stay behind, with all"), "{said:?}");
    let found = [owned(CLUSTER, &["fleet"]), owned(ETCD, &[CLUSTER])];
    let side = Side::of(&found);
    assert_eq!(of_clusters("default", &side).len(), 1);
    assert_eq!(of_staying(&changed(|_| {}), &BTreeMap::new(), &side), [""; 0], "it is said once");
}

/// An EtcdCluster whose spec names two Secrets. Like the CA's Secret, they have no owner.
fn with_secrets() -> Snapshot {
    changed(|scene| {
        scene.etcd["spec"]["etcdadmConfigSpec"]["files"] =
            json!([{"path": "/etc/motd", "contentFrom": {"secret": {"name": "motd", "key": "text"}}}]);
        scene.etcd["spec"]["etcdadmConfigSpec"]["users"] =
            json!([{"name": "demo", "passwdFrom": {"secret": {"name": "password", "key": "hash"}}}]);
    })
}

#[test]
fn secrets_that_would_be_left_behind_keep_a_move_from_beginning() {
    let snapshot = with_secrets();
    let of = |objects: &[&str], staying: &[&str]| Side { staying: side(staying).objects, ..side(objects) };
    let all = ["secrets/demo-managed-etcd", "secrets/motd", "secrets/password"];
    assert_eq!(of_secrets(&snapshot, &of(&all, &["secrets/other"])), [""; 0]);
    let found = of_secrets(&snapshot, &of(&[], &all));
    for (found, name) in found.iter().zip(["demo-managed-etcd", "motd", "password"]) {
        let command = format!("kubectl -n default label secret {name} clusterctl.cluster.x-k8s.io/move=");
        assert!(found.starts_with("EtcdCluster default/demo-etcd: Secret ") && found.ends_with(&command), "{found}");
    }
    assert_eq!(found.len(), 3);
    assert_eq!(of_secrets(&snapshot, &of(&[], &["configmaps/motd"])), [""; 0], "no such Secret stays");
}

#[test]
fn what_the_target_has_already_keeps_a_move_from_beginning() {
    let source = side(&ALL);
    assert_eq!(of_target(&source, &Side { staying: side(&["secrets/other"]).objects, ..Side::default() }), [""; 0]);
    for there in
        [side(&["clusterclasses.cluster.x-k8s.io/class"]), Side { staying: side(&[SECRET]).objects, ..Side::default() }]
    {
        let found = of_target(&source, &there);
        assert!(found.len() == 1 && found[0].contains("already"), "{found:?}");
    }
}

#[test]
fn a_class_that_is_used_across_namespaces_keeps_a_move_from_beginning() {
    let cluster = |namespace: &str, topology: Value| -> DynamicObject {
        let metadata = json!({"name": "demo", "namespace": namespace});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"topology": topology}})).unwrap()
    };
    let own = json!({"classRef": {"name": "class"}});
    let named = json!({"classRef": {"name": "class", "namespace": "moved"}});
    let earlier = json!({"class": "class", "classNamespace": "moved"});
    let elsewhere = json!({"classRef": {"name": "class", "namespace": "classes"}});
    for (namespace, topology, keeps) in [
        ("moved", json!(null), false),
        ("moved", own.clone(), false),
        ("moved", named.clone(), false),
        ("moved", elsewhere.clone(), true),
        ("other", own, false),
        ("other", elsewhere, false),
        ("other", named, true),
        ("other", earlier, true),
    ] {
        let found = shared_class(&cluster(namespace, topology.clone()), "moved");
        assert_eq!(found.is_some(), keeps, "{namespace} {topology}: {found:?}");
    }
}

#[test]
fn what_only_the_status_knows_keeps_a_move_from_beginning() {
    let removed = json!({"id": "100", "machine": "demo-etcd-0", "machineUID": "uid-0", "state": "Removed",
        "since": "2026-11-23T07:59:00Z"});
    let begun = json!({"kind": "RemoveMember", "memberID": "100", "since": "2026-11-23T07:59:00Z"});
    for (expected, field, value) in [
        ("it has not been complete yet", "creationComplete", json!(false)),
        ("RemoveMember of member 100 is under way", "operation", begun),
        ("a member has left whose Machine is there", "removedMembers", json!([removed])),
        ("a member has left whose Machine is there", "releasedMachineUIDs", json!(["uid-0"])),
    ] {
        let mut snapshot = changed(|_| {});
        let mut status = serde_json::to_value(&snapshot.etcd.status).unwrap();
        status[field] = value;
        let status: EtcdClusterStatus = serde_json::from_value(status).unwrap();
        snapshot.etcd.status = Some(status);
        is_said(&snapshot, expected);
    }
    let mut unknown = changed(|_| {});
    let conditions = &mut unknown.etcd.status.as_mut().unwrap().conditions;
    conditions.iter_mut().find(|condition| condition.type_ == AVAILABLE).unwrap().status = "Unknown".to_owned();
    is_said(&unknown, "it is not Available");
}

#[test]
fn what_a_move_has_paused_itself_does_not_keep_it_from_going_on() {
    let snapshot = changed(|scene| {
        annotate(&mut scene.etcd, names::PAUSED_ANNOTATION, names::PAUSED_FOR_MOVE_VALUE);
        annotate(&mut scene.machines[0], names::PAUSED_ANNOTATION, names::PAUSED_FOR_MOVE_VALUE);
        scene.cluster["spec"]["paused"] = json!(true);
    });
    assert!(says_paused(&snapshot) && !says_paused(&changed(|_| {})));
    assert_eq!(of_etcd_cluster(&snapshot, &movable()), Vec::<String>::new());
}

#[test]
fn a_pause_is_lifted_only_where_nobody_but_a_move_has_set_it() {
    let entry = |manager: &str, fields: Value| json!({"manager": manager, "operation": "Update", "fieldsV1": fields});
    let spec = || json!({"f:spec": {"f:paused": {}}});
    let annotation = || json!({"f:metadata": {"f:annotations": {".": {}, "f:cluster.x-k8s.io/paused": {}}}});
    let other = || json!({"f:spec": {"f:topology": {}}, "f:metadata": {"f:annotations": {"f:a": {}}}});
    for (set_by, expected) in [
        (&["clusterctl"][..], true),
        (&["kubectl-etcdcluster"], true),
        (&["clusterctl", "kubectl-etcdcluster"], true),
        (&["kubectl-edit"], false),
        (&["clusterctl", "argocd"], false),
        (&[], false),
    ] {
        for (fields, pause) in [(spec(), &CLUSTER_PAUSE[..]), (annotation(), &CLASS_PAUSE[..])] {
            let set = set_by.iter().map(|manager| entry(manager, fields.clone()));
            let others = ["clusterctl", "kubectl-edit"].map(|manager| entry(manager, other()));
            let entries: Vec<Value> = others.into_iter().chain(set).collect();
            let object: ObjectMeta = serde_json::from_value(json!({"managedFields": entries})).unwrap();
            assert_eq!(is_of_move(&object, pause), expected, "{set_by:?} {pause:?}");
        }
    }
    assert!(!is_of_move(&ObjectMeta::default(), &CLUSTER_PAUSE), "it is not known");
}

#[test]
fn it_goes_on_in_the_target_when_the_same_etcd_is_found_with_all_its_members() {
    assert_eq!(not_found_again(&Scene::new(3).read()), None);
    let mut fresh = Scene::new(3).read();
    fresh.etcd.status = None;
    assert!(not_found_again(&fresh).unwrap().starts_with("its etcd is"));
    let mut other = Scene::new(3).read();
    other.etcd.status.as_mut().unwrap().cluster_id = "dead".to_owned();
    assert!(not_found_again(&other).unwrap().contains("dead"));
    let mut slow = Scene::new(3).read();
    slow.etcd.status.as_mut().unwrap().ready_replicas = 2;
    assert_eq!(not_found_again(&slow).as_deref(), Some("2 of its 3 members have answered"));
    let mut outdated = Scene::new(3).read();
    outdated.etcd.status.as_mut().unwrap().creation_complete = false;
    assert_eq!(not_found_again(&outdated), None, "its Machines are about to be replaced, once it goes on");
    let mut less = Scene::new(3).read();
    less.machines.retain(|machine| machine.view.name != name(2));
    assert!(not_found_again(&less).is_some());
}
