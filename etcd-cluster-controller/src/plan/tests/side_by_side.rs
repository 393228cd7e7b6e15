//! How many Machines are on their way at a time.

use super::*;

/// One voter of five members that are wanted, and four Machines that are held back.
fn one_of_five() -> Story {
    let mut story = Story::with_voters(5, 1);
    (1..5).for_each(|index| story.held_back(index));
    story.settle();
    story
}

/// All that are admitted now, one reconcile after the other.
fn admit_all(story: &mut Story) -> Vec<usize> {
    let mut all = Vec::new();
    while let Some(admitted) = (1..7).find(|index| admits(&story.plan()) == Some(name(*index).as_str())) {
        story.admit(admitted);
        story.settle();
        all.push(admitted);
    }
    all
}

fn becomes_a_voter(story: &mut Story, index: usize) {
    story.bootstrap(index);
    story.address(index);
    story.voter(index);
    story.publish();
    story.settle();
}

/// Voters, and Machines that are held back.
fn grows(voters: usize, wanted: i32) -> Story {
    let mut story = Story::with_voters(wanted, voters);
    (voters..usize::try_from(wanted).unwrap()).for_each(|index| story.held_back(index));
    story.settle();
    story
}

#[test]
fn one_grows_to_three_side_by_side() {
    let mut story = grows(1, 3);
    assert_eq!(admit_all(&mut story), [1, 2], "nobody waits for another one's machine");
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MACHINE_ADDRESS);
}

/// What is wrong with one new member may be wrong with all.
#[test]
fn no_more_than_the_voters_of_now_can_do_without() {
    let mut story = grows(3, 7);
    assert_eq!(admit_all(&mut story), [3, 4], "three are not a quorum of six");
    becomes_a_voter(&mut story, 3);
    assert_eq!(admit_all(&mut story), [5, 6], "four are one of seven");
    let mut story = grows(5, 7);
    assert_eq!(admit_all(&mut story), [5, 6]);
    becomes_a_voter(&mut story, 5);
    assert_eq!(admit_all(&mut story), [0; 0], "all are on their way");
}

/// A single voter is not a quorum of two either.
#[test]
fn beside_a_single_voter_two_come_and_no_more() {
    assert_eq!(admit_all(&mut one_of_five()), [1, 2]);
}

#[test]
fn no_more_than_learners_may_catch_up() {
    assert_eq!(admit_all(&mut grows(4, 7)), [4, 5, 6]);
    let limited = |limit: &str| {
        let mut story = grows(4, 7);
        story.takes_learners(limit);
        admit_all(&mut story)
    };
    assert_eq!(limited("2"), [4, 5]);
    assert_eq!(limited("1"), [4]);
}

/// Nothing keeps a late Machine from joining later.
#[test]
fn one_that_is_late_counts_among_those_that_may_come() {
    let mut story = grows(3, 7);
    story.admit(3);
    story.pass(i64::from(story.observation.etcd.spec.health_check.startup_grace_seconds) + 1);
    assert_eq!(admit_all(&mut story), [4], "three would not be a quorum of six");
}

/// The others have to be a quorum without the voter that leaves.
#[test]
fn one_beside_a_voter_that_leaves() {
    let mut story = grows(3, 5);
    story.delete(2);
    assert_eq!(admit_all(&mut story), [3]);
}

#[test]
fn one_where_somebody_has_changed_the_record() {
    let mut story = grows(3, 5);
    story.observation.learner_limits.insert(name(0), "1".to_owned());
    assert!(matches!(story.plan(), Plan::Do(Step::Record { .. })), "{:?}", story.plan());
    story.annotate(names::MAX_LEARNERS_ANNOTATION, "1");
    for index in 3..5 {
        assert!(matches!(story.plan(), Plan::Do(Step::DeleteHeldBack { .. })), "{:?}", story.plan());
        story.observation.learner_limits.insert(name(index), "1".to_owned());
    }
    assert_eq!(admit_all(&mut story), [3]);
}

#[test]
fn one_where_the_limit_is_not_known() {
    let mut story = grows(3, 5);
    story.takes_learners("many");
    assert_eq!(admit_all(&mut story), [3]);
}

/// That Machine has etcd's default, and its member would not accept a second learner that the others have.
#[test]
fn one_beside_a_machine_that_was_made_without_a_limit() {
    let mut story = grows(3, 5);
    story.observation.learner_limits.remove(&name(1));
    let mut gone = story.clone();
    assert_eq!(admit_all(&mut story), [3]);
    gone.observation.configs.remove(&name(1));
    assert_eq!(admit_all(&mut gone), [3], "its config is gone, and says nothing any more");
}

/// A Machine with such a config cannot have booted yet.
#[test]
fn a_config_that_no_watch_shows_yet_slows_nobody_down() {
    let mut story = grows(1, 3);
    for index in 1..3 {
        story.observation.configs.remove(&name(index));
        story.observation.learner_limits.remove(&name(index));
    }
    assert_eq!(admit_all(&mut story), [1, 2]);
}

/// Each learner costs the leader a snapshot.
#[test]
fn one_with_a_large_database() {
    let sized = |bytes: i64| {
        let mut story = grows(3, 5);
        story.sized(bytes);
        admit_all(&mut story)
    };
    assert_eq!(sized(100 << 20), [3, 4]);
    assert_eq!(sized((100 << 20) + 1), [3]);
}

#[test]
fn nobody_beside_a_voter_that_is_not_well() {
    let mut story = one_of_five();
    story.admit(1);
    story.failing(0, "down");
    assert_eq!(admit_all(&mut story), [0; 0]);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
}

/// What keeps this learner from catching up may keep others from it too.
#[test]
fn nobody_beside_a_learner_that_is_late() {
    let mut story = one_of_five();
    story.admit(1);
    story.bootstrap(1);
    story.address(1);
    story.member(1, true);
    story.pass(i64::from(story.observation.etcd.spec.health_check.startup_grace_seconds) + 1);
    assert_eq!(admit_all(&mut story), [0; 0]);
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Wait(hold) if hold.message.contains("No other is added")), "{plan:?}");
}

#[test]
fn nobody_beside_a_member_that_somebody_removed() {
    let mut story = Story::with_voters(5, 2);
    story.publish();
    story.settle();
    (2..5).for_each(|index| story.held_back(index));
    story.unlist(1);
    story.publish();
    story.settle();
    assert_eq!(admit_all(&mut story), [0; 0]);
    assert_eq!(reason(&story.plan()), reasons::MEMBER_MISSING);
}

/// Until the replacement has joined, the cluster survives one failure fewer.
#[test]
fn a_replacement_comes_alone() {
    let mut story = Story::with_voters(3, 3);
    story.settle();
    story.failing(1, "down");
    story.pass(61);
    assert!(matches!(story.plan(), Plan::Do(Step::BeginRemediation(_))), "{:?}", story.plan());
    let Plan::Do(Step::BeginRemediation(last)) = story.plan() else { unreachable!() };
    story.settle();
    story.etcd().status.as_mut().unwrap().last_remediation = Some(last);
    story.etcd().spec.replicas = 5;
    (3..6).for_each(|index| story.held_back(index));
    assert_eq!(admit_all(&mut story), [3]);
}
