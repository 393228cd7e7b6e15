//! Rollouts, as stories.

mod versions;

use super::{admits, creates, has_left, leaves, reason};
use crate::fixture::{Story, address, certificates_of_ca_until, id, name};
use crate::observation::{Outcome, Template};
use crate::plan::retire::next_leader;
use crate::plan::{Plan, Step, View, WhyDeleted, due, plan};
use crate::status::status;
use crate::status::transitions::transitions;
use api::conditions::{self as c, reasons};
use api::etcd_cluster::RolloutType;
use api::names;
use controller_support::external::Reference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

pub(super) fn urls(indexes: impl IntoIterator<Item = usize>) -> String {
    let mut urls: Vec<String> = indexes.into_iter().map(|index| names::client_url(&address(index))).collect();
    urls.sort();
    urls.join(",")
}

/// Healthy voters whose spec has changed since. `used`: whether API servers use them.
pub(super) fn outdated(count: usize, used: bool) -> Story {
    let mut story = Story::with_voters(i32::try_from(count).unwrap(), count);
    story.settle();
    if used {
        story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &urls(0..count));
    }
    edit(&mut story, "3.6.17");
    story.settle();
    story
}

pub(super) fn edit(story: &mut Story, version: &str) {
    story.etcd().spec.etcdadm_config_spec.version = Some(version.to_owned());
    story.annotate(names::PINNED_VERSION_ANNOTATION, version);
}

/// A member runs another version of etcd.
pub(super) fn runs(story: &mut Story, index: usize, version: &str) {
    let probe = story.observation.probes.get_mut(&name(index)).unwrap();
    let Outcome::Answered(report) = &mut probe.outcome else { panic!("member {index} has not answered: {probe:?}") };
    version.clone_into(&mut report.version);
}

/// The Machine that is deleted because it does not match the spec.
pub(super) fn replaced(plan: &Plan) -> Option<usize> {
    match plan {
        Plan::Do(Step::DeleteMachine { name, why: WhyDeleted::Outdated }) => {
            crate::roster::number(name).and_then(|number| usize::try_from(number).ok())
        }
        _ => None,
    }
}

pub(super) fn condition(story: &Story, type_: &str) -> Condition {
    let status = status(&story.observation, &plan(&story.observation), None);
    status.conditions.into_iter().find(|condition| condition.type_ == type_).unwrap()
}

/// A Machine is made, admitted, and becomes a voter.
fn joins(story: &mut Story, index: usize) {
    if creates(&story.plan()) == Some(index as u64) {
        story.held_back(index);
    }
    comes_up(story, index);
}

fn comes_up(story: &mut Story, index: usize) {
    assert_eq!(admits(&story.plan()), Some(name(index).as_str()), "{:?}", story.plan());
    story.admit(index);
    story.settle();
    story.bootstrap(index);
    story.address(index);
    story.voter(index);
    story.publish();
    story.settle();
}

/// The next Machine joins. Several may have been created already.
pub(super) fn joins_of_several(story: &mut Story, index: usize) {
    while let Some(number) = creates(&story.plan()) {
        story.held_back(usize::try_from(number).unwrap());
    }
    comes_up(story, index);
}

#[test]
fn three_that_are_in_use_are_doubled_and_the_control_plane_is_told_once() {
    let mut story = outdated(3, true);
    let rolling = condition(&story, c::MACHINES_UP_TO_DATE);
    assert_eq!((rolling.status.as_str(), rolling.reason.as_str()), ("False", reasons::ROLLING_OUT), "{rolling:?}");
    for index in 3..6 {
        let publish = plan(&story.observation).publish;
        assert_eq!((publish.ready, publish.endpoints), (true, urls(0..3)), "frozen until all are there");
        assert_eq!(condition(&story, c::SCALING_DOWN).status, "False");
        joins_of_several(&mut story, index);
    }
    for index in [1, 2, 0] {
        assert_eq!(replaced(&story.plan()), Some(index), "the leader last: {:?}", story.plan());
        assert_eq!(plan(&story.observation).publish.endpoints, urls(0..3), "until all are chosen");
        story.delete(index);
        story.settle();
    }
    let publish = plan(&story.observation).publish;
    assert_eq!((publish.ready, publish.endpoints), (true, urls(3..6)));
    // No member in use leaves before all API servers have rolled out.
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &format!("{};{}", urls(0..3), urls(3..6)));
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL, "{:?}", story.plan());
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &urls(3..6));
    leaves(&mut story, 1);
    leaves(&mut story, 2);
    assert_eq!(story.plan(), Plan::Do(Step::MoveLeader { from: id(0), to: id(5) }), "once, and to a new member");
}

