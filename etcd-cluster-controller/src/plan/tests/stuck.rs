//! Machines that do not become voters, as stories.

use super::marked::{told, waits};
use super::repairing::deletes;
use super::{admits, creates, reason};
use crate::fixture::{Story, name};
use crate::observation::{Membership, Template};
use crate::plan::{Plan, Step, WhyDeleted, due};
use api::conditions::{PAUSED, reasons};
use api::etcd_cluster::RemediationMode;
use api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use std::ops::Range;

/// Two of three vote, and the third Machine boots.
fn booting() -> Story {
    beside(3, 2, 2..3)
}

/// This many members vote, and these Machines boot beside them.
fn beside(replicas: i32, voters: usize, machines: Range<usize>) -> Story {
    let mut story = Story::with_voters(replicas, voters);
    for index in machines {
        story.machine(index);
        story.admit(index);
    }
    story.publish();
    story
}

fn is_replaced(story: &Story, index: usize) {
    assert_eq!(deletes(&story.plan()), Some((name(index).as_str(), WhyDeleted::Stuck)), "{:?}", story.plan());
}

/// The Machine is only reported, and the message says when it is replaced.
fn is_reported(story: &Story, as_: &str) {
    let plan = story.plan();
    assert_eq!(reason(&plan), as_);
    assert!(plan.hold().unwrap().message.contains("the Machine is replaced at "), "{plan:?}");
}

fn again(story: &Story) -> Option<u64> {
    due(&story.observation, &story.plan()).map(|again| again.as_secs())
}

#[test]
fn one_that_does_not_become_a_member_is_reported_and_then_replaced() {
    let mut story = booting();
    story.pass(600);
    is_reported(&story, reasons::MACHINE_NOT_BOOTING);
    assert_eq!(again(&story), Some(600), "nothing else would tell");
    story.pass(599);
    is_reported(&story, reasons::MACHINE_NOT_BOOTING);
    story.pass(1);
    is_replaced(&story, 2);
    story.delete(2);
    let plan = story.plan();
    assert!(matches!(plan, Plan::Do(Step::NoteRelease { .. })), "etcd survives it if that one comes now: {plan:?}");
    story.gone(2);
    assert!(creates(&story.plan()).is_some(), "{:?}", story.plan());
}

#[test]
fn each_further_one_has_longer_up_to_an_hour() {
    for (number, graces) in [(2, 2), (3, 3), (5, 5), (6, 6), (40, 6)] {
        let mut story = beside(3, 2, number..number + 1);
        story.pass(graces * 600 - 1);
        is_reported(&story, reasons::MACHINE_NOT_BOOTING);
        story.pass(1);
        is_replaced(&story, number);
    }
}

#[test]
fn a_learner_that_fails_is_replaced_and_one_that_answers_has_longer() {
    let mut story = booting();
    story.member(2, true);
    story.failing(2, "down");
    story.pass(1_199);
    story.settle();
    is_reported(&story, reasons::WAITING_FOR_PROMOTION);
    story.pass(1);
    is_replaced(&story, 2);
    story.healthy(2);
    is_reported(&story, reasons::WAITING_FOR_PROMOTION);
    story.pass(3_599);
    is_reported(&story, reasons::WAITING_FOR_PROMOTION);
    story.pass(1);
    is_replaced(&story, 2);
    story.member(2, false);
    story.healthy(2);
    assert_eq!(deletes(&story.plan()), None, "it votes");
}

#[test]
fn a_learner_that_answers_off_and_on_is_replaced_too() {
    let mut story = booting();
    story.member(2, true);
    story.healthy(2);
    for _ in 0..4 {
        story.settle();
        story.pass(1_700);
        is_reported(&story, reasons::WAITING_FOR_PROMOTION);
        story.failing(2, "restarts");
        story.pass(10);
        story.healthy(2);
    }
    story.pass(360);
    is_replaced(&story, 2);
}

/// The last Machine becomes a learner that always answers, and is replaced when its whole time is over.
fn learns_for_six_graces(mut story: Story) {
    story.member(2, true);
    story.healthy(2);
    story.pass(3_599);
    is_reported(&story, reasons::WAITING_FOR_PROMOTION);
    story.pass(1);
    is_replaced(&story, 2);
}

