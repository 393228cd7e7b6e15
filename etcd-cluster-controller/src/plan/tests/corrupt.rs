//! Members with different data, as stories.

use super::leaving::{begins, message, step};
use super::marked::{told, waits};
use super::repairing::deletes;
use super::rolling::{condition, joins_of_several, outdated, replaced};
use super::{admits, creates, has_left, leaves, reason};
use crate::fixture::{CLUSTER_ID, Story, id, name};
use crate::observation::probe::{Alarm, MemberFault, OurFault};
use crate::observation::{Outcome, Report};
use crate::plan::{Plan, Step};
use api::conditions::{self as c, reasons};
use api::etcd_cluster::OperationKind;
use api::names;

/// etcd has found that a member's data differs.
fn differs(story: &mut Story, index: usize) {
    story.alarms(&[(index, "CORRUPT")]);
}

/// This controller has deleted a Machine, before there was an alarm.
fn deleted_by_us(story: &mut Story, index: usize) {
    story.delete(index);
    let machine = story.observation.machines.get_mut(&name(index)).unwrap();
    machine.annotations.insert(names::DELETED_FOR_ANNOTATION.to_owned(), "it does not match the spec".to_owned());
}

/// What a person has to know: which member the alarm names, and what ends it.
fn says_what_to_do(text: &str) {
    for part in ["alarm CORRUPT of member demo-etcd-1 (101", "hashkv", "delete the Machine", "etcdctl alarm disarm"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn nobody_joins_to_copy_the_leader() {
    let mut story = Story::with_voters(3, 2);
    differs(&mut story, 1);
    let plan = story.plan();
    assert_eq!(reason(&plan), reasons::DATA_CORRUPT, "no Machine is made: {plan:?}");
    says_what_to_do(&plan.hold().unwrap().message);
    story.held_back(2);
    story.settle();
    assert_eq!(reason(&story.plan()), reasons::DATA_CORRUPT, "none is admitted: {:?}", story.plan());
    says_what_to_do(&message(&story, c::SCALING_UP));
    story.alarms(&[(1, "NOSPACE")]);
    assert_eq!(admits(&story.plan()), Some(name(2).as_str()), "it says nothing of what is copied");
}

#[test]
fn nobody_joins_while_no_voter_reports_alarms() {
    let mut story = Story::with_voters(3, 2);
    (0..2).for_each(|index| story.probe(index, Outcome::OurFault(OurFault::FileDescriptors)));
    let plan = story.plan();
    assert_eq!(reason(&plan), reasons::HEALTH_UNKNOWN);
    let message = &plan.hold().unwrap().message;
    for part in ["demo-etcd-0: https://10.0.0.1:2379: this controller", "last answered at 1970-01-01T00:16:40Z"] {
        assert!(message.contains(part), "{part} is missing in {message}");
    }
}

#[test]
fn an_alarm_holds_if_it_names_nobody_and_not_if_it_names_one_that_has_left() {
    let mut story = Story::with_voters(3, 2);
    let mut names = |member_id| {
        for probe in story.observation.probes.values_mut() {
            let Outcome::Answered(report) = &mut probe.outcome else { panic!("it does not answer") };
            report.alarms = vec![Alarm { member_id, kind: "CORRUPT".to_owned() }];
        }
        story.plan()
    };
    assert_eq!(reason(&names(0)), reasons::DATA_CORRUPT);
    assert_eq!(creates(&names(0xdead)), Some(2));
}

/// One check of etcd names one member, and the others may differ from the leader too.
#[test]
fn a_rollout_waits_for_the_end_of_an_alarm_also_when_whom_it_names_has_left() {
    let mut story = outdated(3, false);
    for probe in story.observation.probes.values_mut() {
        let Outcome::Answered(report) = &mut probe.outcome else { panic!("it does not answer") };
        report.alarms = vec![Alarm { member_id: 0xdead, kind: "CORRUPT".to_owned() }];
    }
    assert_eq!(story.plan(), Plan::Steady);
    let message = condition(&story, c::MACHINES_UP_TO_DATE).message;
    assert!(message.contains("member dead, which is not in the member list"), "{message}");
    assert!(!message.contains("no member joins"), "{message}");
}

#[test]
fn a_rollout_stands_still() {
    let mut story = outdated(3, false);
    assert_eq!(creates(&story.plan()), Some(3));
    differs(&mut story, 1);
    assert_eq!(story.plan(), Plan::Steady, "no other Machine is made");
    let rolling = condition(&story, c::MACHINES_UP_TO_DATE);
    assert_eq!(rolling.status, "False");
    says_what_to_do(&rolling.message);
    story.alarms(&[]);
    joins_of_several(&mut story, 3);
    assert!(replaced(&story.plan()).is_some());
    differs(&mut story, 1);
    assert_eq!(story.plan(), Plan::Steady, "no old Machine is deleted");
}

#[test]
fn nobody_is_removed_as_too_many() {
    let mut story = Story::with_voters(3, 3);
    story.etcd().spec.replicas = 1;
    assert!(deletes(&story.plan()).is_some());
    differs(&mut story, 1);
    assert_eq!(story.plan(), Plan::Steady);
    says_what_to_do(&condition(&story, c::SCALING_DOWN).message);
    story.held_back(3);
    assert_eq!(deletes(&story.plan()).map(|(machine, _)| machine), Some(name(3).as_str()), "it has no copy");
}

#[test]
fn a_marked_machine_and_one_that_is_stuck_stay() {
    let mut story = Story::with_voters(3, 3);
    story.pass(60);
    story.mark(2);
    differs(&mut story, 1);
    waits(&story, "alarm CORRUPT");
    says_what_to_do(&told(&story).message);
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.admit(2);
    story.publish();
    story.pass(1_200);
    assert!(deletes(&story.plan()).is_some());
    differs(&mut story, 1);
    waits(&story, "alarm CORRUPT");
}

#[test]
fn a_voter_that_fails_keeps_its_copy() {
    let mut story = Story::with_voters(3, 3);
    story.failing(2, "down");
    story.pass(60);
    differs(&mut story, 1);
    let plan = story.plan();
    assert!(matches!(plan, Plan::Wait(_)), "it is not even written down: {plan:?}");
    says_what_to_do(&plan.hold().unwrap().message);
    story.alarms(&[]);
    assert!(matches!(step(&mut story), Plan::Do(Step::BeginRemediation(_))));
    story.held_back(3);
    differs(&mut story, 1);
    assert_eq!(reason(&story.plan()), reasons::DATA_CORRUPT, "its replacement does not join: {:?}", story.plan());
    story.alarms(&[]);
    story.admit(3);
    story.bootstrap(3);
    story.address(3);
    story.failing(3, "nothing listens there yet");
    assert!(deletes(&story.plan()).is_some());
    differs(&mut story, 1);
    assert!(deletes(&story.plan()).is_none(), "nor does the failed one go: {:?}", story.plan());
}

/// Nothing keeps the copy of a failed member whose Machine is gone. A member that never had a Machine of ours may have
/// the right copy, and so may a member that answers.
#[test]
fn one_whose_machine_is_gone_leaves_when_it_has_failed_and_one_that_never_had_one_stays() {
    let refused = || Outcome::MemberFault(MemberFault::Refused);
    let mut dead = Story::with_voters(3, 3);
    dead.gone(2);
    dead.probe_stranger(2, refused());
    dead.pass(60);
    differs(&mut dead, 1);
    assert_eq!(reason(&dead.plan()), reasons::DATA_CORRUPT, "nobody joins in its place yet: {:?}", dead.plan());
    differs(&mut dead, 2);
    assert!(begins(&dead.plan(), OperationKind::RemoveMember, id(2)), "{:?}", dead.plan());
    let mut even = Story::with_voters(3, 2);
    even.gone(1);
    let report = Report { leader: id(0), ..Report::of_one_that_is_well(CLUSTER_ID, id(1)) };
    even.probe_stranger(1, Outcome::Answered(report));
    assert!(begins(&even.plan(), OperationKind::RemoveMember, id(1)), "{:?}", even.plan());
    differs(&mut even, 1);
    let plan = even.plan();
    assert_eq!(reason(&plan), reasons::WAITING_FOR_HEALTHY_MEMBERS, "its copy may be the right one: {plan:?}");
    even.probe_stranger(1, refused());
    even.pass(60);
    assert!(begins(&even.plan(), OperationKind::RemoveMember, id(1)), "{:?}", even.plan());
    let mut strange = Story::with_voters(3, 3);
    strange.member(7, false);
    strange.settle();
    strange.probe_stranger(7, refused());
    strange.pass(660);
    assert!(begins(&strange.plan(), OperationKind::RemoveMember, id(7)), "{:?}", strange.plan());
    differs(&mut strange, 1);
    let plan = strange.plan();
    let said = &plan.hold().unwrap().message;
    assert!(said.contains("and failed members whose Machines are gone"), "{said}");
}

#[test]
fn whom_a_person_deletes_is_replaced_and_the_alarm_of_one_that_has_left_holds_nobody() {
    let mut story = Story::with_voters(3, 3);
    differs(&mut story, 1);
    story.delete(1);
    joins_of_several(&mut story, 3);
    differs(&mut story, 1);
    story.held_back(4);
    story.etcd().spec.replicas = 5;
    leaves(&mut story, 1);
    assert_eq!(admits(&story.plan()), Some(name(4).as_str()), "{:?}", story.plan());
}

#[test]
fn one_member_joins_for_one_that_a_person_deletes() {
    let mut story = Story::with_voters(5, 3);
    (3..5).for_each(|index| story.held_back(index));
    differs(&mut story, 1);
    story.delete(2);
    joins_of_several(&mut story, 3);
    differs(&mut story, 1);
    leaves(&mut story, 2);
    assert_eq!(reason(&story.plan()), reasons::DATA_CORRUPT, "{:?}", story.plan());
}

#[test]
fn without_room_the_wrong_copy_leaves_first() {
    let mut story = Story::with_voters(3, 3);
    story.surges(0);
    differs(&mut story, 1);
    story.delete(1);
    leaves(&mut story, 1);
    joins_of_several(&mut story, 3);
    assert_eq!(story.plan(), Plan::Steady);
}

#[test]
fn old_members_of_a_rollout_stay_until_a_person_has_decided() {
    let mut story = outdated(3, false);
    joins_of_several(&mut story, 3);
    deleted_by_us(&mut story, 1);
    assert!(begins(&story.plan(), OperationKind::RemoveMember, id(1)));
    story.settle();
    differs(&mut story, 1);
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(None)), "what was begun is called off");
    assert!(!matches!(step(&mut story), Plan::Do(_)), "{:?}", story.plan());
    let waits = message(&story, c::MACHINES_DELETING);
    says_what_to_do(&waits);
    let by_hand =
        "kubectl annotate -n default machines.cluster.x-k8s.io demo-etcd-1 etcdcluster.cluster.x-k8s.io/deleted-for-";
    assert!(waits.contains(by_hand), "{waits}");
    let mut disarmed = story.clone();
    disarmed.alarms(&[]);
    has_begun_to_leave(&mut disarmed, 1);
    // A person gives up just this member.
    story.observation.machines.get_mut(&name(1)).unwrap().annotations.remove(names::DELETED_FOR_ANNOTATION);
    has_begun_to_leave(&mut story, 1);
    has_left(&mut story, 1);
}

