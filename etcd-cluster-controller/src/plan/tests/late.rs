//! Stories about deleted Machines that have not joined within their grace. They may still join.

use super::leaving::{begins, message, step};
use crate::fixture::{Story, id, name};
use crate::observation::Membership;
use crate::plan::{Plan, Step, due, plan};
use crate::status::status;
use api::conditions as c;
use api::etcd_cluster::{OperationKind, RemovalState};

/// A deleted Machine that has not joined within its grace, beside this many voters.
fn late(voters: usize) -> Story {
    let mut story = Story::with_voters(3, voters);
    story.machine(voters);
    story.delete(voters);
    story.pass(600);
    for index in 0..voters {
        story.healthy(index);
    }
    story
}

#[test]
fn a_machine_that_has_not_joined_in_its_time_goes_where_etcd_survives_that_it_joins_all_the_same() {
    let mut unlisted = late(3);
    unlisted.unlisted();
    assert!(!matches!(unlisted.plan(), Plan::Do(Step::NoteRelease { .. } | Step::ReleaseHook { .. })));
    let mut story = late(3);
    assert_eq!(step(&mut story), Plan::Do(Step::NoteRelease { machine_uid: "uid-3".to_owned() }));
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Do(Step::ReleaseHook { machine, .. }) if *machine == name(3)), "{plan:?}");
    // It would be the second of four voters that is down.
    story.failing(0, "down");
    assert!(!matches!(story.plan(), Plan::Do(Step::ReleaseHook { .. })));
    // It delays no one: the next Machine comes in its place.
    let mut alone = late(1);
    let plan = step(&mut alone);
    assert!(matches!(&plan, Plan::Do(Step::CreateMachine { .. })), "{plan:?}");
    let said = message(&alone, c::MACHINES_DELETING);
    assert!(said.contains("take the quorum with it") && said.contains("kubectl annotate -n default"), "{said}");
    alone.machine(2);
    alone.voter(2);
    assert!(matches!(alone.plan(), Plan::Do(Step::NoteRelease { .. })), "{:?}", alone.plan());
    // Without bootstrap data, it cannot boot.
    let mut empty = late(1);
    empty.observation.bootstrapped.remove(&name(1));
    empty
        .observation
        .admitted
        .get_or_insert_default()
        .insert("uid-1".to_owned(), k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    assert!(matches!(empty.plan(), Plan::Do(Step::NoteRelease { .. })), "{:?}", empty.plan());
}

/// No event says that its grace is over.
#[test]
fn a_machine_that_goes_is_looked_at_when_its_time_ends() {
    let mut story = Story::with_voters(3, 1);
    for index in [1, 2] {
        story.machine(index);
    }
    story.delete(1);
    story.pass(590);
    story.healthy(0);
    let plan = story.plan();
    assert!(matches!(plan, Plan::Wait(_)), "{plan:?}");
    assert_eq!(due(&story.observation, &plan), Some(std::time::Duration::from_secs(10)), "{plan:?}");
}

#[test]
fn whoever_was_let_go_and_may_join_counts_as_a_voter_that_is_down() {
    let mut story = Story::with_voters(1, 2);
    story.delete(1);
    let removes = |story: &Story| matches!(story.plan(), Plan::Do(Step::Begin(_)));
    assert!(removes(&story), "{:?}", story.plan());
    story.machine(2);
    story.delete_at_once(2);
    assert!(!removes(&story), "{:?}", story.plan());
    story.settle();
    let said = message(&story, c::MACHINES_DELETING);
    assert!(said.contains("vote before they are destroyed (demo-etcd-2)"), "{said}");
    // Even if a watch still shows the hook.
    let mut noted = Story::with_voters(1, 2);
    noted.delete(1);
    noted.machine(2);
    noted.delete(2);
    assert!(removes(&noted), "{:?}", noted.plan());
    noted.etcd().status.as_mut().unwrap().released_machine_uids = vec!["uid-2".to_owned()];
    assert!(!removes(&noted), "{:?}", noted.plan());
    noted.gone(2);
    assert!(removes(&noted), "{:?}", noted.plan());
    assert!(noted.settle().released_machine_uids.is_empty(), "it is gone");
}

/// The machine is still joining, and adds its member once more.
#[test]
fn a_machine_whose_member_somebody_removed_while_it_joined_is_kept_until_it_cannot_join() {
    let mut story = Story::with_voters(3, 3);
    story.machine(3);
    story.member(3, true);
    story.settle();
    story.unlist(3);
    story.settle();
    story.delete(3);
    assert!(!matches!(story.plan(), Plan::Do(Step::ReleaseHook { .. })), "{:?}", story.plan());
    story.pass(600);
    for index in 0..3 {
        story.healthy(index);
    }
    assert!(matches!(step(&mut story), Plan::Do(Step::NoteRelease { .. })));
    assert!(matches!(story.plan(), Plan::Do(Step::ReleaseHook { .. })), "{:?}", story.plan());
}

