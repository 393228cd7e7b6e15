//! Voters that fail for long enough, as stories.

use super::{admits, creates, reason};
use crate::fixture::{Story, id, name};
use crate::observation::Outcome;
use crate::observation::probe::MemberFault;
use crate::plan::{Plan, Step, WhyDeleted, due, made_for};
use api::conditions::reasons;
use api::etcd_cluster::{OperationKind, RemediationMode};
use api::names;
use serde_json::json;

/// Writes the status that goes with the plan, and returns the plan.
pub(super) fn step(story: &mut Story) -> Plan {
    let plan = story.plan();
    story.settle();
    plan
}

pub(super) fn begins(plan: &Plan) -> Option<(String, i32)> {
    match plan {
        Plan::Do(Step::BeginRemediation(record)) => Some((record.machine.clone(), record.retry_count)),
        _ => None,
    }
}

pub(super) fn deletes(plan: &Plan) -> Option<(&str, WhyDeleted)> {
    match plan {
        Plan::Do(Step::DeleteMachine { name, why }) => Some((name, *why)),
        _ => None,
    }
}

fn removal_begins(plan: &Plan) -> bool {
    matches!(plan, Plan::Do(Step::Begin(operation)) if operation.kind == OperationKind::RemoveMember)
}

/// A cluster of voters, some of which have failed for long enough.
fn failed(replicas: i32, indices: &[usize]) -> Story {
    let mut story = Story::with_voters(replicas, usize::try_from(replicas).unwrap());
    indices.iter().for_each(|index| story.failing(*index, "down"));
    story.pass(60);
    story
}

/// The failed voter and its Machine are gone, and the replacement votes. Its Machine was made for the last remediation
/// in the status.
fn is_voter_in_place_of(story: &mut Story, old: usize, new: usize) {
    story.machine(new);
    story.made_for_the_last_remediation(new);
    story.gone(old);
    story.unlist(old);
    story.voter(new);
    story.publish();
    story.settle();
}

/// The replacement boots: it has an address, and waits until etcd takes it.
fn boots(story: &mut Story, index: usize) {
    story.held_back(index);
    assert_eq!(admits(&story.plan()), Some(name(index).as_str()));
    story.admit(index);
    story.bootstrap(index);
    story.address(index);
    story.failing(index, "nothing listens there yet");
}

#[test]
fn a_failed_voter_goes_when_its_replacement_boots() {
    let mut story = failed(3, &[2]);
    assert_eq!(begins(&step(&mut story)), Some((name(2), 0)), "it is written down first");
    assert_eq!(creates(&step(&mut story)), Some(3));
    story.held_back(3);
    assert_eq!(admits(&step(&mut story)), Some("demo-etcd-3"));
    story.admit(3);
    let waits = step(&mut story);
    assert_eq!(reason(&waits), reasons::WAITING_FOR_MACHINE_ADDRESS, "its return is not forfeited for nothing");
    let message = &waits.hold().unwrap().message;
    assert!(
        message.contains("demo-etcd-2: ") && message.contains("Its replacement has to boot or join first"),
        "{message}"
    );
    story.bootstrap(3);
    story.address(3);
    assert_eq!(deletes(&step(&mut story)), Some(("demo-etcd-2", WhyDeleted::Unhealthy)));
    story.delete(2);
    assert!(removal_begins(&step(&mut story)));
    assert!(matches!(step(&mut story), Plan::Do(Step::RemoveMember(_))));
}

#[test]
fn a_failed_voter_whose_machine_is_paused_stays_and_the_message_says_so() {
    let mut story = failed(3, &[2]);
    assert_eq!(begins(&step(&mut story)), Some((name(2), 0)));
    assert_eq!(creates(&step(&mut story)), Some(3));
    boots(&mut story, 3);
    let machine = story.observation.machines.get_mut(&name(2)).unwrap();
    machine.annotations.insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
    let waits = step(&mut story);
    let message = &waits.hold().unwrap().message;
    assert!(message.contains("demo-etcd-2: ") && message.contains("It stays while its Machine is paused"), "{message}");
}

#[test]
fn less_than_the_threshold_a_quorum_and_a_single_member_are_left_alone() {
    let mut story = Story::with_voters(3, 3);
    story.failing(2, "down");
    story.pass(59);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
    let mut story = failed(3, &[1, 2]);
    story.unlisted();
    assert!(!matches!(story.plan(), Plan::Do(_)), "{:?}", story.plan());
    let story = failed(1, &[0]);
    assert_eq!(begins(&story.plan()), None, "its data would go with it");
    let story = failed(3, &[0, 1, 2]);
    assert_eq!(begins(&story.plan()), None, "the fault is more likely ours");
}

