//! `clusterctl move`: nothing is done from the source any more, nothing is forgotten in the target, and a move does not
//! begin while something would be lost.

use super::reason;
use crate::fixture::{Story, name};
use crate::observation::{ClusterLink, Membership};
use crate::plan::moved::{Loss, loss};
use crate::plan::{Plan, Step, plan};
use crate::status::status;
use api::EtcdClusterStatus;
use api::conditions::{self as c, reasons};
use api::etcd_cluster::{Operation, OperationKind, RemovalState, RemovedMember};
use api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

/// clusterctl's mark, in place of all other annotations.
fn mark() -> BTreeMap<String, String> {
    [(names::DELETE_FOR_MOVE_ANNOTATION.to_owned(), String::new())].into()
}

/// Four voters where three are wanted. The Machine of one is deleted, and its member leaves.
fn one_leaves() -> Story {
    let mut story = Story::with_voters(3, 4);
    story.delete(3);
    assert!(matches!(story.plan(), Plan::Do(Step::Begin(_))), "{:?}", story.plan());
    story
}

/// The EtcdCluster is being deleted, and its Cluster is not seen any more.
fn etcd_goes() -> Story {
    let mut story = Story::with_voters(3, 3);
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    story.observation.cluster = ClusterLink::None { message: "it is gone".to_owned(), living: None };
    assert!(matches!(story.plan(), Plan::Do(Step::DeleteMachines { .. })), "{:?}", story.plan());
    story
}

/// Status and reason of its condition Paused.
fn paused(story: &Story) -> (String, String) {
    let decision = plan(&story.observation);
    let conditions = status(&story.observation, &decision, None).conditions;
    let found = conditions.into_iter().find(|condition| condition.type_ == c::PAUSED).unwrap();
    (found.status, found.reason)
}

#[test]
fn a_mark_is_no_pause_and_is_not_said_to_be_one() {
    let is = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    let whole = Story::with_voters(3, 3);
    let mut marked = whole.clone();
    marked.etcd().metadata.annotations = Some(mark());
    let mut one_machine = whole;
    one_machine.observation.machines.get_mut(&name(1)).unwrap().annotations = mark();
    for story in [&mut marked, &mut one_machine] {
        assert_eq!(reason(&story.plan()), reasons::MOVED_AWAY);
        assert_eq!(paused(story), is("False", reasons::NOT_PAUSED), "else the mark alone lets it be deleted");
        assert!(!plan(&story.observation).publish.ready, "the other side says whether it is");
        // As clusterctl does it: the annotation that pauses the EtcdCluster itself is gone by then, and the Cluster is
        // paused.
        story.cluster().paused_by = Some("spec.paused".to_owned());
        assert_eq!(reason(&story.plan()), reasons::PAUSED);
        assert_eq!(paused(story), is("True", reasons::PAUSED));
    }
    marked.cluster().paused_by = None;
    marked.annotate(names::PAUSED_ANNOTATION, names::PAUSED_FOR_MOVE_VALUE);
    assert_eq!(paused(&marked), is("True", reasons::PAUSED));
}

#[test]
fn the_member_of_a_machine_that_is_moved_away_stays_also_where_the_pause_is_lost() {
    let mut story = one_leaves();
    story.observation.machines.get_mut(&name(3)).unwrap().annotations = mark();
    let plan = story.plan();
    assert_eq!(reason(&plan), reasons::MOVED_AWAY);
    let message = &plan.hold().unwrap().message;
    assert!(message.starts_with("Machine demo-etcd-3 has annotation clusterctl"), "{message}");
}

#[test]
fn an_operation_that_was_begun_is_not_gone_on_with_from_the_side_that_etcd_has_left() {
    let mut story = one_leaves();
    story.settle();
    assert!(matches!(story.plan(), Plan::Do(Step::RemoveMember(_))), "{:?}", story.plan());
    story.etcd().metadata.annotations = Some(mark());
    assert_eq!(reason(&story.plan()), reasons::MOVED_AWAY);
}

#[test]
fn machines_are_not_deleted_with_an_etcd_that_is_moved_away_also_where_its_cluster_is_gone() {
    let mut story = etcd_goes();
    story.etcd().metadata.annotations = Some(mark());
    assert_eq!(reason(&story.plan()), reasons::MOVED_AWAY);
    for machine in story.observation.machines.values_mut() {
        machine.annotations = mark();
        (machine.deleting, machine.deleted) = (true, Some(Time(story.observation.now)));
    }
    assert_eq!(reason(&story.plan()), reasons::MOVED_AWAY);
    // The move was given up, and the Cluster is deleted here: that always finishes.
    story.annotate(names::CONFIRM_DELETION_ANNOTATION, "demo-etcd");
    assert!(!matches!(&story.plan(), Plan::Wait(hold) if hold.reason == reasons::MOVED_AWAY), "{:?}", story.plan());
}

