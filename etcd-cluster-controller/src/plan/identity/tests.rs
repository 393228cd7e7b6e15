//! Stories about the identity of the etcd cluster.

use super::*;
use crate::fixture::{Story, id, name};
use crate::observation::probe::{MemberFault, Outcome};
use crate::observation::{Observation, Snapshot, TargetKey};
use api::etcd_cluster::{Operation, OperationKind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The member of a Machine answers as one of this etcd cluster.
fn answers_as(cluster_id: u64, story: &mut Story, index: usize) {
    let Outcome::Answered(report) = &mut story.observation.probes.get_mut(&name(index)).unwrap().outcome else {
        panic!("it does not answer")
    };
    report.cluster_id = cluster_id;
}

/// Every member that answers belongs to another etcd cluster.
fn swapped() -> Story {
    let mut story = Story::with_voters(3, 3);
    for index in 0..3 {
        answers_as(0xdead, &mut story, index);
    }
    let ids = [0xdead].into();
    story.observation.membership = Membership::Unknown(ListFault::OtherCluster { recorded: 0xc, ids });
    story
}

#[test]
fn another_clusters_identity_is_never_taken_over() {
    let mut story = swapped();
    let plan = story.plan();
    let Plan::Block(hold) = &plan else { panic!("{plan:?}") };
    assert_eq!(hold.reason, reasons::CLUSTER_ID_CHANGED);
    let told = format!("Machine {} (https://", name(2));
    assert!(hold.message.contains(&told), "{}", hold.message);
    assert!(hold.message.contains("answers as a member of etcd cluster dead, but cluster c is expected"));
    let status = story.settle();
    assert!(!status.ready && status.ready_replicas == 0, "{status:?}");
    assert_eq!(status.cluster_id, "c");
    assert_eq!(status.endpoints.split(',').count(), 3, "the endpoints stay");
}

#[test]
fn what_was_begun_waits_for_the_identity() {
    let mut story = swapped();
    let mut mixed = Story::with_voters(3, 3);
    answers_as(0xdead, &mut mixed, 2);
    for story in [&mut story, &mut mixed] {
        story.etcd().status.as_mut().unwrap().operation = Some(Operation {
            kind: OperationKind::RemoveMember,
            member_id: "101".to_owned(),
            machine_uid: "uid-1".to_owned(),
            since: Time(story.observation.now),
            attempt: 0,
        });
        let plan = story.plan();
        assert!(matches!(&plan, Plan::Block(hold) if hold.reason == reasons::CLUSTER_ID_CHANGED), "{plan:?}");
    }
    story.annotate(names::ACCEPT_CLUSTER_ID_ANNOTATION, "dead");
    assert!(matches!(story.plan(), Plan::Do(Step::Record { .. })), "a person can say so all the same");
}

#[test]
fn a_restore_is_accepted_by_name() {
    let mut story = swapped();
    story.annotate(names::ACCEPT_CLUSTER_ID_ANNOTATION, "beef");
    assert!(matches!(story.plan(), Plan::Block(_)), "another ID than the one that answers");
    story.annotate(names::ACCEPT_CLUSTER_ID_ANNOTATION, "dead");
    let plan = story.plan();
    let Plan::Do(Step::Record { annotations, .. }) = &plan else { panic!("{plan:?}") };
    assert_eq!(annotations[names::CLUSTER_ID_ANNOTATION].as_deref(), Some("dead"));
    assert_eq!(annotations[names::ACCEPT_CLUSTER_ID_ANNOTATION], None);
}

/// At the first Machine's address, another etcd with this many members answers, which trusts the same CA.
fn begins_beside(members: usize) -> Story {
    let mut story = Story::new(3);
    story.machine(0);
    for index in 0..members {
        story.member(index, false);
    }
    story.healthy(0);
    story.etcd().metadata.annotations.get_or_insert_default().remove(names::CLUSTER_ID_ANNOTATION);
    taken(story)
}

/// Lets the observation take over what the prober knows, as far as that counts.
fn taken(mut story: Story) -> Story {
    let Observation { probes, membership, heard, voters_answer_since, .. } = story.observation.clone();
    let probes = probes.into_iter().map(|(name, probe)| (TargetKey::Machine(name), probe)).collect();
    story.observation.take(Snapshot { probes, membership, heard, voters_answer_since });
    story
}

#[test]
fn before_an_id_is_recorded_only_an_etcd_that_a_machine_has_initialized_is_taken_for_ours() {
    let records = |story: &Story| match story.plan() {
        Plan::Do(Step::Record { annotations, .. }) => annotations.get(names::CLUSTER_ID_ANNOTATION).cloned().flatten(),
        _ => None,
    };
    assert_eq!(records(&begins_beside(1)).as_deref(), Some("c"));
    let mut beside = begins_beside(3);
    let plan = beside.plan();
    let Plan::Block(hold) = &plan else { panic!("{plan:?}") };
    assert_eq!(hold.reason, reasons::CLUSTER_ID_CHANGED);
    assert!(hold.message.contains("no cluster ID is recorded yet: etcd cluster c answers, with 3 members"), "{hold:?}");
    let status = beside.settle();
    assert!(status.members.is_empty() && status.cluster_id.is_empty(), "{status:?}");
    beside.annotate(names::ACCEPT_CLUSTER_ID_ANNOTATION, "c");
    assert_eq!(records(&beside).as_deref(), Some("c"), "a person says that it is ours");
    let mut early = begins_beside(1);
    early.observation.bootstrapped.clear();
    assert_eq!(records(&taken(early)), None, "the Machine cannot have initialized anything yet");
    let mut of_another = begins_beside(1);
    let Membership::Known { members, .. } = &mut of_another.observation.membership else { panic!("not listed") };
    members.get_mut(&id(0)).unwrap().name = "other-etcd-0".to_owned();
    assert_eq!(records(&taken(of_another)), None, "an etcd of one member that another Machine has");
}

#[test]
fn an_etcd_goes_with_the_only_machine_that_was_let_go_before_it_initialized() {
    let mut late = begins_beside(1);
    late.delete_at_once(0);
    let mut late = taken(late);
    let plan = late.plan();
    assert!(matches!(plan, Plan::Wait(_)), "{plan:?}");
    let status = late.settle();
    assert!(!status.initialized && status.members.is_empty() && status.cluster_id.is_empty(), "{status:?}");
    let mut kept = begins_beside(1);
    kept.delete(0);
    assert!(matches!(taken(kept).plan(), Plan::Do(Step::Record { .. })), "one that waits for us has begun");
}

#[test]
fn a_machine_that_was_given_an_address_of_another_etcd_can_be_deleted() {
    let mut story = begins_beside(3);
    story.delete(0);
    assert_eq!(story.plan(), Plan::Do(Step::NoteRelease { machine_uid: "uid-0".to_owned() }));
    story.settle();
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Do(Step::ReleaseHook { machine, .. }) if *machine == name(0)), "{plan:?}");
}