#[test]
fn where_nobody_uses_them_one_after_the_other_is_replaced() {
    let mut story = outdated(3, false);
    for (old, new) in [(1, 3), (2, 4)] {
        joins(&mut story, new);
        assert_eq!(replaced(&story.plan()), Some(old), "{:?}", story.plan());
        story.delete(old);
        let told = story.settle();
        assert!(told.ready && !told.endpoints.contains(&urls([old])), "{}", told.endpoints);
        leaves(&mut story, old);
    }
    joins(&mut story, 5);
    assert_eq!(replaced(&story.plan()), Some(0));
    story.delete(0);
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Do(Step::Begin(_))), "{plan:?}");
    let last = condition(&story, c::MACHINES_UP_TO_DATE);
    assert!(
        last.status == "False" && last.message.ends_with("old members have not left etcd yet: demo-etcd-0"),
        "it is a member still: {last:?}"
    );
}

/// Who is to lead in place of the first member.
fn leads_next(story: &Story) -> Option<u64> {
    next_leader(&View::new(&story.observation), id(0))
}

#[test]
fn leadership_moves_to_the_newest_member_through_which_etcd_lets_the_old_one_go_at_once() {
    let mut story = outdated(3, false);
    for (old, new) in [(1, 3), (2, 4)] {
        joins(&mut story, new);
        story.delete(old);
        story.settle();
        leaves(&mut story, old);
    }
    assert_eq!(leads_next(&story), Some(id(4)), "none has been a voter for long, so the newest");
    story.pass(4);
    joins(&mut story, 5);
    story.delete(0);
    assert_eq!(leads_next(&story), Some(id(5)), "4 s are not enough");
    story.pass(1);
    assert_eq!(leads_next(&story), Some(id(4)));
    story.pass(4);
    assert_eq!(leads_next(&story), Some(id(5)));
}

/// An old member has been a voter for long, but has to go as well.
#[test]
fn leadership_moves_to_a_new_member_where_only_a_person_replaces_them() {
    let mut story = outdated(3, false);
    story.etcd().spec.rollout_strategy.type_ = RolloutType::OnDelete;
    story.delete(0);
    story.pass(10);
    joins(&mut story, 3);
    assert_eq!(leads_next(&story), Some(id(3)), "1 and 2 are old");
}

/// Nothing else is to be removed soon, and the older ones are replaced first some day.
#[test]
fn leadership_moves_to_the_newest_where_a_person_replaces_one_member() {
    let mut story = Story::with_voters(3, 3);
    story.delete(0);
    story.pass(10);
    joins(&mut story, 3);
    assert_eq!(leads_next(&story), Some(id(3)));
}

#[test]
fn a_replacement_is_kept_as_long_as_there_are_too_few_without_it() {
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.member(2, true);
    story.healthy(2);
    story.settle();
    edit(&mut story, "3.6.17");
    assert_eq!(replaced(&story.plan()), None, "it is to vote first: {:?}", story.plan());
    story.observation.template = Template::NotFound("gone".to_owned());
    story.voter(2);
    story.publish();
    story.settle();
    assert_eq!(replaced(&story.plan()), None, "{:?}", story.plan());
}

