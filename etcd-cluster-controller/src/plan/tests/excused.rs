//! Stories about a quorum that is lost and comes back while a member goes on failing. Failures while there was no
//! quorum are held against no member.

use super::reason;
use super::repairing::{begins, deletes, step};
use crate::fixture::{CLUSTER_ID, Story, id, name};
use crate::observation::probe::MemberFault;
use crate::observation::{Outcome, Report};
use crate::plan::{Plan, WhyDeleted, due};
use crate::roster::{Verdict, roster};
use crate::status::transitions::transitions;
use api::conditions::reasons;
use api::etcd_cluster::Health;
use k8s_openapi::jiff::Timestamp;
use std::ops::Range;

/// All members have failed for ten minutes, because there was no quorum. Then the first two have a quorum again, and
/// the third goes on failing.
fn returning() -> Story {
    let mut story = Story::with_voters(3, 3);
    without_a_quorum(&mut story, 0..3, 600);
    story
}

/// There is no quorum for this time, in which the members `failing` fail and the member list cannot be read. Then the
/// first two answer.
fn without_a_quorum(story: &mut Story, failing: Range<usize>, seconds: i64) {
    let list = story.observation.membership.clone();
    failing.for_each(|index| story.failing(index, "no leader"));
    story.unlisted();
    story.pass(seconds);
    story.settle();
    story.observation.membership = list;
    (0..2).for_each(|index| story.healthy(index));
}

fn again(story: &Story) -> Option<u64> {
    due(&story.observation, &story.plan()).map(|again| again.as_secs())
}

fn verdict_of(story: &Story, index: usize) -> Verdict {
    roster(&story.observation).by_member(id(index)).unwrap().verdict.clone()
}

/// No member is replaced, and the message says why.
fn is_waited_for(story: &Story) {
    let plan = story.plan();
    assert_eq!(reason(&plan), reasons::WAITING_FOR_HEALTHY_MEMBERS, "{plan:?}");
    let said = &plan.hold().unwrap().message;
    let (why, until) = ("failures while there was no quorum do not count", "still fails at 1970-01-01T00:27:40Z");
    assert!(said.contains(why) && said.contains(until), "{said}");
}

#[test]
fn one_that_comes_back_later_than_the_quorum_stays() {
    let mut story = returning();
    is_waited_for(&story);
    let before = story.observation.etcd.status.clone().unwrap();
    let after = story.settle();
    assert_eq!(after.members[2].health, Health::Unhealthy, "it has been since the quorum was lost");
    assert!(transitions(&before, &after).iter().all(|told| told.reason != "MemberUnhealthy"), "nobody is told twice");
    story.pass(59);
    is_waited_for(&story);
    story.healthy(2);
    story.settle();
    assert_eq!(story.plan(), Plan::Steady);
}

/// The member that fails is replaced when a minute is over, and not before.
fn is_replaced_in_a_minute(story: &mut Story) {
    story.pass(59);
    assert_eq!(begins(&story.plan()), None);
    story.pass(1);
    assert_eq!(begins(&story.plan()), Some((name(2), 0)));
}

#[test]
fn one_that_goes_on_failing_is_replaced_in_its_time() {
    let mut story = returning();
    assert_eq!(again(&story), Some(60), "the prober has told before that it fails");
    story.pass(59);
    assert_eq!(again(&story), Some(1));
    let mut unchecked = story.clone();
    unchecked.observation.now = Timestamp::from_second(unchecked.observation.now.as_second() + 1).unwrap();
    assert_eq!(begins(&unchecked.plan()), None, "that it has failed since is not known");
    assert_eq!(again(&unchecked), Some(10), "the next check");
    story.pass(1);
    assert!(matches!(verdict_of(&story, 2), Verdict::Unhealthy { since, .. } if since.as_second() == 1_000));
    assert_eq!(begins(&step(&mut story)), Some((name(2), 0)));
}

/// By a clock that was set back, the quorum would be there since a time in the future.
#[test]
fn a_clock_that_is_set_back_excuses_nobody_for_longer() {
    let mut story = returning();
    story.observation.now = Timestamp::from_second(story.observation.now.as_second() - 7_200).unwrap();
    (0..2).for_each(|index| story.healthy(index));
    story.failing(2, "no leader");
    is_replaced_in_a_minute(&mut story);
}

#[test]
fn a_new_manager_counts_from_its_first_checks() {
    let mut story = returning();
    story.pass(30);
    story.observation.probes.clear();
    story.observation.voters_answer_since = None;
    (0..2).for_each(|index| story.healthy(index));
    story.failing(2, "no leader");
    is_replaced_in_a_minute(&mut story);
}

