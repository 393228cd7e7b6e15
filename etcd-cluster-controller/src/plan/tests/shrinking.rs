//! Fewer members, as stories.

use super::rolling::{condition, urls};
use super::surging::use_lists;
use super::{creates, leaves, reason};
use crate::fixture::{Story, address, id, name};
use crate::plan::{Plan, Step, WhyDeleted, plan};
use crate::status::status;
use api::conditions::{self as c, reasons};
use api::etcd_cluster::{RemediationMode, RolloutType};
use api::meta::AddressType;
use api::names;
use controller_support::external::Reference;
use serde_json::json;

/// Deletes all surplus Machines one after the other, and returns their names.
fn surplus(story: &mut Story) -> Vec<String> {
    let mut found = Vec::new();
    while let Plan::Do(Step::DeleteMachine { name, why: WhyDeleted::Surplus }) = story.plan() {
        let index = crate::roster::number(&name).and_then(|number| usize::try_from(number).ok()).unwrap();
        story.delete(index);
        found.push(name);
    }
    found
}

fn lowered(from: usize, to: i32) -> Story {
    let mut story = Story::with_voters(i32::try_from(from).unwrap(), from);
    story.etcd().spec.replicas = to;
    story
}

#[test]
fn all_that_are_too_many_are_deleted_and_the_control_plane_is_told_once() {
    let mut story = lowered(5, 3);
    let before = plan(&story.observation).publish;
    assert!(before.ready && before.endpoints.split(',').count() == 5, "{before:?}");
    assert_eq!(surplus(&mut story), [name(4), name(3)], "the newest, and the leader stays");
    let after = plan(&story.observation);
    assert!(after.publish.ready && after.publish.endpoints.split(',').count() == 3, "{:?}", after.publish);
    let status = status(&story.observation, &after, None);
    let down = status.conditions.iter().find(|condition| condition.type_ == c::SCALING_DOWN).unwrap();
    assert_eq!(
        (down.status.as_str(), down.message.contains("5 Machines, and 3 are wanted")),
        ("True", true),
        "{down:?}"
    );
    assert!(matches!(after.next, Plan::Do(Step::Begin(_))), "{:?}", after.next);
}

#[test]
fn down_to_one_the_leader_is_what_is_left() {
    let mut story = lowered(3, 1);
    assert_eq!(surplus(&mut story), [name(2), name(1)]);
    for index in [1, 2] {
        leaves(&mut story, index);
    }
    assert_eq!(story.plan(), Plan::Steady);
    assert!(story.settle().ready);
}

#[test]
fn the_leader_goes_last_where_no_api_server_uses_the_endpoints() {
    let mut story = lowered(5, 3);
    story.led_by(id(4));
    assert_eq!(surplus(&mut story), [name(3), name(2)], "leadership stays where it is");
    let mut story = lowered(5, 3);
    story.led_by(id(4));
    use_lists(&mut story, &[urls(0..5)]);
    assert_eq!(surplus(&mut story), [name(4), name(3)], "the oldest are in every list");
    // It has not been recorded what API servers use, so they may use something.
    let mut story = lowered(5, 3);
    story.led_by(id(4));
    let reference = json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "demo"});
    story.cluster().control_plane = Reference::read(Some(&reference));
    assert_eq!(surplus(&mut story), [name(4), name(3)]);
}

#[test]
fn whoever_serves_least_goes_first() {
    let mut story = lowered(5, 3);
    story.failing(1, "down");
    story.pass(60);
    assert_eq!(
        surplus(&mut story),
        [name(1), name(4)],
        "one that has failed, also if it is older, and it is not replaced"
    );
    let mut story = lowered(5, 5);
    story.failing(1, "down");
    story.pass(60);
    assert!(matches!(story.plan(), Plan::Do(Step::BeginRemediation { .. })), "{:?}", story.plan());
    story.settle();
    story.healthy(1);
    story.settle();
    story.etcd().spec.remediation.mode = RemediationMode::Report;
    story.etcd().spec.replicas = 3;
    story.pass(1);
    story.failing(1, "down again");
    story.pass(60);
    assert_eq!(surplus(&mut story), [name(1), name(4)], "one that has failed again, and is only reported");
    let mut story = Story::with_voters(5, 4);
    story.held_back(4);
    story.etcd().spec.replicas = 3;
    assert_eq!(surplus(&mut story), [name(4), name(3)], "one that is held back");
    let mut story = Story::with_voters(5, 4);
    story.machine(4);
    story.member(4, true);
    story.healthy(4);
    story.etcd().spec.replicas = 3;
    assert_eq!(surplus(&mut story), [name(4), name(3)], "a learner");
    let mut story = lowered(5, 3);
    let annotate = |story: &mut Story, index: usize, key: &str| {
        let machine = story.observation.machines.get_mut(&name(index)).unwrap();
        machine.annotations.insert(key.to_owned(), String::new());
    };
    annotate(&mut story, 1, names::DELETE_MACHINE_ANNOTATION);
    annotate(&mut story, 4, names::PAUSED_ANNOTATION);
    assert_eq!(surplus(&mut story), [name(1), name(3)], "whom a person has chosen, and not whom one looks into");
}