#[test]
fn nothing_goes_as_long_as_nothing_can_be_made_in_its_place() {
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.member(2, true);
    story.healthy(2);
    story.settle();
    story.failing(2, "down");
    edit(&mut story, "3.6.17");
    assert_eq!(replaced(&story.plan()), Some(2), "a learner that fails: {:?}", story.plan());
    story.observation.template = Template::NotFound("gone".to_owned());
    assert_eq!(replaced(&story.plan()), None, "{:?}", story.plan());
}

#[test]
fn no_other_version_is_pinned_while_it_is_not_known_what_runs() {
    let mut story = Story::with_voters(3, 3);
    story.etcd().spec.etcdadm_config_spec.version = Some("3.6.17".to_owned());
    assert!(matches!(story.plan(), Plan::Do(Step::Record { .. })), "{:?}", story.plan());
    story.unlisted();
    assert!(!matches!(story.plan(), Plan::Do(Step::Record { .. })), "{:?}", story.plan());
}

#[test]
fn nobody_is_told_for_the_first_time_of_members_that_are_about_to_go() {
    let mut story = Story::with_voters(3, 1);
    edit(&mut story, "3.6.17");
    for index in 1..3 {
        story.machine(index);
        story.voter(index);
    }
    story.publish();
    let told = story.settle();
    assert!(!told.ready && !told.creation_complete, "{told:?}");
    joins(&mut story, 3);
    assert_eq!(replaced(&story.plan()), Some(0));
    story.delete(0);
    assert!(story.settle().ready);
}

#[test]
fn members_that_join_with_a_vote_are_replaced_by_a_person() {
    let mut story = outdated(3, false);
    (0..3).for_each(|index| runs(&mut story, index, "3.5.9"));
    edit(&mut story, "3.5.33");
    story.takes_one_learner();
    assert_eq!(story.plan(), Plan::Steady);
    let condition = condition(&story, c::MACHINES_UP_TO_DATE);
    assert!(condition.message.contains("join with a vote"), "{condition:?}");
    // As in the target right after a move: the earlier status does not move.
    story.etcd().status = None;
    let told = story.settle();
    assert!(told.ready && told.creation_complete, "they stay until that person comes: {told:?}");
}

#[test]
fn one_is_doubled_too() {
    let mut story = outdated(1, true);
    joins(&mut story, 1);
    assert_eq!(replaced(&story.plan()), Some(0));
    story.delete(0);
    assert_eq!(story.settle().endpoints, urls([1]));
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL);
}

#[test]
fn whoever_changes_their_mind_keeps_what_is_published() {
    let mut story = outdated(3, true);
    joins_of_several(&mut story, 3);
    edit(&mut story, "3.6.16");
    story.settle();
    assert_eq!(replaced(&story.plan()), Some(3), "{:?}", story.plan());
    story.delete(3);
    assert_eq!(story.settle().endpoints, urls(0..3));
    // Machines that are held back go too.
    let mut story = outdated(3, true);
    story.held_back(3);
    edit(&mut story, "3.6.16");
    let plan = story.plan();
    assert!(
        matches!(&plan, Plan::Do(Step::DeleteHeldBack { name: held_back, .. }) if *held_back == name(3)),
        "{plan:?}"
    );
}

#[test]
fn what_is_published_is_finished_before_the_next_rollout_begins() {
    let mut story = outdated(3, true);
    (3..6).for_each(|index| joins_of_several(&mut story, index));
    for index in 0..3 {
        story.delete(index);
    }
    story.settle();
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &format!("{};{}", urls(0..3), urls(3..6)));
    edit(&mut story, "3.6.18");
    story.settle();
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_SAFE_REMOVAL, "{:?}", story.plan());
    let told = condition(&story, c::MACHINES_UP_TO_DATE);
    assert!(told.message.contains("has yet to roll out"), "{told:?}");
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &urls(3..6));
    leaves(&mut story, 1);
    leaves(&mut story, 2);
    has_left(&mut story, 0);
    assert_eq!(creates(&story.plan()), Some(6), "{:?}", story.plan());
}