#[test]
fn an_etcd_goes_with_a_machine_that_another_manager_is_about_to_release() {
    let mut noted = begins_beside(1);
    noted.delete(0);
    assert!(matches!(taken(noted.clone()).plan(), Plan::Do(Step::Record { .. })), "it waits for us, and has begun");
    noted.etcd().status.get_or_insert_default().released_machine_uids = vec!["uid-0".to_owned()];
    let mut noted = taken(noted);
    let plan = noted.plan();
    assert!(matches!(&plan, Plan::Do(Step::ReleaseHook { machine, .. }) if *machine == name(0)), "{plan:?}");
    noted.gone(0);
    assert_eq!(noted.settle().released_machine_uids, ["uid-0"], "a watch that lags may show it still");
}

#[test]
fn an_id_is_not_accepted_while_the_recorded_cluster_has_a_quorum() {
    let mut story = Story::with_voters(3, 3);
    answers_as(0xdead, &mut story, 2);
    story.settle();
    let plan = story.plan();
    let Plan::Block(hold) = &plan else { panic!("{plan:?}") };
    assert!(hold.message.contains("Etcd cluster c has a quorum at Machine demo-etcd-0"), "{}", hold.message);
    assert!(!hold.message.contains("kubectl annotate"), "{}", hold.message);
    // The word is refused. It is not kept until one check fails.
    story.annotate(names::ACCEPT_CLUSTER_ID_ANNOTATION, "dead");
    assert_eq!(story.plan(), forget_accepted());
    story.etcd().metadata.annotations.get_or_insert_default().remove(names::ACCEPT_CLUSTER_ID_ANNOTATION);
    let mut orphaned = story.clone();
    for index in 0..2 {
        orphaned.gone(index);
        let report = Report::of_one_that_is_well(0xc, id(index));
        orphaned.probe_stranger(index, Outcome::Answered(report));
    }
    // Their Machines are gone, and the members still serve.
    let plan = orphaned.plan();
    let Plan::Block(hold) = &plan else { panic!("{plan:?}") };
    assert!(hold.message.contains("Etcd cluster c has a quorum at member 100 (https://10.0.0.1:2379)"), "{hold:?}");
}