/// The same story in the target: other UIDs, other times, no status.
fn arrived(source: &Story) -> Story {
    let mut story = source.clone();
    let now = story.observation.now;
    let etcd = story.etcd();
    etcd.metadata.uid = Some("another-etcd-uid".to_owned());
    etcd.status = None;
    for machine in story.observation.machines.values_mut() {
        machine.uid = format!("another-{}", machine.uid);
        machine.created = Some(Time(now));
    }
    story
}

#[test]
fn what_has_arrived_is_taken_over_as_it_is() {
    let mut source = Story::with_voters(3, 3);
    for index in 0..3 {
        source.admit(index);
    }
    let before = source.settle();
    assert_eq!(source.plan(), Plan::Steady);
    let mut story = arrived(&source);
    assert_eq!(story.plan(), Plan::Steady, "nobody is admitted, made or let go");
    let after = story.settle();
    assert!(after.ready && after.initialized && after.creation_complete, "{:?}", after.conditions);
    assert_eq!((&after.endpoints, &after.cluster_id), (&before.endpoints, &before.cluster_id));
    let members = |status: &EtcdClusterStatus| {
        let members = status.members.iter().map(|member| (member.id.clone(), member.machine.clone()));
        members.collect::<Vec<_>>()
    };
    assert_eq!(members(&after), members(&before));
    assert!(after.removed_members.is_empty() && after.released_machine_uids.is_empty() && after.operation.is_none());
    assert_eq!(story.plan(), Plan::Steady, "and so it stays");
}

#[test]
fn nothing_begins_again_before_the_members_have_answered() {
    let mut story = arrived(&Story::with_voters(3, 3));
    story.observation.probes.clear();
    story.observation.membership = Membership::NotAsked;
    for machine in story.observation.machines.values_mut() {
        machine.addresses.clear();
    }
    let plan = story.plan();
    assert!(matches!(plan, Plan::Wait(_) | Plan::Block(_)), "{plan:?}");
    let status = story.settle();
    assert!(!status.ready && status.endpoints.is_empty(), "{status:?}");
    assert_eq!(status.cluster_id, "c", "the annotation has it");
}

/// What a move would lose.
fn loses(story: &Story) -> Loss {
    let decision = plan(&story.observation);
    loss(&story.observation, &decision.next, &status(&story.observation, &decision, None))
}

/// The same, if it is something.
fn blocks(story: &Story) -> Option<String> {
    match loses(story) {
        Loss::Of(what) => Some(what),
        Loss::Nothing | Loss::Unknown => None,
    }
}

#[test]
fn a_move_waits_for_what_it_would_lose() {
    let whole = Story::with_voters(3, 3);
    assert_eq!(loses(&whole), Loss::Nothing);
    assert_eq!(blocks(&Story::new(3)).as_deref(), Some("creating Machine number 0"));
    let mut spare = Story::new(3);
    spare.cluster().paused_by = Some("spec.paused".to_owned());
    assert_eq!(loses(&spare), Loss::Nothing, "nothing has been made for it");
    assert!(blocks(&one_leaves()).unwrap().starts_with("about to begin "));
    let mut grows = whole.clone();
    grows.etcd().spec.replicas = 5;
    assert_eq!(blocks(&grows).as_deref(), Some("creating Machine number 3"));
    let mut goes = whole.clone();
    goes.delete(0);
    assert!(blocks(&goes).is_some());
    let mut unknown = whole.clone();
    unknown.unlisted();
    assert_eq!(loses(&unknown), Loss::Unknown, "a moment without an answer changes nothing");
    unknown.delete(0);
    assert!(blocks(&unknown).is_some(), "what is known of it counts all the same");
    let mut fails = whole.clone();
    fails.failing(2, "no answer in time");
    assert_eq!(loses(&fails), Loss::Nothing, "how members are is found out again");

    let after = |change: &dyn Fn(&mut EtcdClusterStatus)| {
        let decision = plan(&whole.observation);
        let mut after = status(&whole.observation, &decision, None);
        change(&mut after);
        match loss(&whole.observation, &decision.next, &after) {
            Loss::Of(what) => Some(what),
            Loss::Nothing | Loss::Unknown => None,
        }
    };
    let incomplete = after(&|status| status.creation_complete = false);
    assert_eq!(incomplete.as_deref(), Some("etcd has not been complete yet"));
    let since = || Time(whole.observation.now);
    let begun = after(&|status| {
        status.operation = Some(Operation {
            kind: OperationKind::RemoveMember,
            member_id: "100".to_owned(),
            machine_uid: "uid-0".to_owned(),
            since: since(),
            attempt: 0,
        });
    });
    assert_eq!(begun.as_deref(), Some("the removal of member 100"));
    let removed = after(&|status| {
        status.removed_members.push(RemovedMember {
            id: "100".to_owned(),
            machine: name(0),
            machine_uid: "uid-0".to_owned(),
            state: RemovalState::Removed,
            never_started: false,
            since: since(),
        });
    });
    assert_eq!(removed.as_deref(), Some("member 100 has left, or is missing, and Machine demo-etcd-0 is there"));
    assert!(after(&|status| status.released_machine_uids.push("uid-0".to_owned())).is_some());
}
