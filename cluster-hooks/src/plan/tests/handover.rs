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
    // A condition is applied, whoever comes last.
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
fn a_client_secret_that_is_there_already_does_not_lift_the_pause() {
    for etcd_is_gone in [false, true] {
        let mut world = World::applied().etcd_ready();
        world.secrets.clear();
        let theirs = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-apiserver-etcd-client"}});
        world.secrets.insert("demo-apiserver-etcd-client".to_owned(), theirs);
        insta::allow_duplicates! {
            insta::assert_snapshot!(world.story(), @r#"
            ClaimEtcd
            Announce
            Pause
            RecordEndpointsInUse(https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379)
            WriteEndpoints(["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"])
            wait: WaitingForClientCertificate | etcd's provider has not made Secret demo-etcd with etcd's CA certificate yet | Some(10s)
            "#);
        }
        if etcd_is_gone {
            world.etcd = None;
        } else {
            world.set_ready(false, ENDPOINTS);
        }
        assert_eq!(world.settle().0, []);
        assert!(world.paused(), "nothing but our pause holds it back");
    }
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
fn the_placeholder_put_back_into_a_running_control_plane_is_replaced_even_while_etcd_is_not_ready() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.control_plane.as_mut().unwrap()["status"] = json!({"initialization": {"controlPlaneInitialized": true}});
    world.set_ready(false, ENDPOINTS);
    world.user_restores_placeholder();
    insta::assert_snapshot!(world.story(), @r"
    WriteEndpoints, overwritten by field manager argocd
    wait: WaitingForEtcd | EtcdCluster demo-etcd is not ready: ScalingUp: 1 of 3 | None
    ");
    assert_eq!(world.endpoints(), ENDPOINTS);
}

#[test]
fn the_placeholder_put_back_before_the_first_machine_is_paused_over() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.user_restores_placeholder();
    let (steps, end) = world.settle();
    assert_eq!(steps.iter().map(name).collect::<Vec<_>>(), ["Pause", "WriteEndpoints", "Unpause"]);
    assert_eq!(end, Plan::Steady);
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
fn a_fight_over_the_endpoints_calms_down_and_makes_no_machine_meanwhile() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.control_plane.as_mut().unwrap()["status"] = json!({"initialization": {"controlPlaneInitialized": true}});
    let (start, mut corrections) = (world.generation(), 0);
    // Five times a second: 200 restorations.
    for round in 0..200 {
        if world.endpoints() == ENDPOINTS {
            world.user_restores_placeholder();
        }
        let (steps, end) = world.settle();
        corrections += steps.iter().filter(|step| matches!(step, Step::WriteEndpoints { .. })).count();
        if let Plan::Block(hold) = end {
            assert_eq!(hold.reason, reasons::ENDPOINTS_REVERTED_BY_OTHERS);
            assert!(
                hold.message.starts_with("field manager argocd overwrites spec.kubeadmConfigSpec"),
                "{}",
                hold.message
            );
            assert!(world.paused(), "no machine is made of the placeholder");
        }
        world.now += i64::from(round % 5 == 4);
    }
    // At once, after 10 s, and after 20 s more.
    assert_eq!(corrections, 3);
    assert!(world.generation() - start <= 8, "each is a restoration and a correction");
    world.now += 300;
    assert_eq!(world.settle().1, Plan::Steady);
    assert!(!world.paused() && world.endpoints() == ENDPOINTS);
}

#[test]
fn a_pause_over_a_fight_ends_whatever_the_client_certificate_is() {
    let mut world = World::applied().etcd_ready();
    let staged = world.secrets["demo-managed-etcd-apiserver-client"]["data"].clone();
    let theirs = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-apiserver-etcd-client"}, "data": staged});
    world.secrets.insert("demo-apiserver-etcd-client".to_owned(), theirs);
    world.settle();
    world.control_plane.as_mut().unwrap()["status"] = json!({"initialization": {"controlPlaneInitialized": true}});
    world.stage("2");
    for _ in 0..2 {
        world.user_restores_placeholder();
        world.settle();
    }
    assert!(world.paused());
    world.now += 10;
    let (_, end) = world.settle();
    assert!(matches!(end, Plan::Block(hold) if hold.reason == reasons::CLIENT_CERTIFICATE_DIFFERS));
    assert!(world.endpoints() == ENDPOINTS && !world.paused(), "it runs with what it has");
}

#[test]
fn a_pause_over_a_fight_stays_until_the_endpoints_are_back_whatever_etcd_is() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.control_plane.as_mut().unwrap()["status"] = json!({"initialization": {"controlPlaneInitialized": true}});
    for _ in 0..2 {
        world.user_restores_placeholder();
        world.settle();
    }
    assert!(world.paused());
    world.set_ready(false, ENDPOINTS);
    assert_eq!(world.settle().0, []);
    world.now += 10;
    let (steps, _) = world.settle();
    assert_eq!(steps.iter().map(name).collect::<Vec<_>>(), ["WriteEndpoints", "Unpause"]);
}

