//! What the status reports about a step that fails or is refused, even while all members are healthy.

use super::{condition, shows};
use crate::fixture::{Story, name};
use crate::plan::{Decision, Plan, Step, WhyDeleted, block, plan};
use crate::status::transitions::transitions;
use crate::status::{differs, failure_can_wait, status};
use api::conditions::{self as c, reasons, same_reasons};
use api::etcd_cluster::{EtcdClusterStatus, RemovalState, RemovedMember};
use api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const CAUSE: &str = "changing demo-etcd-4: admission webhook denied request 4711";

/// The status if the present step fails.
fn failed(story: &Story) -> EtcdClusterStatus {
    let decision = plan(&story.observation);
    assert!(matches!(decision.next, Plan::Do(_)), "{:?}", decision.next);
    status(&story.observation, &decision, Some(CAUSE))
}

/// The status if the API server refuses the present step.
fn refused(story: &Story, why: &str) -> EtcdClusterStatus {
    let decision = Decision { next: block(reasons::REFUSED, why), ..plan(&story.observation) };
    status(&story.observation, &decision, None)
}

/// The types of the conditions that report the cause.
fn say_why(status: &EtcdClusterStatus) -> Vec<&str> {
    let telling = status.conditions.iter().filter(|condition| condition.message.contains(CAUSE));
    telling.map(|condition| condition.type_.as_str()).collect()
}

fn warnings(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<&'static str> {
    transitions(before, after).into_iter().filter(|told| told.warning).map(|told| told.reason).collect()
}

/// Asserts that these conditions report the cause while the step fails or is refused, that a refusal causes one
/// warning, and that nothing stays when it is over.
fn is_said_by(story: &mut Story, types: &[&str]) {
    let before = story.settle();
    assert!(say_why(&before).is_empty());
    assert_eq!(say_why(&failed(story)), types);
    let refused = refused(story, CAUSE);
    assert_eq!(say_why(&refused), types);
    assert!(
        types.iter().all(|type_| condition(&refused, type_).reason == reasons::REFUSED),
        "{:?}",
        refused.conditions
    );
    assert_eq!(warnings(&before, &refused), [reasons::REFUSED]);
    assert!(warnings(&refused, &refused).is_empty());
    story.etcd().status = Some(refused);
    assert_eq!(story.settle().conditions, before.conditions, "it is over");
}

/// Five voters are healthy, and three are wanted.
fn lowered() -> Story {
    let mut story = Story::with_voters(5, 5);
    story.etcd().spec.replicas = 3;
    story.settle();
    story
}

#[test]
fn a_machine_too_many_that_cannot_be_deleted_is_said() {
    let mut story = lowered();
    let next = plan(&story.observation).next;
    assert!(matches!(next, Plan::Do(Step::DeleteMachine { why: WhyDeleted::Surplus, .. })), "{next:?}");
    is_said_by(&mut story, &[c::SCALING_DOWN]);
    let status = story.settle();
    for type_ in [c::READY, c::MACHINES_UP_TO_DATE] {
        assert_eq!(shows(&status, type_).0, "True", "{type_}");
    }
    assert_eq!(shows(&status, c::SCALING_DOWN), ("True".to_owned(), reasons::SCALING_DOWN.to_owned()));
}

#[test]
fn a_machine_that_cannot_be_let_go_is_said_and_nobody_else_is_blamed() {
    let mut story = Story::with_voters(3, 3);
    story.settle();
    story.machine(3);
    story.delete(3);
    let since = Time(story.observation.now);
    let (id, machine_uid) = ("103".to_owned(), "uid-3".to_owned());
    story.etcd().status.as_mut().unwrap().removed_members.push(RemovedMember {
        id,
        machine: name(3),
        machine_uid,
        state: RemovalState::Removed,
        never_started: false,
        since,
    });
    let next = plan(&story.observation).next;
    assert!(matches!(next, Plan::Do(Step::ReleaseHook { .. })), "{next:?}");
    is_said_by(&mut story, &[c::MACHINES_DELETING]);
    let said = story.settle();
    let said = &condition(&said, c::MACHINES_DELETING).message;
    assert!(said.ends_with("and waits for this controller to let it go"), "{said}");
    story.delete_at_once(3);
    let status = story.settle();
    let said = &condition(&status, c::MACHINES_DELETING).message;
    assert!(said.contains("waits for the finalizers"), "{said}");
    let else_refused = refused(&story, CAUSE);
    assert_eq!(say_why(&else_refused), [c::READY], "that Machine does not wait for it");
}

#[test]
fn a_member_without_a_machine_that_cannot_be_removed_is_said() {
    let mut story = Story::with_voters(3, 3);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "3");
    story.machine(3);
    story.member(3, true);
    story.healthy(3);
    story.settle();
    story.gone(3);
    story.publish();
    for _ in 0..3 {
        story.settle();
    }
    let next = plan(&story.observation).next;
    assert!(matches!(next, Plan::Do(Step::RemoveMember(_))), "{next:?}");
    let before = story.settle();
    assert_eq!(shows(&before, c::MACHINES_DELETING).0, "False", "no Machine is on its way out");
    assert!(!say_why(&failed(&story)).is_empty());
    let refused = refused(&story, CAUSE);
    assert!(!say_why(&refused).is_empty());
    assert_eq!(warnings(&before, &refused), [reasons::REFUSED]);
}

#[test]
fn what_nothing_waits_for_is_said_by_ready_even_though_it_is_true() {
    let mut story = Story::with_voters(3, 3);
    let before = story.settle();
    assert_eq!(plan(&story.observation).next, Plan::Steady);
    let after = refused(&story, CAUSE);
    assert_eq!(say_why(&after), [c::READY]);
    assert_eq!(shows(&after, c::READY), ("True".to_owned(), reasons::REFUSED.to_owned()));
    assert!(after.ready, "etcd is what it was");
    assert_eq!(warnings(&before, &after), [reasons::REFUSED]);
}

#[test]
fn the_same_refusal_in_other_numbers_is_not_written() {
    let mut story = lowered();
    let first = refused(&story, CAUSE);
    story.etcd().status = Some(first.clone());
    assert!(!differs(Some(&first), &refused(&story, &CAUSE.replace("4711", "4712"))));
    for news in [CAUSE.replace("denied", "delayed"), CAUSE.replace("etcd-4", "etcd-3")] {
        assert!(differs(Some(&first), &refused(&story, &news)), "{news}");
    }
}

#[test]
fn only_what_says_that_something_fails_can_wait() {
    let mut story = lowered();
    let before = story.settle();
    let waits = |before: &EtcdClusterStatus, after: &EtcdClusterStatus| failure_can_wait(Some(before), after);
    let after = refused(&story, CAUSE);
    assert!(waits(&before, &after), "it may be over in a moment");
    assert!(!same_reasons(&before.conditions, &after.conditions), "it is news");
    assert!(waits(&before, &failed(&story)));
    assert!(!waits(&after, &after), "there is nothing to write");
    assert!(!failure_can_wait(None, &after), "nothing is said yet");
    story.etcd().status = Some(after.clone());
    let other = refused(&story, &CAUSE.replace("denied", "delayed"));
    assert!(waits(&after, &other) && same_reasons(&after.conditions, &other.conditions), "other words");
    assert!(!waits(&after, &failed(&story)), "it is not refused any more");
    story.failing(1, "down");
    assert!(!waits(&after, &refused(&story, CAUSE)), "a member has begun to fail");
}