/// The closest peer of this project counts failed checks by this annotation, and removes members at the first failed
/// check if it cannot read the number.
#[test]
fn how_often_the_peers_annotation_says_changes_nothing() {
    for retries in ["x", "-1", "0", "1", "1000"] {
        let mut story = Story::with_voters(3, 3);
        story.annotate("etcdcluster.cluster.x-k8s.io/healthcheck-retries", retries);
        story.failing(2, "down");
        assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS, "{retries}: at the first check");
        story.pass(59);
        assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS, "{retries}: before its time");
        story.pass(1);
        assert_eq!(begins(&story.plan()), Some((name(2), 0)), "{retries}: in time");
    }
}

#[test]
fn who_cannot_be_checked_is_not_replaced() {
    let mut story = Story::with_voters(3, 3);
    story.unknown(2);
    story.pass(3_600);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
    let mut story = failed(3, &[2]);
    story.observation.heard = Some([id(2)].into());
    assert_eq!(begins(&story.plan()), None, "the others hear it");
    let mut story = failed(3, &[2]);
    story.unknown(1);
    assert_eq!(begins(&story.plan()), None, "without it, etcd may have no quorum");
}

#[test]
fn who_recovers_first_stays_and_the_replacement_goes() {
    let mut story = failed(3, &[2]);
    step(&mut story);
    boots(&mut story, 3);
    story.healthy(2);
    story.settle();
    assert!(!matches!(story.plan(), Plan::Do(_)), "it may answer only once");
    assert_eq!(due(&story.observation, &story.plan()).map(|left| left.as_secs()), Some(60));
    story.pass(60);
    assert_eq!(deletes(&story.plan()), Some(("demo-etcd-3", WhyDeleted::Surplus)));
    story.delete(3);
    assert_eq!(reason(&step(&mut story)), reasons::WAITING_FOR_SAFE_REMOVAL, "it may still join");
    story.member(3, true);
    assert!(removal_begins(&step(&mut story)));
}

#[test]
fn nothing_is_chosen_while_a_voter_only_begins_to_fail() {
    let mut story = failed(3, &[2]);
    step(&mut story);
    boots(&mut story, 3);
    story.healthy(2);
    story.pass(1);
    story.failing(2, "again");
    story.settle();
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
    story.pass(60);
    assert_eq!(begins(&step(&mut story)), Some((name(2), 0)), "that is another failure");
    assert_eq!(deletes(&story.plan()), Some(("demo-etcd-2", WhyDeleted::Unhealthy)), "its replacement is up");
}

#[test]
fn an_old_record_replaces_nobody() {
    let mut story = failed(3, &[2]);
    step(&mut story);
    story.healthy(2);
    story.settle();
    story.etcd().spec.remediation.mode = RemediationMode::Report;
    story.pass(1);
    story.failing(2, "maintenance");
    story.pass(60);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
}

/// The replacement may be the one that does not come up.
#[test]
fn a_failed_voter_that_is_only_reported_is_not_one_too_many_beside_its_replacement() {
    let mut story = failed(3, &[2]);
    step(&mut story);
    story.held_back(3);
    story.made_for_the_last_remediation(3);
    story.etcd().spec.remediation.mode = RemediationMode::Report;
    story.healthy(2);
    story.settle();
    story.pass(1);
    story.failing(2, "down again");
    story.pass(60);
    assert_eq!(deletes(&story.plan()), None, "{:?}", story.plan());
}

#[test]
fn a_record_of_a_clock_that_was_ahead_holds_nobody_up() {
    let mut story = failed(3, &[2]);
    step(&mut story);
    let last = story.etcd().status.as_mut().unwrap().last_remediation.as_mut().unwrap();
    last.time.0 += k8s_openapi::jiff::SignedDuration::from_hours(2);
    is_voter_in_place_of(&mut story, 2, 3);
    story.failing(3, "down too");
    story.pass(60);
    assert_eq!(begins(&step(&mut story)), Some((name(3), 0)));
}

#[test]
fn a_replacement_stays_while_it_is_not_known_how_the_failed_one_is() {
    let mut story = failed(3, &[2]);
    step(&mut story);
    story.held_back(3);
    story.unknown(2);
    assert!(!matches!(story.plan(), Plan::Do(Step::DeleteMachine { .. })), "{:?}", story.plan());
}

#[test]
fn a_machine_that_a_person_looks_into_is_left_alone() {
    let mut story = failed(3, &[2]);
    let machine = story.observation.machines.get_mut(&name(2)).unwrap();
    machine.annotations.insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
}

