//! The create path as a table of stories, and what must hold in every one.

mod booting;
mod corrupt;
mod deleting;
mod every_roster;
mod excused;
mod growing;
mod ipv6;
mod late;
mod leaving;
mod lives;
mod marked;
mod moved;
mod removing_first;
mod repairing;
mod rolling;
mod shrinking;
mod side_by_side;
mod spreading;
mod strangers;
mod stuck;
mod surging;
mod waiting;

use super::*;
use crate::fixture::{Story, name};
use crate::fixture::{certificates, cluster, id};
use crate::observation::{Certificates, ClusterLink, Membership, Outcome, Template};
use api::names;
use controller_support::external::Reference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use std::time::Duration;

fn reason(plan: &Plan) -> &'static str {
    match plan {
        Plan::Wait(hold) | Plan::Block(hold) => hold.reason,
        other => panic!("neither waiting nor blocked but {other:?}"),
    }
}

fn creates(plan: &Plan) -> Option<u64> {
    match plan {
        Plan::Do(Step::CreateMachine { number, .. }) => Some(*number),
        _ => None,
    }
}

fn admits(plan: &Plan) -> Option<&str> {
    match plan {
        Plan::Do(Step::Admit { name, .. }) => Some(name),
        _ => None,
    }
}

/// A member has left etcd, and its Machine is gone.
fn has_left(story: &mut Story, index: usize) {
    story.gone(index);
    story.unlist(index);
    story.publish();
    story.settle();
    story.settle();
}

/// A member leaves etcd by the steps of the plan, and its Machine goes.
fn leaves(story: &mut Story, index: usize) {
    if !matches!(story.plan(), Plan::Do(Step::RemoveMember(_))) {
        assert!(matches!(story.plan(), Plan::Do(Step::Begin(_))), "{:?}", story.plan());
        story.settle();
    }
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Do(Step::RemoveMember(may)) if may.member_id() == id(index)), "{plan:?}");
    story.unlist(index);
    story.publish();
    story.settle();
    story.settle();
    assert!(matches!(story.plan(), Plan::Do(Step::ReleaseHook { .. })), "{:?}", story.plan());
    story.gone(index);
    story.settle();
}

#[test]
fn machines_are_made_at_once_and_admitted_one_after_the_other_where_etcd_takes_one_learner() {
    let mut story = Story::new(3);
    assert_eq!(creates(&story.plan()), Some(0));
    story.held_back(0);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MACHINE_ADDRESS, "who initializes is settled first");
    story.bootstrap(0);
    story.takes_one_learner();
    for other in 1..3 {
        assert_eq!(creates(&story.plan()), Some(other as u64));
        story.held_back(other);
    }
    for index in 0..3 {
        if index > 0 {
            assert_eq!(admits(&story.plan()), Some(name(index).as_str()));
            story.admit(index);
        }
        story.settle();
        assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MACHINE_ADDRESS);
        story.bootstrap(index);
        story.address(index);
        assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MEMBER);
        if index > 0 {
            // `/health` of a learner answers true: it must not count as a voter.
            story.member(index, true);
            story.healthy(index);
            assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_PROMOTION);
        }
        story.voter(index);
        assert!(matches!(story.plan(), Plan::Do(Step::PublishInit { .. })), "{:?}", story.plan());
        story.publish();
        story.settle();
    }
    assert_eq!(story.plan(), Plan::Steady);
}

#[test]
fn who_is_admitted_is_written_with_the_time() {
    let mut story = Story::new(3);
    story.machine(0);
    story.voter(0);
    story.held_back(1);
    let plan = story.plan();
    let Plan::Do(Step::PublishInit { admitted, .. }) = &plan else { panic!("{plan:?}") };
    assert_eq!(admitted, "uid-0@1970-01-01T00:16:40Z");
    story.publish();
    story.admit(0);
    story.pass(60);
    let admitted = "uid-0@1970-01-01T00:16:40Z,uid-1@1970-01-01T00:17:40Z".to_owned();
    assert_eq!(story.plan(), Plan::Do(Step::Admit { name: name(1), admitted }));
}