/// A GitOps tool applies a list that was etcd's once.
const STALE: [&str; 2] = ["https://10.0.0.1:2379", "https://10.0.0.8:2379"];

#[test]
fn endpoints_that_somebody_writes_over_etcds_are_corrected_even_while_etcd_is_not_ready() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.control_plane.as_mut().unwrap()["status"] = json!({"initialization": {"controlPlaneInitialized": true}});
    world.set_ready(false, ENDPOINTS);
    world.user_writes_endpoints(&STALE);
    let steps: Vec<String> = world.settle().0.iter().map(name).collect();
    assert_eq!(steps, ["RecordEndpointsInUse", "WriteEndpoints"]);
    assert_eq!(world.endpoints(), ENDPOINTS);

    // A member is away, and another list is published: what etcd's are is not settled, and machines would roll for it.
    world.set_ready(false, "https://10.0.0.1:2379");
    world.now += 10;
    world.user_writes_endpoints(&STALE);
    assert!(matches!(world.settle().1, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_ETCD));
    assert_eq!(world.endpoints(), ENDPOINTS, "it has what its machines were made with");
}

/// While etcd is not Ready: a foreign list, what etcd publishes meanwhile, and who knows what the control plane was
/// given.
#[test]
fn a_control_plane_gets_back_what_it_was_given_by_a_process_that_remembers_nothing_too() {
    let placeholder = names::PLACEHOLDER_ENDPOINT;
    let other = "https://10.0.0.1:2379";
    let stale = &*STALE.join(",");
    // Somebody replaces the object, and its annotation with it; the manager is restarted.
    for (foreign, published, replaced, restarted, expected) in [
        (placeholder, ENDPOINTS, false, false, ENDPOINTS),
        (placeholder, ENDPOINTS, false, true, ENDPOINTS),
        (placeholder, ENDPOINTS, true, false, ENDPOINTS),
        (placeholder, ENDPOINTS, true, true, ENDPOINTS),
        (stale, ENDPOINTS, false, false, ENDPOINTS),
        (stale, ENDPOINTS, false, true, ENDPOINTS),
        (stale, ENDPOINTS, true, false, ENDPOINTS),
        // Nobody knows.
        (stale, ENDPOINTS, true, true, stale),
        (placeholder, other, false, true, ENDPOINTS),
        (stale, other, false, true, ENDPOINTS),
        (stale, "", false, true, ENDPOINTS),
        (placeholder, other, true, true, other),
        // It is what will be written as soon as etcd is Ready.
        (other, other, false, true, other),
    ] {
        let mut world = running();
        world.set_ready(false, published);
        let foreign: Vec<&str> = foreign.split(',').collect();
        match replaced {
            true => world.user_replaces_control_plane(&foreign),
            false => world.user_writes_endpoints(&foreign),
        }
        if restarted {
            world.restart();
        }
        world.settle();
        let case = format!("{foreign:?} {published} replaced: {replaced} restarted: {restarted}");
        assert_eq!((world.endpoints(), world.paused()), (expected.to_owned(), false), "{case}");
        world.set_ready(true, if published.is_empty() { ENDPOINTS } else { published });
        world.now += 3600;
        assert_eq!(world.settle().1, Plan::Steady, "{case}");
        let expected = if published.is_empty() { ENDPOINTS } else { published };
        assert_eq!((world.endpoints(), world.paused()), (expected.to_owned(), false), "{case}");
    }
}