/// A voter was away for long, so nobody could join. The learner that then comes may be receiving a large database.
#[test]
fn a_learner_that_had_to_wait_for_the_voters_has_as_long_as_another() {
    let mut story = booting();
    story.failing(1, "away");
    story.pass(13 * 600);
    story.healthy(1);
    learns_for_six_graces(story);
}

/// The machine was provisioned long after it had its data.
#[test]
fn a_learner_on_a_machine_that_came_late_has_as_long_as_another() {
    let mut story = booting();
    story.pass(11 * 600);
    story.observation.machines.get_mut(&name(2)).unwrap().infrastructure_ready_since = Some(story.observation.now);
    learns_for_six_graces(story);
}

/// The API server gives the times of Secrets, and the manager's clock is two hours ahead of it.
#[test]
fn a_machine_has_its_grace_although_the_api_servers_clock_is_behind() {
    let mut story = booting();
    let behind = SignedDuration::from_hours(2);
    *story.observation.bootstrapped.get_mut(&name(2)).unwrap() -= behind;
    let machine = story.observation.machines.get_mut(&name(2)).unwrap();
    machine.created.as_mut().unwrap().0 -= behind;
    story.pass(599);
    assert_eq!(deletes(&story.plan()), None);
    assert!(story.observation.is_in_grace(&story.observation.machines[&name(2)]), "it was admitted a moment ago");
    story.pass(601);
    is_replaced(&story, 2);
}

/// The init Secret was lost, and with it the times of the admissions.
#[test]
fn a_machine_whose_admission_is_not_recorded_keeps_its_time() {
    let mut story = booting();
    let had_data = story.observation.bootstrapped[&name(2)];
    story.pass(500);
    story.observation.admitted = None;
    let plan = story.plan();
    let Plan::Do(Step::PublishInit { admitted, .. }) = &plan else { panic!("{plan:?}") };
    let uid = &story.observation.machines[&name(2)].uid;
    assert_eq!(api::admission::decode(admitted).get(uid.as_str()), Some(&had_data), "{admitted}");
}

/// Somebody has removed a member.
fn is_removed(story: &mut Story, index: usize) {
    story.unlist(index);
    story.failing(index, "removed");
    story.publish();
    story.settle();
}

/// By its condition, the pause of the EtcdCluster has ended this long after the present.
fn unpaused_in(story: &mut Story, time: SignedDuration) {
    let at = Time(story.observation.now + time);
    let conditions = &mut story.etcd().status.as_mut().unwrap().conditions;
    conditions.iter_mut().find(|condition| condition.type_ == PAUSED).unwrap().last_transition_time = at;
}

/// The first Machine is deleted and kept, because it may still join. The second one holds back the Machine that is made
/// in its place, and does not wait for it.
fn are_both_replaced(story: &mut Story) {
    is_replaced(story, 1);
    story.delete(1);
    story.unlist(1);
    story.publish();
    story.settle();
    assert!(creates(&story.plan()).is_some(), "{:?}", story.plan());
    story.held_back(3);
    story.settle();
    story.pass(600);
    is_replaced(story, 2);
    story.delete(2);
    story.unlist(2);
    story.settle();
    let plan = story.plan();
    assert!(creates(&plan).is_some() || admits(&plan) == Some(name(3).as_str()), "{plan:?}");
    story.held_back(4);
    assert_eq!(admits(&story.plan()), Some(name(3).as_str()), "{:?}", story.plan());
}

#[test]
fn of_two_that_never_start_the_second_does_not_wait_for_the_one_that_it_holds_back() {
    let mut story = beside(3, 1, 1..3);
    for index in [1, 2] {
        story.member(index, true);
        story.failing(index, "connection refused");
        story.unstarted(index);
    }
    story.settle();
    story.pass(1200);
    are_both_replaced(&mut story);

    let mut story = Story::with_voters(3, 3);
    for index in [1, 2] {
        story.pass(300);
        is_removed(&mut story, index);
    }
    story.pass(300);
    are_both_replaced(&mut story);
}