#[test]
fn telling_where_the_voters_are_revokes_no_admission() {
    let mut story = Story::with_voters(3, 2);
    story.admit(1);
    story.machine(2);
    story.admit(2);
    // Another manager has created and admitted a Machine that our watch does not show yet.
    story.observation.admitted.get_or_insert_default().insert("unseen".to_owned(), story.observation.now);
    story.observation.init_urls = Some("https://10.0.0.1:2379".to_owned());
    let plan = story.plan();
    let Plan::Do(Step::PublishInit { admitted, .. }) = &plan else { panic!("{plan:?}") };
    assert!(["uid-0@", "uid-1@", "uid-2@", "unseen@"].iter().all(|uid| admitted.contains(uid)), "{admitted}");
    // A Machine that is on its way out is dropped.
    story.delete_at_once(2);
    story.observation.init_urls = Some("https://10.0.0.2:2379".to_owned());
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Do(Step::PublishInit { admitted, .. }) if !admitted.contains("uid-2@")), "{plan:?}");
}

#[test]
fn joining_members_are_told_which_cluster_it_is() {
    let mut story = Story::with_voters(3, 1);
    story.observation.init_cluster_id = None;
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Do(Step::PublishInit { cluster_id, .. }) if cluster_id == "c"), "{plan:?}");
    story.observation.init_cluster_id = Some("d".to_owned());
    assert!(matches!(story.plan(), Plan::Do(Step::PublishInit { .. })), "a person has accepted another one since");
    story.publish();
    assert!(!matches!(story.plan(), Plan::Do(Step::PublishInit { .. })), "{:?}", story.plan());
}

#[test]
fn an_init_secret_that_admits_everybody_is_made_to_name_them() {
    let mut story = Story::with_voters(3, 1);
    story.observation.admitted = None;
    assert!(matches!(story.plan(), Plan::Do(Step::PublishInit { .. })), "{:?}", story.plan());
}

#[test]
fn whoever_the_bootstrap_provider_lets_initialize_is_waited_for() {
    let mut story = Story::new(3);
    (0..3).for_each(|index| story.held_back(index));
    story.delete_at_once(0);
    story.bootstrap(2);
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Wait(hold) if hold.message.contains("demo-etcd-2")), "{plan:?}");
}

#[test]
fn a_machine_that_goes_holds_the_next_member_up() {
    let mut story = Story::with_voters(3, 1);
    story.held_back(1);
    story.machine(2).addresses.clear();
    story.delete_at_once(2);
    assert_eq!(reason(&story.plan()), reasons::DELETING, "it may still join");
    story.held_back(2);
    story.delete_at_once(2);
    assert_eq!(admits(&story.plan()), Some(&*name(1)), "it was never admitted");
}

#[test]
fn a_template_that_cannot_be_read_now_does_not_hide_who_is_on_the_way() {
    let mut story = Story::with_voters(3, 1);
    story.machine(1);
    story.observation.template = Template::Unknown("503".to_owned());
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MEMBER);
    story.observation.template = Template::NotFound("it does not exist".to_owned());
    assert_eq!(reason(&story.plan()), reasons::TEMPLATE_NOT_FOUND);
}

#[test]
fn first_things_first() {
    let mut story = Story::new(3);
    story.etcd().metadata.finalizers = None;
    assert!(matches!(story.plan(), Plan::Do(Step::Record { finalizer: true, .. })));

    let mut story = Story::new(1);
    story.observation.certificates = Certificates::NoCa;
    story.cluster().infrastructure_ready = false;
    assert_eq!(story.plan(), Plan::Do(Step::EnsureCertificates));
    story.observation.certificates = certificates();
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, "it reports failure domains");
    story.observation.reported_domains = Some([].into());
    assert_eq!(creates(&story.plan()), Some(0), "whether the Cluster has them yet, or not");
    story.observation.reported_domains = None;
    story.cluster().infrastructure_ready = true;
    assert_eq!(creates(&story.plan()), Some(0));
    story.machine(0).addresses.clear();
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MACHINE_ADDRESS);
    story.cluster().infrastructure_ready = false;
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, "nor does it boot");
}