/// The machine has no record of its member, and adds it once more. It would be the second of two voters, and is then
/// destroyed.
#[test]
fn a_machine_whose_member_left_before_it_started_may_come_again() {
    // We remove the member before it has started, or something else does. Or the machine itself removes its learner
    // that has started, because the learner has lost its data: it comes again in any case.
    for (by_us, has_started) in [(true, false), (false, false), (false, true)] {
        let mut story = Story::with_voters(3, 1);
        story.machine(1);
        story.member(1, true);
        if !has_started {
            story.unstarted(1);
        }
        story.settle();
        if by_us {
            story.delete(1);
            assert!(!begins(&step(&mut story), OperationKind::RemoveMember, id(1)), "it may start any moment");
            story.failing(1, "closed");
            story.pass(60);
            story.healthy(0);
            assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(1)), "{:?}", story.plan());
        }
        story.unlist(1);
        step(&mut story);
        let record = story.observation.etcd.status.as_ref().unwrap().removed_members[0].clone();
        assert!(record.never_started != has_started && record.state != RemovalState::Removing, "{record:?}");
        if !by_us {
            story.delete(1);
        }
        for _ in 0..2 {
            let plan = story.plan();
            let goes = matches!(plan, Plan::Do(Step::NoteRelease { .. } | Step::ReleaseHook { .. }));
            assert!(!goes, "by us: {by_us}, {plan:?}");
            story.pass(600);
            story.healthy(0);
        }
        story.machine(2);
        story.voter(2);
        assert!(matches!(step(&mut story), Plan::Do(Step::NoteRelease { .. })), "by us: {by_us}");
        assert!(matches!(story.plan(), Plan::Do(Step::ReleaseHook { .. })), "by us: {by_us}");
    }
}

/// Once its etcd has started, the machine knows that it was a member, and nothing has to wait for it.
#[test]
fn a_learner_that_was_added_just_now_leaves_when_it_has_started() {
    let mut story = Story::with_voters(3, 3);
    story.machine(3);
    story.admit(3);
    story.member(3, true);
    let rename = |story: &mut Story, name: &str| match &mut story.observation.membership {
        Membership::Known { members, .. } => members.get_mut(&id(3)).unwrap().name = name.to_owned(),
        other => panic!("{other:?}"),
    };
    rename(&mut story, "");
    story.delete(3);
    assert!(!begins(&step(&mut story), OperationKind::RemoveMember, id(3)));
    let status = story.settle();
    let told = status.conditions.iter().find(|condition| condition.type_ == c::MACHINES_DELETING).unwrap();
    assert!(told.message.contains("is removed when its etcd has started"), "{told:?}");
    let mut destroyed = story.clone();
    destroyed.delete_at_once(3);
    assert!(begins(&destroyed.plan(), OperationKind::RemoveMember, id(3)), "its machine may be gone");
    rename(&mut story, &name(3));
    assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(3)));
    assert!(matches!(step(&mut story), Plan::Do(Step::RemoveMember(_))));
    story.unlist(3);
    assert!(matches!(step(&mut story), Plan::Do(Step::Finish(_))));
    assert!(matches!(story.plan(), Plan::Do(Step::ReleaseHook { .. })), "{:?}", story.plan());
}

