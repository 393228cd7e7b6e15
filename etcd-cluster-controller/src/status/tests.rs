//! What the status reports, and that it does not change while nothing has changed.

mod alarms;
mod between_steps;
mod certificates;
mod failures;
mod refusals;
mod without_backup;

use super::transitions::transitions;
use super::*;
use crate::fixture::{Story, cluster, id, name};
use crate::observation::{Certificates, ClusterLink, Membership, Outcome};
use crate::plan::Plan;
use api::conditions::{self as c, reasons};
use api::etcd_cluster::{Health, MemberRole, RolloutType};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

fn condition<'a>(status: &'a EtcdClusterStatus, type_: &str) -> &'a Condition {
    status.conditions.iter().find(|condition| condition.type_ == type_).unwrap()
}

fn shows(status: &EtcdClusterStatus, type_: &str) -> (String, String) {
    let condition = condition(status, type_);
    (condition.status.clone(), condition.reason.clone())
}

#[test]
fn three_healthy_voters_are_ready() {
    let status = Story::with_voters(3, 3).settle();
    assert!(status.ready && status.initialized && status.creation_complete);
    assert_eq!((status.replicas, status.ready_replicas, status.updated_replicas), (3, 3, 3));
    assert_eq!((status.available_replicas, status.up_to_date_replicas), (3, 3));
    assert_eq!(status.endpoints, "https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379");
    assert_eq!(status.endpoint, status.endpoints);
    assert_eq!((status.version.as_str(), status.cluster_id.as_str()), ("3.6.16", "c"));
    assert_eq!(status.init_machine_address, "demo-etcd-init");
    for type_ in [
        c::READY,
        c::AVAILABLE,
        c::INITIALIZED,
        c::CERTIFICATES_AVAILABLE,
        c::MEMBERS_HEALTHY,
        c::ENDPOINTS_AVAILABLE,
        c::MACHINES_UP_TO_DATE,
    ] {
        assert_eq!(condition(&status, type_).status, "True", "{type_}");
    }
    for type_ in [c::SCALING_UP, c::ROLLING_OUT, c::PAUSED, c::DELETING] {
        assert_eq!(condition(&status, type_).status, "False", "{type_}");
    }
    let leaders: Vec<&str> = status.members.iter().filter(|m| m.leader).map(|m| m.name.as_str()).collect();
    assert_eq!(leaders, ["demo-etcd-0"]);
}

#[test]
fn time_alone_changes_nothing() {
    let mut story = Story::with_voters(3, 3);
    let before = story.settle();
    story.pass(86_400);
    assert_eq!(story.settle(), before);
}

#[test]
fn a_growing_database_is_written_by_tenths() {
    let mut story = Story::with_voters(1, 1);
    let size = |story: &mut Story, bytes: i64| {
        if let Outcome::Answered(report) = &mut story.observation.probes.get_mut(&name(0)).unwrap().outcome {
            report.database_size = bytes;
        }
        story.settle().members[0].database_size_bytes
    };
    assert_eq!(size(&mut story, 1_000_000), Some(1_000_000));
    assert_eq!(size(&mut story, 1_099_999), Some(1_000_000));
    assert_eq!(size(&mut story, 1_100_000), Some(1_100_000));
    story.etcd().status.as_mut().unwrap().members[0].database_size_bytes = Some(i64::MIN);
    assert_eq!(size(&mut story, 1_000), Some(1_000), "whatever somebody has written there");
}

#[test]
fn conditions_of_others_mean_no_write() {
    let mut story = Story::with_voters(1, 1);
    let ours = story.settle();
    let mut before = ours.clone();
    before.conditions.insert(0, Condition { type_: "Zebra".to_owned(), ..ours.conditions[0].clone() });
    before.conditions.reverse();
    assert!(!differs(Some(&before), &ours));
    before.conditions.retain(|condition| condition.type_ != c::READY);
    assert!(differs(Some(&before), &ours));
    assert!(differs(None, &ours));
}