#[test]
fn an_id_is_accepted_only_when_the_recorded_cluster_has_been_silent_for_long() {
    let mut story = Story::with_voters(3, 3);
    answers_as(0xdead, &mut story, 2);
    story.settle();
    story.annotate(names::ACCEPT_CLUSTER_ID_ANNOTATION, "dead");
    // One member restarts, and so the other has no leader.
    story.failing(0, "it restarts");
    let without = Report { linearizable: Err(MemberFault::NoLeader), ..Report::of_one_that_is_well(0xc, id(1)) };
    story.probe(1, Outcome::Answered(without));
    story.pass(300);
    let plan = story.plan();
    let Plan::Block(hold) = &plan else { panic!("{plan:?}") };
    let told = "only when the etcd of Machine demo-etcd-1, which may serve etcd cluster c, has not answered for 60 s, or a person has deleted its Machine";
    assert!(hold.message.contains(told), "{}", hold.message);
    assert!(hold.message.contains("accept its new ID"), "{}", hold.message);
    story.failing(1, "stopped for the restore");
    assert!(matches!(story.plan(), Plan::Block(_)), "it has answered just now: {:?}", story.plan());
    story.pass(30);
    assert!(matches!(story.plan(), Plan::Block(_)), "{:?}", story.plan());
    let (mut deleted, mut not_asked) = (story.clone(), story.clone());
    story.pass(40);
    assert!(matches!(story.plan(), Plan::Do(Step::Record { .. })), "{:?}", story.plan());
    // It is not known whether it is silent.
    not_asked.unknown(1);
    not_asked.pass(70);
    assert!(matches!(not_asked.plan(), Plan::Block(_)), "{:?}", not_asked.plan());
    // This controller has started just now.
    not_asked.observation.probes.remove(&name(1));
    assert!(matches!(not_asked.plan(), Plan::Block(_)), "{:?}", not_asked.plan());
    not_asked.delete(1);
    assert!(matches!(not_asked.plan(), Plan::Do(Step::Record { .. })), "{:?}", not_asked.plan());
    // What a person has deleted is not the restored etcd, if another one is there.
    deleted.pass(70);
    let mut beside = deleted.clone();
    deleted.delete(2);
    assert!(matches!(deleted.plan(), Plan::Do(Step::Record { .. })), "{:?}", deleted.plan());
    let report = Report { cluster_id: 0xbeef, ..Report::of_one_that_is_well(0xbeef, id(0)) };
    beside.probe(0, Outcome::Answered(report));
    assert!(matches!(beside.plan(), Plan::Do(Step::Record { .. })), "{:?}", beside.plan());
    beside.delete(2);
    assert!(matches!(beside.plan(), Plan::Block(_)), "{:?}", beside.plan());
    // A member of the recorded cluster whose Machine is gone.
    story.gone(1);
    let without = Report { linearizable: Err(MemberFault::NoLeader), ..Report::of_one_that_is_well(0xc, id(1)) };
    story.probe_stranger(1, Outcome::Answered(without));
    let plan = story.plan();
    let Plan::Block(hold) = &plan else { panic!("{plan:?}") };
    assert!(hold.message.contains("only when member 101 (https://10.0.0.2:2379), which"), "{}", hold.message);
}

