//! Stories about members that no Machine carries. They are reported, and removed once they have failed for long enough.
//! One of an odd number of voters waits until the next machine is up.

mod beside;

use super::leaving::{begins, message, step};
use super::{admits, creates, reason};
use crate::fixture::{CLUSTER_ID, Story, address, id, name};
use crate::observation::probe::{Alarm, MemberFault};
use crate::observation::{Outcome, Report};
use crate::plan::{Plan, Step, due};
use crate::status::transitions::transitions;
use api::conditions::{self as c, reasons};
use api::etcd_cluster::{EtcdClusterStatus, OperationKind, RemediationMode, RemovalState};
use api::names;

/// Three voters, and the Machine of the last one is gone.
fn orphaned() -> Story {
    let mut story = Story::with_voters(3, 3);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "2");
    story.gone(2);
    story.publish();
    story.settle();
    story
}

/// Three voters, and a member that somebody else has added.
fn with_stranger(learner: bool) -> Story {
    let mut story = Story::with_voters(3, 3);
    story.member(7, learner);
    story.settle();
    story
}

fn refused() -> Outcome {
    Outcome::MemberFault(MemberFault::Refused)
}

fn answers(index: usize) -> Outcome {
    Outcome::Answered(Report { leader: id(0), ..Report::of_one_that_is_well(CLUSTER_ID, id(index)) })
}

/// Of an odd number of voters, the failed one makes way: another Machine is created and admitted beside it. The failed
/// one leaves when that Machine boots.
fn makes_way(story: &mut Story, index: usize, new: usize) {
    let plan = step(story);
    assert_eq!(creates(&plan), Some(new as u64), "{plan:?}");
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, &new.to_string());
    story.held_back(new);
    let plan = step(story);
    assert_eq!(admits(&plan), Some(name(new).as_str()), "{plan:?}");
    story.admit(new);
    let plan = step(story);
    assert_eq!(reason(&plan), reasons::WAITING_FOR_MACHINE_ADDRESS, "{plan:?}");
    let said = &plan.hold().unwrap().message;
    assert!(said.contains("Its replacement has to boot or join first: ") && said.contains(&name(new)), "{said}");
    let mut stuck = story.clone();
    story.bootstrap(new);
    story.address(new);
    leaves(story, index);
    stuck.pass(600);
    leaves(&mut stuck, index);
}

/// The removal is recorded, and then done.
fn leaves(story: &mut Story, index: usize) {
    let plan = step(story);
    assert!(begins(&plan, OperationKind::RemoveMember, id(index)), "{plan:?}");
    let plan = step(story);
    assert!(matches!(&plan, Plan::Do(Step::RemoveMember(may)) if may.member_id() == id(index)), "{plan:?}");
}

fn has_left(story: &mut Story, index: usize) {
    story.unlist(index);
    assert_eq!(step(story), Plan::Do(Step::Finish(Some(RemovalState::Removed))));
    story.publish();
}

fn status(story: &Story) -> EtcdClusterStatus {
    story.observation.etcd.status.clone().unwrap()
}

