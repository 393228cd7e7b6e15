//! Somebody else writes endpoints into the control plane. The hook restores etcd's endpoints, with a back-off if this
//! goes on, and restores nothing that is not known.

use super::*;
use crate::observation::WRITTEN_ENDPOINTS_ANNOTATION;

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

    // A member is away, and another list is published. That list may change again, and machines would be replaced for
    // it.
    world.set_ready(false, "https://10.0.0.1:2379");
    world.now += 10;
    world.user_writes_endpoints(&STALE);
    assert!(matches!(world.settle().1, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_ETCD));
    assert_eq!(world.endpoints(), ENDPOINTS, "it has what its machines were made with");
}

/// While etcd is not Ready: a foreign list, the list that etcd publishes meanwhile, and where it is still known what
/// the control plane was given.
#[test]
fn a_control_plane_gets_back_what_it_was_given_by_a_process_that_remembers_nothing_too() {
    let placeholder = names::PLACEHOLDER_ENDPOINT;
    let other = "https://10.0.0.1:2379";
    let stale = &*STALE.join(",");
    // `replaced`: the annotation is lost with the rest of the object. `restarted`: the manager remembers nothing.
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
        // This list will be written as soon as etcd is Ready.
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

/// The management cluster was restored: it has only endpoints that are gone, and a person knows the present ones.
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

/// A manifest that was exported with the annotation is applied again and again. The members in the annotation are long
/// gone.
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
    // The tool applies the endpoints too.
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
        // One correction, at once. In a process that remembers nothing, the first write does not count as a correction.
        assert_eq!(corrections, 1 + usize::from(restarted), "restarted: {restarted}");
        assert!(world.paused(), "restarted: {restarted}");
    }
}

/// If a ClusterClass writes the control plane, the hook leaves its endpoints to the ClusterClass.
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

/// Our pause is set for the back-off, then the etcd object is deleted, and the manager is restarted.
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
fn the_same_endpoints_in_another_order_are_left() {
    let mut world = running();
    let endpoints: Vec<&str> = ENDPOINTS.rsplit(',').collect();
    world.user_writes_endpoints(&endpoints);
    assert_eq!(world.settle(), (Vec::new(), Plan::Steady));
}