/// The management cluster was restored: it knows endpoints that are gone, and a person those of today.
#[test]
fn endpoints_that_a_person_writes_stay_where_the_annotation_says_that_nothing_was_given() {
    let today = "https://10.0.0.8:2379,https://10.0.0.9:2379";
    let endpoints: Vec<&str> = today.split(',').collect();
    for (says, restarted, fought, expected) in [
        (None, false, false, ENDPOINTS),
        (None, true, false, ENDPOINTS),
        (Some(""), false, false, today),
        (Some(""), true, false, today),
        (Some("by hand"), true, false, today),
        (Some(""), false, true, today),
        (Some(""), true, true, today),
    ] {
        let mut world = running();
        if fought {
            for _ in 0..2 {
                world.user_writes_endpoints(&STALE);
                world.settle();
            }
        }
        assert_eq!(world.paused(), fought);
        world.set_ready(false, ENDPOINTS);
        if restarted {
            world.restart();
        }
        if let Some(says) = says {
            world.user_annotates(WRITTEN_ENDPOINTS_ANNOTATION, says);
        }
        world.user_writes_endpoints(&endpoints);
        let case = format!("{says:?} restarted: {restarted} fought: {fought}");
        assert!(matches!(world.settle().1, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_ETCD), "{case}");
        assert_eq!((world.endpoints(), world.paused()), (expected.to_owned(), false), "{case}");
        assert!(world.in_use().unwrap().contains(today), "{case}: a machine may have been made with them");
        world.set_ready(true, "https://10.0.0.9:2379");
        assert_eq!(world.settle().1, Plan::Steady, "{case}");
        assert_eq!((world.endpoints().as_str(), world.paused()), ("https://10.0.0.9:2379", false), "{case}");
    }
}

/// A manifest that was exported with the annotation is applied again and again. Its members are long gone.
#[test]
fn a_record_of_long_ago_is_neither_restored_nor_the_end_of_the_back_off() {
    let now = "https://10.0.0.8:2379,https://10.0.0.9:2379";
    let grown = || {
        let mut world = running();
        let old = world.annotations()[WRITTEN_ENDPOINTS_ANNOTATION].clone();
        world.now += 3600;
        world.set_ready(true, now);
        world.settle();
        world.report_machines(world.generation(), 3, 3);
        world.settle();
        assert_eq!(world.in_use(), Some(now));
        (world, old)
    };
    // The tool leaves the endpoints alone.
    for restarted in [false, true] {
        let (mut world, old) = grown();
        world.set_ready(false, now);
        world.user_annotates(WRITTEN_ENDPOINTS_ANNOTATION, &old);
        if restarted {
            world.restart();
        }
        assert!(matches!(world.settle(), (steps, Plan::Wait(_)) if steps.is_empty()), "restarted: {restarted}");
        world.set_ready(false, "https://10.0.0.8:2379");
        assert!(matches!(world.settle(), (steps, Plan::Wait(_)) if steps.is_empty()), "restarted: {restarted}");
        assert_eq!(world.in_use(), Some(now), "restarted: {restarted}");
    }
    // It applies them too.
    for restarted in [false, true] {
        let (mut world, old) = grown();
        if restarted {
            world.restart();
        }
        let mut corrections = 0;
        for _ in 0..50 {
            world.user_writes_endpoints(&ENDPOINTS.split(',').collect::<Vec<_>>());
            world.user_annotates(WRITTEN_ENDPOINTS_ANNOTATION, &old);
            corrections += world.settle().0.iter().filter(|step| matches!(step, Step::WriteEndpoints { .. })).count();
        }
        // At once; and in a process that remembers nothing, the first is not a correction.
        assert_eq!(corrections, 1 + usize::from(restarted), "restarted: {restarted}");
        assert!(world.paused(), "restarted: {restarted}");
    }
}