/// The member is only reported, with these texts.
fn is_told(story: &mut Story, what: &[&str]) {
    let plan = step(story);
    assert_eq!(reason(&plan), reasons::WAITING_FOR_HEALTHY_MEMBERS, "{plan:?}");
    let said = plan.hold().unwrap().message.clone();
    for part in what.iter().chain(&["etcdctl member remove 10", "Nothing is added beside it"]) {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
}

#[test]
fn a_voter_whose_machine_is_gone_leaves_when_it_has_failed_for_long_enough_and_another_takes_its_place() {
    let mut story = orphaned();
    story.probe_stranger(2, refused());
    story.pass(59);
    let why = "its Machine demo-etcd-2 is gone, and its checks fail: https://10.0.0.3:2379: connection refused";
    is_told(&mut story, &[why, "removed once its checks have failed for 60 s"]);
    assert!(message(&story, c::MEMBERS_HEALTHY).contains(why));
    let before = status(&story);
    story.pass(1);
    makes_way(&mut story, 2, 3);
    let told = transitions(&before, &status(&story));
    let told = told.iter().find(|told| told.reason == "MemberUnhealthy").unwrap();
    assert!(told.note.contains(why) && told.note.contains("as soon as etcd can do without it"), "{}", told.note);
    let before = status(&story);
    has_left(&mut story, 2);
    let told = transitions(&before, &status(&story));
    let note = "member 102, which no Machine carried, has left etcd";
    assert!(told.iter().any(|told| told.reason == "MemberRemoved" && told.note == note), "{told:?}");
}

/// A watch that was late did not show the Machine when the removal was begun. The record names nobody, so it is not kept.
/// Without a new record, the member would be reported as one that somebody else has removed.
#[test]
fn the_removal_of_a_member_whose_machine_shows_up_is_recorded_anew() {
    let mut story = Story::with_voters(3, 3);
    story.machine(3);
    story.member(3, true);
    story.settle();
    let mut late = story.clone();
    late.gone(3);
    let plan = step(&mut late);
    assert!(begins(&plan, OperationKind::RemoveMember, id(3)), "{plan:?}");
    assert!(status(&late).removed_members.is_empty());
    story.etcd().status = Some(status(&late));
    story.delete(3);
    leaves(&mut story, 3);
    has_left(&mut story, 3);
    let states: Vec<_> = status(&story).removed_members.into_iter().map(|record| record.state).collect();
    assert_eq!(states, [RemovalState::Removed]);
}

/// The member comes back before anything is done to it. Then it is a voter like the others again.
#[test]
fn one_that_answers_again_before_the_next_machine_is_up_stays() {
    let mut story = orphaned();
    story.probe_stranger(2, refused());
    story.pass(60);
    assert_eq!(creates(&step(&mut story)), Some(3));
    story.held_back(3);
    story.probe_stranger(2, answers(2));
    is_told(&mut story, &["its Machine demo-etcd-2 is gone, and it answers at"]);
    // If as many voters as wanted are well without it, no other Machine has to come first.
    let mut enough = Story::with_voters(3, 5);
    enough.gone(4);
    enough.delete(3);
    enough.probe_stranger(4, refused());
    enough.pass(60);
    enough.publish();
    assert!(begins(&enough.plan(), OperationKind::RemoveMember, id(4)), "{:?}", enough.plan());
}

/// A Machine of ours whose address does not show yet cannot have had a member for that long.
#[test]
fn one_that_never_had_a_machine_makes_way_too() {
    let mut story = Story::with_voters(3, 2);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "1");
    story.member(7, false);
    story.settle();
    story.probe_stranger(7, refused());
    story.pass(660);
    let plan = step(&mut story);
    // The name of that member has the highest number.
    assert_eq!(creates(&plan), Some(8), "{plan:?}");
    story.held_back(8);
    assert_eq!(admits(&step(&mut story)), Some(name(8).as_str()));
    story.admit(8);
    assert_eq!(reason(&step(&mut story)), reasons::WAITING_FOR_MACHINE_ADDRESS);
    story.bootstrap(8);
    story.address(8);
    leaves(&mut story, 7);
}

/// The next Machine has its own grace. If none is to be created, the earlier Machine counts with one more grace.
#[test]
fn one_is_not_given_up_for_a_machine_that_was_late_before() {
    let mut story = Story::with_voters(5, 2);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "2");
    story.machine(2);
    story.pass(3_600);
    story.member(7, false);
    story.settle();
    story.probe_stranger(7, refused());
    story.pass(660);
    let mut complete = story.clone();
    assert_eq!(creates(&step(&mut story)), Some(8));
    (8..10).for_each(|index| story.held_back(index));
    story.pass(100);
    story.admit(8);
    story.pass(599);
    assert_eq!(reason(&step(&mut story)), reasons::WAITING_FOR_MACHINE_ADDRESS);
    story.pass(1);
    leaves(&mut story, 7);
    complete.etcd().spec.replicas = 3;
    assert_eq!(due(&complete.observation, &complete.plan()).map(|again| again.as_secs()), Some(600));
    complete.pass(600);
    leaves(&mut complete, 7);
}