#[test]
fn each_time_that_the_quorum_is_lost_the_time_begins_again() {
    let mut story = returning();
    story.pass(59);
    without_a_quorum(&mut story, 0..2, 10);
    is_replaced_in_a_minute(&mut story);
}

/// A read through one of the two needs the other. As long as one of the reads succeeds, there is a quorum, even if this
/// controller's own connections to them are bad.
#[test]
fn neighbours_whose_checks_fail_now_and_then_excuse_nobody() {
    let mut story = Story::with_voters(3, 3);
    story.failing(2, "down");
    story.pass(50);
    story.failing(1, "for a moment");
    story.pass(10);
    story.healthy(1);
    assert_eq!(begins(&story.plan()), Some((name(2), 0)));
    // One fails after the other.
    let mut story = Story::with_voters(3, 3);
    story.failing(2, "down");
    story.pass(40);
    story.failing(1, "for a moment");
    story.pass(10);
    story.healthy(1);
    story.failing(0, "for a moment");
    story.pass(10);
    story.healthy(0);
    assert_eq!(begins(&story.plan()), Some((name(2), 0)));
}

/// Of an even number of voters, an unhealthy one leaves immediately, and one that no Machine carries is not counted on.
#[test]
fn beside_a_voter_that_no_machine_carries_nobody_is_blamed_either() {
    let mut story = Story::with_voters(3, 3);
    // Somebody has added it by hand.
    story.member(3, false);
    story.settle();
    story.probe_stranger(3, Outcome::MemberFault(MemberFault::Refused));
    without_a_quorum(&mut story, 0..3, 600);
    (0..2).for_each(|index| story.failing(index, "not asked yet"));
    story.probe_stranger(3, Outcome::Answered(Report::of_one_that_is_well(CLUSTER_ID, id(3))));
    assert_eq!(begins(&story.plan()), None, "nobody else has been asked since");
    (0..2).for_each(|index| story.healthy(index));
    is_replaced_in_a_minute(&mut story);
}

#[test]
fn what_was_begun_before_is_gone_on_with() {
    let mut story = Story::with_voters(3, 3);
    story.failing(2, "down");
    story.pass(60);
    assert_eq!(begins(&step(&mut story)), Some((name(2), 0)));
    story.held_back(3);
    story.admit(3);
    story.bootstrap(3);
    story.address(3);
    story.failing(3, "nothing listens there yet");
    without_a_quorum(&mut story, 0..2, 10);
    story.settle();
    assert!(!matches!(story.plan(), Plan::Do(_)), "nothing is chosen before it is known how it is: {:?}", story.plan());
    story.pass(60);
    assert_eq!(deletes(&story.plan()), Some((name(2).as_str(), WhyDeleted::Unhealthy)));
}

#[test]
fn learners_and_members_without_a_machine_are_excused_too() {
    let mut story = Story::with_voters(3, 3);
    story.machine(3);
    story.member(3, true);
    story.healthy(3);
    story.admit(3);
    story.gone(2);
    story.publish();
    story.settle();
    story.failing(3, "down");
    story.probe_stranger(2, Outcome::MemberFault(MemberFault::Refused));
    without_a_quorum(&mut story, 0..2, 600);
    let are_unhealthy = |story: &Story| {
        let is_unhealthy = |index| matches!(verdict_of(story, index), Verdict::Unhealthy { .. });
        [2, 3].map(is_unhealthy)
    };
    story.pass(59);
    assert_eq!(are_unhealthy(&story), [false, false]);
    assert_eq!(again(&story), Some(1));
    story.pass(1);
    assert_eq!(are_unhealthy(&story), [true, true]);
}

/// No member is removed without a quorum, and the members that fail are reported.
#[test]
fn nobody_is_excused_while_there_is_no_quorum() {
    let mut story = Story::with_voters(1, 1);
    story.failing(0, "down");
    story.unlisted();
    story.pass(60);
    assert!(matches!(verdict_of(&story, 0), Verdict::Unhealthy { .. }));
    let mut story = Story::with_voters(3, 3);
    (1..3).for_each(|index| story.failing(index, "down"));
    let without_leader =
        Report { linearizable: Err(MemberFault::NoLeader), ..Report::of_one_that_is_well(CLUSTER_ID, id(0)) };
    story.probe(0, Outcome::Answered(without_leader));
    story.unlisted();
    story.pass(60);
    assert!((1..3).all(|index| matches!(verdict_of(&story, index), Verdict::Unhealthy { .. })));
    assert_eq!(begins(&story.plan()), None);
}
