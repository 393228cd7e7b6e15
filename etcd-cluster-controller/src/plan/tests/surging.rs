//! Stories about rollouts where API servers use the endpoints, and there is no room for twice the members.

use super::rolling::{condition, edit, joins_of_several, outdated, replaced, runs, urls};
use super::{has_left, leaves, reason};
use crate::fixture::{Story, name};
use crate::plan::{Plan, Step, WhyDeleted, plan};
use api::conditions::{self as c, reasons};
use api::names;

/// API servers have these lists.
pub(super) fn use_lists(story: &mut Story, lists: &[String]) {
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &lists.join(";"));
}

/// An old Machine goes, and its member leaves before the control plane has rolled out.
fn makes_room(story: &mut Story, index: usize, told: &str) {
    assert_eq!(replaced(&story.plan()), Some(index), "{:?}", story.plan());
    story.delete(index);
    story.settle();
    assert_eq!(replaced(&story.plan()), None, "one at a time: {:?}", story.plan());
    leaves(story, index);
    let publish = story.settle();
    assert_eq!((publish.ready, publish.endpoints.as_str()), (true, told));
}

#[test]
fn of_five_that_are_in_use_two_make_room_and_the_control_plane_is_told_once() {
    let mut story = outdated(5, true);
    for new in 5..8 {
        assert_eq!(replaced(&story.plan()), None, "{:?}", story.plan());
        joins_of_several(&mut story, new);
    }
    makes_room(&mut story, 1, &urls(0..5));
    joins_of_several(&mut story, 8);
    makes_room(&mut story, 2, &urls(0..5));
    joins_of_several(&mut story, 9);
    for old in [3, 4, 0] {
        assert_eq!(replaced(&story.plan()), Some(old), "{:?}", story.plan());
        story.delete(old);
    }
    let told = story.settle();
    assert_eq!((told.ready, told.endpoints), (true, urls(5..10)));
    use_lists(&mut story, &[urls(0..5), urls(5..10)]);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL, "{:?}", story.plan());
    use_lists(&mut story, &[urls(5..10)]);
    leaves(&mut story, 3);
}

#[test]
fn every_list_survives_and_not_only_all_of_them_together() {
    // Three have become five, and not every API server has rolled out.
    let mut story = Story::with_voters(5, 5);
    story.settle();
    use_lists(&mut story, &[urls(0..3), urls(0..5)]);
    story.delete(1);
    story.delete(2);
    joins_of_several(&mut story, 5);
    leaves(&mut story, 1);
    joins_of_several(&mut story, 6);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL, "{:?}", story.plan());
    use_lists(&mut story, &[urls(0..5)]);
    leaves(&mut story, 2);
}

#[test]
fn a_rollout_waits_while_some_have_a_shorter_list() {
    let mut story = outdated(5, true);
    use_lists(&mut story, &[urls(0..3), urls(0..5)]);
    assert_eq!(story.plan(), Plan::Steady);
    assert!(condition(&story, c::MACHINES_UP_TO_DATE).message.contains("has yet to roll out"));
}

#[test]
fn whoever_is_alone_in_a_shorter_list_stays_until_nobody_uses_that() {
    // One member becomes five of another version in one change. API servers have the list of the first one alone.
    let mut story = outdated(1, true);
    story.etcd().spec.replicas = 5;
    story.settle();
    (1..6).for_each(|index| joins_of_several(&mut story, index));
    assert_eq!(replaced(&story.plan()), Some(0));
    story.delete(0);
    assert_eq!(story.settle().endpoints, urls(1..6));
    use_lists(&mut story, &[urls([0]), urls(1..6)]);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL, "{:?}", story.plan());
    use_lists(&mut story, &[urls(1..6)]);
    assert!(matches!(story.plan(), Plan::Do(Step::Begin(_))), "{:?}", story.plan());
}

/// The infrastructure does not reach two machines, and says their names alone. API servers may reach them all the same,
/// at the addresses that they know.
#[test]
fn a_machine_whose_address_is_gone_is_still_the_one_that_api_servers_use() {
    for new in [4, 5] {
        let mut story = outdated(3, true);
        (3..=new).for_each(|index| joins_of_several(&mut story, index));
        for index in [1, 2] {
            let machine = story.observation.machines.get_mut(&name(index)).unwrap();
            machine.addresses = vec![("Hostname".to_owned(), name(index))];
            story.unknown(index);
        }
        story.settle();
        assert_eq!(replaced(&story.plan()), None, "{:?}", story.plan());
        // Nor do they leave etcd if a person deletes them.
        for index in [1, 2] {
            story.delete(index);
            story.settle();
            assert!(!matches!(story.plan(), Plan::Do(Step::Begin(_) | Step::RemoveMember(_))), "{:?}", story.plan());
        }
    }
}

#[test]
fn with_room_for_all_but_one_the_control_plane_is_told_once_as_well() {
    let mut story = outdated(3, true);
    story.surges(2);
    (3..5).for_each(|new| joins_of_several(&mut story, new));
    makes_room(&mut story, 1, &urls(0..3));
    joins_of_several(&mut story, 5);
    for old in [2, 0] {
        assert_eq!(replaced(&story.plan()), Some(old), "{:?}", story.plan());
        story.delete(old);
    }
    assert_eq!(story.settle().endpoints, urls(3..6));
}

