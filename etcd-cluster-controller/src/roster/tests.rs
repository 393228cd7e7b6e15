//! Which member gets which seat, and the verdicts on members.

use super::*;
use crate::fixture::{CLUSTER_ID, Story, id, name};
use crate::observation::probe::{ListFault, MemberFault, Membership};
use crate::plan::{Plan, Step};
use k8s_openapi::jiff::Timestamp;

fn verdict_of(story: &Story, index: usize) -> Verdict {
    roster(&story.observation).by_member(id(index)).unwrap().verdict.clone()
}

#[test]
fn a_member_is_healthy_failing_unhealthy_or_unknown() {
    let mut story = Story::with_voters(3, 3);
    assert!(matches!(verdict_of(&story, 1), Verdict::Healthy { .. }));
    story.failing(1, "down");
    story.pass(59);
    assert!(matches!(verdict_of(&story, 1), Verdict::Failing { .. }));
    story.pass(1);
    assert!(matches!(verdict_of(&story, 1), Verdict::Unhealthy { .. }));
    story.unknown(1);
    assert!(matches!(verdict_of(&story, 1), Verdict::Unknown { .. }));
    story.observation.probes.remove(&name(1));
    assert_eq!(verdict_of(&story, 1), Verdict::Unknown { why: "it has not been checked yet".to_owned() });
    story.healthy(1);
    story.gone(1);
    assert!(matches!(verdict_of(&story, 1), Verdict::Unknown { .. }), "its Machine is gone");
}

#[test]
fn a_learner_that_starts_is_unknown_until_it_has_answered_or_failed_for_long() {
    let mut story = Story::with_voters(3, 1);
    story.machine(1);
    story.member(1, true);
    story.failing(1, "down");
    let starts = verdict_of(&story, 1);
    let Verdict::Unknown { why } = &starts else { panic!("{starts:?}") };
    assert!(why.starts_with("it has not answered since it became a member: https://10.0.0.2:2379: "), "{why}");
    story.settle();
    story.pass(59);
    assert_eq!(verdict_of(&story, 1), starts, "what is said stays the same");
    story.pass(1);
    assert!(matches!(verdict_of(&story, 1), Verdict::Unhealthy { .. }));
    story.settle();
    story.observation.probes.remove(&name(1));
    story.failing(1, "down");
    assert!(
        matches!(verdict_of(&story, 1), Verdict::Failing { .. }),
        "a new controller knows that it is no longer new"
    );
    story.healthy(1);
    story.settle();
    story.failing(1, "down");
    assert!(matches!(verdict_of(&story, 1), Verdict::Failing { .. }), "it has answered");
}

/// If the time changed at every reconcile, the status would be written again and again.
#[test]
fn since_when_nothing_is_known_of_a_member_is_told_and_stays() {
    let mut story = Story::with_voters(3, 3);
    let told = |story: &Story| roster(&story.observation).by_member(id(1)).unwrap().describe();
    let is_told = |story: &mut Story, why: &str| {
        let first = told(story);
        assert!(first.contains(why) && first.ends_with("Z)"), "{first}");
        story.settle();
        story.pass(300);
        assert_eq!(told(story), first, "time alone changes nothing");
        first
    };
    story.failing(1, "down");
    let since = format!("(since {:.0})", story.observation.now);
    story.pass(60);
    story.observation.heard = Some([id(1)].into());
    let heard = is_told(&mut story, "the other members hear it");
    assert!(heard.ends_with(&since), "since its checks fail: {heard}");
    story.unknown(1);
    let since = format!("(since {:.0})", story.observation.now);
    let unknown = is_told(&mut story, "file descriptors");
    assert!(unknown.ends_with(&since), "{unknown}");

    let mut starting = Story::with_voters(3, 1);
    starting.machine(1);
    starting.member(1, true);
    starting.failing(1, "down");
    assert!(!told(&starting).contains("(since"), "{}", told(&starting));
}