/// What a class writes is the class's.
#[test]
fn a_cluster_that_is_given_a_topology_later_gets_nothing_back() {
    let mut world = running();
    world.set_ready(false, ENDPOINTS);
    world.cluster["spec"]["topology"] = json!({"classRef": {"name": "class"}});
    world.user_writes_endpoints(&STALE);
    let (steps, end) = world.settle();
    assert!(!steps.iter().any(|step| name(step) == "WriteEndpoints"), "{steps:?}");
    assert!(matches!(&end, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_ETCD), "{end:?}");
}

/// A record on an object that has never had etcd comes from a copied manifest.
#[test]
fn a_control_plane_that_was_given_nothing_yet_gets_nothing_of_a_record() {
    let mut given = World::applied().etcd_ready();
    given.settle();
    let mut world = World::applied();
    world.control_plane.as_mut().unwrap()["metadata"]["annotations"] = json!(given.annotations());
    world.set_ready(false, "https://10.9.0.1:2379");
    for endpoints in [names::PLACEHOLDER_ENDPOINT, STALE[0]] {
        world.user_writes_endpoints(&[endpoints]);
        assert!(matches!(world.settle().1, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_ETCD));
        assert_eq!((world.endpoints(), world.paused()), (endpoints.to_owned(), true));
    }
    world.set_ready(true, "https://10.9.0.1:2379");
    world.stage("1");
    world.settle();
    assert_eq!((world.endpoints().as_str(), world.paused()), ("https://10.9.0.1:2379", false));
}

#[test]
fn a_fight_goes_on_where_it_was_when_the_manager_is_restarted() {
    let mut world = running();
    for _ in 0..2 {
        world.user_restores_placeholder();
        world.settle();
    }
    let before = world.observe().written;
    world.restart();
    assert_eq!(world.observe().written, before);
    let (steps, end) = world.settle();
    assert_eq!(steps, []);
    assert!(matches!(end, Plan::Block(hold) if hold.reason == reasons::ENDPOINTS_REVERTED_BY_OTHERS));
    assert!(world.paused());
}

/// Our pause in a fight, etcd goes away, and the manager is restarted.
#[test]
fn our_pause_is_lifted_over_nothing_but_what_was_written_or_is_etcds() {
    let placeholder = names::PLACEHOLDER_ENDPOINT;
    for (found, recorded, lifted) in [
        (placeholder, true, false),
        (placeholder, false, false),
        (STALE[0], true, false),
        (ENDPOINTS, true, true),
        // Nobody knows.
        (STALE[0], false, true),
    ] {
        let mut world = running();
        for _ in 0..2 {
            world.user_writes_endpoints(&STALE);
            world.settle();
        }
        assert!(world.paused());
        world.etcd = None;
        world.user_writes_endpoints(&found.split(',').collect::<Vec<_>>());
        if !recorded {
            let annotations = &mut world.control_plane.as_mut().unwrap()["metadata"]["annotations"];
            annotations.as_object_mut().unwrap().remove(WRITTEN_ENDPOINTS_ANNOTATION);
        }
        world.restart();
        assert!(matches!(world.settle().1, Plan::Wait(hold) if hold.reason == reasons::ETCD_NOT_FOUND));
        assert_eq!(!world.paused(), lifted, "{found} recorded: {recorded}");
        world.delete_cluster();
        world.settle();
        assert!(!world.paused(), "a paused control plane is never deleted");
    }
}