fn has_begun_to_leave(story: &mut Story, index: usize) {
    assert!(begins(&story.plan(), OperationKind::RemoveMember, id(index)), "{:?}", story.plan());
}

/// No member that stays could take over leadership: it would go in circles, and no replacement would join.
#[test]
fn where_all_are_given_up_another_one_joins() {
    let mut story = Story::with_voters(3, 3);
    (0..3).for_each(|index| story.delete(index));
    differs(&mut story, 1);
    assert_eq!(creates(&story.plan()), Some(3));
    story.held_back(3);
    assert_eq!(admits(&story.plan()), Some(name(3).as_str()), "{:?}", story.plan());
}

#[test]
fn leadership_that_does_not_leave_a_wrong_copy_is_told() {
    let mut story = Story::with_voters(3, 3);
    story.delete(0);
    story.held_back(3);
    differs(&mut story, 2);
    assert!(begins(&step(&mut story), OperationKind::MoveLeader, id(0)), "{:?}", story.plan());
    story.etcd().status.as_mut().unwrap().operation.as_mut().unwrap().attempt = 3;
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Wait(hold) if hold.message.contains("etcdctl move-leader")), "{plan:?}");
    story.led_by(id(1));
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(None)));
}

/// A rollout has a new member, and does not go on until a person has decided. The member that the person decides on
/// leaves.
#[test]
fn no_endpoint_keeps_a_wrong_copy_that_a_person_gives_up_where_enough_others_stay() {
    let mut story = outdated(3, true);
    joins_of_several(&mut story, 3);
    differs(&mut story, 0);
    story.delete(0);
    assert!(begins(&story.plan(), OperationKind::MoveLeader, id(0)), "{:?}", story.plan());
}

/// Without an answer it is not known whether there is an alarm.
#[test]
fn nobody_joins_while_no_voter_answers_that_could_tell() {
    let mut story = Story::with_voters(3, 2);
    story.held_back(2);
    for index in 0..2 {
        story.probe(index, Outcome::OurFault(crate::observation::probe::OurFault::FileDescriptors));
    }
    assert!(!matches!(story.plan(), Plan::Do(_)), "{:?}", story.plan());
}

#[test]
fn leadership_leaves_a_wrong_copy_before_anybody_copies_it() {
    let mut story = Story::with_voters(3, 3);
    story.delete(0);
    assert_eq!(creates(&story.plan()), Some(3), "otherwise the leader hands over when its replacement is there");
    story.held_back(3);
    differs(&mut story, 2);
    assert!(begins(&step(&mut story), OperationKind::MoveLeader, id(0)), "{:?}", story.plan());
    assert_eq!(step(&mut story), Plan::Do(Step::MoveLeader { from: id(0), to: id(1) }), "not to one in doubt");
    story.led_by(id(1));
    assert_eq!(step(&mut story), Plan::Do(Step::Finish(None)));
    assert_eq!(admits(&story.plan()), Some(name(3).as_str()), "{:?}", story.plan());
}
