//! Machines that are marked for remediation, as stories.

use super::repairing::{begins, deletes, step};
use super::{admits, creates, leaves, reason};
use crate::fixture::{Story, address, id, name};
use crate::observation::Template;
use crate::plan::{Plan, Step, WhyDeleted, due, made_for, plan};
use crate::status::status;
use crate::status::transitions::transitions;
use api::conditions::{self as c, reasons};
use api::etcd_cluster::RemediationMode;
use api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Healthy voters, some of which have a marked Machine.
fn marked(replicas: i32, indices: &[usize]) -> Story {
    let mut story = Story::with_voters(replicas, usize::try_from(replicas).unwrap());
    story.pass(60);
    indices.iter().for_each(|index| story.mark(*index));
    story
}

pub(super) fn told(story: &Story) -> Condition {
    let status = status(&story.observation, &plan(&story.observation), None);
    status.conditions.into_iter().find(|condition| condition.type_ == c::REMEDIATING).unwrap()
}

/// No Machine is replaced, and the condition says why.
pub(super) fn waits(story: &Story, why: &str) {
    let next = story.plan();
    assert!(begins(&next).is_none() && deletes(&next).is_none(), "{next:?}");
    let told = told(story);
    assert!(told.status == "True" && told.message.contains(why), "{told:?}");
}

/// The replacement is recorded, and the Machine is deleted.
fn goes(story: &mut Story, index: usize) {
    assert_eq!(begins(&step(story)).map(|(name, _)| name), Some(name(index)), "it is written down first");
    assert_eq!(deletes(&step(story)), Some((name(index).as_str(), WhyDeleted::Marked)));
    story.delete(index);
}

/// Its replacement becomes a voter.
fn joins(story: &mut Story, index: usize) {
    assert_eq!(creates(&step(story)), Some(index as u64));
    let made_for = serde_json::to_string(&made_for(&story.observation).unwrap()).unwrap();
    story.held_back(index);
    let machine = story.observation.machines.get_mut(&name(index)).unwrap();
    machine.annotations.insert(names::REMEDIATION_FOR_ANNOTATION.to_owned(), made_for);
    assert_eq!(admits(&step(story)), Some(name(index).as_str()));
    story.admit(index);
    story.bootstrap(index);
    story.address(index);
    assert!(!matches!(step(story), Plan::Do(_)), "the marked member stays until another one votes");
    story.voter(index);
    story.publish();
    story.settle();
}

#[test]
fn a_healthy_voter_leaves_when_its_replacement_votes_and_nobody_else_goes() {
    let mut story = marked(3, &[1]);
    goes(&mut story, 1);
    let said = told(&story);
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("True", reasons::REPLACING_MEMBER), "{said:?}");
    let expected = "the replacement of the member of Machine demo-etcd-1 began at 1970-01-01T00:17:40Z";
    assert!(said.message.starts_with(expected), "{said:?}");
    joins(&mut story, 3);
    leaves(&mut story, 1);
    assert_eq!(story.plan(), Plan::Steady);
    let said = told(&story);
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", reasons::NOT_REMEDIATING), "{said:?}");
}

#[test]
fn a_leader_hands_over_to_its_replacement() {
    let mut story = marked(3, &[0]);
    goes(&mut story, 0);
    joins(&mut story, 3);
    assert_eq!(story.plan(), Plan::Do(Step::MoveLeader { from: id(0), to: id(3) }));
}

#[test]
fn two_go_one_after_the_other_and_the_leader_last() {
    let mut story = marked(3, &[0, 1]);
    goes(&mut story, 1);
    waits(&story, "another Machine is on its way out");
    joins(&mut story, 3);
    waits(&story, "another Machine is on its way out");
    leaves(&mut story, 1);
    assert_eq!(story.etcd().status.as_ref().unwrap().last_remediation.as_ref().unwrap().machine, name(0));
    assert_eq!(deletes(&story.plan()), Some(("demo-etcd-0", WhyDeleted::Marked)));
}

#[test]
fn the_next_one_waits_for_the_control_plane() {
    let mut story = marked(3, &[1]);
    let url = |index| names::client_url(&address(index));
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &[url(0), url(1), url(2), url(3)].join(","));
    story.machine(3);
    story.voter(3);
    story.etcd().status.as_mut().unwrap().endpoints = [url(0), url(1), url(2)].join(",");
    story.gone(2);
    if let crate::observation::Membership::Known { members, .. } = &mut story.observation.membership {
        members.remove(&id(2));
    }
    waits(&story, "the control plane has yet to roll out");
}

#[test]
fn one_that_is_paused_or_only_to_be_reported_stays() {
    let mut story = marked(3, &[1]);
    let machine = story.observation.machines.get_mut(&name(1)).unwrap();
    machine.annotations.insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
    waits(&story, "it is paused");
    let mut story = marked(3, &[1]);
    story.etcd().spec.remediation.mode = RemediationMode::Report;
    waits(&story, "delete Machine demo-etcd-1");
    assert!(story.settle().ready, "etcd is as well as before");
}