/// A learner that has lost its data removes itself and joins once more, perhaps just when we remove it. It would be the
/// second of two voters, and is then destroyed. Of two removals, etcd confirms one.
#[test]
fn a_learner_never_comes_again_only_where_its_removal_was_confirmed_to_us() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Ending {
        Confirmed,
        /// The answer is lost, or it says that something else has removed the member.
        Failed,
        /// This manager was killed, or the learner had left before etcd was asked.
        Unheard,
    }
    for (ending, voter) in [
        (Ending::Confirmed, false),
        (Ending::Failed, false),
        (Ending::Unheard, false),
        // A voter never removes itself.
        (Ending::Failed, true),
        (Ending::Unheard, true),
    ] {
        // Of two voters, one goes only where one is wanted.
        let mut story = Story::with_voters(if voter { 1 } else { 3 }, 1);
        story.machine(1);
        story.member(1, !voter);
        story.healthy(1);
        story.settle();
        story.delete(1);
        assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(1)), "{:?}", story.plan());
        let decision = plan(&story.observation);
        assert!(matches!(decision.next, Plan::Do(Step::RemoveMember(_))), "{decision:?}");
        let failed = (ending == Ending::Failed).then_some("removing a member: etcdserver: member not found");
        if ending != Ending::Unheard {
            story.etcd().status = Some(status(&story.observation, &decision, failed));
        }
        story.unlist(1);
        story.failing(1, "removed");
        assert_eq!(step(&mut story), Plan::Do(Step::Finish(Some(RemovalState::Removed))));
        let goes = |story: &Story| matches!(story.plan(), Plan::Do(Step::ReleaseHook { .. }));
        if voter || ending == Ending::Confirmed {
            assert!(goes(&story), "{ending:?}, voter: {voter}: {:?}", story.plan());
            continue;
        }
        for _ in 0..2 {
            let plan = story.plan();
            let goes = matches!(plan, Plan::Do(Step::NoteRelease { .. } | Step::ReleaseHook { .. }));
            assert!(!goes, "{ending:?}: {plan:?}");
            story.pass(600);
            story.healthy(0);
        }
        story.machine(2);
        story.voter(2);
        assert!(matches!(step(&mut story), Plan::Do(Step::NoteRelease { .. })), "{ending:?}");
        assert!(goes(&story), "{ending:?}: {:?}", story.plan());
    }
}

#[test]
fn one_of_several_that_were_let_go_may_be_enough_to_take_the_quorum() {
    let mut story = Story::with_voters(1, 2);
    story.delete(1);
    for late in 2..4 {
        story.machine(late);
        story.delete_at_once(late);
    }
    assert!(!matches!(story.plan(), Plan::Do(Step::Begin(_))), "{:?}", story.plan());
}

/// Its machine goes, whatever is done. Without this member, the other one is the only voter.
#[test]
fn a_voter_that_was_let_go_is_removed_beside_another_that_may_come() {
    let mut story = Story::with_voters(1, 2);
    story.delete_at_once(1);
    story.unknown(1);
    story.machine(2);
    story.delete_at_once(2);
    assert!(begins(&story.plan(), OperationKind::RemoveMember, id(1)), "{:?}", story.plan());
}

#[test]
fn a_late_machine_that_is_kept_holds_up_no_mark_of_a_voter_and_every_mark_of_another_late_one() {
    let mut only = Story::with_voters(1, 1);
    only.machine(1);
    only.delete(1);
    only.pass(600);
    only.healthy(0);
    only.mark(0);
    assert!(matches!(only.plan(), Plan::Do(Step::BeginRemediation(_))), "{:?}", only.plan());
    let mut late = Story::with_voters(3, 1);
    late.machine(1);
    late.machine(2);
    late.pass(600);
    late.healthy(0);
    late.mark(2);
    assert!(matches!(late.plan(), Plan::Do(Step::DeleteMachine { .. })), "{:?}", late.plan());
    // The first Machine is kept. While a Machine may still join and free it, the second one waits. Otherwise the second
    // one is deleted, and another is made in its place.
    late.delete(1);
    let deletes = |story: &Story| matches!(story.plan(), Plan::Do(Step::DeleteMachine { .. }));
    assert!(deletes(&late), "{:?}", late.plan());
    let mut coming = late.clone();
    coming.machine(3);
    assert!(!deletes(&coming), "{:?}", coming.plan());
    late.machine(3);
    late.machine(4);
    late.pass(600);
    late.healthy(0);
    late.delete(3);
    assert!(deletes(&late), "{:?}", late.plan());
    late.delete(4);
    assert!(!deletes(&late), "as many are kept as are wanted: {:?}", late.plan());
    // A learner that is dead is removed, and its machine has a record of it.
    let mut dead = Story::with_voters(3, 1);
    dead.machine(1);
    dead.delete(1);
    dead.machine(2);
    dead.member(2, true);
    dead.failing(2, "down");
    dead.publish();
    dead.mark(2);
    dead.pass(599);
    dead.settle();
    dead.pass(1);
    dead.healthy(0);
    let plan = dead.plan();
    assert!(matches!(&plan, Plan::Do(Step::DeleteMachine { name: gone, .. }) if *gone == name(2)), "{plan:?}");
}

#[test]
fn without_room_it_is_said_that_nobody_can_come_in_place_of_a_late_machine() {
    let mut story = Story::with_voters(3, 1);
    story.surges(0);
    for late in 1..3 {
        story.machine(late);
        story.delete(late);
    }
    story.pass(600);
    story.healthy(0);
    story.settle();
    let said = message(&story, c::MACHINES_DELETING);
    assert!(said.contains("With maxSurge 0, no other Machine is made before it is gone"), "{said}");
}