/// A member that answers is waited for, so no Machine is created beside it. If an even number of voters is left, that
/// member goes too.
#[test]
fn one_is_given_up_in_the_end_where_no_machine_can_be_made() {
    let mut story = Story::with_voters(5, 5);
    story.machine(5);
    story.pass(3_600);
    (3..5).for_each(|index| story.gone(index));
    story.probe_stranger(3, answers(3));
    story.probe_stranger(4, refused());
    story.settle();
    story.pass(60);
    assert!(matches!(story.plan(), Plan::Wait { .. }), "{:?}", story.plan());
    assert_eq!(due(&story.observation, &story.plan()).map(|again| again.as_secs()), Some(600));
    story.pass(600);
    leaves(&mut story, 4);
    has_left(&mut story, 4);
    leaves(&mut story, 3);
}

/// Its machine may stay, and may belong to someone else by now.
#[test]
fn one_that_answers_or_that_the_others_hear_is_told_and_stays() {
    let mut story = orphaned();
    story.probe_stranger(2, answers(2));
    story.pass(86_400);
    is_told(&mut story, &["its Machine demo-etcd-2 is gone, and it answers at https://10.0.0.3:2379"]);
    assert!(message(&story, c::MEMBERS_HEALTHY).contains("it answers"));
    assert_eq!(status(&story).ready_replicas, 2, "nothing says how long it stays");
    story.probe_stranger(2, refused());
    story.observation.heard = Some([id(2)].into());
    story.pass(60);
    is_told(&mut story, &["is gone, the other members hear it, and this controller does not"]);
    story.observation.heard = None;
    is_told(&mut story, &["is gone, whether the other members hear it is not known"]);
    story.observation.heard = Some([].into());
    story.machine(3);
    assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(2)));
    // It has recovered before the removal.
    story.probe_stranger(2, answers(2));
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(None)));
    is_told(&mut story, &["it answers at"]);
}

/// With one of an even number of voters, etcd survives no more failures than without it, and its machine may be
/// destroyed at any moment.
#[test]
fn one_of_an_even_number_of_voters_leaves_at_once_also_while_it_answers() {
    let stripped = |voters: usize, gone: &[usize]| {
        let mut story = Story::with_voters(3, voters);
        for index in gone {
            story.gone(*index);
            story.probe_stranger(*index, answers(*index));
        }
        story.publish();
        story
    };
    let removes = |story: &mut Story, index: usize| {
        leaves(story, index);
        has_left(story, index);
    };
    let mut two = stripped(2, &[1]);
    two.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "1");
    let mut promoted = two.clone();
    removes(&mut two, 1);
    let plan = step(&mut two);
    assert!(matches!(plan, Plan::Do(Step::CreateMachine { number: 2, .. })), "{plan:?}");
    // The number of voters becomes odd before the removal, so its vote counts again.
    assert!(begins(&step(&mut promoted), OperationKind::RemoveMember, id(1)));
    promoted.machine(2);
    promoted.voter(2);
    assert_eq!(step(&mut promoted), Plan::Do(Step::Finish(None)));
    is_told(&mut stripped(3, &[2]), &["its Machine demo-etcd-2 is gone, and it answers at https://10.0.0.3:2379"]);
    let mut four = stripped(4, &[2, 3]);
    removes(&mut four, 2);
    is_told(&mut four, &["its Machine demo-etcd-3 is gone, and it answers at https://10.0.0.4:2379"]);
}

/// It is all that will be left: the machine of the other voter is destroyed without waiting for us.
#[test]
fn two_voters_do_not_become_one_that_is_let_go() {
    let mut story = Story::with_voters(3, 2);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "1");
    story.gone(1);
    story.probe_stranger(1, answers(1));
    story.publish();
    let mut kept = story.clone();
    let mut dead = story.clone();
    story.delete_at_once(0);
    is_told(&mut story, &["their copies of the data with them (demo-etcd-0)", "admit-beside=101"]);
    // With our hook, the other voter waits until another member has joined.
    kept.delete(0);
    assert!(begins(&kept.plan(), OperationKind::RemoveMember, id(1)), "{:?}", kept.plan());
    dead.probe_stranger(1, refused());
    dead.pass(60);
    dead.delete_at_once(0);
    assert!(begins(&dead.plan(), OperationKind::RemoveMember, id(1)), "{:?}", dead.plan());
}

