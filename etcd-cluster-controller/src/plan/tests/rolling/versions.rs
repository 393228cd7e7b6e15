//! Rollouts to another version of etcd, and back.

use super::{condition, creates, edit, joins, leaves, outdated, replaced, runs, urls};
use crate::fixture::{Story, id};
use crate::plan::{Hold, Plan, Step, View, due, version_refusal};
use api::conditions::{self as c, reasons};
use api::etcdadm_config::EtcdSettings;
use api::names;

#[test]
fn a_version_that_cannot_be_gone_to_is_reported_and_everything_else_goes_on() {
    let mut story = Story::with_voters(3, 3);
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &urls(0..3));
    story.etcd().spec.etcdadm_config_spec.version = Some("3.8.0".to_owned());
    assert_eq!(story.plan(), Plan::Steady, "it is not pinned");
    let refused = condition(&story, c::MACHINES_UP_TO_DATE);
    assert_eq!(refused.reason, reasons::UNSUPPORTED_VERSION_CHANGE);
    assert!(refused.message.contains("go to 3.7 first"), "{refused:?}");
    assert!(story.settle().ready);
    story.failing(1, "down");
    story.pass(60);
    assert!(matches!(story.plan(), Plan::Do(Step::BeginRemediation(_))), "{:?}", story.plan());
    story.settle();
    assert_eq!(creates(&story.plan()), Some(3), "of the version before: {:?}", story.plan());
    assert_eq!(crate::build::version(&story.observation.etcd), api::version::DEFAULT_ETCD_VERSION);
}

/// A machine would refuse to start it, and each replacement too.
#[test]
fn a_version_without_a_flag_of_the_spec_begins_no_rollout() {
    let mut story = Story::with_voters(3, 3);
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &urls(0..3));
    story.etcd().spec.etcdadm_config_spec.version = Some("3.7.3".to_owned());
    story.with_flag("experimental-initial-corrupt-check", "true");
    assert_eq!(story.plan(), Plan::Steady, "it is not pinned");
    let refused = condition(&story, c::MACHINES_UP_TO_DATE);
    assert_eq!(refused.reason, reasons::UNSUPPORTED_VERSION_CHANGE);
    for part in
        ["spec.etcdadmConfigSpec.etcd.extraFlags[0]: ", "write feature-gates with the value InitialCorruptCheck"]
    {
        assert!(refused.message.contains(part), "{refused:?}");
    }
    story.with_flag("feature-gates", "InitialCorruptCheck=true");
    assert!(matches!(story.plan(), Plan::Do(Step::Record { .. })), "{:?}", story.plan());
    // Without a version in the spec, the recorded one is in force.
    story.etcd().spec.etcdadm_config_spec.version = None;
    story.with_flag("feature-gates", "LeaseCheckpointPersist=true");
    assert_eq!(story.plan(), Plan::Steady, "no rollout begins");
    let refused = condition(&story, c::MACHINES_UP_TO_DATE);
    assert!(refused.message.contains("extraFlags[0]: feature-gates: LeaseCheckpointPersist takes"), "{refused:?}");
}

