//! When a deletion is checked again although no event comes.

use crate::fixture::Story;
use crate::plan::{Hold, Plan, due};
use api::conditions::reasons;
use api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

/// For how long a lost event may delay a deletion.
const LOOKED_AT_AGAIN: Duration = Duration::from_secs(30);

/// The deletion is checked again, and nothing else would cause that so soon.
fn is_looked_at_again(story: &Story, plan: &Plan) {
    assert_eq!(due(&story.observation, plan), Some(LOOKED_AT_AGAIN), "{plan:?}");
    let otherwise = due(&story.observation, &Plan::Steady);
    assert!(otherwise.is_none_or(|otherwise| otherwise > LOOKED_AT_AGAIN), "{otherwise:?}");
}

#[test]
fn a_refused_deletion_is_tried_again() {
    let mut story = Story::with_voters(3, 3);
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    let refused = Plan::Block(Hold::new(reasons::REFUSED, "forbidden"));
    let again = due(&story.observation, &refused);
    assert_eq!(again, Some(Duration::from_secs(10)), "no watch tells that a permission has come");
}

#[test]
fn machines_that_go_are_looked_at_again() {
    let mut story = Story::with_voters(3, 3);
    story.delete_at_once(2);
    is_looked_at_again(&story, &Plan::Wait(Hold::new(reasons::DELETING, "one Machine goes")));

    // The same when all Machines go, because a person has confirmed the deletion.
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    story.annotate(names::CONFIRM_DELETION_ANNOTATION, "demo-etcd");
    story.delete_at_once(0);
    story.delete_at_once(1);
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Wait(hold) if hold.reason == reasons::DELETING), "{plan:?}");
    is_looked_at_again(&story, &plan);
}

#[test]
fn an_etcd_cluster_that_others_keep_is_looked_at_again() {
    let mut story = Story::with_voters(1, 1);
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    story.annotate(names::CONFIRM_DELETION_ANNOTATION, "demo-etcd");
    story.gone(0);
    story.etcd().metadata.finalizers = Some(vec!["example.com/theirs".to_owned()]);
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Wait(hold) if hold.message.contains("example.com/theirs")), "{plan:?}");
    is_looked_at_again(&story, &plan);
}