#[test]
fn infrastructure_that_is_waited_for_is_named_with_the_time() {
    let mut story = Story::new(1);
    story.cluster().infrastructure_ready = false;
    let infrastructure = |kind: &str| Reference {
        group: "infrastructure.cluster.x-k8s.io".to_owned(),
        kind: kind.to_owned(),
        name: "demo".to_owned(),
    };
    let since =
        "the infrastructure of Cluster demo is not provisioned yet (the Cluster was created at 1970-01-01T00:00:00Z)";
    for (named, next) in [
        (Some(infrastructure("DockerCluster")), "look at the conditions of DockerCluster demo"),
        (None, "spec.infrastructureRef of the Cluster is not set yet"),
    ] {
        story.cluster().infrastructure = named;
        let expected = format!("{since}: {next}");
        assert_eq!(story.plan(), wait(reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, expected));
    }
}

#[test]
fn certificates_that_were_not_read_are_reported_with_the_cause() {
    let mut story = Story::new(1);
    story.observation.certificates = Certificates::Unknown;
    let expected = "Secret demo-managed-etcd in namespace default, with etcd's CA, has not been read. It is read when a Cluster names EtcdCluster demo-etcd, and is not read while the EtcdCluster is being deleted";
    assert_eq!(story.plan(), wait(reasons::WAITING_FOR_CERTIFICATES, expected));
}

#[test]
fn nothing_is_done_without_a_cluster_of_ones_own() {
    let mut story = Story::new(3);
    story.observation.cluster = ClusterLink::None { message: "no Cluster names it".to_owned(), living: None };
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_CLUSTER);
    story.observation.cluster = ClusterLink::Several(vec![cluster(), cluster()]);
    assert_eq!(reason(&story.plan()), reasons::CLAIMED_BY_SEVERAL_CLUSTERS);
    let message = "Cluster demo uses EtcdCluster other".to_owned();
    story.observation.cluster = ClusterLink::UsesAnother { message, living: None };
    assert_eq!(reason(&story.plan()), reasons::CLUSTER_USES_ANOTHER_ETCD);
}

#[test]
fn a_pause_stops_everything() {
    let mut story = Story::new(3);
    story.cluster().paused_by = Some("spec.paused".to_owned());
    assert_eq!(story.plan(), wait(reasons::PAUSED, "Cluster demo is paused by spec.paused"));
    assert_eq!(due(&story.observation, &story.plan()), None);
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    assert_eq!(reason(&story.plan()), reasons::PAUSED, "deletion waits too, as Cluster API's own does");
    let mut story = Story::new(3);
    story.etcd().metadata.annotations = Some([(names::PAUSED_ANNOTATION.to_owned(), String::new())].into());
    let by_annotation = "EtcdCluster demo-etcd is paused by annotation cluster.x-k8s.io/paused";
    assert_eq!(story.plan(), wait(reasons::PAUSED, by_annotation));
    story.cluster().paused_by = Some("spec.paused".to_owned());
    let both = format!("{by_annotation}, and Cluster demo is paused by spec.paused");
    assert_eq!(story.plan(), wait(reasons::PAUSED, both), "whoever lifts one pause knows of the other");
}

#[test]
fn an_unhealthy_voter_holds_the_next_member_up() {
    let mut story = Story::with_voters(3, 2);
    story.failing(1, "no answer in time");
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
    story.healthy(1);
    assert_eq!(creates(&story.plan()), Some(2));
}

#[test]
fn another_member_at_the_address_of_a_voter_does_not_stand_for_it() {
    let mut story = Story::with_voters(3, 2);
    if let Outcome::Answered(report) = &mut story.observation.probes.get_mut(&name(1)).unwrap().outcome {
        report.member_id = 0x999;
    }
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
}