#[test]
fn from_a_time_on_those_of_before_are_replaced() {
    let mut story = Story::with_voters(3, 3);
    let soon = story.observation.now.as_second() + 30;
    story.etcd().spec.rollout_after = Some(Time(Timestamp::from_second(soon).unwrap()));
    assert_eq!(story.plan(), Plan::Steady);
    assert_eq!(due(&story.observation, &Plan::Steady).map(|left| left.as_secs()), Some(40));
    story.pass(30);
    assert_eq!(story.plan(), Plan::Steady, "clocks may differ");
    story.pass(10);
    assert_eq!(creates(&story.plan()), Some(3));
    joins(&mut story, 3);
    assert_eq!(replaced(&story.plan()), Some(1), "and not the new one: {:?}", story.plan());
}

#[test]
fn members_whose_certificates_expire_are_replaced_before() {
    let mut story = Story::with_voters(3, 3);
    story.observation.certificates = certificates_of_ca_until(Some(Timestamp::MAX));
    let day = SignedDuration::from_hours(24);
    shows_certificates_until(&mut story, 45 * day + SignedDuration::from_secs(30));
    assert_eq!(story.plan(), Plan::Steady);
    assert_eq!(due(&story.observation, &Plan::Steady).map(|left| left.as_secs()), Some(30));
    assert_eq!(condition(&story, c::MACHINES_UP_TO_DATE).status, "True");
    story.pass(30);
    assert_eq!(creates(&story.plan()), Some(3));
    let said = condition(&story, c::MACHINES_UP_TO_DATE).message;
    let named = "3 of 3 Machines do not match the spec (certificates expire within 45 days: demo-etcd-0, demo-etcd-1, demo-etcd-2)";
    assert!(said.starts_with(named), "{said}");
    joins(&mut story, 3);
    assert_eq!(replaced(&story.plan()), Some(1), "and not the new one: {:?}", story.plan());
}

/// All members that answer show certificates that expire after this time, and the status says so.
fn shows_certificates_until(story: &mut Story, left: SignedDuration) {
    let expires = story.observation.now.checked_add(left).ok();
    for probe in story.observation.probes.values_mut() {
        if let Outcome::Answered(report) = &mut probe.outcome {
            report.certificate_expires = expires;
        }
    }
    story.settle();
}

#[test]
fn only_a_person_replaces_them_where_that_is_asked_for() {
    let mut story = outdated(3, true);
    story.etcd().spec.rollout_strategy.type_ = RolloutType::OnDelete;
    assert_eq!(story.plan(), Plan::Steady);
    let condition = condition(&story, c::MACHINES_UP_TO_DATE);
    assert_eq!(condition.reason, reasons::MADE_FROM_AN_EARLIER_SPEC);
}

#[test]
fn nobody_is_replaced_beside_one_that_is_not_well() {
    let mut story = outdated(3, false);
    joins(&mut story, 3);
    story.failing(3, "since a moment");
    assert_eq!(replaced(&story.plan()), None, "{:?}", story.plan());
    story.pass(60);
    assert!(matches!(story.plan(), Plan::Do(Step::BeginRemediation(_))), "that comes first: {:?}", story.plan());
    let mut story = outdated(3, false);
    joins(&mut story, 3);
    story.failing(2, "since a moment");
    assert_eq!(replaced(&story.plan()), Some(2), "whoever serves least goes first");
}

#[test]
fn one_whose_voter_has_failed_makes_no_second_list() {
    let mut story = outdated(3, true);
    joins_of_several(&mut story, 3);
    story.failing(1, "down");
    story.pass(60);
    assert!(matches!(story.plan(), Plan::Do(Step::BeginRemediation(_))), "{:?}", story.plan());
    story.settle();
    let plan_now = story.plan();
    assert!(matches!(&plan_now, Plan::Do(Step::DeleteMachine { why: WhyDeleted::Unhealthy, .. })), "{plan_now:?}");
    story.delete(1);
    assert_eq!(story.settle().endpoints, urls(0..3), "two of three are alive");
    leaves(&mut story, 1);
    (4..6).for_each(|index| joins_of_several(&mut story, index));
    for old in [2, 0] {
        assert_eq!(replaced(&story.plan()), Some(old));
        assert_eq!(story.settle().endpoints, urls(0..3));
        story.delete(old);
    }
    assert_eq!(story.settle().endpoints, urls(3..6));
}

