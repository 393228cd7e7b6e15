//! Stories without room for another Machine (`maxSurge: 0`): members leave first.

use super::marked::waits;
use super::repairing::{begins, deletes, step};
use super::rolling::{condition, joins_of_several, outdated, replaced, runs, urls};
use super::surging::use_lists;
use super::{creates, has_left, leaves, reason};
use crate::fixture::{Story, name};
use crate::observation::Template;
use crate::plan::{Plan, Step, WhyDeleted, made_for};
use api::conditions::{self as c, reasons};
use api::names;

fn without_room(count: usize, used: bool) -> Story {
    let mut story = outdated(count, used);
    story.surges(0);
    story
}

/// An old Machine goes, its member leaves, and a new one comes in its place.
fn makes_way(story: &mut Story, old: usize, new: usize) {
    assert_eq!(replaced(&story.plan()), Some(old), "{:?}", story.plan());
    story.delete(old);
    story.settle();
    assert_eq!(replaced(&story.plan()), None, "one at a time: {:?}", story.plan());
    hands_over(story);
    leaves(story, old);
    assert_eq!(replaced(&story.plan()), None, "its replacement comes first: {:?}", story.plan());
    joins_of_several(story, new);
}

/// Leadership moves before a leader leaves.
fn hands_over(story: &mut Story) {
    if let Plan::Do(Step::MoveLeader { to, .. }) = story.plan() {
        story.led_by(to);
        story.settle();
    }
}

#[test]
fn the_control_plane_is_told_whenever_nobody_else_may_leave() {
    let mut story = without_room(3, true);
    let mut before = urls(0..3);
    for (old, new, present) in [(1, 3, urls([0, 2, 3])), (2, 4, urls([0, 3, 4])), (0, 5, urls(3..6))] {
        makes_way(&mut story, old, new);
        let told = story.settle();
        assert_eq!((told.ready, told.endpoints.as_str()), (true, present.as_str()));
        use_lists(&mut story, &[before, present.clone()]);
        assert_eq!(story.plan(), Plan::Steady, "until the control plane has rolled out");
        use_lists(&mut story, std::slice::from_ref(&present));
        before = present;
    }
    assert_eq!(story.plan(), Plan::Steady);
    assert_eq!(condition(&story, c::MACHINES_UP_TO_DATE).status, "True");
}

#[test]
fn of_five_two_leave_before_the_control_plane_is_told() {
    let mut story = without_room(5, true);
    makes_way(&mut story, 1, 5);
    assert_eq!(story.settle().endpoints, urls(0..5));
    makes_way(&mut story, 2, 6);
    assert_eq!(replaced(&story.plan()), None, "{:?}", story.plan());
    assert_eq!(story.settle().endpoints, urls([0, 3, 4, 5, 6]));
}

#[test]
fn where_nobody_uses_them_one_after_the_other_is_replaced() {
    let mut story = without_room(3, false);
    for (old, new) in [(1, 3), (2, 4), (0, 5)] {
        makes_way(&mut story, old, new);
    }
    assert_eq!(story.plan(), Plan::Steady);
}

#[test]
fn a_machine_takes_room_until_it_is_gone() {
    let mut story = without_room(3, false);
    story.delete(1);
    has_left(&mut story, 1);
    // Its member has left, and its machine is still there.
    story.machine(1);
    story.delete_at_once(1);
    story.settle();
    assert_eq!(creates(&story.plan()), None, "{:?}", story.plan());
    story.gone(1);
    assert_eq!(creates(&story.plan()), Some(3), "{:?}", story.plan());
}

#[test]
fn nobody_leaves_while_another_is_not_well() {
    let mut story = without_room(5, false);
    story.failing(3, "for a moment");
    assert_eq!(replaced(&story.plan()), None, "{:?}", story.plan());
    story.healthy(3);
    assert_eq!(replaced(&story.plan()), Some(1));
    story.delete(1);
    story.failing(3, "down");
    story.settle();
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS, "{:?}", story.plan());
    story.healthy(3);
    leaves(&mut story, 1);
}

#[test]
fn of_two_machines_that_are_deleted_one_waits_for_the_replacement_of_the_other() {
    let mut story = Story::with_voters(3, 3);
    story.surges(0);
    story.delete(1);
    story.delete(2);
    story.settle();
    leaves(&mut story, 1);
    assert!(!matches!(story.plan(), Plan::Do(Step::Begin(_))), "{:?}", story.plan());
    joins_of_several(&mut story, 3);
    leaves(&mut story, 2);
}

#[test]
fn a_failed_voter_leaves_first() {
    let mut story = Story::with_voters(3, 3);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "2");
    story.surges(0);
    story.failing(2, "down");
    story.pass(60);
    assert_eq!(begins(&step(&mut story)), Some((name(2), 0)), "it is written down first");
    assert_eq!(deletes(&story.plan()), Some((name(2).as_str(), WhyDeleted::Unhealthy)));
    story.delete(2);
    story.settle();
    leaves(&mut story, 2);
    assert_eq!(creates(&story.plan()), Some(3), "{:?}", story.plan());
}

#[test]
fn a_failed_voter_that_a_person_looks_into_keeps_its_room() {
    let mut story = Story::with_voters(3, 3);
    story.surges(0);
    story.failing(2, "down");
    story.pass(60);
    step(&mut story);
    let machine = story.observation.machines.get_mut(&name(2)).unwrap();
    machine.annotations.insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
    let Plan::Wait(hold) = story.plan() else { panic!("{:?}", story.plan()) };
    assert!(hold.message.contains("maxSurge 0"), "{}", hold.message);
}