/// Flags of the version that is refused are not flags of the version that new members get.
#[test]
fn no_machine_is_made_that_would_not_start_etcd() {
    let mut story = Story::with_voters(3, 3);
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &urls(0..3));
    (0..3).for_each(|index| runs(&mut story, index, "3.5.31"));
    story.annotate(names::PINNED_VERSION_ANNOTATION, "3.5.31");
    story.takes_one_learner();
    story.etcd().spec.etcdadm_config_spec.version = Some("3.6.16".to_owned());
    story.with_flag("feature-gates", "CompactHashCheck=true");
    let refused = condition(&story, c::MACHINES_UP_TO_DATE);
    for part in ["go to 3.5.32 or later first", "no Machine is made", "extraFlags[0]: feature-gates: etcd 3.5.31"] {
        assert!(refused.message.contains(part), "{part}: {refused:?}");
    }
    story.failing(1, "down");
    story.pass(60);
    assert!(matches!(story.plan(), Plan::Do(Step::BeginRemediation(_))), "{:?}", story.plan());
    story.settle();
    let plan = story.plan();
    let is_right =
        |hold: &Hold| hold.reason == reasons::UNSUPPORTED_VERSION_CHANGE && hold.message.contains("extraFlags[0]");
    assert!(matches!(&plan, Plan::Block(hold) if is_right(hold)), "{plan:?}");
    story.with_flag("experimental-compact-hash-check-enabled", "true");
    assert_eq!(creates(&story.plan()), Some(3), "{:?}", story.plan());
    // One that is held back could start etcd, unlike one that would be made again.
    let mut story = Story::with_voters(3, 2);
    story.held_back(2);
    story.with_flag("feature-gates", "LeaseCheckpointPersist=true");
    assert!(!matches!(story.plan(), Plan::Do(Step::DeleteHeldBack { .. })), "{:?}", story.plan());
    story.with_flag("feature-gates", "CompactHashCheck=true");
    assert!(matches!(story.plan(), Plan::Do(Step::DeleteHeldBack { .. })), "{:?}", story.plan());
}

/// A new member raises the alarm NOSPACE for all with its first write.
#[test]
fn no_member_comes_whose_quota_is_smaller_than_the_database() {
    const GIB: i64 = 1 << 30;
    let mut story = Story::with_voters(3, 3);
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &urls(0..3));
    let quota = |story: &mut Story, bytes| {
        let settings = EtcdSettings { quota_backend_bytes: bytes, ..EtcdSettings::default() };
        story.etcd().spec.etcdadm_config_spec.etcd = Some(settings);
    };
    let refusal = |story: &Story| version_refusal(&View::new(&story.observation)).unwrap_or_default();
    story.sized(5 * GIB);
    for (bytes, says) in [
        (
            Some(4 * GIB),
            "spec.etcdadmConfigSpec.etcd.quotaBackendBytes: 4294967296 is not more than the database has: 5368709120 bytes",
        ),
        (None, "quotaBackendBytes: 2147483648, etcd's default, is not more"),
        (Some(5 * GIB), "5368709120 is not more"),
        (Some(6 * GIB), ""),
    ] {
        quota(&mut story, bytes);
        let why = refusal(&story);
        assert!(why.contains(says) && why.is_empty() == says.is_empty(), "{bytes:?}: {why}");
    }
    quota(&mut story, None);
    assert_eq!(story.plan(), Plan::Steady, "no rollout begins");
    assert!(condition(&story, c::MACHINES_UP_TO_DATE).message.contains("no Machine is made"));
    story.etcd().spec.etcdadm_config_spec.etcd = None;
    assert!(refusal(&story).contains("2147483648"), "the whole field was removed");
    story.etcd().spec.replicas = 5;
    assert!(matches!(story.plan(), Plan::Block(_)), "{:?}", story.plan());
    assert!(due(&story.observation, &story.plan()).is_some(), "a size that changes a little is not reported");
    story.alarms(&[(0, "NOSPACE")]);
    assert_eq!(creates(&story.plan()), Some(3), "etcd refuses writes already: {:?}", story.plan());
    assert!(!refusal(&story).is_empty(), "the members would be full again when the alarm is ended");
    story.etcd().spec.replicas = 3;
    assert_eq!(due(&story.observation, &story.plan()).map(|due| due.as_secs()), Some(10));
    story.etcd().spec.replicas = 5;
    story.sized(GIB);
    story.alarms(&[]);
    assert_eq!(creates(&story.plan()), Some(3), "{:?}", story.plan());
}

