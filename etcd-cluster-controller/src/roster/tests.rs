//! Who sits where, and what is held of them.

use super::*;
use crate::fixture::{Story, id, name};
use crate::observation::probe::{ListFault, Membership};

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