#[test]
fn whoever_is_in_every_list_of_endpoints_stays_and_the_others_wait_for_the_control_plane() {
    // Some API servers may still use the list of the first member alone.
    let mut story = lowered(3, 1);
    story.etcd().spec.rollout_strategy.type_ = RolloutType::OnDelete;
    let all = "https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379";
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, all);
    let machine = story.observation.machines.get_mut(&name(0)).unwrap();
    machine.annotations.insert(names::CLONED_FROM_NAME_ANNOTATION.to_owned(), "an-earlier-template".to_owned());
    assert_eq!(surplus(&mut story), [name(2), name(1)]);
    story.settle();
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL);
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, "https://10.0.0.1:2379");
    assert!(matches!(story.plan(), Plan::Do(Step::Begin(_))), "{:?}", story.plan());
}

/// All that leave etcd before anything else happens.
fn leave_at_once(story: &mut Story) -> Vec<usize> {
    let mut found = Vec::new();
    loop {
        let member = match story.plan() {
            Plan::Do(Step::Begin(operation)) => u64::from_str_radix(&operation.member_id, 16).unwrap(),
            Plan::Do(Step::RemoveMember(permission)) => permission.member_id(),
            _ => return found,
        };
        let index = (0..).find(|index| id(*index) == member).unwrap();
        leaves(story, index);
        found.push(index);
    }
}

/// Four voters that wait for the control plane would survive one failure fewer than five, and two voters one fewer than
/// three.
#[test]
fn nobody_leaves_an_even_number_of_voters_before_the_next_one_may_follow() {
    for (from, to, at_once) in [(3, 1, vec![]), (5, 1, vec![1, 2]), (7, 1, vec![1, 2]), (7, 3, vec![3, 4])] {
        let mut story = lowered(from, to);
        use_lists(&mut story, &[urls(0..from)]);
        surplus(&mut story);
        let told = story.settle();
        let stay = urls(0..usize::try_from(to).unwrap());
        assert_eq!((told.ready, told.endpoints), (true, stay.clone()), "{from} to {to}: none of those that go");
        assert_eq!(leave_at_once(&mut story), at_once, "{from} to {to}");
        use_lists(&mut story, &[urls(0..from), stay.clone()]);
        assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL, "{from} to {to}: it rolls out");
        let deleting = condition(&story, c::MACHINES_DELETING);
        assert!(deleting.message.contains("API servers still use"), "{deleting:?}");
        use_lists(&mut story, &[stay]);
        assert_eq!(leave_at_once(&mut story).len(), from - at_once.len() - usize::try_from(to).unwrap());
        assert_eq!(story.plan(), Plan::Steady, "{from} to {to}");
    }
}

/// API servers were told of IP addresses. One edit lowers `replicas`, and has host names told.
#[test]
fn a_list_in_use_protects_its_members_whatever_type_of_address_is_told_now() {
    let mut story = lowered(3, 1);
    use_lists(&mut story, &[urls(0..3)]);
    tells_hosts(&mut story);
    let hosts: Vec<String> = (0..3).map(|index| names::client_url(&name(index))).collect();
    surplus(&mut story);
    assert_eq!(story.settle().endpoints, hosts[0]);
    assert!(leave_at_once(&mut story).is_empty(), "one of three endpoints would be left");
    use_lists(&mut story, &[urls(0..3), hosts[0].clone()]);
    assert!(leave_at_once(&mut story).is_empty(), "some API servers still have three");
    use_lists(&mut story, &[hosts[0].clone()]);
    assert_eq!(leave_at_once(&mut story), [1, 2]);
}