#[test]
fn one_whose_member_somebody_has_removed_is_replaced() {
    let mut story = Story::with_voters(3, 3);
    is_removed(&mut story, 2);
    is_reported(&story, reasons::MEMBER_MISSING);
    story.pass(600);
    is_replaced(&story, 2);
}

/// The check at the start keeps voters, whose data may be right. Here is none.
#[test]
fn one_without_a_voter_is_replaced_although_members_check_their_data_at_the_start() {
    let mut story = booting();
    story.with_flag("feature-gates", "InitialCorruptCheck=true");
    // All Machines were made with it.
    story.observation.configs.clear();
    story.pass(1_200);
    is_replaced(&story, 2);
}

/// A clock that is set back by a moment does not take away the time that a Machine has after a pause.
#[test]
fn a_time_that_is_to_come_soon_counts() {
    let mut story = booting();
    story.settle();
    story.pass(2000);
    unpaused_in(&mut story, SignedDuration::from_secs(5));
    assert_eq!(deletes(&story.plan()), None, "{:?}", story.plan());
}

#[test]
fn times_of_a_clock_that_was_ahead_hold_nobody_up() {
    let year = SignedDuration::from_hours(365 * 24);
    let mut story = booting();
    story.settle();
    unpaused_in(&mut story, year);
    story.pass(1200);
    is_replaced(&story, 2);
    let mut story = Story::with_voters(3, 3);
    is_removed(&mut story, 2);
    story.etcd().status.as_mut().unwrap().removed_members[0].since.0 += year;
    story.pass(600);
    is_replaced(&story, 2);
    let mut story = booting();
    *story.observation.bootstrapped.get_mut(&name(2)).unwrap() += year;
    let machine = story.observation.machines.get_mut(&name(2)).unwrap();
    machine.infrastructure_ready_since = Some(story.observation.now + year);
    story.pass(1200);
    is_replaced(&story, 2);
}

#[test]
fn nobody_is_replaced_where_that_is_not_wanted_or_would_not_help() {
    type Change = fn(&mut Story);
    let changes: [(&str, Change); 5] = [
        ("spec.remediation.mode", |story| story.etcd().spec.remediation.mode = RemediationMode::Report),
        ("it is paused", |story| {
            let machine = story.observation.machines.get_mut(&name(2)).unwrap();
            machine.annotations.insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
        }),
        ("the infrastructure template", |story| story.observation.template = Template::NotFound("gone".to_owned())),
        ("no other machine would boot", |story| story.cluster().infrastructure_ready = false),
        ("the member list", Story::unlisted),
    ];
    for (why, change) in changes {
        let mut story = booting();
        story.pass(1_200);
        change(&mut story);
        assert_eq!(deletes(&story.plan()), None, "{why}");
        assert!(told(&story).message.contains(why), "{why}: {:?}", told(&story));
        waits(&story, why);
    }
}

#[test]
fn one_whose_infrastructure_is_still_being_made_has_all_the_time() {
    let mut story = booting();
    let machine = story.observation.machines.get_mut(&name(2)).unwrap();
    (machine.infrastructure_ready, machine.addresses) = (false, Vec::new());
    story.pass(3_000);
    is_reported(&story, reasons::MACHINE_NOT_BOOTING);
    let now = story.observation.now;
    let machine = story.observation.machines.get_mut(&name(2)).unwrap();
    (machine.infrastructure_ready, machine.infrastructure_ready_since) = (true, Some(now));
    machine.addresses = vec![("InternalIP".to_owned(), crate::fixture::address(2))];
    story.pass(1_199);
    is_reported(&story, reasons::MACHINE_NOT_BOOTING);
    story.pass(1);
    is_replaced(&story, 2);
}

#[test]
fn the_time_of_a_pause_does_not_count() {
    let mut story = booting();
    story.settle();
    story.cluster().paused_by = Some("spec.paused".to_owned());
    story.pass(5_000);
    story.settle();
    story.cluster().paused_by = None;
    assert_eq!(deletes(&story.plan()), None, "the status still says that it is paused");
    story.settle();
    assert_eq!(deletes(&story.plan()), None);
    story.pass(1_199);
    assert_eq!(deletes(&story.plan()), None);
    story.pass(1);
    is_replaced(&story, 2);
}

