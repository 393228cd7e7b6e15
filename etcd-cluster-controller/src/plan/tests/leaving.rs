//! Machines that somebody deletes, as stories.

mod addresses;
mod called_off;

use super::reason;
use crate::fixture::{Story, id, name};
use crate::observation::probe::OurFault;
use crate::observation::{ClusterLink, Membership, Outcome};
use crate::plan::{Plan, Step, plan};
use crate::status::status;
use api::conditions::{self as c, reasons};
use api::etcd_cluster::{Operation, OperationKind, RemovalState};
use api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Writes the status that goes with the plan, and returns the plan.
pub(super) fn step(story: &mut Story) -> Plan {
    let plan = story.plan();
    story.settle();
    plan
}

pub(super) fn begins(plan: &Plan, kind: OperationKind, member: u64) -> bool {
    matches!(plan, Plan::Do(Step::Begin(operation)) if operation.kind == kind && operation.member_id == format!("{member:x}"))
}

fn removes(plan: &Plan) -> Option<u64> {
    match plan {
        Plan::Do(Step::RemoveMember(permission)) => Some(permission.member_id()),
        _ => None,
    }
}

fn removed(story: &mut Story, member: u64) {
    if let Membership::Known { members, .. } = &mut story.observation.membership {
        members.remove(&member);
    }
}

pub(super) fn message(story: &Story, type_: &str) -> String {
    let status = story.observation.etcd.status.as_ref().unwrap();
    status.conditions.iter().find(|condition| condition.type_ == type_).unwrap().message.clone()
}

/// A new member joins, up to a healthy voter.
fn joins(story: &mut Story, index: usize) {
    story.machine(index);
    story.member(index, true);
    story.settle();
    story.voter(index);
    story.publish();
}

/// The message about a healthy member of three that are well.
const TOO_FEW_LEFT: &str = "with this member etcd survives 1 more failure, and without it etcd survives no more failure, \
                            with 2 of 2 voters healthy";

#[test]
fn a_healthy_member_goes_when_its_replacement_votes_and_only_then_its_machine() {
    let mut story = Story::with_voters(3, 3);
    story.delete(1);
    assert!(matches!(step(&mut story), Plan::Do(Step::CreateMachine { number: 3, .. })), "the replacement joins first");
    assert!(message(&story, c::MACHINES_DELETING).contains(TOO_FEW_LEFT));
    joins(&mut story, 3);
    let plan = step(&mut story);
    assert!(begins(&plan, OperationKind::RemoveMember, id(1)), "it is written down first: {plan:?}");
    let record = &story.observation.etcd.status.as_ref().unwrap().removed_members[0];
    assert_eq!((record.id.as_str(), record.machine_uid.as_str()), ("101", "uid-1"));
    assert_eq!(removes(&step(&mut story)), Some(id(1)));
    let expected = "Machine demo-etcd-1: the removal of member 101 has been in progress since 1970-01-01T00:16:40Z";
    assert_eq!(message(&story, c::MACHINES_DELETING), expected);
    removed(&mut story, id(1));
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(Some(RemovalState::Removed))));
    let plan = step(&mut story);
    assert!(matches!(&plan, Plan::Do(Step::ReleaseHook { machine, .. }) if *machine == name(1)), "{plan:?}");
    story.gone(1);
    story.publish();
    assert_eq!(step(&mut story), Plan::Steady);
    let status = story.settle();
    assert!(status.ready && status.removed_members.is_empty(), "{status:?}");
}

#[test]
fn the_leader_hands_over_first_and_to_the_newest() {
    let mut story = Story::with_voters(3, 3);
    story.delete(0);
    joins(&mut story, 3);
    assert!(begins(&step(&mut story), OperationKind::MoveLeader, id(0)));
    assert_eq!(step(&mut story), Plan::Do(Step::MoveLeader { from: id(0), to: id(3) }));
    let operation = story.etcd().status.as_mut().unwrap().operation.as_mut().unwrap();
    operation.attempt = 3;
    assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(0)), "etcd elects a leader by itself");
    assert_eq!(removes(&step(&mut story)), Some(id(0)));
}

#[test]
fn of_two_machines_at_once_one_goes_and_the_other_says_what_it_waits_for() {
    let mut story = Story::with_voters(3, 3);
    story.delete(1);
    story.delete(2);
    assert!(matches!(step(&mut story), Plan::Do(Step::CreateMachine { number: 3, .. })));
    assert!(message(&story, c::MACHINES_DELETING).contains("demo-etcd-1: "));
    assert!(message(&story, c::MACHINES_DELETING).contains("demo-etcd-2: "));
    joins(&mut story, 3);
    assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(1)));
    removed(&mut story, id(1));
    step(&mut story);
    step(&mut story);
    story.gone(1);
    story.publish();
    let plan = step(&mut story);
    assert!(matches!(plan, Plan::Do(Step::CreateMachine { number: 4, .. })), "{plan:?}");
    assert!(!begins(&story.plan(), OperationKind::RemoveMember, id(2)), "not before another has joined");
    assert!(message(&story, c::MACHINES_DELETING).contains("demo-etcd-2: "));
}