/// The newest Machine has an address in addition that the first one has left. Its etcd does not serve there.
#[test]
fn an_address_at_which_a_member_does_not_serve_keeps_no_list_alive() {
    let mut story = lowered(5, 3);
    use_lists(&mut story, &[urls(0..3)]);
    story.unlist(0);
    story.gone(0);
    let machine = story.observation.machines.get_mut(&name(4)).unwrap();
    machine.addresses.push(("ExternalIP".to_owned(), address(0)));
    story.settle();
    story.delete(1);
    story.settle();
    assert!(leave_at_once(&mut story).is_empty(), "two of the list are alive, and one would be left");
}

/// The control plane is rolling out to a list of IP addresses when host names are to be told.
#[test]
fn a_list_that_is_being_rolled_out_stays_whatever_type_of_address_is_told_now() {
    let mut story = Story::with_voters(3, 3);
    story.settle();
    use_lists(&mut story, &[urls(0..1), urls(0..3)]);
    tells_hosts(&mut story);
    assert_eq!(story.settle().endpoints, urls(0..3));
    use_lists(&mut story, &[urls(0..3)]);
    let hosts: Vec<String> = (0..3).map(|index| names::client_url(&name(index))).collect();
    assert_eq!(story.settle().endpoints, hosts.join(","));
}

/// `addressTypes` prefers host names now, and all members answer there.
fn tells_hosts(story: &mut Story) {
    story.etcd().spec.address_types = vec![AddressType::Hostname, AddressType::InternalIP];
    for (name, machine) in &mut story.observation.machines {
        machine.addresses.push(("Hostname".to_owned(), name.clone()));
        story.observation.probes.get_mut(name).unwrap().url = names::client_url(name);
    }
}

#[test]
fn where_enough_of_every_list_stays_nobody_waits_for_the_control_plane() {
    for (from, to) in [(5, 3), (7, 5)] {
        let mut story = lowered(from, to);
        use_lists(&mut story, &[urls(0..from)]);
        surplus(&mut story);
        story.settle();
        assert_eq!(leave_at_once(&mut story), [from - 2, from - 1]);
        assert_eq!(story.plan(), Plan::Steady, "{from} to {to}");
    }
    // A shorter list that some API servers use keeps both members: it could not spare the second one.
    let mut story = lowered(5, 3);
    use_lists(&mut story, &[urls(0..5), urls([0, 3, 4])]);
    surplus(&mut story);
    story.settle();
    assert!(leave_at_once(&mut story).is_empty());
}

#[test]
fn one_that_has_failed_does_not_wait_for_the_next() {
    let mut story = lowered(3, 1);
    use_lists(&mut story, &[urls(0..3)]);
    story.failing(2, "down");
    story.pass(60);
    surplus(&mut story);
    story.settle();
    assert_eq!(leave_at_once(&mut story), [2], "etcd survives as many failures without it");
}

#[test]
fn whoever_changes_their_mind_while_two_wait_keeps_three_voters_all_the_while() {
    let mut story = lowered(3, 1);
    use_lists(&mut story, &[urls(0..3)]);
    surplus(&mut story);
    story.settle();
    assert!(leave_at_once(&mut story).is_empty());
    story.etcd().spec.replicas = 3;
    story.settle();
    for (new, old) in [(3, 1), (4, 2)] {
        assert_eq!(creates(&story.plan()), Some(new as u64), "{:?}", story.plan());
        story.machine(new);
        story.admit(new);
        story.voter(new);
        story.publish();
        story.settle();
        if new == 4 {
            assert_eq!(plan(&story.observation).publish.endpoints, urls([0, 3, 4]));
            use_lists(&mut story, &[urls([0, 3, 4])]);
        }
        leaves(&mut story, old);
    }
    assert_eq!(story.plan(), Plan::Steady);
}

#[test]
fn nothing_is_chosen_while_it_is_not_known_how_all_are() {
    let mut story = lowered(5, 3);
    story.unknown(1);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
    let mut story = lowered(5, 3);
    story.failing(1, "since a moment");
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
    let mut story = lowered(5, 3);
    story.unlisted();
    assert!(!matches!(story.plan(), Plan::Do(_)), "{:?}", story.plan());
}

#[test]
fn before_etcd_has_begun_the_one_that_initializes_stays() {
    let mut story = Story::new(3);
    (0..3).for_each(|index| story.held_back(index));
    story.bootstrap(1);
    story.etcd().spec.replicas = 1;
    assert_eq!(surplus(&mut story), [name(2), name(0)]);
}

#[test]
fn whoever_changes_their_mind_gets_new_members_in_place_of_those_that_go() {
    let mut story = lowered(5, 3);
    surplus(&mut story);
    story.etcd().spec.replicas = 5;
    story.settle();
    assert_eq!(creates(&story.plan()), Some(5), "{:?}", story.plan());
}