#[test]
fn an_address_that_comes_or_goes_does_not_roll_the_control_plane() {
    let mut story = Story::with_voters(3, 3);
    let before = story.settle();
    let machine = |story: &mut Story, addresses: &[&str]| {
        let machine = story.observation.machines.get_mut(&name(1)).unwrap();
        machine.addresses = addresses.iter().map(|a| ("InternalIP".to_owned(), (*a).to_owned())).collect();
    };
    // A machine that is off may have lost its addresses.
    machine(&mut story, &[]);
    story.failing(1, "no answer in time");
    assert!(!matches!(story.plan(), Plan::Do(_)), "the init Secret stays as well");
    assert_eq!(story.settle().endpoints, before.endpoints);
    machine(&mut story, &["10.0.0.200"]);
    assert_eq!(story.settle().endpoints, before.endpoints, "nothing answers at the new address");
    story.pass(60);
    let status = story.settle();
    assert!(!status.ready);
    assert_eq!(status.endpoints, before.endpoints);
    story.healthy(1);
    assert!(story.settle().endpoints.contains("10.0.0.200"));
}

#[test]
fn a_machine_that_is_said_to_have_another_ones_address_keeps_its_endpoint() {
    let mut story = Story::with_voters(3, 3);
    let before = story.settle();
    let others = story.observation.machines[&name(0)].addresses.clone();
    story.observation.machines.get_mut(&name(1)).unwrap().addresses = others;
    // The member does not answer, or does not answer yet at its old address.
    story.failing(1, "Connection refused");
    assert!(!matches!(story.plan(), Plan::Do(_)), "the init Secret keeps it: {:?}", story.plan());
    assert_eq!(story.settle().endpoints, before.endpoints);
    // The member answers at its old address.
    story.healthy(1);
    story.observation.probes.get_mut(&name(1)).unwrap().url = before.members[1].client_url.clone();
    let status = story.settle();
    assert!(status.ready, "{:?}", status.conditions);
    assert_eq!(status.endpoints, before.endpoints);
    assert_eq!(story.plan(), Plan::Steady, "the init Secret has it as well");
}

#[test]
fn a_failing_member_counts_until_it_has_failed_long_enough() {
    let mut story = Story::with_voters(3, 3);
    let healthy = story.settle();
    story.failing(1, "connection refused");
    let early = story.settle();
    assert!(early.ready, "one failed check is not a failure");
    assert_eq!((early.ready_replicas, early.available_replicas), (3, 2));
    assert_eq!(shows(&early, c::MEMBERS_HEALTHY), ("False".to_owned(), reasons::MEMBER_UNHEALTHY.to_owned()));
    story.pass(59);
    story.failing(1, "no answer in time");
    assert_eq!(story.settle(), early, "other words for the same failure are not news");
    story.pass(1);
    let late = story.settle();
    assert!(!late.ready);
    assert_eq!((late.ready_replicas, late.replicas), (2, 3));
    assert_eq!(shows(&late, c::AVAILABLE).0, "True");
    assert_eq!(late.endpoints, healthy.endpoints, "a voter that is down keeps its endpoint");
    assert!(late.members[1].message.contains("connection refused"), "{:?}", late.members[1]);
    assert_eq!(late.members[1].health, Health::Unhealthy);
    assert!(late.members.iter().all(|member| member.healthy_since.is_none() || member.unhealthy_since.is_none()));
    let told = transitions(&early, &late);
    let [begins, warning] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((begins.warning, begins.reason), (false, reasons::REPLACING_MEMBER));
    assert_eq!(warning.reason, "MemberUnhealthy");
    for part in ["member demo-etcd-1", "since 1970-01-01T00:16:40Z", "connection refused", "delete Machine demo-etcd-1"]
    {
        assert!(warning.note.contains(part), "{part} is missing in {}", warning.note);
    }
    story.healthy(1);
    let back = story.settle();
    assert!(back.ready);
    assert_eq!(back.members[1].healthy_since, Some(Time(story.observation.now)));
}

#[test]
fn a_lost_quorum_is_said_and_the_endpoints_stay() {
    let mut story = Story::with_voters(3, 3);
    let endpoints = story.settle().endpoints;
    story.failing(1, "down");
    story.failing(2, "down");
    story.unlisted();
    let early = story.settle();
    story.pass(60);
    let status = story.settle();
    assert_eq!(shows(&status, c::AVAILABLE), ("False".to_owned(), reasons::QUORUM_LOST.to_owned()));
    assert_eq!(status.endpoints, endpoints);
    assert_eq!(status.members.len(), 3);
    assert!(transitions(&early, &status).iter().any(|t| t.warning && t.reason == reasons::QUORUM_LOST));
}