#[test]
fn a_pause_over_a_fight_is_not_lifted_over_the_endpoints_of_somebody_else() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.control_plane.as_mut().unwrap()["status"] = json!({"initialization": {"controlPlaneInitialized": true}});
    for _ in 0..2 {
        world.user_writes_endpoints(&STALE);
        world.settle();
    }
    assert!(world.paused() && world.endpoints() != ENDPOINTS);
    world.set_ready(false, ENDPOINTS);
    let (steps, end) = world.settle();
    assert_eq!(steps, []);
    assert!(matches!(end, Plan::Block(hold) if hold.reason == reasons::ENDPOINTS_REVERTED_BY_OTHERS));
    world.now += 10;
    let steps: Vec<String> = world.settle().0.iter().map(name).collect();
    assert_eq!(steps, ["WriteEndpoints", "Unpause"]);
    assert_eq!(world.endpoints(), ENDPOINTS);
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
fn secrets_that_are_missing_or_broken_are_waited_for() {
    let full = World::applied().etcd_ready();
    let mut world = full.clone();
    world.secrets.clear();
    insta::assert_snapshot!(world.story(), @r#"
    ClaimEtcd
    Announce
    Pause
    RecordEndpointsInUse(https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379)
    WriteEndpoints(["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"])
    wait: WaitingForClientCertificate | etcd's provider has not made Secret demo-etcd with etcd's CA certificate yet | Some(10s)
    "#);
    assert!(world.paused());
    world.secrets.insert("demo-etcd".to_owned(), full.secrets["demo-etcd"].clone());
    insta::assert_snapshot!(world.story(), @"wait: WaitingForClientCertificate | etcd's provider has made neither Secret demo-managed-etcd-apiserver-client nor Secret demo-apiserver-etcd-client yet | Some(10s)");
    let mut half = full.secrets["demo-managed-etcd-apiserver-client"].clone();
    half["data"]["tls.key"] = json!("");
    world.secrets.insert("demo-managed-etcd-apiserver-client".to_owned(), half);
    insta::assert_snapshot!(world.story(), @"wait: WaitingForClientCertificate | Secret demo-managed-etcd-apiserver-client must have tls.crt and tls.key | Some(10s)");
}

#[test]
fn a_client_secret_of_somebody_else_is_used_if_it_is_the_one_that_etcd_gave() {
    let ready = World::applied().etcd_ready();
    let published = |data: &serde_json::Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-apiserver-etcd-client"}, "data": data});
    let staged = ready.secrets["demo-managed-etcd-apiserver-client"]["data"].clone();
    let mut world = ready;
    world.secrets.insert("demo-apiserver-etcd-client".to_owned(), published(&staged));
    let (steps, end) = world.settle();
    assert_eq!(
        steps.iter().map(name).collect::<Vec<_>>(),
        ["ClaimEtcd", "Announce", "Pause", "RecordEndpointsInUse", "WriteEndpoints", "Unpause"]
    );
    assert_eq!(end, Plan::Steady);
    // A renewal does not reach it.
    world.stage("2");
    let Plan::Block(hold) = world.settle().1 else { panic!("it expires under a True condition") };
    assert_eq!(hold.reason, reasons::CLIENT_CERTIFICATE_DIFFERS);
    assert!(hold.message.contains("delete Secret demo-apiserver-etcd-client"), "{}", hold.message);
    assert_eq!(world.published(), Some(&published(&staged)), "it is not ours to change");
}

#[test]
fn a_client_secret_of_another_ca_keeps_the_control_plane_back() {
    let mut world = World::applied().etcd_ready();
    let theirs = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-apiserver-etcd-client"}});
    world.secrets.insert("demo-apiserver-etcd-client".to_owned(), theirs);
    assert!(matches!(world.settle().1, Plan::Block(hold) if hold.reason == reasons::CLIENT_CERTIFICATE_DIFFERS));
    assert!(world.paused());
    world.secrets.remove("demo-managed-etcd-apiserver-client");
    assert_eq!(world.settle().0, [Step::Unpause], "a provider that publishes it itself is trusted");
}

#[test]
fn a_client_secret_of_an_etcd_that_is_gone_is_made_anew() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.etcd.as_mut().unwrap()["metadata"]["uid"] = json!("etcd-2");
    let (steps, _) = world.settle();
    assert_eq!(steps.iter().map(name).collect::<Vec<_>>(), ["UpdateClient"]);
    assert_eq!(world.published().unwrap()["metadata"]["ownerReferences"][0]["uid"], "etcd-2");
}

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