#[test]
fn a_leaving_member_of_which_nothing_is_known_holds_no_repair_up() {
    let mut story = Story::with_voters(5, 5);
    story.failing(1, "only we do not hear it");
    story.failing(4, "down");
    story.observation.heard = Some([id(1)].into());
    story.pass(60);
    story.delete(1);
    assert_eq!(begins(&story.plan()), Some((name(4), 0)));
}

#[test]
fn who_cannot_join_is_not_taken_for_a_replacement() {
    let mut story = failed(5, &[4]);
    // Its machine is dead, and the Machine still shows an address.
    story.machine(5);
    story.etcd().spec.replicas = 7;
    story.pass(700);
    story.observation.probes.remove(&name(5));
    story.probe(5, Outcome::MemberFault(MemberFault::Unreachable));
    step(&mut story);
    assert_eq!(creates(&step(&mut story)), Some(6), "another one is made first");
    story.observation.probes.remove(&name(5));
    story.probe(5, Outcome::MemberFault(MemberFault::Refused));
    assert_eq!(deletes(&story.plan()), Some(("demo-etcd-4", WhyDeleted::Unhealthy)), "it only waits");
}

#[test]
fn with_an_even_number_the_failed_one_goes_before_a_healthy_one_that_leaves() {
    let mut story = Story::with_voters(3, 4);
    story.delete(0);
    story.failing(1, "down");
    story.pass(60);
    assert_eq!(begins(&story.plan()), Some((name(1), 0)), "{:?}", story.plan());
}

#[test]
fn of_two_that_have_failed_the_second_goes_at_once_so_that_somebody_can_join() {
    let mut story = failed(5, &[3, 4]);
    assert_eq!(begins(&step(&mut story)), Some((name(3), 0)));
    assert_eq!(creates(&step(&mut story)), Some(5), "the other one holds nothing up");
    boots(&mut story, 5);
    assert_eq!(deletes(&step(&mut story)).map(|(name, _)| name), Some("demo-etcd-3"));
    story.delete(3);
    assert!(removal_begins(&step(&mut story)), "and not the next replacement");
    step(&mut story);
    story.unlist(3);
    story.publish();
    assert!(matches!(step(&mut story), Plan::Do(Step::Finish(_))));
    assert_eq!(begins(&step(&mut story)), Some((name(4), 0)), "it has not failed in place of the other");
    assert_eq!(
        deletes(&step(&mut story)).map(|(name, _)| name),
        Some("demo-etcd-4"),
        "four survive no more than three"
    );
}

#[test]
fn a_machine_whose_infrastructure_hangs_does_not_hold_the_next_one_up() {
    let mut story = failed(5, &[4]);
    step(&mut story);
    boots(&mut story, 5);
    step(&mut story);
    story.delete(4);
    step(&mut story);
    step(&mut story);
    story.unlist(4);
    step(&mut story);
    story.delete_at_once(4);
    story.voter(5);
    story.publish();
    story.settle();
    story.failing(1, "down");
    story.pass(60);
    assert_eq!(begins(&step(&mut story)).map(|(name, _)| name), Some(name(1)));
    assert_eq!(creates(&step(&mut story)), Some(6), "Machine 4 still waits for its infrastructure");
}

/// It has never been admitted, so its machine cannot join.
#[test]
fn a_machine_that_never_joins_does_not_hold_the_next_one_up() {
    let mut story = Story::with_voters(3, 3);
    story.held_back(3);
    story.delete_at_once(3);
    story.failing(1, "down");
    story.pass(60);
    assert_eq!(begins(&step(&mut story)).map(|(name, _)| name), Some(name(1)));
    assert_eq!(creates(&step(&mut story)), Some(4), "Machine 3 waits for its infrastructure");
    story.observation.init_version = None;
    assert_eq!(creates(&step(&mut story)), None, "it is not known who is admitted");
}

#[test]
fn a_replacement_that_fails_too_waits_and_in_the_end_for_a_person() {
    let mut story = failed(3, &[2]);
    story.etcd().spec.remediation.retry_period_seconds = 300;
    story.etcd().spec.remediation.max_retry = Some(1);
    step(&mut story);
    let replace = |story: &mut Story, old: usize, new: usize| {
        is_voter_in_place_of(story, old, new);
        story.failing(new, "down too");
        story.pass(60);
    };
    replace(&mut story, 2, 3);
    let plan = step(&mut story);
    assert_eq!(reason(&plan), reasons::REMEDIATION_DELAYED);
    assert_eq!(plan.hold().unwrap().again.map(|again| again.as_secs()), Some(240));
    story.pass(240);
    assert_eq!(begins(&step(&mut story)), Some((name(3), 1)));
    replace(&mut story, 3, 4);
    story.pass(300);
    let plan = step(&mut story);
    assert_eq!(reason(&plan), reasons::REMEDIATION_LIMIT_REACHED);
    assert!(plan.hold().unwrap().message.contains("2 replacements in a row"), "{plan:?}");
    story.pass(3_600);
    assert_eq!(begins(&story.plan()), Some((name(4), 0)), "after so long it is not the same fault");
}