#[test]
fn an_only_member_that_does_not_start_again_is_a_lost_quorum_and_nothing_new_is_made() {
    let mut story = Story::with_voters(1, 1);
    story.settle();
    story.failing(0, "connection refused");
    story.unlisted();
    story.settle();
    story.pass(60);
    let status = story.settle();
    assert_eq!(shows(&status, c::AVAILABLE), ("False".to_owned(), reasons::QUORUM_LOST.to_owned()));
    assert!(condition(&status, c::AVAILABLE).message.contains("lost its data"));
    assert!(!status.ready);
    assert!(!matches!(story.plan(), Plan::Do(_)), "{:?}", story.plan());
}

#[test]
fn a_deletion_blames_no_member() {
    let mut story = Story::with_voters(3, 3);
    let before = story.settle();
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    story.observation.probes.clear();
    story.observation.membership = Membership::NotAsked;
    story.observation.machines.clear();
    let status = story.settle();
    assert_eq!(status.members, before.members);
    assert_eq!(shows(&status, c::DELETING).0, "True");
    assert!(!status.ready);
}

#[test]
fn a_fault_of_ours_is_not_theirs_and_not_health() {
    let mut story = Story::with_voters(3, 3);
    let before = story.settle();
    (0..3).for_each(|index| story.unknown(index));
    story.unlisted();
    let status = story.settle();
    assert!(!status.ready && status.ready_replicas == 0, "what cannot be asked is not well");
    assert_eq!(shows(&status, c::AVAILABLE), ("Unknown".to_owned(), reasons::HEALTH_UNKNOWN.to_owned()));
    assert_eq!(shows(&status, c::MEMBERS_HEALTHY), ("Unknown".to_owned(), reasons::HEALTH_UNKNOWN.to_owned()));
    assert!(status.members.iter().all(|member| member.health == Health::Unknown && member.unhealthy_since.is_none()));
    assert!(status.members[0].message.contains("file descriptors"), "{:?}", status.members[0]);
    assert_eq!(status.endpoints, before.endpoints);
    assert!(transitions(&before, &status).is_empty(), "{:?}", transitions(&before, &status));
    let since = "since 1970-01-01T00:16:40Z)";
    for type_ in [c::READY, c::AVAILABLE, c::MEMBERS_HEALTHY] {
        assert!(condition(&status, type_).message.contains(since), "{type_}: {}", condition(&status, type_).message);
    }
    story.pass(86_400);
    assert_eq!(story.settle(), status, "it is told once");
}

#[test]
fn a_quorum_that_does_not_answer_is_not_said_to_be_available() {
    let mut story = Story::with_voters(3, 3);
    story.settle();
    story.unlisted();
    assert_eq!(shows(&story.settle(), c::AVAILABLE).0, "True", "all have just answered, and the list is read again");
    story.failing(1, "down");
    assert_eq!(shows(&story.settle(), c::AVAILABLE).0, "True", "two have");
    story.failing(2, "down");
    let status = story.settle();
    assert_eq!(shows(&status, c::AVAILABLE), ("Unknown".to_owned(), reasons::HEALTH_UNKNOWN.to_owned()));
    assert!(status.members.iter().all(|member| member.health == Health::Healthy), "not yet for long enough");
    story.pass(60);
    assert_eq!(shows(&story.settle(), c::AVAILABLE).1, reasons::QUORUM_LOST);
}

#[test]
fn a_member_whose_machine_is_gone_is_not_healthy() {
    let mut story = Story::with_voters(3, 3);
    let before = story.settle();
    story.gone(0);
    let one = story.settle();
    assert_eq!((one.ready, one.ready_replicas, one.members.len()), (false, 2, 3));
    assert_eq!(shows(&one, c::AVAILABLE).0, "True");
    assert!(one.members[0].message.contains("its Machine demo-etcd-0 is gone"), "{:?}", one.members[0]);
    assert_eq!(one.endpoints.split(',').count(), 2);
    story.gone(1);
    story.unlisted();
    let two = story.settle();
    assert_eq!((two.ready, two.ready_replicas), (false, 1));
    assert_eq!(shows(&two, c::AVAILABLE).0, "Unknown");
    assert!(before.ready);
}

