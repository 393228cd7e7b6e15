use super::*;
use crate::observation::{Used, WRITTEN_ENDPOINTS_ANNOTATION};
use api::endpoints::EndpointLists;

#[test]
fn etcd_becomes_ready_and_is_handed_over() {
    let mut world = World::applied();
    insta::assert_snapshot!(world.story(), @r"
    ClaimEtcd
    Announce
    Pause
    wait: WaitingForEtcd | EtcdCluster demo-etcd is not ready | None
    ");
    assert!(world.paused());
    let mut world = world.etcd_ready();
    insta::assert_snapshot!(world.story(), @r#"
    RecordEndpointsInUse(https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379)
    WriteEndpoints(["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"])
    PublishClient(KeyPair(..))
    Unpause
    Steady
    "#);
    assert!(!world.paused());
    assert_eq!(world.endpoints(), ENDPOINTS);
    assert!(world.published().is_some());
    let annotations = world.annotations();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), [WRITTEN_ENDPOINTS_ANNOTATION]);
    let record: serde_json::Value = serde_json::from_str(&annotations[WRITTEN_ENDPOINTS_ANNOTATION]).unwrap();
    let endpoints: Vec<&str> = ENDPOINTS.split(',').collect();
    assert_eq!(record, json!({"endpoints": endpoints, "at": "1970-01-01T00:16:40Z", "corrections": 0}));
}