#[test]
fn no_voter_answers_since_the_last_one_fell_silent() {
    let mut story = Story::with_voters(3, 3);
    let silent = |story: &Story| roster(&story.observation).silent_since();
    story.failing(0, "down");
    story.pass(60);
    story.unknown(1);
    assert_eq!(silent(&story), None, "the third answers");
    story.pass(60);
    story.failing(2, "down");
    let since = story.observation.now;
    story.pass(300);
    assert_eq!(silent(&story), Some(since));
    story.observation.probes.remove(&name(0));
    assert_eq!(silent(&story), None, "of one it is not known");
    assert_eq!(silent(&Story::new(3)), None, "there is none");
}

#[test]
fn a_machine_that_answers_and_is_not_listed_is_not_said_to_be_silent() {
    let mut story = Story::with_voters(3, 1);
    story.machine(1);
    story.address(1);
    story.healthy(1);
    let seats = roster(&story.observation);
    assert_eq!(
        seats.by_machine(&name(1)).unwrap().why(),
        "https://10.0.0.2:2379 answers; the member list does not show it yet"
    );
}

#[test]
fn a_gap_in_the_checks_is_not_held_against_a_member() {
    let mut story = Story::with_voters(3, 3);
    story.failing(1, "down");
    story.observation.now = Timestamp::from_second(story.observation.now.as_second() + 600).unwrap();
    story.failing(1, "down");
    assert!(matches!(verdict_of(&story, 1), Verdict::Failing { .. }), "two checks in ten minutes");
}

#[test]
fn a_member_is_found_by_the_id_that_answers_at_exactly_one_machine() {
    let mut story = Story::with_voters(3, 0);
    story.machine(0).addresses = vec![("InternalIP".to_owned(), "192.0.2.1".to_owned())];
    story.voter(0);
    if let Membership::Known { members, .. } = &mut story.observation.membership {
        members.get_mut(&id(0)).unwrap().name = "ip-10-0-0-1".to_owned();
    }
    story.publish();
    let machine = |story: &Story| roster(&story.observation).by_member(id(0)).unwrap().machine.map(|m| m.name.clone());
    assert_eq!(machine(&story), Some(name(0)), "behind NAT, its URL has another address");
    story.machine(1);
    let probe = story.observation.probes[&name(0)].clone();
    story.observation.probes.insert(name(1), probe);
    assert_eq!(machine(&story), None, "two Machines answer with it");
}

#[test]
fn without_a_list_the_members_are_those_that_were_recorded() {
    let mut story = Story::with_voters(3, 3);
    story.observation.membership = Membership::Unknown(ListFault::NoQuorum(None));
    let seats = roster(&story.observation);
    assert_eq!((seats.members().count(), seats.is_listed()), (3, false));
}

#[test]
fn a_voter_that_was_a_learner_at_its_latest_check_is_not_known_to_serve() {
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.member(2, true);
    story.healthy(2);
    story.member(2, false);
    let seat =
        |story: &Story| roster(&story.observation).by_member(id(2)).map(|seat| (seat.is_healthy(), seat.is_well()));
    assert_eq!(seat(&story), Some((true, false)));
    story.healthy(2);
    assert_eq!(seat(&story), Some((true, true)));
}

#[test]
fn a_member_that_the_others_hear_is_not_unhealthy() {
    let mut story = Story::with_voters(3, 3);
    story.failing(1, "down");
    story.pass(60);
    assert!(matches!(verdict_of(&story, 1), Verdict::Unhealthy { .. }));
    story.observation.heard = Some([id(1)].into());
    let unknown = verdict_of(&story, 1);
    let Verdict::Unknown { why } = &unknown else { panic!("{unknown:?}") };
    assert!(
        why.starts_with("the other members hear it, and this controller does not: https://10.0.0.2:2379: "),
        "{why}"
    );
    story.settle();
    story.failing(1, "in another way");
    assert_eq!(verdict_of(&story, 1), unknown, "what is said stays the same");
    // The leader itself: the others follow it, so they hear it.
    let mut story = Story::with_voters(3, 3);
    story.failing(0, "down");
    story.pass(60);
    assert!(matches!(verdict_of(&story, 0), Verdict::Unknown { .. }));
    for index in [1, 2] {
        let probe = story.observation.probes.get_mut(&name(index)).unwrap();
        let Outcome::Answered(report) = &mut probe.outcome else { panic!("it answers") };
        report.leader = id(1);
    }
    assert!(matches!(verdict_of(&story, 0), Verdict::Unhealthy { .. }), "they have elected another");
}