#[test]
fn an_unhealthy_member_stays_so_while_it_fails_after_a_restart_of_the_controller() {
    let mut story = Story::with_voters(3, 3);
    story.failing(1, "down");
    story.settle();
    story.pass(60);
    let before = story.settle();
    assert_eq!(before.members[1].health, Health::Unhealthy);
    // The new process knows nothing about the earlier run.
    story.observation.probes.remove(&name(1));
    story.failing(1, "down");
    let after = story.settle();
    assert_eq!((after.ready, after.ready_replicas), (false, 2));
    assert_eq!(after.members[1].health, Health::Unhealthy);
    assert!(transitions(&before, &after).is_empty(), "nobody is told twice");
}

#[test]
fn no_bring_up_sends_a_warning() {
    let mut story = Story::new(3);
    let mut before = EtcdClusterStatus::default();
    let mut quiet = |story: &mut Story| {
        let after = story.settle();
        let warnings: Vec<_> = transitions(&before, &after).into_iter().filter(|told| told.warning).collect();
        assert!(warnings.is_empty(), "{warnings:?}");
        if before.initialized {
            assert_eq!(shows(&after, c::AVAILABLE).0, "True", "{:?}", condition(&after, c::AVAILABLE));
        }
        before = after;
    };
    for index in 0..3 {
        story.machine(index);
        quiet(&mut story);
        // The machine boots for a long time, with its port closed.
        story.pass(90);
        quiet(&mut story);
        if index > 0 {
            story.member(index, true);
            quiet(&mut story);
        }
        // The member votes before any check has found it as a member.
        story.member(index, false);
        quiet(&mut story);
        story.observation.probes.remove(&name(index));
        quiet(&mut story);
        // The latest check is from before the member served.
        story.failing(index, "connection refused");
        quiet(&mut story);
        story.healthy(index);
        quiet(&mut story);
        story.publish();
        quiet(&mut story);
    }
    assert!(before.ready);
}

#[test]
fn a_member_removed_by_hand_is_reported() {
    let mut story = Story::with_voters(3, 3);
    let before = story.settle();
    story.unlist(1);
    story.publish();
    story.settle();
    let after = story.settle();
    assert_eq!(shows(&after, c::MEMBERS_HEALTHY), ("False".to_owned(), reasons::MEMBER_MISSING.to_owned()));
    assert_eq!(shows(&after, c::READY).1, reasons::MEMBER_MISSING);
    let message = &condition(&after, c::READY).message;
    assert!(message.contains("member 101 of Machine demo-etcd-1") && message.contains("Delete Machine demo-etcd-1"));
    assert!(transitions(&before, &after).iter().any(|told| told.warning && told.reason == reasons::MEMBER_MISSING));
    story.pass(60);
    assert_eq!(story.settle(), after, "it is told once");
}

#[test]
fn a_learner_is_no_endpoint() {
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.member(2, true);
    story.healthy(2);
    let status = story.settle();
    assert_eq!(status.endpoints, "https://10.0.0.1:2379,https://10.0.0.2:2379");
    assert_eq!((status.ready, status.ready_replicas, status.replicas), (false, 2, 3));
    assert_eq!(status.members[2].role, MemberRole::Learner);
    assert_eq!(shows(&status, c::READY).1, reasons::WAITING_FOR_PROMOTION);
}

#[test]
fn a_member_that_fails_as_it_becomes_a_voter_is_waited_for() {
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.member(2, true);
    story.healthy(2);
    story.settle();
    story.member(2, false);
    story.failing(2, "no answer in time");
    let status = story.settle();
    assert_eq!(
        (status.ready, status.ready_replicas),
        (false, 3),
        "two endpoints of three would roll API servers twice"
    );
    story.healthy(2);
    let status = story.settle();
    assert!(status.ready && status.endpoints.contains("10.0.0.3"), "{status:?}");
}

#[test]
fn what_is_not_there_yet_is_said_in_words() {
    let mut story = Story::new(3);
    story.observation.certificates = Certificates::NoCa;
    let status = story.settle();
    for type_ in [c::READY, c::AVAILABLE, c::INITIALIZED, c::CERTIFICATES_AVAILABLE, c::ENDPOINTS_AVAILABLE] {
        let condition = condition(&status, type_);
        assert!(condition.status == "False" && !condition.message.is_empty(), "{condition:?}");
    }
    story.observation.certificates =
        Certificates::OfAnother { kind: "EtcdCluster".to_owned(), name: "earlier".to_owned() };
    let waiting = story.settle();
    assert!(condition(&waiting, c::CERTIFICATES_AVAILABLE).message.contains("EtcdCluster earlier"));
    story.observation.cluster = ClusterLink::None { message: "no Cluster names it".to_owned(), living: None };
    story.observation.certificates = Certificates::Unknown;
    let waiting = story.settle();
    assert_eq!(condition(&waiting, c::CERTIFICATES_AVAILABLE).message, "no Cluster names it");
}