#[test]
fn an_unhealthy_member_goes_at_once_and_a_second_one_not() {
    let mut story = Story::with_voters(3, 3);
    story.failing(1, "down");
    story.pass(60);
    story.delete(1);
    assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(1)));
    let mut story = Story::with_voters(3, 3);
    for index in 1..3 {
        story.failing(index, "down");
        story.delete(index);
    }
    story.pass(60);
    story.unlisted();
    assert!(!matches!(story.plan(), Plan::Do(_)), "{:?}", story.plan());
}

#[test]
fn a_dead_only_member_is_kept_and_a_living_one_hands_its_data_over() {
    let mut story = Story::with_voters(1, 1);
    story.delete(0);
    assert!(matches!(step(&mut story), Plan::Do(Step::CreateMachine { number: 1, .. })));
    story.failing(0, "its data is gone");
    story.settle();
    story.pass(60);
    story.unlisted();
    let plan = step(&mut story);
    assert_eq!(reason(&plan), reasons::WOULD_LOSE_DATA);
    let said = message(&story, c::READY);
    assert!(said.contains(names::CONFIRM_DELETION_ANNOTATION) && said.contains("was deleted at 1970-"), "{said}");
    story.pass(86_400);
    assert_eq!(reason(&step(&mut story)), reasons::WOULD_LOSE_DATA, "no time-out takes the data");
}

#[test]
fn endpoints_in_use_stay_alive() {
    let mut story = Story::with_voters(1, 1);
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, "https://10.0.0.1:2379");
    story.delete(0);
    joins(&mut story, 1);
    assert_eq!(reason(&step(&mut story)), reasons::WAITING_FOR_SAFE_REMOVAL);
    let status = story.settle();
    assert!(status.ready && status.endpoints == "https://10.0.0.2:2379", "only the new one is published: {status:?}");
    assert!(message(&story, c::MACHINES_DELETING).contains("API servers still use its endpoint"));
    // Somebody replaces the whole object.
    story.etcd().metadata.annotations.as_mut().unwrap().remove(names::ENDPOINTS_IN_USE_ANNOTATION);
    assert_eq!(reason(&step(&mut story)), reasons::WAITING_FOR_SAFE_REMOVAL);
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, "https://10.0.0.2:2379");
    assert!(begins(&step(&mut story), OperationKind::MoveLeader, id(0)));
}

#[test]
fn a_removal_is_gone_on_with_only_as_long_as_enough_endpoints_in_use_stay_alive() {
    let mut story = Story::with_voters(3, 3);
    let url = |index: usize| names::client_url(&crate::fixture::address(index));
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &(0..3).map(url).collect::<Vec<_>>().join(","));
    story.delete(1);
    joins(&mut story, 3);
    assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(1)));
    assert_eq!(removes(&story.plan()), Some(id(1)));
    story.failing(2, "down");
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(None)), "another endpoint has died since");
    let plan = step(&mut story);
    assert!(!matches!(plan, Plan::Do(_)), "{plan:?}");
}

#[test]
fn whoever_never_was_a_member_goes_at_once() {
    let mut story = Story::with_voters(3, 1);
    story.held_back(1);
    story.delete(1);
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Do(Step::ReleaseHook { machine, .. }) if *machine == name(1)), "{plan:?}");
}

/// The machine may add itself, vote, and be destroyed a moment later. That would leave two voters, one of them dead.
#[test]
fn a_machine_that_still_boots_is_kept_until_it_has_joined_or_cannot_any_more() {
    let mut story = Story::with_voters(3, 1);
    story.machine(1);
    story.delete(1);
    let plan = step(&mut story);
    assert_eq!(reason(&plan), reasons::WAITING_FOR_SAFE_REMOVAL);
    let said = message(&story, c::MACHINES_DELETING);
    assert!(said.contains("may still become a member") && said.contains("the Machine goes as soon as etcd "), "{said}");
    // The watch does not show its bootstrap data yet.
    let mut admitted = story.clone();
    admitted.observation.bootstrapped.clear();
    admitted.admit(1);
    assert_eq!(reason(&step(&mut admitted)), reasons::WAITING_FOR_SAFE_REMOVAL);
    story.member(1, true);
    let plan = step(&mut story);
    assert!(begins(&plan, OperationKind::RemoveMember, id(1)), "a learner leaves at once: {plan:?}");
}

