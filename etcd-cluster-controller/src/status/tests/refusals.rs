//! What the status reports once if the API server refuses a request or a step fails, and what it keeps from before.

use super::{condition, shows};
use crate::fixture::Story;
use crate::plan::{Hold, Plan, Step, plan};
use crate::status::transitions::transitions;
use crate::status::{differs, status, unobserved};
use api::conditions::{self as c, reasons};
use api::etcd_cluster::EtcdClusterStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

#[test]
fn a_refusal_is_told_of_once() {
    let story = Story::new(3);
    let mut decision = plan(&story.observation);
    decision.next = Plan::Block(Hold::new(reasons::REFUSED, "forbidden"));
    let after = status(&story.observation, &decision, None);
    let told: Vec<_> = transitions(&EtcdClusterStatus::default(), &after).into_iter().map(|t| t.reason).collect();
    assert_eq!(told, [reasons::REFUSED]);
    assert!(transitions(&after, &after).is_empty());
}

#[test]
fn a_step_that_fails_is_said_where_its_end_is_waited_for() {
    let mut story = Story::with_voters(3, 1);
    story.settle();
    let failed = |story: &Story, why: &str| {
        let decision = plan(&story.observation);
        assert!(matches!(decision.next, Plan::Do(Step::CreateMachine { .. })), "{:?}", decision.next);
        status(&story.observation, &decision, Some(why))
    };
    let first = failed(&story, "read tcp 10.0.0.9:4711: connection reset");
    let said = condition(&first, c::READY);
    assert_eq!(said.status, "False");
    let end = "; the last attempt failed, and this controller tries again: read tcp 10.0.0.9:4711: connection reset";
    assert!(said.message.ends_with(end), "{}", said.message);
    story.etcd().status = Some(first.clone());
    let port = failed(&story, "read tcp 10.0.0.9:4712: connection reset");
    assert!(!differs(Some(&first), &port), "another port alone is not written");
    assert!(differs(Some(&first), &failed(&story, "no route to host")));
    assert!(!condition(&story.settle(), c::READY).message.contains("failed"), "it is over");
}

#[test]
fn what_cannot_be_observed_is_unknown_blames_nobody_and_is_written_once() {
    let mut story = Story::with_voters(3, 3);
    let known = story.settle();
    let others = Condition { type_: "Other".to_owned(), ..condition(&known, c::READY).clone() };
    story.etcd().status.as_mut().unwrap().conditions.push(others);
    let refused =
        |story: &Story| unobserved(&story.observation.etcd, "secrets cannot be listed", story.observation.now);
    let after = refused(&story);
    assert_eq!(shows(&after, c::READY), ("Unknown".to_owned(), reasons::REFUSED.to_owned()));
    let types = |status: &EtcdClusterStatus| {
        status.conditions.iter().map(|condition| condition.type_.clone()).collect::<Vec<_>>()
    };
    assert_eq!(types(&after), types(&known), "all of ours, and none of others");
    assert_eq!(condition(&after, c::MEMBERS_HEALTHY), condition(&known, c::MEMBERS_HEALTHY));
    assert!(after.ready && after.members == known.members && after.endpoints == known.endpoints);
    let told: Vec<_> = transitions(&known, &after).into_iter().map(|t| t.reason).collect();
    assert_eq!(told, [reasons::REFUSED]);
    story.etcd().status = Some(after.clone());
    story.pass(60);
    assert!(!differs(Some(&after), &refused(&story)), "the same again is not written");
    assert_eq!(shows(&story.settle(), c::READY).0, "True");
}

#[test]
fn a_deletion_is_said_whatever_is_refused() {
    let mut story = Story::with_voters(3, 3);
    story.settle();
    let refused = |story: &Story| {
        unobserved(&story.observation.etcd, "secrets cannot be listed: forbidden", story.observation.now)
    };
    assert_eq!(shows(&refused(&story), c::DELETING).0, "False");
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    let after = refused(&story);
    assert_eq!(shows(&after, c::DELETING), ("True".to_owned(), reasons::DELETING.to_owned()));
    let known = story.settle();
    let message = condition(&known, c::DELETING).message.clone();
    assert_eq!(condition(&refused(&story), c::DELETING).message, message, "what was known last");
    story.etcd().status = None;
    assert_eq!(shows(&refused(&story), c::DELETING).0, "True");
}