/// The first machine was reinstalled, and has initialized an empty etcd, while the others serve.
#[test]
fn a_machine_with_another_etcd_on_it_goes_when_a_person_deletes_it_and_not_before() {
    let mut story = Story::with_voters(3, 3);
    let other = MemberFault::OtherCluster { expected: 0xc, answered: 0xdead };
    let report = Report { identity: Err(other), cluster_id: 0xdead, ..Report::of_one_that_is_well(0xdead, 0xbad) };
    story.probe(0, Outcome::Answered(report));
    story.led_by(id(1));
    story.observation.heard = Some([id(2)].into());
    story.settle();
    story.pass(3600);
    let plan = story.plan();
    let Plan::Block(hold) = &plan else { panic!("{plan:?}") };
    assert!(hold.message.contains("and delete the Machines that have them"), "{hold:?}");
    let (mut heard, mut ours) = (story.clone(), story.clone());
    story.delete(0);
    story.settle();
    let plan = story.plan();
    let removes =
        |plan: &Plan| matches!(plan, Plan::Do(Step::Begin(begun)) if begun.member_id == format!("{:x}", id(0)));
    assert!(
        removes(&plan) || matches!(&plan, Plan::Do(Step::RemoveMember(may)) if may.member_id() == id(0)),
        "{plan:?}"
    );
    // This controller has deleted it: nobody has said anything about the other etcd.
    ours.delete(0);
    let machine = ours.observation.machines.get_mut(&name(0)).unwrap();
    machine.annotations.insert(names::DELETED_FOR_ANNOTATION.to_owned(), "it is surplus".to_owned());
    ours.settle();
    let plan = ours.plan();
    let Plan::Block(hold) = &plan else { panic!("{plan:?}") };
    let way_out = "run: kubectl annotate -n default machines.cluster.x-k8s.io demo-etcd-0 etcdcluster.cluster.x-k8s.io/deleted-for-";
    assert!(hold.message.contains(way_out), "{hold:?}");
    // The others still hear the member, so it is alive elsewhere.
    heard.observation.heard = Some([id(0), id(2)].into());
    heard.delete(0);
    heard.settle();
    let plan = heard.plan();
    assert!(matches!(&plan, Plan::Wait(_) | Plan::Do(Step::CreateMachine { .. })), "{plan:?}");
    // Without a quorum of the recorded cluster, it is not known whose members these are.
    for index in [1, 2] {
        story.failing(index, "down");
    }
    assert!(matches!(story.plan(), Plan::Block(_)), "{:?}", story.plan());
}

#[test]
fn a_word_that_was_kept_is_not_left_lying_there() {
    let mut story = Story::with_voters(3, 3);
    for word in ["c", "dead"] {
        story.annotate(names::ACCEPT_CLUSTER_ID_ANNOTATION, word);
        assert_eq!(story.plan(), forget_accepted(), "{word}");
    }
    // Someone may set the annotation again each time.
    story.etcd().spec.replicas = 5;
    assert!(matches!(story.plan(), Plan::Do(Step::CreateMachine { .. })), "{:?}", story.plan());
}