#[test]
fn with_fewer_members_at_the_same_time_it_ends_as_well() {
    let mut story = outdated(5, true);
    story.etcd().spec.replicas = 3;
    let mut deleted = Vec::new();
    while let Plan::Do(Step::DeleteMachine { why: WhyDeleted::Surplus, name }) = story.plan() {
        let index = crate::roster::number(&name).and_then(|number| usize::try_from(number).ok()).unwrap();
        story.delete(index);
        deleted.push(index);
    }
    assert_eq!(deleted, [4, 3], "as many old ones stay as are wanted");
    story.settle();
    (5..8).for_each(|index| joins_of_several(&mut story, index));
    for old in [1, 2, 0] {
        assert_eq!(replaced(&story.plan()), Some(old), "{:?}", story.plan());
        story.delete(old);
    }
    assert_eq!(story.settle().endpoints, urls(5..8));
}

#[test]
fn one_that_somebody_looks_into_stays() {
    let mut story = outdated(3, false);
    let machine = story.observation.machines.get_mut(&name(1)).unwrap();
    machine.annotations.insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
    joins(&mut story, 3);
    assert_eq!(replaced(&story.plan()), Some(2));
}

#[test]
fn one_that_a_bad_spec_has_brought_goes_though_nothing_is_known_of_it() {
    let mut story = outdated(3, true);
    joins_of_several(&mut story, 3);
    story.unknown(3);
    edit(&mut story, "3.6.16");
    assert_eq!(replaced(&story.plan()), Some(3), "{:?}", story.plan());
}

#[test]
fn nothing_is_begun_while_it_is_not_known_what_api_servers_use() {
    let mut story = Story::with_voters(3, 3);
    story.cluster().control_plane = Reference::read(Some(
        &json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "demo"}),
    ));
    edit(&mut story, "3.6.17");
    story.settle();
    assert_eq!(story.plan(), Plan::Steady);
    let condition = condition(&story, c::MACHINES_UP_TO_DATE);
    assert!(condition.message.contains("is missing"), "{condition:?}");
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, "");
    assert_eq!(creates(&story.plan()), Some(3), "none of them");
}

#[test]
fn what_holds_a_rollout_up_is_told() {
    let mut story = outdated(3, true);
    story.observation.template = Template::NotFound("LocalMachineTemplate x does not exist".to_owned());
    let told = condition(&story, c::MACHINES_UP_TO_DATE);
    assert_eq!(told.reason, reasons::TEMPLATE_NOT_FOUND);
    assert!(told.message.contains("3 of 3") && told.message.contains("x does not exist"), "{told:?}");
    assert_eq!(condition(&story, c::READY).status, "True");
    let before = story.observation.etcd.status.clone().unwrap();
    let after = story.settle();
    let events: Vec<&str> = transitions(&before, &after).iter().map(|event| event.reason).collect();
    assert_eq!(events, [reasons::TEMPLATE_NOT_FOUND]);
}

#[test]
fn it_is_ready_again_when_members_could_not_be_asked_for_a_moment() {
    let mut story = outdated(3, true);
    joins_of_several(&mut story, 3);
    story.failing(1, "down");
    story.pass(60);
    assert!(story.settle().ready, "three others are well");
    story.unknown(2);
    assert!(!story.settle().ready);
    story.healthy(1);
    story.healthy(2);
    let told = story.settle();
    assert_eq!((told.ready, told.endpoints), (true, urls(0..3)));
}

#[test]
fn before_the_first_member_is_up_nothing_rolls() {
    let mut story = Story::new(3);
    story.held_back(0);
    story.bootstrap(0);
    edit(&mut story, "3.6.17");
    assert_eq!(replaced(&story.plan()), None, "{:?}", story.plan());
}