#[test]
fn a_machine_that_waits_for_a_cluster_says_so() {
    let mut story = Story::with_voters(3, 3);
    story.delete(1);
    let message_of_link = "Cluster demo does not name this EtcdCluster".to_owned();
    story.observation.cluster = ClusterLink::None { message: message_of_link, living: None };
    story.observation.membership = Membership::NotAsked;
    story.observation.probes.clear();
    story.settle();
    let said = message(&story, c::MACHINES_DELETING);
    let expected = "it is not released before exactly one Cluster names this EtcdCluster: Cluster demo does not name";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn two_do_not_become_one_unless_one_is_wanted() {
    let mut story = Story::with_voters(3, 2);
    story.delete(1);
    assert!(
        matches!(step(&mut story), Plan::Do(Step::CreateMachine { .. })),
        "another one joins first: {:?}",
        story.plan()
    );
    story.etcd().spec.replicas = 1;
    assert!(begins(&story.plan(), OperationKind::RemoveMember, id(1)), "{:?}", story.plan());
}

/// The infrastructure may destroy the machine at any moment. Until then, its vote counts.
#[test]
fn a_member_that_shows_up_on_a_machine_that_was_released_leaves() {
    let mut story = Story::with_voters(3, 1);
    story.machine(1);
    story.delete_at_once(1);
    story.voter(1);
    let plan = step(&mut story);
    assert!(begins(&plan, OperationKind::RemoveMember, id(1)), "{plan:?}");
}

#[test]
fn a_machine_keeps_its_hook_while_a_restarted_manager_does_not_know_how_a_removal_ended() {
    let mut story = Story::with_voters(3, 3);
    joins(&mut story, 3);
    story.delete(1);
    step(&mut story);
    story.unlisted();
    assert_eq!(reason(&story.plan()), reasons::MEMBERSHIP_UNKNOWN);
    assert!(story.plan().hold().unwrap().message.contains("the removal of member 101"));
}

#[test]
fn what_is_no_longer_safe_or_wanted_is_called_off() {
    let mut story = Story::with_voters(3, 3);
    story.etcd().status.as_mut().unwrap().operation = Some(Operation {
        kind: OperationKind::RemoveMember,
        member_id: format!("{:x}", id(1)),
        machine_uid: "uid-1".to_owned(),
        since: Time(story.observation.now),
        attempt: 0,
    });
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(None)), "its Machine is not being deleted");
    assert_eq!(story.observation.etcd.status.as_ref().unwrap().operation, None);
}

/// A member that is not known to be dead stays until its replacement votes.
#[test]
fn a_member_that_is_just_not_seen_healthy_goes_when_its_replacement_votes() {
    let doubts: [fn(&mut Story); 3] = [
        |story| story.failing(1, "for a moment"),
        |story| story.unknown(1),
        // The network is interrupted only between the member and this controller.
        |story| {
            story.failing(1, "down");
            story.pass(60);
            story.observation.heard = Some([id(1)].into());
        },
    ];
    for doubt in doubts {
        let mut story = Story::with_voters(3, 3);
        doubt(&mut story);
        story.delete(1);
        let plan = step(&mut story);
        assert!(matches!(plan, Plan::Do(Step::CreateMachine { number: 3, .. })), "{plan:?}");
        story.held_back(3);
        let plan = step(&mut story);
        assert!(matches!(plan, Plan::Do(Step::Admit { .. })), "it does not hold its own replacement up: {plan:?}");
        joins(&mut story, 3);
        let plan = step(&mut story);
        assert!(begins(&plan, OperationKind::RemoveMember, id(1)), "{plan:?}");
    }
    let mut story = Story::with_voters(1, 1);
    story.unknown(0);
    story.delete(0);
    assert!(!matches!(story.plan(), Plan::Do(_)), "nobody is known to be there to join: {:?}", story.plan());
}

#[test]
fn an_endpoint_in_use_counts_as_alive_only_if_it_was_just_seen_so() {
    let mut story = Story::with_voters(3, 3);
    let url = |index: usize| names::client_url(&crate::fixture::address(index));
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &(0..3).map(url).collect::<Vec<_>>().join(","));
    story.delete(1);
    joins(&mut story, 3);
    story.probe(2, Outcome::OurFault(OurFault::FileDescriptors));
    assert_eq!(reason(&step(&mut story)), reasons::WAITING_FOR_SAFE_REMOVAL);
    story.healthy(2);
    assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(1)));
}

#[test]
fn a_machine_whose_member_may_be_one_that_no_machine_carries_is_kept() {
    let mut story = Story::with_voters(3, 2);
    // Its addresses are gone, and the status does not know its member yet.
    story.machine(2).addresses.clear();
    story.member(2, true);
    story.unstarted(2);
    story.delete(2);
    let plan = step(&mut story);
    assert!(!matches!(plan, Plan::Do(Step::ReleaseHook { .. })), "{plan:?}");
    let said = message(&story, c::MACHINES_DELETING);
    assert!(said.contains("member 102"), "{said}");
    story.address(2);
    story.member(2, true);
    assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(2)), "a learner that has started");
}