#[test]
fn with_room_for_one_the_control_plane_is_told_when_nobody_else_may_leave() {
    let mut story = outdated(3, true);
    story.surges(1);
    joins_of_several(&mut story, 3);
    makes_room(&mut story, 1, &urls(0..3));
    joins_of_several(&mut story, 4);
    // No other endpoint of the list in use may go.
    let present = urls([0, 2, 3, 4]);
    assert_eq!(replaced(&story.plan()), None, "{:?}", story.plan());
    let told = plan(&story.observation).publish;
    assert_eq!((told.ready, told.endpoints.as_str()), (true, present.as_str()));
    let waits = condition(&story, c::MACHINES_UP_TO_DATE);
    assert!(waits.message.contains("has yet to roll out"), "{waits:?}");
    use_lists(&mut story, &[urls(0..3), present.clone()]);
    let told = story.settle();
    assert_eq!(
        (told.ready, told.endpoints.as_str()),
        (true, present.as_str()),
        "until the control plane has rolled out"
    );
    assert_eq!(story.plan(), Plan::Steady);
    // A voter that is not well for a moment changes nothing.
    story.failing(3, "since a moment");
    assert_eq!(story.settle().endpoints, present);
    story.healthy(3);
    use_lists(&mut story, std::slice::from_ref(&present));
    makes_room(&mut story, 2, &present);
    joins_of_several(&mut story, 5);
    assert_eq!(replaced(&story.plan()), Some(0), "{:?}", story.plan());
    story.delete(0);
    assert_eq!(story.settle().endpoints, urls(3..6));
    use_lists(&mut story, &[present, urls(3..6)]);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL, "{:?}", story.plan());
}

#[test]
fn room_that_is_taken_away_meanwhile_harms_nobody() {
    let mut story = outdated(3, true);
    (3..5).for_each(|new| joins_of_several(&mut story, new));
    story.surges(1);
    // That was the last one that may go before the control plane has been told.
    makes_room(&mut story, 1, &urls([0, 2, 3, 4]));
}

/// The new members are there, and the control plane has been told of them, but has not rolled out.
fn told_of_three() -> Story {
    let mut story = outdated(3, true);
    (3..6).for_each(|new| joins_of_several(&mut story, new));
    (0..3).for_each(|old| story.delete(old));
    assert_eq!(story.settle().endpoints, urls(3..6));
    use_lists(&mut story, &[urls(0..3), urls(3..6)]);
    story.settle();
    story
}

#[test]
fn taking_it_back_frees_nobody_whom_api_servers_use() {
    let mut story = told_of_three();
    edit(&mut story, "3.6.16");
    story.settle();
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL, "{:?}", story.plan());
    let waits = condition(&story, c::MACHINES_UP_TO_DATE);
    assert!(waits.message.contains("has yet to roll out"), "{waits:?}");
}

#[test]
fn who_goes_never_comes_back_into_the_list() {
    let mut story = told_of_three();
    story.etcd().spec.replicas = 5;
    assert_eq!(story.settle().endpoints, urls(3..6), "the control plane has yet to roll out with these");
    edit(&mut story, "3.6.18");
    for new in 6..8 {
        story.machine(new);
        story.voter(new);
        story.publish();
    }
    let told = story.settle();
    assert_eq!((told.ready, told.endpoints), (true, urls(3..6)));
    // Before the control plane has been told, one of the new ones is not well for a moment.
    let mut story = told_of_three();
    use_lists(&mut story, &[urls(0..3)]);
    story.unknown(3);
    assert_eq!(story.settle().endpoints, urls(3..6));
}

#[test]
fn a_person_can_say_that_old_endpoints_are_not_needed() {
    let mut story = told_of_three();
    story.etcd().metadata.generation = Some(4);
    story.annotate(names::IGNORE_ENDPOINTS_IN_USE_ANNOTATION, "3");
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL, "that was another spec: {:?}", story.plan());
    story.annotate(names::IGNORE_ENDPOINTS_IN_USE_ANNOTATION, "4");
    leaves(&mut story, 1);
    assert_eq!(story.settle().endpoints_in_use, format!("{};{}", urls(0..3), urls(3..6)), "what is known stays");
    // The next rollout keeps the published endpoints nevertheless.
    leaves(&mut story, 2);
    has_left(&mut story, 0);
    edit(&mut story, "3.6.18");
    story.settle();
    joins_of_several(&mut story, 6);
    assert_eq!(replaced(&story.plan()), None, "all the new ones come first: {:?}", story.plan());
}