#[test]
fn what_cannot_be_replaced_stays() {
    let mut story = marked(3, &[1]);
    story.observation.template = Template::NotFound("it does not exist".to_owned());
    waits(&story, "infrastructure template");
    let mut story = marked(3, &[1]);
    story.unlisted();
    waits(&story, "nothing is replaced until the member list can be read");
    let mut story = marked(3, &[1]);
    story.observation.not_owned.push("demo-etcd-9".to_owned());
    waits(&story, "demo-etcd-9");
}

#[test]
fn one_that_fails_is_left_to_repair() {
    let mut story = marked(3, &[1]);
    story.failing(1, "down");
    waits(&story, "every voter has to be healthy first");
    story.pass(60);
    assert_eq!(begins(&step(&mut story)), Some((name(1), 0)));
    assert_eq!(creates(&step(&mut story)), Some(3), "its replacement boots before anything is deleted");
}

#[test]
fn nobody_goes_while_another_voter_is_not_healthy() {
    let mut story = marked(3, &[1]);
    story.failing(2, "down");
    waits(&story, "every voter has to be healthy first");
    story.unknown(2);
    waits(&story, "every voter has to be healthy first");
}

#[test]
fn the_only_member_goes_only_while_it_is_healthy() {
    let mut story = marked(1, &[0]);
    goes(&mut story, 0);
    joins(&mut story, 1);
    let mut story = marked(1, &[0]);
    story.failing(0, "down");
    story.pass(3_600);
    waits(&story, "Its data would go with it");
}

#[test]
fn a_rollout_and_a_change_of_replicas_come_first() {
    let mut story = marked(3, &[1]);
    story.settle();
    story.etcd().spec.infrastructure_template.name = "bigger".to_owned();
    assert_eq!(creates(&story.plan()), Some(3));
    waits(&story, "Machines that do not match the spec are replaced first");
    let mut story = marked(3, &[1]);
    story.etcd().spec.replicas = 5;
    assert_eq!(creates(&story.plan()), Some(3));
    waits(&story, "there are 3 voters, and no other is begun before there are 5");
}

#[test]
fn a_replacement_that_is_marked_too_waits_for_an_hour_unless_a_person_has_said_how_long() {
    let mut story = marked(3, &[1]);
    goes(&mut story, 1);
    joins(&mut story, 3);
    leaves(&mut story, 1);
    story.mark(3);
    waits(&story, "minHealthyPeriodSeconds");
    assert_eq!(told(&story).reason, reasons::REMEDIATION_DELAYED);
    story.pass(600);
    assert_eq!(due(&story.observation, &story.plan()).map(|left| left.as_secs()), Some(3_000));
    let mut soon = story.clone();
    soon.etcd().spec.remediation.retry_period_seconds = 700;
    waits(&soon, "retryPeriodSeconds");
    soon.pass(100);
    assert_eq!(begins(&soon.plan()), Some((name(3), 1)));
    let mut never = story.clone();
    never.etcd().spec.remediation.max_retry = Some(0);
    waits(&never, "maxRetry");
    let before = story.settle();
    let warned = transitions(&before, &never.settle());
    assert!(
        warned.iter().any(|event| event.warning && event.reason == reasons::REMEDIATION_LIMIT_REACHED),
        "{warned:?}"
    );
    story.pass(3_000);
    assert_eq!(begins(&story.plan()), Some((name(3), 0)), "after so long it is a Machine like any other");
}

#[test]
fn a_record_of_an_earlier_failure_is_not_taken_for_this_replacement() {
    let mut story = Story::with_voters(3, 3);
    story.failing(1, "down");
    story.pass(60);
    assert_eq!(begins(&step(&mut story)), Some((name(1), 0)));
    story.pass(10);
    story.healthy(1);
    story.pass(60);
    story.mark(1);
    goes(&mut story, 1);
}

#[test]
fn one_that_does_not_become_a_member_goes_when_its_time_is_over() {
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.admit(2);
    story.publish();
    story.mark(2);
    waits(&story, "it may become a voter yet");
    story.pass(600);
    assert_eq!(deletes(&story.plan()), Some(("demo-etcd-2", WhyDeleted::Marked)), "{:?}", story.plan());
    story.observation.machines.get_mut(&name(2)).unwrap().marked = None;
    assert_eq!(reason(&story.plan()), reasons::MACHINE_NOT_BOOTING, "without a mark it has longer");
}

#[test]
fn a_learner_that_has_failed_goes_when_its_time_is_over() {
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.admit(2);
    story.member(2, true);
    story.failing(2, "down");
    story.publish();
    story.mark(2);
    story.pass(599);
    story.settle();
    waits(&story, "it may become a voter yet");
    story.pass(1);
    assert_eq!(deletes(&story.plan()), Some(("demo-etcd-2", WhyDeleted::Marked)), "{:?}", story.plan());
    story.healthy(2);
    waits(&story, "it may become a voter yet");
}

#[test]
fn nobody_goes_while_no_other_machine_would_boot() {
    let mut story = marked(3, &[1]);
    story.cluster().infrastructure_ready = false;
    waits(&story, "no other machine would boot until the infrastructure of the Cluster is provisioned");
    // A voter that fails is replaced nevertheless: its replacement comes up when the infrastructure does.
    story.failing(1, "down");
    story.pass(60);
    assert!(begins(&step(&mut story)).is_some());
    assert_eq!(creates(&step(&mut story)), Some(3));
}