#[test]
fn while_only_the_cluster_goes_a_machine_still_waits_for_safety() {
    let mut story = Story::with_voters(3, 3);
    story.cluster().deleting = true;
    story.delete(1);
    assert_eq!(reason(&story.plan()), reasons::DELETING, "workers and hooks may still need etcd");
    story.settle();
    assert!(message(&story, c::MACHINES_DELETING).contains(TOO_FEW_LEFT));
    // A member that may leave leaves.
    let mut dead = story.clone();
    dead.failing(1, "down");
    dead.pass(60);
    assert!(begins(&step(&mut dead), OperationKind::RemoveMember, id(1)));
    assert_eq!(removes(&step(&mut dead)), Some(id(1)));
    // With the EtcdCluster, all Machines go, once the Cluster hook has confirmed it.
    story.failing(0, "down");
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    assert!(!matches!(story.plan(), Plan::Do(_)), "its workers may need etcd still: {:?}", story.plan());
    story.annotate(names::CONFIRM_DELETION_ANNOTATION, "demo-etcd");
    let plan = story.plan();
    let Plan::Do(Step::DeleteMachines { delete, release, .. }) = &plan else { panic!("{plan:?}") };
    assert_eq!((delete, release), (&vec![name(0), name(2)], &vec![name(1)]));
}

#[test]
fn a_removal_that_fails_is_told_once_and_not_written_again_and_again() {
    let mut story = Story::with_voters(3, 3);
    story.delete(1);
    joins(&mut story, 3);
    step(&mut story);
    let mut fails = |why: &str| {
        let after = status(&story.observation, &plan(&story.observation), Some(why));
        story.etcd().status = Some(after.clone());
        after
    };
    let first = fails("removing a member: etcdserver: request timed out");
    assert_eq!(
        first,
        fails("removing a member: etcdserver: request timed out"),
        "each write would defeat the back-off"
    );
    let said = message(&story, c::MACHINES_DELETING);
    assert!(said.contains("demo-etcd-1: the removal of member 101") && said.contains("request timed out"), "{said}");
}

#[test]
fn a_member_that_is_back_under_another_id_is_not_missing() {
    let mut story = Story::with_voters(3, 3);
    removed(&mut story, id(1));
    story.publish();
    assert_eq!(story.settle().removed_members.len(), 1, "it is missing");
    // Somebody adds it again: the same Machine, another ID.
    let mut again = story.clone();
    joined_as(&mut again, 1, 0x901);
    assert!(again.settle().removed_members.is_empty());
    again.publish();
    assert_eq!(again.plan(), Plan::Steady);
    // A restore gives all members other IDs at the same time.
    let mut restored = Story::with_voters(3, 3);
    for index in 0..3 {
        removed(&mut restored, id(index));
        joined_as(&mut restored, index, 0x900 + index as u64);
    }
    assert!(restored.settle().removed_members.is_empty());
}

/// The member of a Machine, under an ID that it did not have before.
fn joined_as(story: &mut Story, index: usize, member: u64) {
    story.voter(index);
    if let Membership::Known { members, .. } = &mut story.observation.membership
        && let Some(entry) = members.remove(&id(index))
    {
        members.insert(member, entry);
    }
    if let Outcome::Answered(report) = &mut story.observation.probes.get_mut(&name(index)).unwrap().outcome {
        report.member_id = member;
    }
}

#[test]
fn whoever_else_runs_on_no_machine_is_left_to_people_with_the_command() {
    // A learner that never had a Machine of ours, and a voter that had one.
    let mut added = Story::with_voters(3, 2);
    added.member(7, true);
    let mut orphan = Story::with_voters(3, 3);
    orphan.gone(2);
    for (mut story, member) in [(added, id(7)), (orphan, id(2))] {
        story.publish();
        let plan = step(&mut story);
        let said = plan.hold().map(|hold| hold.message.clone()).unwrap_or_default();
        assert!(said.contains(&format!("etcdctl member remove {member:x}")), "{plan:?}");
    }
}

#[test]
fn a_learner_whose_machine_is_gone_does_not_stop_growth_for_ever() {
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.member(2, true);
    story.settle();
    story.gone(2);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "2");
    assert!(begins(&step(&mut story), OperationKind::RemoveMember, id(2)));
    assert_eq!(removes(&step(&mut story)), Some(id(2)));
    removed(&mut story, id(2));
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(Some(RemovalState::Removed))));
    assert!(matches!(step(&mut story), Plan::Do(Step::CreateMachine { number: 3, .. })));
}