#[test]
fn the_dead_go_before_those_that_answer_and_a_leader_hands_over_first() {
    let stripped = |answering: &[usize]| {
        let mut story = Story::with_voters(3, 4);
        for index in [1, 2] {
            story.gone(index);
            let outcome = if answering.contains(&index) { answers(index) } else { refused() };
            story.probe_stranger(index, outcome);
        }
        story.pass(60);
        story.publish();
        story
    };
    assert!(begins(&stripped(&[1]).plan(), OperationKind::RemoveMember, id(2)));
    assert!(begins(&stripped(&[2]).plan(), OperationKind::RemoveMember, id(1)));
    let mut leads = stripped(&[1, 2]);
    let lead = |story: &mut Story, leader: usize| {
        story.led_by(id(leader));
        for probe in story.observation.strangers.values_mut() {
            let Outcome::Answered(report) = &mut probe.outcome else { panic!("it does not answer") };
            report.leader = id(leader);
        }
    };
    lead(&mut leads, 1);
    assert!(begins(&leads.plan(), OperationKind::RemoveMember, id(2)), "{:?}", leads.plan());
    let mut only = Story::with_voters(3, 2);
    only.gone(1);
    only.probe_stranger(1, answers(1));
    only.publish();
    lead(&mut only, 1);
    assert!(begins(&step(&mut only), OperationKind::MoveLeader, id(1)));
    assert_eq!(step(&mut only), Plan::Do(Step::MoveLeader { from: id(1), to: id(0) }));
    lead(&mut only, 0);
    assert!(begins(&step(&mut only), OperationKind::RemoveMember, id(1)));
    assert!(matches!(step(&mut only), Plan::Do(Step::RemoveMember(_))));
}

/// The first member of a cluster that grows: a list in use has its endpoint, and no other one.
#[test]
fn the_last_live_endpoint_of_a_list_in_use_stays_as_long_as_it_answers() {
    let url = |index| names::client_url(&address(index));
    let mut story = Story::with_voters(3, 2);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "1");
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &url(0));
    story.gone(0);
    story.probe_stranger(0, answers(0));
    story.publish();
    // Another Machine has got the address too, but its etcd does not serve there.
    let machine = story.observation.machines.get_mut(&name(1)).unwrap();
    machine.addresses.push(("ExternalIP".to_owned(), address(0)));
    is_told(
        &mut story,
        &["of the endpoints https://10.0.0.1:2379, some API servers have no other one", "admit-beside=100"],
    );
    let mut spared = story.clone();
    spared.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &[url(0), url(1)].join(","));
    assert!(begins(&spared.plan(), OperationKind::MoveLeader, id(0)), "{:?}", spared.plan());
    story.annotate(names::IGNORE_ENDPOINTS_IN_USE_ANNOTATION, "1");
    assert!(begins(&story.plan(), OperationKind::MoveLeader, id(0)), "{:?}", story.plan());
    // A member that is down serves no API server. There are four voters, because one of two would take the quorum with
    // it.
    let mut down = Story::with_voters(3, 4);
    down.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &url(3));
    down.gone(3);
    down.publish();
    down.probe_stranger(3, answers(3));
    is_told(&mut down, &["of the endpoints https://10.0.0.4:2379, some API servers have no other one"]);
    down.probe_stranger(3, refused());
    down.pass(60);
    assert!(begins(&down.plan(), OperationKind::RemoveMember, id(3)), "{:?}", down.plan());
}

/// All Machines are gone, and their machines still run. The members cannot be removed, and no Machine can join them.
fn abandoned(answer: impl Fn(usize) -> Outcome) -> Story {
    let mut story = Story::with_voters(3, 3);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "2");
    for index in 0..3 {
        story.gone(index);
        story.probe_stranger(index, answer(index));
    }
    story
}