#[test]
fn without_the_member_list_nothing_is_added() {
    let mut story = Story::with_voters(3, 1);
    story.unlisted();
    let plan = story.plan();
    assert_eq!(reason(&plan), reasons::MEMBERSHIP_UNKNOWN);
    assert!(plan.hold().unwrap().message.contains("no voter answers a linearizable read"), "{plan:?}");
    // Without a probe, nothing is known of the members either.
    let probe = story.observation.probes.remove(&name(0)).unwrap();
    assert_eq!(reason(&story.plan()), reasons::MEMBERSHIP_UNKNOWN);
    story.failing(0, "no answer in time");
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
    story.observation.probes.insert(name(0), probe);
    story.etcd().status.as_mut().unwrap().members.clear();
    assert_ne!(creates(&story.plan()), Some(1));
}

#[test]
fn a_member_without_a_machine_holds_everything_up() {
    let mut story = Story::with_voters(3, 2);
    story.member(7, false);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
}

#[test]
fn a_second_empty_etcd_is_never_made() {
    let mut story = Story::with_voters(3, 3);
    story.observation.machines.clear();
    story.observation.membership = Membership::NotAsked;
    assert_eq!(reason(&story.plan()), reasons::QUORUM_LOST);
    let told = story.plan().hold().unwrap().message.clone();
    assert!(told.contains(&format!("{}=demo-etcd", names::CONFIRM_DELETION_ANNOTATION)), "{told}");
    story.held_back(3);
    assert_eq!(reason(&story.plan()), reasons::QUORUM_LOST, "and nobody takes the place of the first");
    story.observation.init_urls = None;
    assert_eq!(reason(&story.plan()), reasons::QUORUM_LOST, "the status remembers");
}

#[test]
fn a_lost_ca_is_not_replaced() {
    let mut story = Story::with_voters(3, 3);
    story.observation.certificates = Certificates::NoCa;
    assert_eq!(reason(&story.plan()), reasons::SECRET_INVALID);
}

#[test]
fn a_ca_that_was_replaced_is_signed_with_only_while_nobody_trusts_the_old_one() {
    let mut story = Story::new(3);
    story.observation.certificates = Certificates::Replaced;
    assert_eq!(story.plan(), Plan::Do(Step::EnsureCertificates));
    story.machine(0);
    assert_eq!(reason(&story.plan()), reasons::SECRET_INVALID);
}

#[test]
fn the_ca_of_another_etcd_cluster_is_waited_for_by_name() {
    let mut story = Story::new(3);
    let of = |kind: &str| Certificates::OfAnother { kind: kind.to_owned(), name: "old".to_owned() };
    story.observation.certificates = of("EtcdCluster");
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Wait(hold) if hold.message.contains("EtcdCluster old")), "{plan:?}");
    story.observation.certificates = of("KubeadmControlPlane");
    let plan = story.plan();
    let is_right = |hold: &Hold| hold.reason == reasons::NAME_TAKEN && hold.message.contains("KubeadmControlPlane old");
    assert!(matches!(&plan, Plan::Block(hold) if is_right(hold) && hold.message.contains("rename")), "{plan:?}");
}

#[test]
fn a_missing_template_is_reported() {
    let mut story = Story::new(1);
    story.observation.template = Template::NotFound("LocalMachineTemplate etcd does not exist".to_owned());
    assert_eq!(reason(&story.plan()), reasons::TEMPLATE_NOT_FOUND);
    story.observation.template = Template::Unknown("looking up kind LocalMachine: 503".to_owned());
    assert!(due(&story.observation, &story.plan()).is_some(), "no watch would tell that the API server answers again");
    story.etcd().spec.infrastructure_template.namespace = Some("elsewhere".to_owned());
    assert_eq!(reason(&story.plan()), reasons::TEMPLATE_INVALID);
}

