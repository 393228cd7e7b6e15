//! Removals that are called off, because it is not known that etcd has carried them out, or because etcd does so later.

use super::{begins, joins, message, reason, removed, removes, step};
use crate::fixture::{Story, id, name};
use crate::plan::{Plan, Step, called_off, is_fenced};
use crate::status::transitions::transitions;
use api::conditions::{self as c, reasons};
use api::etcd_cluster::{OperationKind, RemovalState, RemovedMember};

/// One of three is dead, its Machine is deleted, and its removal is written down.
fn removing() -> Story {
    let mut story = Story::with_voters(3, 3);
    story.failing(2, "down");
    story.pass(60);
    story.delete(2);
    assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(2)));
    assert_eq!(removes(&story.plan()), Some(id(2)));
    story
}

/// The only record of a removal.
fn record(story: &Story) -> &RemovedMember {
    match story.observation.etcd.status.as_ref().unwrap().removed_members.as_slice() {
        [record] => record,
        other => panic!("{other:?}"),
    }
}

fn releases(plan: &Plan, machine: &str) -> bool {
    matches!(plan, Plan::Do(Step::ReleaseHook { machine: released, .. }) if released == machine)
}

/// etcd had removed the member immediately, and then its leader was busy with the end of that connection. For ten
/// seconds etcd answered no one, and the known list was the earlier one.
#[test]
fn a_removal_without_an_answer_is_not_called_off_by_the_list_of_before() {
    let mut story = removing();
    story.failing(1, "no answer");
    let planned = story.plan();
    assert_eq!(planned, Plan::Do(Step::Finish(None)), "without it, nobody would be sure that there is a quorum");
    assert!(is_fenced(&planned), "that list may be from before the call");
    let mut silent = story.clone();
    silent.unlisted();
    let live = silent.plan();
    assert_eq!(reason(&live), reasons::MEMBERSHIP_UNKNOWN);
    assert_eq!(called_off(&planned, &live), None, "it stands");
    silent.settle();
    assert!(silent.observation.etcd.status.as_ref().unwrap().operation.is_some());
    removed(&mut story, id(2));
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(Some(RemovalState::Removed))));
    story.healthy(1);
    let plan = step(&mut story);
    assert!(releases(&plan, &name(2)), "{plan:?}");
}

/// etcd may commit a proposal long after the caller has stopped waiting for it, and even after a linearizable list that
/// still had the member. Or a manager was stopped right before its call.
#[test]
fn a_removal_that_was_called_off_is_ours_whenever_etcd_carries_it_out() {
    let mut story = removing();
    story.failing(1, "for a moment");
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(None)));
    assert_eq!(story.observation.etcd.status.as_ref().unwrap().operation, None, "other work goes on");
    assert_eq!(record(&story).state, RemovalState::Removing);
    story.pass(10);
    step(&mut story);
    assert_eq!(record(&story).state, RemovalState::Removing, "for as long as it is there");
    removed(&mut story, id(2));
    story.healthy(1);
    story.publish();
    let before = story.observation.etcd.status.clone().unwrap();
    let after = story.settle();
    assert_eq!((record(&story).state, record(&story).never_started), (RemovalState::Removed, false));
    let told = transitions(&before, &after);
    assert!(told.iter().any(|told| told.reason == "MemberRemoved"), "{told:?}");
    assert!(told.iter().all(|told| told.reason != reasons::MEMBER_MISSING), "{told:?}");
    let plan = step(&mut story);
    assert!(releases(&plan, &name(2)), "it waits for nothing more: {plan:?}");
}

/// The member comes back, and stays until its replacement votes, like every other member whose Machine is deleted.
#[test]
fn a_removal_that_was_called_off_holds_nothing_up_and_is_begun_again() {
    let mut story = removing();
    story.healthy(2);
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(None)), "three survive a failure, and two do not");
    assert!(matches!(step(&mut story), Plan::Do(Step::CreateMachine { number: 3, .. })));
    joins(&mut story, 3);
    assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(2)));
    assert_eq!(record(&story).state, RemovalState::Removing);
    assert_eq!(removes(&step(&mut story)), Some(id(2)));
    removed(&mut story, id(2));
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(Some(RemovalState::Removed))));
    let plan = step(&mut story);
    assert!(releases(&plan, &name(2)), "{plan:?}");
}

/// A manager that finds the record without the operation goes on with it like the manager that wrote it. If a restore
/// has lost the status too, nothing is known of the Machine: it is kept for as long as it may join.
#[test]
fn whoever_comes_later_finds_the_record_of_a_removal_or_waits() {
    let mut story = removing();
    story.failing(1, "for a moment");
    step(&mut story);
    story.healthy(1);
    removed(&mut story, id(2));
    story.publish();
    let mut restored = story.clone();
    restored.etcd().status = None;
    let status = restored.settle();
    assert!(status.removed_members.is_empty(), "nobody is blamed: {status:?}");
    let plan = restored.plan();
    assert!(!matches!(plan, Plan::Do(Step::NoteRelease { .. } | Step::ReleaseHook { .. })), "{plan:?}");
    assert!(message(&restored, c::MACHINES_DELETING).contains("may still become a member"));
    step(&mut story);
    let plan = step(&mut story);
    assert!(releases(&plan, &name(2)), "{plan:?}");
}

/// A machine that has not started its etcd may add its member once more. In a cluster of one, the quorum would then go
/// with that machine. So its Machine stays, whether the record of the removal already says how it ended or not.
#[test]
fn one_that_may_join_again_is_not_let_go_by_the_record_of_a_removal() {
    let mut story = Story::with_voters(1, 1);
    story.machine(1);
    story.member(1, true);
    story.unstarted(1);
    story.pass(601);
    story.settle();
    story.delete(1);
    let plan = step(&mut story);
    assert!(begins(&plan, OperationKind::RemoveMember, id(1)), "{plan:?}");
    story.failing(0, "for a moment");
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(None)));
    story.healthy(0);
    removed(&mut story, id(1));
    for state in [RemovalState::Removing, RemovalState::Removed] {
        assert_eq!((record(&story).state, record(&story).never_started), (state, true));
        let plan = step(&mut story);
        assert!(!matches!(plan, Plan::Do(Step::NoteRelease { .. } | Step::ReleaseHook { .. })), "{state:?}: {plan:?}");
    }
}