#[test]
fn what_cannot_roll_is_still_told_of_a_replacement() {
    let mut story = outdated(3, true);
    (0..3).for_each(|index| runs(&mut story, index, "3.5.9"));
    edit(&mut story, "3.5.33");
    story.takes_one_learner();
    assert!(condition(&story, c::MACHINES_UP_TO_DATE).message.contains("delete a Machine"));
    story.delete(0);
    joins_of_several(&mut story, 3);
    assert_eq!(story.settle().endpoints, urls(1..4));
    use_lists(&mut story, &[urls(0..3), urls(1..4)]);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL, "{:?}", story.plan());
    use_lists(&mut story, &[urls(1..4)]);
    assert!(matches!(story.plan(), Plan::Do(Step::Begin(_))), "{:?}", story.plan());
}

#[test]
fn where_most_of_the_list_has_died_the_control_plane_is_told_of_who_is_there() {
    let mut story = outdated(3, true);
    (3..5).for_each(|new| joins_of_several(&mut story, new));
    story.failing(1, "down");
    story.failing(2, "down");
    story.pass(60);
    for well in [0, 3, 4] {
        story.healthy(well);
    }
    let told = story.settle();
    assert_eq!((told.ready, told.endpoints.as_str()), (true, urls(0..5).as_str()), "endpoints do not follow health");
    let again = story.settle();
    assert_eq!((again.ready, again.endpoints), (true, told.endpoints));
}

#[test]
fn the_next_rollout_waits_while_the_control_plane_is_told_of_a_replacement() {
    let mut story = outdated(3, true);
    edit(&mut story, "3.6.16");
    story.settle();
    story.failing(1, "down");
    story.pass(60);
    story.settle();
    story.settle();
    joins_booting(&mut story, 3);
    assert!(matches!(story.plan(), Plan::Do(Step::DeleteMachine { why: WhyDeleted::Unhealthy, .. })));
    story.delete(1);
    leaves(&mut story, 1);
    story.member(3, false);
    story.healthy(3);
    story.publish();
    let told = story.settle();
    assert_eq!((told.ready, told.endpoints.as_str()), (true, urls([0, 2, 3]).as_str()));
    use_lists(&mut story, &[urls(0..3), urls([0, 2, 3])]);
    edit(&mut story, "3.6.17");
    story.settle();
    assert_eq!(story.plan(), Plan::Steady);
    use_lists(&mut story, &[urls([0, 2, 3])]);
    assert!(super::creates(&story.plan()).is_some(), "{:?}", story.plan());
}

/// A replacement boots, and is not a member yet.
fn joins_booting(story: &mut Story, index: usize) {
    assert_eq!(super::creates(&story.plan()), Some(index as u64), "{:?}", story.plan());
    story.held_back(index);
    story.admit(index);
    story.settle();
    story.bootstrap(index);
    story.address(index);
    story.settle();
}

#[test]
fn members_that_are_too_many_go_before_anybody_is_told() {
    let mut story = outdated(3, true);
    story.etcd().spec.replicas = 1;
    for old in [2, 1] {
        let plan = story.plan();
        assert!(matches!(&plan, Plan::Do(Step::DeleteMachine { why: WhyDeleted::Surplus, .. })), "{plan:?}");
        story.delete(old);
        assert_eq!(story.settle().endpoints, urls(0..3));
    }
}

#[test]
fn nobody_is_told_as_long_as_one_that_leaves_may_leave() {
    let mut story = outdated(5, true);
    (5..8).for_each(|new| joins_of_several(&mut story, new));
    story.surges(1);
    assert_eq!(replaced(&story.plan()), Some(1), "{:?}", story.plan());
    story.delete(1);
    assert_eq!(story.settle().endpoints, urls(0..5));
    has_left(&mut story, 1);
    makes_room(&mut story, 2, &urls([0, 3, 4, 5, 6, 7]));
}

#[test]
fn a_longer_list_of_before_takes_more_room() {
    let mut story = outdated(7, true);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "6");
    story.etcd().spec.replicas = 5;
    for _ in 0..2 {
        let Plan::Do(Step::DeleteMachine { name, why: WhyDeleted::Surplus }) = story.plan() else { panic!() };
        story.delete(crate::roster::number(&name).unwrap().try_into().unwrap());
    }
    story.settle();
    // The surplus members leave, and of seven endpoints four stay: one more may go.
    leaves(&mut story, 5);
    leaves(&mut story, 6);
    (7..11).for_each(|new| joins_of_several(&mut story, new));
    makes_room(&mut story, 1, &urls(0..7));
    joins_of_several(&mut story, 11);
    for old in [2, 3, 4, 0] {
        assert_eq!(replaced(&story.plan()), Some(old), "{:?}", story.plan());
        story.delete(old);
    }
    assert_eq!(story.settle().endpoints, urls(7..12));
}

#[test]
fn a_list_that_nobody_has_been_told_of_does_not_keep_another_from_being_told() {
    let mut story = told_of_three();
    use_lists(&mut story, &[urls(0..3)]);
    edit(&mut story, "3.6.18");
    story.settle();
    story.failing(3, "down");
    story.pass(60);
    story.settle();
    story.settle();
    story.delete(3);
    assert!(!story.settle().ready);
    has_left(&mut story, 3);
    story.machine(6);
    story.voter(6);
    story.publish();
    let told = story.settle();
    assert_eq!((told.ready, told.endpoints), (true, urls(4..7)));
}