#[test]
fn the_only_member_is_replaced_by_another_one_that_has_its_data() {
    let story = without_room(1, true);
    assert_eq!(creates(&story.plan()), Some(1), "{:?}", story.plan());
}

#[test]
fn one_that_only_its_endpoint_holds_is_told_as_one_that_stays() {
    let mut story = Story::with_voters(3, 3);
    story.surges(0);
    use_lists(&mut story, &[urls(0..3)]);
    story.delete(1);
    story.delete(2);
    story.settle();
    leaves(&mut story, 1);
    joins_of_several(&mut story, 3);
    // Without this member, only one endpoint of the list in use would be alive; and the member takes the room of the
    // next one.
    let present = urls([0, 2, 3]);
    let told = story.settle();
    assert_eq!((told.ready, told.endpoints.as_str()), (true, present.as_str()));
    use_lists(&mut story, &[urls(0..3), present.clone()]);
    let told = story.settle();
    assert_eq!((told.ready, told.endpoints.as_str()), (true, present.as_str()), "until it has rolled out");
    use_lists(&mut story, &[present]);
    leaves(&mut story, 2);
    joins_of_several(&mut story, 4);
    assert_eq!(story.settle().endpoints, urls([0, 3, 4]));
}

#[test]
fn the_same_in_a_rollout_in_which_another_one_fails() {
    let mut story = without_room(3, true);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "2");
    assert_eq!(replaced(&story.plan()), Some(1));
    story.failing(2, "down");
    story.delete(1);
    story.pass(60);
    [0, 1].into_iter().for_each(|well| story.healthy(well));
    step(&mut story);
    assert_eq!(deletes(&step(&mut story)), Some((name(2).as_str(), WhyDeleted::Unhealthy)));
    story.delete(2);
    story.settle();
    leaves(&mut story, 2);
    joins_of_several(&mut story, 3);
    let told = story.settle();
    assert_eq!((told.ready, told.endpoints.as_str()), (true, urls([0, 1, 3]).as_str()));
    use_lists(&mut story, &[urls([0, 1, 3])]);
    story.settle();
    leaves(&mut story, 1);
}

#[test]
fn machines_that_are_too_many_and_empty_go_when_there_is_no_room_any_more() {
    for used in [true, false] {
        let mut story = outdated(3, used);
        story.held_back(3);
        story.admit(3);
        story.bootstrap(3);
        story.settle();
        assert_eq!(replaced(&story.plan()), None);
        story.surges(0);
        assert_eq!(deletes(&story.plan()), Some((name(3).as_str(), WhyDeleted::Surplus)), "{:?}", story.plan());
        story.gone(3);
        story.settle();
        assert_eq!(replaced(&story.plan()), Some(1), "{:?}", story.plan());
    }
}

#[test]
fn a_replacement_says_what_it_was_made_for() {
    let mut story = Story::with_voters(3, 3);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "2");
    story.surges(0);
    story.failing(2, "down");
    story.pass(60);
    step(&mut story);
    story.delete(2);
    story.settle();
    leaves(&mut story, 2);
    assert_eq!(made_for(&story.observation).map(|record| record.machine), Some(name(2)));
    story.pass(3_600);
    assert_eq!(made_for(&story.observation), None, "it no longer counts as one");
}

#[test]
fn nobody_leaves_before_the_infrastructure_has_its_machines_back() {
    let mut story = without_room(3, false);
    story.machine(7);
    story.delete_at_once(7);
    story.settle();
    assert_eq!(replaced(&story.plan()), None, "{:?}", story.plan());
    story.gone(7);
    assert_eq!(replaced(&story.plan()), Some(1));
}

#[test]
fn nobody_leaves_where_no_other_would_come() {
    let mut story = Story::with_voters(3, 3);
    story.surges(0);
    story.failing(2, "down");
    story.pass(60);
    step(&mut story);
    story.observation.template = Template::NotFound("it does not exist".to_owned());
    assert_eq!(deletes(&story.plan()), None, "{:?}", story.plan());
    let mut story = without_room(3, false);
    story.cluster().infrastructure_ready = false;
    assert_eq!(replaced(&story.plan()), None, "{:?}", story.plan());
    // Another Machine would never start etcd.
    let wrong = |story: &mut Story| {
        story.etcd().spec.etcdadm_config_spec.version = Some("3.7.3".to_owned());
        story.annotate(names::PINNED_VERSION_ANNOTATION, "3.7.3");
        (0..3).for_each(|index| runs(story, index, "3.7.3"));
        story.with_flag("experimental-compact-hash-check-enabled", "true");
    };
    let mut story = Story::with_voters(3, 3);
    story.surges(0);
    wrong(&mut story);
    story.failing(2, "down");
    story.pass(60);
    step(&mut story);
    assert_eq!(deletes(&story.plan()), None, "{:?}", story.plan());
    story.etcd().spec.etcdadm_config_spec.etcd = None;
    assert_eq!(deletes(&story.plan()), Some((name(2).as_str(), WhyDeleted::Unhealthy)), "{:?}", story.plan());
    let mut story = Story::with_voters(3, 3);
    story.surges(0);
    wrong(&mut story);
    story.mark(2);
    waits(&story, "no other Machine can be made: spec.etcdadmConfigSpec.etcd.extraFlags[0]");
}