/// The dead member was never started, or had another host name, and had the address that a Machine has today.
#[test]
fn a_dead_member_does_not_take_the_seat_of_the_one_that_lives_there() {
    let mut story = Story::with_voters(3, 3);
    let at_the_same_address = |story: &mut Story, name: &str| {
        let Membership::Known { members, .. } = &mut story.observation.membership else { panic!("not listed") };
        let living = members[&id(1)].clone();
        members.insert(1, Member { name: name.to_owned(), ..living });
    };
    story.etcd().status = None;
    let seated = |story: &Story, member: u64| {
        roster(&story.observation).by_member(member).unwrap().machine.map(|machine| machine.name.clone())
    };
    for dead in ["", "ip-10-0-0-2"] {
        at_the_same_address(&mut story, dead);
        assert_eq!((seated(&story, id(1)), seated(&story, 1)), (Some(name(1)), None), "its name says so");
    }
    let Membership::Known { members, .. } = &mut story.observation.membership else { panic!("not listed") };
    members.get_mut(&id(1)).unwrap().name = "node-b".to_owned();
    assert_eq!((seated(&story, id(1)), seated(&story, 1)), (Some(name(1)), None), "it answers there");
    story.failing(1, "down");
    assert_eq!((seated(&story, id(1)), seated(&story, 1)), (None, Some(name(1))), "nothing says which");
}

/// The Machine is gone, and another Machine has its name and its address. Both members are named after it.
#[test]
fn of_two_that_are_called_after_a_machine_the_one_that_answers_there_has_it() {
    for newer in [1, 0x901] {
        let mut story = Story::with_voters(3, 3);
        let Membership::Known { members, .. } = &mut story.observation.membership else { panic!("not listed") };
        let namesake = members[&id(1)].clone();
        members.insert(newer, namesake);
        let seated = |story: &Story, member: u64| {
            roster(&story.observation).by_member(member).unwrap().machine.map(|machine| machine.name.clone())
        };
        assert_eq!((seated(&story, newer), seated(&story, id(1))), (None, Some(name(1))), "that one answers there");
        // Now the newer member answers there, while the status still names the first one.
        let report = Report { leader: id(0), ..Report::of_one_that_is_well(CLUSTER_ID, newer) };
        story.probe(1, Outcome::Answered(report));
        let both = |story: &Story| (seated(story, newer), seated(story, id(1)));
        assert_eq!(both(&story), (Some(name(1)), None));
        let status = story.settle();
        let machine = |member: u64| status.members.iter().find(|it| it.id == hex(member)).unwrap().machine.clone();
        assert_eq!((machine(newer), machine(id(1))), (name(1), String::new()));
        let expected = story.observation.last_on(&story.observation.machines[&name(1)]).unwrap().id.clone();
        assert_eq!(expected, hex(newer), "it is asked for at its Machine");
        let mut silent = story.clone();
        silent.failing(1, "for a moment");
        assert_eq!(both(&silent), (Some(name(1)), None), "the seat stays");
        // The other member is a stranger, and is removed after its time.
        story.probe_stranger(1, Outcome::MemberFault(MemberFault::Refused));
        story.pass(659);
        let seats = roster(&story.observation);
        let why = seats.by_member(id(1)).unwrap().why();
        assert!(why.starts_with("its Machine demo-etcd-1 carries another member, and its checks fail"), "{why}");
        assert!(matches!(story.plan(), Plan::Wait(_)), "{:?}", story.plan());
        story.pass(1);
        let plan = story.plan();
        assert!(matches!(&plan, Plan::Do(Step::Begin(begun)) if begun.member_id == hex(id(1))), "{plan:?}");
    }
}