#[test]
fn a_template_may_be_applied_a_moment_after_its_etcd_cluster() {
    let mut story = Story::new(1);
    story.observation.template = Template::NotFound("LocalMachineTemplate etcd does not exist".to_owned());
    let now = story.observation.now;
    let mut of_age = |milliseconds| {
        let age = SignedDuration::from_millis(milliseconds);
        story.etcd().metadata.creation_timestamp = Some(Time(now - age));
        let plan = story.plan();
        (reason(&plan), due(&story.observation, &plan))
    };
    let waits = |milliseconds| (reasons::WAITING_FOR_TEMPLATE, Some(Duration::from_millis(milliseconds)));
    let warns = (reasons::TEMPLATE_NOT_FOUND, Some(Duration::from_secs(10)));
    assert_eq!(of_age(0), waits(10_000));
    assert_eq!(of_age(9_999), waits(1));
    assert_eq!(of_age(10_000), warns);
    assert_eq!(of_age(-1), warns, "by a clock that is behind it would never be old enough");
}

#[test]
fn numbers_are_not_used_twice() {
    let mut story = Story::with_voters(5, 3);
    assert_eq!(creates(&story.plan()), Some(3));
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "6");
    assert_eq!(creates(&story.plan()), Some(7), "Machines that are gone count");
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "1");
    assert_eq!(creates(&story.plan()), Some(3), "an old record does not count");
}

#[test]
fn machines_of_an_earlier_release_get_the_hook() {
    let mut story = Story::with_voters(3, 3);
    story.observation.machines.get_mut(&name(1)).unwrap().annotations.clear();
    assert_eq!(story.plan(), Plan::Do(Step::AddHook { machine: name(1) }));
    story.delete(1);
    assert!(!matches!(story.plan(), Plan::Do(Step::AddHook { .. })), "somebody has taken it away");
}

#[test]
fn a_ca_that_has_lost_its_label_gets_it_back() {
    let mut story = Story::with_voters(3, 3);
    story.observation.certificates = Certificates::NotLabelled;
    assert_eq!(story.plan(), Plan::Do(Step::LabelCa));
}

#[test]
fn whoever_runs_on_no_machine_is_reported_once_no_machine_can_be_its_own() {
    let mut story = Story::with_voters(3, 1);
    story.takes_one_learner();
    story.machine(1).addresses.clear();
    story.held_back(2);
    story.member(1, true);
    story.unstarted(1);
    let why = |story: &Story| crate::roster::roster(&story.observation).by_member(id(1)).unwrap().why().to_owned();
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MACHINE_ADDRESS, "the watch lags behind");
    assert_eq!(why(&story), "it may be that of a new Machine, which has no address yet");
    story.member(7, true);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
    assert_eq!(why(&story), "it runs on no Machine of this EtcdCluster");
}

#[test]
fn a_member_whose_machine_is_gone_is_not_taken_for_one_on_its_way() {
    let mut story = Story::with_voters(3, 3);
    story.gone(1);
    story.machine(3).addresses.clear();
    story.publish();
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_HEALTHY_MEMBERS);
}

#[test]
fn what_a_machine_that_goes_waits_for_is_told_with_the_time() {
    let mut story = Story::with_voters(3, 3);
    story.gone(2);
    story.unlist(2);
    story.publish();
    story.settle();
    story.machine(2);
    story.delete_at_once(2);
    let one = story.plan();
    let mut story = Story::with_voters(3, 3);
    story.delete_at_once(2);
    story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
    story.annotate(names::CONFIRM_DELETION_ANNOTATION, "demo-etcd");
    (0..2).for_each(|index| story.delete_at_once(index));
    for plan in [one, story.plan()] {
        let message = &plan.hold().unwrap().message;
        for part in ["Machine demo-etcd-2 was deleted at 1970-01-01T00:16:40Z", names::MACHINE_FINALIZER] {
            assert!(message.contains(part), "{part} is missing in {message}");
        }
    }
}