#[test]
fn a_way_back_is_open_as_long_as_a_member_of_the_earlier_version_stays() {
    let mut story = outdated(3, false);
    joins(&mut story, 3);
    runs(&mut story, 3, "3.7.3");
    story.etcd().spec.etcdadm_config_spec.version = Some("3.6.16".to_owned());
    assert_eq!(version_refusal(&View::new(&story.observation)), None);
    for index in 0..3 {
        story.delete(index);
    }
    let refused = version_refusal(&View::new(&story.observation)).unwrap();
    assert!(refused.contains("stay with 3.7"), "{refused}");
    story.etcd().spec.etcdadm_config_spec.version = Some("3.8.0".to_owned());
    let refused = version_refusal(&View::new(&story.observation)).unwrap();
    assert!(refused.contains("go to 3.7 first"), "those that leave are members still: {refused}");
}

/// Records what the plan wants to record.
fn records(story: &mut Story) {
    while let Plan::Do(Step::Record { annotations, .. }) = story.plan() {
        for (key, value) in annotations {
            story.annotate(key, &value.unwrap());
        }
    }
}

fn pinned(story: &Story) -> &str {
    crate::build::version(&story.observation.etcd)
}

fn asks_for(story: &mut Story, version: &str) {
    story.etcd().spec.etcdadm_config_spec.version = Some(version.to_owned());
    records(story);
    story.settle();
}

/// The first of three runs 3.5, the others have been replaced by two of 3.6, and then the spec says 3.5 again.
fn taken_back_halfway() -> Story {
    let mut story = Story::new(3);
    story.takes_one_learner();
    edit(&mut story, "3.5.32");
    for index in 0..3 {
        story.machine(index);
        story.voter(index);
        runs(&mut story, index, "3.5.32");
    }
    story.publish();
    story.settle();
    asks_for(&mut story, "3.6.16");
    for (old, new) in [(1, 3), (2, 4)] {
        joins(&mut story, new);
        assert_eq!(replaced(&story.plan()), Some(old), "{:?}", story.plan());
        story.delete(old);
        story.settle();
        leaves(&mut story, old);
    }
    asks_for(&mut story, "3.5.32");
    assert_eq!((pinned(&story), creates(&story.plan())), ("3.5.32", Some(5)), "one of them stays");
    story
}

#[test]
fn when_the_last_member_of_an_earlier_version_fails_new_ones_get_what_the_others_run() {
    let mut story = taken_back_halfway();
    story.failing(0, "down");
    story.led_by(id(3));
    records(&mut story);
    assert_eq!(pinned(&story), "3.5.32", "it may be back in a moment");
    story.pass(60);
    records(&mut story);
    assert_eq!(pinned(&story), "3.6.16", "when it has left, etcd takes none of 3.5 any more");
    let refused = condition(&story, c::MACHINES_UP_TO_DATE);
    assert_eq!(refused.reason, reasons::UNSUPPORTED_VERSION_CHANGE);
    assert!(refused.message.contains("stay with 3.6"), "{refused:?}");
    assert!(matches!(story.plan(), Plan::Do(Step::BeginRemediation(_))), "{:?}", story.plan());
    story.settle();
    assert_eq!(creates(&story.plan()), Some(5), "{:?}", story.plan());
    story.healthy(0);
    story.led_by(id(3));
    runs(&mut story, 0, "3.5.32");
    records(&mut story);
    assert_eq!(pinned(&story), "3.5.32", "it is back, and so is the way");
}

#[test]
fn when_the_last_member_of_an_earlier_version_goes_new_ones_get_what_the_others_run() {
    let mut story = taken_back_halfway();
    story.delete(0);
    records(&mut story);
    assert_eq!(pinned(&story), "3.6.16");
    asks_for(&mut story, "3.4.40");
    assert_eq!(pinned(&story), "3.6.16", "nor any version before");
    asks_for(&mut story, "3.6.17");
    assert_eq!((pinned(&story), condition(&story, c::MACHINES_UP_TO_DATE).reason.as_str()), ("3.6.17", "RollingOut"));
}

#[test]
fn what_is_recorded_stays_while_it_is_not_known_what_runs() {
    let mut story = taken_back_halfway();
    story.failing(0, "down");
    story.led_by(id(3));
    story.pass(60);
    story.unlisted();
    records(&mut story);
    assert_eq!(pinned(&story), "3.5.32");
}