#[test]
fn the_order_in_which_things_appear_does_not_matter() {
    let ready = World::applied().etcd_ready();
    let mut world = World { etcd: None, control_plane: None, ..ready.clone() };
    insta::assert_snapshot!(world.story(), @"wait: EtcdNotFound | EtcdCluster.etcdcluster.cluster.x-k8s.io demo-etcd does not exist in namespace default: create it, or correct the name in Cluster demo | None");
    world.control_plane.clone_from(&ready.control_plane);
    insta::assert_snapshot!(world.story(), @r"
    Announce
    Pause
    wait: EtcdNotFound | EtcdCluster.etcdcluster.cluster.x-k8s.io demo-etcd does not exist in namespace default: create it, or correct the name in Cluster demo | None
    ");
    world.etcd.clone_from(&ready.etcd);
    insta::assert_snapshot!(world.story(), @r#"
    ClaimEtcd
    RecordEndpointsInUse(https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379)
    WriteEndpoints(["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"])
    PublishClient(KeyPair(..))
    Unpause
    Steady
    "#);

    let mut world = World { control_plane: None, ..ready.clone() };
    insta::assert_snapshot!(world.story(), @r"
    ClaimEtcd
    wait: WaitingForControlPlane | KubeadmControlPlane demo-cp does not exist in namespace default: create it, or correct spec.controlPlaneRef of Cluster demo | None
    ");
    world.control_plane.clone_from(&ready.control_plane);
    assert!(world.story().ends_with("Steady"));
    assert!(!world.paused());

    let mut world = ready;
    world.cluster["spec"] = json!({});
    insta::assert_snapshot!(world.story(), @r"
    ClaimEtcd
    wait: WaitingForControlPlane | the Cluster has no control plane: set spec.controlPlaneRef to a KubeadmControlPlane | None
    ");
}

#[test]
fn a_hook_that_dies_at_any_point_is_carried_on() {
    for died_after in 0..=HANDOVER.len() {
        for etcd_comes in 0..=died_after.min(2) {
            let mut world = World::applied();
            let mut taken = Vec::new();
            for step in 0..died_after {
                if step == etcd_comes {
                    world = world.etcd_ready();
                }
                let (observation, Plan::Do(step)) = world.plan() else { break };
                assert!(world.act(&observation, &step));
                taken.push(name(&step));
            }
            // A new process knows nothing but what it observes.
            let mut world = world.etcd_ready();
            let (rest, end) = world.settle();
            taken.extend(rest.iter().map(name));
            assert_eq!(taken, HANDOVER, "died after {died_after}");
            assert_eq!(end, Plan::Steady);
        }
    }
}

#[test]
fn a_manager_that_is_behind_writes_nothing() {
    let mut world = World::applied().etcd_ready();
    let mut behind = Vec::new();
    loop {
        let (observation, Plan::Do(step)) = world.plan() else { break };
        assert!(world.act(&observation, &step));
        behind.push((observation, step));
    }
    let after = (world.endpoints(), world.published().cloned(), world.annotations());
    // The fixture applies a condition even if the manager is behind.
    for (observation, step) in behind.into_iter().filter(|(_, step)| !matches!(step, Step::Announce(_))) {
        assert!(!world.act(&observation, &step), "{step:?} was taken twice");
    }
    assert_eq!((world.endpoints(), world.published().cloned(), world.annotations()), after);
}

#[test]
fn etcd_that_becomes_unready_later_takes_nothing_away() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.set_ready(false, "https://10.0.0.1:2379,https://10.0.0.2:2379");
    insta::assert_snapshot!(world.story(), @"wait: WaitingForEtcd | EtcdCluster demo-etcd is not ready: ScalingUp: 1 of 3 | None");
    assert!(!world.paused());
    assert_eq!(world.endpoints(), ENDPOINTS);
    world.etcd = None;
    insta::assert_snapshot!(world.story(), @"wait: EtcdNotFound | EtcdCluster.etcdcluster.cluster.x-k8s.io demo-etcd does not exist in namespace default: create it, or correct the name in Cluster demo | None");
    assert!(!world.paused());
}

#[test]
fn an_entry_that_is_a_list_itself_is_taken_apart() {
    let mut world = World::applied();
    let control_plane = world.control_plane.as_mut().unwrap();
    control_plane["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"]["external"]["endpoints"] =
        json!([" https://10.0.0.1:2379,https://10.0.0.2:2379 "]);
    let mut world = world.etcd_ready();
    assert_eq!(world.settle().1, Plan::Steady);
    assert_eq!(world.endpoints(), ENDPOINTS);
}

#[test]
fn later_changes_follow() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.set_ready(true, "https://10.0.0.9:2379, https://10.0.0.2:2379,https://10.0.0.9:2379");
    insta::assert_snapshot!(world.story(), @r#"
    RecordEndpointsInUse(https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379;https://10.0.0.2:2379,https://10.0.0.9:2379)
    WriteEndpoints(["https://10.0.0.2:2379", "https://10.0.0.9:2379"])
    Steady
    "#);
    world.stage("2");
    insta::assert_snapshot!(world.story(), @r"
    UpdateClient(KeyPair(..))
    Steady
    ");
    assert_eq!(world.published().unwrap()["data"]["tls.key"], json!("Mg=="));
    assert_eq!(world.settle().0, []);
}

#[test]
fn a_control_plane_that_cannot_take_etcd_is_reported_and_not_touched() {
    let mut world = World::applied().etcd_ready();
    world.control_plane.as_mut().unwrap()["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"] =
        json!({"local": {}});
    let before = world.control_plane.clone();
    insta::assert_snapshot!(world.story(), @r"
    ClaimEtcd
    block: ControlPlaneInvalid | KubeadmControlPlane demo-cp is made for local etcd, and a change from local to external etcd is refused: create it again with spec.kubeadmConfigSpec.clusterConfiguration.etcd.external: {endpoints: [https://placeholder.invalid:2379], caFile, certFile, keyFile}; if it has Machines, delete EtcdCluster demo-etcd first: the control plane is not gone until the Cluster has no other Machine. To delete EtcdCluster demo-etcd, give it the annotation etcdcluster.cluster.x-k8s.io/confirm-deletion: demo-etcd | None
    ");
    assert_eq!(before, world.control_plane);

    let mut world = World::applied().etcd_ready();
    world.cluster["spec"]["controlPlaneRef"]["kind"] = json!("OtherControlPlane");
    assert!(matches!(world.settle().1, Plan::Block(hold) if hold.reason == reasons::CONTROL_PLANE_INVALID));
}

#[test]
fn a_cluster_class_has_to_write_the_endpoints_itself() {
    let mut world = World::applied().etcd_ready();
    world.cluster["spec"]["topology"] = json!({"classRef": {"name": "class"}});
    insta::assert_snapshot!(world.story(), @r#"
    ClaimEtcd
    Announce
    Pause
    RecordEndpointsInUse(https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379)
    block: ControlPlaneInvalid | a ClusterClass manages KubeadmControlPlane demo-cp, and would revert what this controller writes into it. The variables and patches of the class cannot know etcd's endpoints, which change when a member is replaced. Create the Cluster without spec.topology; or have a runtime extension of the class write https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379 into spec.kubeadmConfigSpec.clusterConfiguration.etcd.external.endpoints, and write them again when they have changed and status.ready is true | None
    "#);
}

/// Etcd holds the objects of the Kubernetes cluster, and nothing shows that they are no longer needed.
#[test]
fn nobody_is_told_to_delete_an_etcd_that_a_control_plane_has_used() {
    let local = |mut world: World| {
        world.control_plane.as_mut().unwrap()["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"] =
            json!({"local": {}});
        let Plan::Block(hold) = world.settle().1 else { panic!("it is not refused") };
        assert_eq!(hold.reason, reasons::CONTROL_PLANE_INVALID);
        hold.message.contains("delete EtcdCluster demo-etcd")
    };
    assert!(local(World::applied().etcd_ready()));
    assert!(!local(running()));
    let mut without_record = running();
    without_record.etcd.as_mut().unwrap()["metadata"]["annotations"] = json!({});
    assert!(!local(without_record), "the client certificate was handed over");
    let mut without_secret = running();
    without_secret.secrets.remove("demo-apiserver-etcd-client");
    assert!(!local(without_secret), "it has endpoints that are in use");
}

/// Its API servers would go on with an empty etcd. So far, the control plane has used an etcd of ours, or one that its
/// user manages. In the second case, the user has made the client Secret, or a provider has, for the other etcd. An
/// empty record on the other etcd does not mean that the control plane has used it.
#[test]
fn a_control_plane_that_runs_is_not_handed_another_etcd() {
    let provider = json!([{"apiVersion": "example.org/v1", "kind": "OtherEtcd", "name": "demo-etcd", "uid": "etcd-2"}]);
    let nothing_in_use = json!({names::ENDPOINTS_IN_USE_ANNOTATION: ""});
    // Owners of the client Secret if somebody else has made it, and annotations of the other etcd.
    let cases = [(None, json!({})), (Some(json!([])), json!({})), (Some(provider), json!({})), (None, nothing_in_use)];
    // Whether the placeholder was written over the endpoints, and whether it is known what we had written there.
    let overwritten = [(false, true), (true, true), (true, false)];
    let cases = cases.into_iter().flat_map(|case| overwritten.map(|overwritten| (case.clone(), overwritten)));
    for ((owners, annotations), (overwritten, known)) in cases {
        let mut world = running();
        if overwritten {
            world.user_restores_placeholder();
        }
        if !known {
            world.remembered = None;
            let metadata = world.control_plane.as_mut().unwrap()["metadata"].as_object_mut().unwrap();
            metadata.remove("annotations");
        }
        let etcd = world.etcd.as_mut().unwrap();
        etcd["metadata"]["uid"] = json!("etcd-2");
        etcd["metadata"]["annotations"] = annotations;
        if let Some(owners) = owners {
            let secret = world.secrets.get_mut("demo-apiserver-etcd-client").unwrap();
            secret["metadata"] = json!({"name": "demo-apiserver-etcd-client", "ownerReferences": owners});
        }
        world.set_ready(true, "https://10.9.0.1:2379");
        let (steps, end) = world.settle();
        assert!(!steps.iter().any(|step| name(step) == "WriteEndpoints"), "{steps:?}");
        let Plan::Block(hold) = end else { panic!("{end:?}") };
        assert_eq!(hold.reason, reasons::ETCD_REPLACED);
        assert!(hold.message.contains("Secret demo-apiserver-etcd-client and delete it"), "{}", hold.message);
        world.secrets.remove("demo-apiserver-etcd-client");
        assert!(world.settle().0.iter().any(|step| name(step) == "WriteEndpoints"), "that confirms it");
    }
}

/// Somebody has replaced the whole control plane, and another provider has published the certificate.
#[test]
fn one_that_has_used_this_etcd_by_the_record_gets_its_endpoints_back() {
    let mut world = running();
    world.secrets.get_mut("demo-apiserver-etcd-client").unwrap()["metadata"] =
        json!({"name": "demo-apiserver-etcd-client"});
    world.user_replaces_control_plane(&[names::PLACEHOLDER_ENDPOINT]);
    world.restart();
    assert_eq!(world.settle().1, Plan::Steady);
    assert_eq!(world.endpoints(), ENDPOINTS);
}

/// The other etcd has no endpoints yet. If the endpoints that the control plane uses were recorded on it, it would look
/// like the etcd that the control plane has always used.
#[test]
fn a_control_plane_that_runs_is_not_handed_another_etcd_that_starts_empty() {
    let mut world = running();
    world.report_machines(world.generation(), 3, 3);
    world.used = Used::These(EndpointLists::parse(ENDPOINTS));
    world.etcd = World::applied().etcd;
    let etcd = world.etcd.as_mut().unwrap();
    etcd["metadata"]["name"] = json!("demo-etcd-2");
    etcd["metadata"]["uid"] = json!("etcd-2");
    world.cluster["metadata"]["annotations"][names::MANAGED_ETCD_ANNOTATION] = json!("demo-etcd-2");
    let (steps, end) = world.settle();
    assert_eq!(steps, [Step::ClaimEtcd]);
    assert!(matches!(end, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_ETCD));
    for (ready, endpoints) in [(false, ""), (false, "https://10.9.0.1:2379"), (true, "https://10.9.0.1:2379")] {
        world.set_ready(ready, endpoints);
        let (steps, end) = world.settle();
        assert_eq!(steps, []);
        let expected = if endpoints.is_empty() { reasons::WAITING_FOR_ETCD } else { reasons::ETCD_REPLACED };
        assert_eq!(end.hold().map(|hold| hold.reason), Some(expected), "{ready} {endpoints}");
        assert_eq!((world.endpoints().as_str(), world.paused(), world.in_use()), (ENDPOINTS, false, None));
    }
    world.secrets.remove("demo-apiserver-etcd-client");
    assert!(world.settle().0.iter().any(|step| name(step) == "WriteEndpoints"), "that confirms it");
}