/// etcd accepts no new member while a voter is away. A Machine that waits for that is not stuck, and has its full time
/// again afterwards.
#[test]
fn the_time_counts_only_while_every_voter_is_well() {
    let mut story = booting();
    let list = story.observation.membership.clone();
    story.failing(1, "down");
    story.unlisted();
    story.pass(5_000);
    story.observation.membership = list;
    story.healthy(1);
    assert_eq!(deletes(&story.plan()), None, "it could not join before");
    story.pass(1_199);
    assert_eq!(deletes(&story.plan()), None);
    story.pass(1);
    is_replaced(&story, 2);
    // A failed voter is being replaced, and a person looks into its Machine.
    let mut story = Story::with_voters(5, 5);
    story.failing(1, "down");
    story.pass(60);
    story.settle();
    let machine = story.observation.machines.get_mut(&name(1)).unwrap();
    machine.annotations.insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
    story.machine(5);
    story.admit(5);
    story.pass(10_000);
    assert_eq!(deletes(&story.plan()), None, "its replacement waits for the voter that is down");
    // A voter whose Machine is gone.
    let mut story = Story::with_voters(3, 3);
    story.machine(3);
    story.admit(3);
    story.gone(1);
    story.pass(10_000);
    assert_eq!(deletes(&story.plan()), None, "nothing would be made in its place");
}

#[test]
fn one_that_may_be_a_member_or_waits_for_its_turn_is_not_stuck() {
    let mut story = beside(3, 1, 1..3);
    story.member(1, true);
    story.healthy(1);
    story.pass(3_000);
    assert_eq!(deletes(&story.plan()), None, "another one learns");
    // Members that were taken over are named after their hosts, and the Machine of one shows no address.
    let mut story = Story::with_voters(3, 3);
    story.etcd().status.as_mut().unwrap().members.clear();
    if let Membership::Known { members, .. } = &mut story.observation.membership {
        members.values_mut().for_each(|member| member.name = format!("host of {}", member.name));
    }
    story.observation.machines.get_mut(&name(1)).unwrap().addresses.clear();
    story.unknown(1);
    story.pass(10_000);
    assert_eq!(deletes(&story.plan()), None, "one of the members may be its own");
    // There is no room, and the Machine would be kept because it may still join.
    let mut story = beside(3, 1, 1..3);
    story.surges(0);
    story.pass(10_000);
    assert_eq!(deletes(&story.plan()), None, "no other would be made");
}

#[test]
fn a_mark_takes_no_time_away_and_gives_none() {
    let mut story = booting();
    story.member(2, true);
    story.healthy(2);
    story.mark(2);
    story.pass(3_599);
    waits(&story, "it may become a voter yet");
    story.pass(1);
    is_replaced(&story, 2);
}

#[test]
fn one_goes_after_the_other() {
    let mut story = beside(5, 3, 3..5);
    story.pass(1_800);
    is_replaced(&story, 3);
    story.delete_at_once(3);
    waits(&story, "another Machine that was let go is not gone yet");
    story.gone(3);
    is_replaced(&story, 4);
}

#[test]
fn nobody_is_replaced_before_etcd_has_begun() {
    let mut story = Story::new(3);
    story.machine(0);
    story.held_back(1);
    story.pass(10_000);
    assert_eq!(deletes(&story.plan()), None, "another one would initialize etcd");
    assert_eq!(reason(&story.plan()), reasons::MACHINE_NOT_BOOTING);
}

#[test]
fn one_that_is_passed_by_goes_when_its_time_is_over_and_others_join_meanwhile() {
    let mut story = Story::with_voters(3, 1);
    story.held_back(1);
    story.held_back(2);
    story.pass(10_000);
    story.admit(1);
    story.address(1);
    story.pass(600);
    assert_eq!(admits(&story.plan()), Some(name(2).as_str()));
    story.admit(2);
    story.address(2);
    story.bootstrap(2);
    story.pass(600);
    is_replaced(&story, 1);
    story.delete(1);
    // It may still join, and would then take the quorum of the only voter with it. So it is kept, and nothing waits for
    // it.
    assert!(!matches!(story.plan(), Plan::Do(Step::ReleaseHook { .. })), "{:?}", story.plan());
}