#[test]
fn scaling_up_is_no_alarm() {
    let mut story = Story::with_voters(1, 1);
    let before = story.settle();
    story.etcd().spec.replicas = 3;
    let scaling = story.settle();
    assert_eq!(shows(&scaling, c::READY), ("False".to_owned(), reasons::SCALING_UP.to_owned()));
    assert_eq!(shows(&scaling, c::SCALING_UP).0, "True");
    for type_ in [c::AVAILABLE, c::MEMBERS_HEALTHY, c::ENDPOINTS_AVAILABLE] {
        assert_eq!(shows(&scaling, type_).0, "True", "{type_}");
    }
    assert_eq!(scaling.endpoints, before.endpoints);
    assert!(transitions(&before, &scaling).is_empty(), "{:?}", transitions(&before, &scaling));
}

#[test]
fn a_member_is_known_by_its_id() {
    let mut story = Story::with_voters(3, 3);
    story.settle();
    // Another member answers at the address of the second member.
    if let Outcome::Answered(report) = &mut story.observation.probes.get_mut(&name(1)).unwrap().outcome {
        report.member_id = id(9);
    }
    let status = story.settle();
    assert_eq!(status.members[1].health, Health::Unknown);
    assert!(status.members[1].message.contains("another member answers at its address https://10.0.0.2:2379"));
}

#[test]
fn a_changed_spec_is_shown() {
    let mut story = Story::with_voters(3, 3);
    story.etcd().spec.infrastructure_template.name = "bigger".to_owned();
    let status = story.settle();
    assert_eq!((status.updated_replicas, status.up_to_date_replicas), (0, 0));
    assert_eq!(shows(&status, c::MACHINES_UP_TO_DATE).1, reasons::ROLLING_OUT);
    assert_eq!(shows(&status, c::ROLLING_OUT), ("True".to_owned(), reasons::ROLLING_OUT.to_owned()));
    assert_eq!(condition(&status, c::ROLLING_OUT).message, condition(&status, c::MACHINES_UP_TO_DATE).message);
    story.etcd().spec.rollout_strategy.type_ = RolloutType::OnDelete;
    let status = story.settle();
    assert_eq!(shows(&status, c::MACHINES_UP_TO_DATE).1, reasons::MADE_FROM_AN_EARLIER_SPEC);
    let idle = ("False".to_owned(), reasons::NOT_ROLLING_OUT.to_owned());
    assert_eq!(shows(&status, c::ROLLING_OUT), idle, "a person is to delete them");
    story.etcd().spec.etcdadm_config_spec.version = Some("3.8.0".to_owned());
    let status = story.settle();
    assert_eq!(shows(&status, c::MACHINES_UP_TO_DATE).1, reasons::UNSUPPORTED_VERSION_CHANGE);
    assert_eq!(shows(&status, c::ROLLING_OUT), idle, "nothing is replaced for it");
    story.etcd().spec.etcdadm_config_spec.version = None;
    story.etcd().spec.infrastructure_template.name = "etcd".to_owned();
    assert_eq!(story.settle().updated_replicas, 3);
}

#[test]
fn what_is_waited_for_is_said() {
    let mut story = Story::new(3);
    story.observation.cluster = ClusterLink::None { message: "no Cluster names it".to_owned(), living: None };
    let waiting = story.settle();
    assert_eq!(shows(&waiting, c::READY), ("False".to_owned(), reasons::WAITING_FOR_CLUSTER.to_owned()));
    assert_eq!(condition(&waiting, c::READY).message, "no Cluster names it");
    assert!(transitions(&EtcdClusterStatus::default(), &waiting).is_empty(), "waiting is not an alarm");
    story.observation.cluster = ClusterLink::Several(vec![cluster(), cluster()]);
    let blocked = story.settle();
    let told: Vec<&str> = transitions(&waiting, &blocked).iter().map(|t| t.reason).collect();
    assert_eq!(told, [reasons::CLAIMED_BY_SEVERAL_CLUSTERS]);
}