#[test]
fn with_report_a_person_decides_and_what_was_begun_is_finished() {
    let mut story = failed(3, &[2]);
    story.etcd().spec.remediation.mode = RemediationMode::Report;
    let plan = story.plan();
    assert_eq!(reason(&plan), reasons::WAITING_FOR_HEALTHY_MEMBERS);
    assert!(plan.hold().unwrap().message.contains("delete Machine demo-etcd-2"), "{plan:?}");
    story.etcd().spec.remediation.mode = RemediationMode::Replace;
    step(&mut story);
    story.etcd().spec.remediation.mode = RemediationMode::Report;
    assert_eq!(creates(&story.plan()), Some(3));
}

/// A member whose data differs does not start, and raises no alarm. It may be the one with the right data.
#[test]
fn with_a_check_at_the_start_a_person_decides() {
    for (name, value, is_on) in [
        ("experimental-initial-corrupt-check", "true", true),
        ("experimental-initial-corrupt-check", "false", false),
        ("feature-gates", "CompactHashCheck=false,InitialCorruptCheck=true", true),
        ("feature-gates", "CompactHashCheck=true,InitialCorruptCheck=false", false),
    ] {
        let mut story = failed(3, &[2]);
        story.with_flag(name, value);
        let plan = story.plan();
        assert_eq!(begins(&plan).is_none(), is_on, "{name}={value}: {plan:?}");
        if is_on {
            let said = &plan.hold().unwrap().message;
            assert!(said.contains("InitialCorruptCheck") && said.contains("delete Machine demo-etcd-2"), "{said}");
        }
    }
}

#[test]
fn without_a_template_nothing_is_deleted() {
    let mut story = failed(3, &[2]);
    step(&mut story);
    story.observation.template = crate::observation::Template::NotFound("it does not exist".to_owned());
    assert_eq!(reason(&story.plan()), reasons::TEMPLATE_NOT_FOUND);
}

#[test]
fn a_learner_that_is_dead_is_not_taken_for_a_replacement() {
    let mut story = Story::with_voters(5, 3);
    story.machine(3);
    story.member(3, true);
    story.healthy(3);
    story.settle();
    for index in [2, 3] {
        story.failing(index, "down");
    }
    story.pass(60);
    assert_eq!(begins(&step(&mut story)), Some((name(2), 0)));
    assert_eq!(deletes(&story.plan()), None, "{:?}", story.plan());
    // No other Machine is admitted as long as this one may become a voter. It is replaced, although a voter is away.
    story.pass(6 * i64::from(story.observation.etcd.spec.health_check.startup_grace_seconds));
    while matches!(story.plan(), Plan::Do(Step::CreateMachine { .. })) {
        story.held_back(5);
        story.settle();
    }
    assert_eq!(deletes(&story.plan()), Some((name(3).as_str(), WhyDeleted::Stuck)), "{:?}", story.plan());
}

#[test]
fn a_replacement_that_comes_after_the_failed_one_has_gone_counts_as_one_too() {
    let mut story = Story::with_voters(5, 4);
    story.failing(3, "down");
    story.pass(60);
    step(&mut story);
    assert_eq!(deletes(&step(&mut story)).map(|(name, _)| name), Some("demo-etcd-3"), "the number is even");
    story.delete(3);
    assert_eq!(made_for(&story.observation).map(|record| record.machine), Some(name(3)));
    story.gone(3);
    assert_eq!(made_for(&story.observation), None);
}

#[test]
fn one_that_has_to_wait_holds_no_other_up() {
    let mut story = failed(5, &[3, 4]);
    story.etcd().spec.remediation.max_retry = Some(0);
    let at = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(story.observation.now);
    let record = json!({"machine": name(9), "machineUID": "uid-9", "time": at, "retryCount": 0});
    let machine = story.observation.machines.get_mut(&name(3)).unwrap();
    machine.annotations.insert(names::REMEDIATION_FOR_ANNOTATION.to_owned(), record.to_string());
    assert_eq!(begins(&story.plan()), Some((name(4), 0)), "{:?}", story.plan());
}