#[test]
fn one_of_an_even_number_of_voters_stays_where_it_may_be_the_quorum_or_have_a_machine() {
    let mut story = Story::with_voters(3, 2);
    story.gone(1);
    story.probe_stranger(1, answers(1));
    assert!(begins(&story.plan(), OperationKind::RemoveMember, id(1)));
    let mut needed = story.clone();
    needed.failing(0, "for a moment");
    assert!(!matches!(needed.plan(), Plan::Do(_)), "nobody well would be left: {:?}", needed.plan());
    story.observation.not_owned = vec![name(9)];
    assert_eq!(reason(&story.plan()), reasons::MACHINES_NOT_OWNED);
    // A member that was added after a backup: the restored objects have no Machine for it.
    let mut restored = Story::with_voters(3, 3);
    restored.member(7, false);
    restored.probe_stranger(7, answers(7));
    is_told(&mut restored, &["it runs on no Machine of this EtcdCluster, and it answers"]);
}

#[test]
fn one_at_whose_address_another_member_answers_has_failed() {
    let mut story = orphaned();
    let other = MemberFault::OtherMember { expected: id(2), answered: id(1) };
    let report = Report { identity: Err(other), ..Report::of_one_that_is_well(CLUSTER_ID, id(1)) };
    story.probe_stranger(2, Outcome::Answered(report));
    story.pass(60);
    makes_way(&mut story, 2, 3);
}

#[test]
fn one_that_never_had_a_machine_has_the_start_up_grace_too() {
    for learner in [true, false] {
        let mut story = with_stranger(learner);
        story.probe_stranger(7, refused());
        story.pass(659);
        is_told(&mut story, &["it runs on no Machine of this EtcdCluster, and its checks fail", "for 660 s"]);
        story.pass(1);
        let plan = step(&mut story);
        assert!(begins(&plan, OperationKind::RemoveMember, id(7)), "{plan:?}");
        let mut answering = with_stranger(learner);
        answering.probe_stranger(7, answers(7));
        answering.pass(86_400);
        is_told(&mut answering, &["it runs on no Machine of this EtcdCluster, and it answers"]);
    }
}

#[test]
fn where_failures_are_only_told_one_that_was_never_ours_stays() {
    let mut story = with_stranger(false);
    story.etcd().spec.remediation.mode = RemediationMode::Report;
    story.probe_stranger(7, refused());
    story.pass(10_000);
    is_told(&mut story, &["It is not removed by itself (spec.remediation.mode)"]);
    // The person who deleted the Machine has decided that its member goes.
    let mut story = orphaned();
    story.etcd().spec.remediation.mode = RemediationMode::Report;
    story.probe_stranger(2, refused());
    story.pass(60);
    makes_way(&mut story, 2, 3);
}

#[test]
fn nobody_leaves_whom_etcd_needs_or_whose_copy_may_be_the_right_one() {
    let mut story = orphaned();
    story.probe_stranger(2, refused());
    story.pass(60);
    story.failing(1, "for a moment");
    let plan = step(&mut story);
    assert!(!matches!(plan, Plan::Do(_)), "one of two would be left: {plan:?}");
    let mut story = with_stranger(false);
    story.probe_stranger(7, refused());
    story.pass(660);
    story.alarms(&[(0, "CORRUPT")]);
    is_told(&mut story, &["It is removed as soon as etcd can do without it: ", "CORRUPT"]);
}

#[test]
fn one_that_may_be_a_new_machines_own_stays() {
    let mut story = Story::with_voters(3, 2);
    story.member(7, true);
    story.settle();
    story.probe_stranger(7, refused());
    story.pass(659);
    let mut early = story.clone();
    early.machine(2).addresses.clear();
    assert_eq!(reason(&early.plan()), reasons::WAITING_FOR_MACHINE_ADDRESS);
    story.pass(1);
    assert!(begins(&story.plan(), OperationKind::RemoveMember, id(7)));
    let mut restored = story.clone();
    restored.observation.not_owned = vec![name(9)];
    assert_eq!(reason(&restored.plan()), reasons::MACHINES_NOT_OWNED);
    // The member has failed for longer than this Machine has been booting.
    story.machine(2).addresses.clear();
    assert!(begins(&story.plan(), OperationKind::RemoveMember, id(7)), "{:?}", story.plan());
}