/// The Cluster went without its finalizer's work, and was applied again.
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
fn a_control_plane_that_cannot_take_etcd_is_reported_and_not_touched() {
    let mut world = World::applied().etcd_ready();
    world.control_plane.as_mut().unwrap()["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"] =
        json!({"local": {}});
    let before = world.control_plane.clone();
    insta::assert_snapshot!(world.story(), @r"
    ClaimEtcd
    block: ControlPlaneInvalid | KubeadmControlPlane demo-cp is made for local etcd, and a change from local to external etcd is refused: create it again with spec.kubeadmConfigSpec.clusterConfiguration.etcd.external: {endpoints: [https://placeholder.invalid:2379], caFile, certFile, keyFile} | None
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
    block: ControlPlaneInvalid | a ClusterClass manages KubeadmControlPlane demo-cp, and would revert what is written into it; its variables and patches cannot know etcd's endpoints, which change when a member is replaced: create the Cluster without spec.topology, or have a runtime extension of the class write https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379 into spec.kubeadmConfigSpec.clusterConfiguration.etcd.external.endpoints, and follow them | None
    "#);
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

#[test]
fn a_control_plane_that_is_deleted_alone_is_not_held() {
    let mut world = World::applied();
    world.settle();
    world.control_plane.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(world.settle().0, [Step::Unpause]);
    let mut world = world.etcd_ready();
    insta::assert_snapshot!(world.story(), @"wait: WaitingForControlPlane | KubeadmControlPlane demo-cp is being deleted | None");
}

/// A watch of Clusters that is behind may show one that is gone: etcd would go with it.
#[test]
fn which_cluster_is_alive_is_read_before_etcd_is_claimed_or_deleted() {
    let mut world = World::applied();
    assert_eq!(plan(&world.observe()), Plan::Do(Step::Read(Need::Current)));
    world.delete_cluster();
    assert_eq!(plan(&world.observe()), Plan::Do(Step::Read(Need::Current)));
}

#[test]
fn the_same_endpoints_in_another_order_are_left() {
    let mut world = running();
    let endpoints: Vec<&str> = ENDPOINTS.rsplit(',').collect();
    world.user_writes_endpoints(&endpoints);
    assert_eq!(world.settle(), (Vec::new(), Plan::Steady));
}

/// Its API servers would go on with an empty store.
#[test]
fn a_control_plane_that_runs_is_not_handed_another_etcd() {
    let mut world = running();
    let etcd = world.etcd.as_mut().unwrap();
    etcd["metadata"]["uid"] = json!("etcd-2");
    etcd["metadata"]["annotations"] = json!({});
    world.set_ready(true, "https://10.9.0.1:2379");
    let (steps, end) = world.settle();
    assert!(!steps.iter().any(|step| name(step) == "WriteEndpoints"), "{steps:?}");
    let Plan::Block(hold) = end else { panic!("{end:?}") };
    assert_eq!(hold.reason, reasons::ETCD_REPLACED);
    assert!(hold.message.contains("delete Secret demo-apiserver-etcd-client"), "{}", hold.message);
    world.secrets.remove("demo-apiserver-etcd-client");
    assert!(world.settle().0.iter().any(|step| name(step) == "WriteEndpoints"), "that confirms it");
}

/// It has no endpoints yet: nothing that the control plane uses may be recorded on it, or it would be taken for the one
/// that it has always used.
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

/// Handed over, and with machines of its own.
fn running() -> World {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.control_plane.as_mut().unwrap()["status"]["initialization"] = json!({"controlPlaneInitialized": true});
    world.settle();
    world
}
