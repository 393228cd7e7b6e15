//! The identity of the etcd cluster. A cluster ID that differs from the recorded one is never adopted: not while our
//! members are silent, not if a dead machine's address has passed to another etcd that trusts the same CA, and not
//! before an ID is recorded. A restore has a new ID, and a person has to accept it.

use super::corrupt::command_to_give_up;
use super::{Plan, Step, View, block};
use crate::observation::probe::ListFault;
use crate::observation::probe::Probe;
use crate::observation::{Membership, Observation, Outcome, Report, hex, is_deleted_by_others};
use api::conditions::reasons;
use api::names;
use controller_support::external::MachineView;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let observation = view.observation;
    let recorded = observation.recorded_cluster_id();
    let answering = answering(view);
    let accepted = observation.etcd.annotations().get(names::ACCEPT_CLUSTER_ID_ANNOTATION);
    let accepted = accepted.filter(|accepted| answering.contains(*accepted));
    let serving = serving(view);
    let serves = serving.is_some();
    let kept = kept(view, serving);
    if let (Some(accepted), None) = (accepted, &kept) {
        let annotations = BTreeMap::from([
            (names::CLUSTER_ID_ANNOTATION, Some(accepted.clone())),
            (names::ACCEPT_CLUSTER_ID_ANNOTATION, None),
        ]);
        return Some(Plan::Do(Step::Record { finalizer: false, annotations }));
    }
    let (answers, others): (Vec<String>, BTreeSet<String>) = in_doubt(view, serves).unzip();
    let expected = match (recorded, &observation.membership) {
        (Some(recorded), _) => format!("but cluster {recorded} is expected"),
        // Every Machine at whose address something answers is being deleted, so it may go: etcd has not begun, and the
        // Machine carries no member of ours.
        (None, Membership::Unknown(ListFault::NotNew { .. } | ListFault::SeveralClusters(_))) if all_leave(view) => {
            return None;
        }
        (None, Membership::Unknown(fault @ (ListFault::NotNew { .. } | ListFault::SeveralClusters(_)))) => {
            format!("and no cluster ID is recorded yet: {fault}")
        }
        (None, _) => return None,
    };
    let other = match others.len() {
        0 => return None,
        1 => others.first().map_or("", String::as_str),
        _ => "<ID>",
    };
    if accepted.is_some() && serves {
        // A word that is refused does not wait for the moment at which the recorded cluster has no quorum.
        return Some(forget_accepted());
    }
    let restored = if serves {
        "is to be restored from a snapshot, stop it on all machines first".to_owned()
    } else {
        format!(
            "was restored from a snapshot, accept its new ID: kubectl annotate -n {} etcdclusters.{} {} {}={other}",
            observation.etcd.namespace().unwrap_or_default(),
            names::ETCD_CLUSTER_GROUP,
            observation.etcd.name_any(),
            names::ACCEPT_CLUSTER_ID_ANNOTATION,
        )
    };
    let message = format!(
        "{}, {expected}{}. If etcd {restored}. Otherwise look for another etcd at the Machines' addresses{}. Nothing is changed until then",
        answers.join(", "),
        kept.map(|why| format!(". {why}")).unwrap_or_default(),
        if recorded.is_none() || serves { ", and delete the Machines that have them" } else { "" }
    );
    Some(block(reasons::CLUSTER_ID_CHANGED, message))
}

/// Removes the accepted ID if it is the recorded one already: otherwise it could give the identity back to an earlier
/// cluster some day. Removes it too while the recorded cluster has a quorum, whether or not that ID answers at this moment.
/// This comes when nothing else is to be done, because someone may set the annotation again each time.
pub(super) fn tidy(view: &View<'_>) -> Option<Plan> {
    let accepted = view.observation.etcd.annotations().get(names::ACCEPT_CLUSTER_ID_ANNOTATION)?;
    let is_void = view.observation.recorded_cluster_id() == Some(accepted) || serving(view).is_some();
    is_void.then(forget_accepted)
}

fn forget_accepted() -> Plan {
    let annotations = BTreeMap::from([(names::ACCEPT_CLUSTER_ID_ANNOTATION, None)]);
    Plan::Do(Step::Record { finalizer: false, annotations })
}

/// Why no other cluster ID is accepted now: the recorded cluster serves, or may serve again in a moment. One failing
/// check is no sign that it is gone. Machines that a person has deleted do not count: what is on them goes with them.
fn kept(view: &View<'_>, serving: Option<String>) -> Option<String> {
    let observation = view.observation;
    let recorded = observation.recorded_cluster_id()?;
    if let Some(member) = serving {
        return Some(format!(
            "Etcd cluster {recorded} has a quorum at {member}; while it has one, no other cluster ID is accepted"
        ));
    }
    let mut stay = observation.machines.values().filter(|machine| !is_deleted_by_others(machine));
    let machine = stay.find(|machine| may_serve(observation, machine, recorded)).map(|machine| {
        let way_out = if machine.deleting {
            format!("its Machine is given up: {}", command_to_give_up(machine))
        } else {
            "a person has deleted its Machine".to_owned()
        };
        (format!("the etcd of Machine {}", machine.name), format!(", or {way_out}"))
    });
    let stranger = || {
        let mut strangers = observation.strangers.iter();
        let (id, probe) = strangers.find(|(_, probe)| match &probe.outcome {
            Outcome::Answered(report) => hex(report.cluster_id) == recorded,
            Outcome::MemberFault(_) => !is_silent(observation, probe),
            // There is no Machine that a person could delete to say that it is gone.
            Outcome::OurFault(_) | Outcome::NoAddress => false,
        })?;
        Some((format!("member {} ({})", hex(*id), probe.url), String::new()))
    };
    let (who, way_out) = machine.or_else(stranger)?;
    Some(format!(
        "An ID is accepted only when {who}, which may serve etcd cluster {recorded}, has not answered for {} s{way_out}",
        observation.etcd.spec.health_check.unhealthy_after().as_secs()
    ))
}

/// Whether a Machine may carry a member of the recorded cluster that serves again in a moment.
fn may_serve(observation: &Observation, machine: &MachineView, recorded: &str) -> bool {
    let probe = observation.probes.get(&machine.name);
    if let Some(report) = probe.and_then(|probe| probe.report()) {
        return hex(report.cluster_id) == recorded;
    }
    // The status is lost when the management cluster is restored.
    let is_known = observation.etcd.status.as_ref().is_some_and(|status| !status.members.is_empty());
    let was_member = if is_known { observation.last_on(machine).is_some() } else { probe.is_some() };
    // It has not been checked if this controller has started just now.
    was_member && !probe.is_some_and(|probe| is_silent(observation, probe))
}

/// Whether nothing has answered for long enough. A run of failing checks may have answers without a quorum in it.
fn is_silent(observation: &Observation, probe: &Probe) -> bool {
    let after = observation.etcd.spec.health_check.unhealthy_after();
    let is_long = |at: Timestamp| observation.now.duration_since(at).unsigned_abs() >= after;
    probe.run.has_failed_for(after, observation.now, observation.interval()) && probe.answered.is_none_or(is_long)
}

/// A member that serves the recorded cluster and had a quorum by its latest probe: the Machine that carries it, or the
/// member itself if no Machine carries it.
fn serving(view: &View<'_>) -> Option<String> {
    let recorded = view.observation.recorded_cluster_id()?;
    let serves = |report: &Report| hex(report.cluster_id) == recorded && !report.learner && report.linearizable.is_ok();
    let strangers =
        view.observation.strangers.iter().map(|(id, probe)| (format!("member {} ({})", hex(*id), probe.url), probe));
    let machines = view.observation.probes.iter().map(|(machine, probe)| (format!("Machine {machine}"), probe));
    let (member, _) = machines.chain(strangers).find(|(_, probe)| probe.report().is_some_and(serves))?;
    Some(member)
}

/// The Machines at whose addresses another etcd cluster answers than the recorded one, in words, each with the ID of
/// that cluster. While the recorded cluster has a quorum, those that a person has deleted are left out: a person says in
/// this way that what answers there is not ours, and the member may leave.
fn in_doubt<'v>(view: &'v View<'_>, serves: bool) -> impl Iterator<Item = (String, String)> + 'v {
    let observation = view.observation;
    let recorded = observation.recorded_cluster_id();
    observation.probes.iter().filter_map(move |(name, probe)| {
        let (id, machine) = (hex(probe.report()?.cluster_id), observation.machines.get(name));
        if recorded == Some(&id) || (serves && machine.is_some_and(is_deleted_by_others)) {
            return None;
        }
        let ours = machine.filter(|machine| serves && machine.deleting).map(|machine| {
            let command = command_to_give_up(machine);
            format!(
                " (this controller itself may have deleted the Machine: to let it go with what is on it, run: {command})"
            )
        });
        let described = format!(
            "Machine {name} ({}) answers as a member of etcd cluster {id}{}",
            probe.url,
            ours.unwrap_or_default()
        );
        Some((described, id))
    })
}

/// Whether every Machine at whose address something answers is being deleted or gone.
fn all_leave(view: &View<'_>) -> bool {
    let observation = view.observation;
    let mut answering = observation.probes.iter().filter(|(_, probe)| probe.report().is_some());
    answering.all(|(machine, _)| observation.machines.get(machine).is_none_or(|machine| machine.deleting))
}

/// IDs of the other etcd clusters that answer at the addresses of Machines. Those at Machines that a person has deleted
/// count only if there are no others: what is on them goes, unless there is nothing else.
fn answering(view: &View<'_>) -> BTreeSet<String> {
    let observation = view.observation;
    let recorded = observation.recorded_cluster_id();
    let ids = |is_deleted: bool| {
        let of_these = observation
            .probes
            .iter()
            .filter(move |(name, _)| observation.machines.get(*name).is_some_and(is_deleted_by_others) == is_deleted);
        let ids = of_these.filter_map(|(_, probe)| Some(hex(probe.report()?.cluster_id)));
        ids.filter(|id| recorded != Some(id)).collect::<BTreeSet<String>>()
    };
    let staying = ids(false);
    if staying.is_empty() { ids(true) } else { staying }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, id, name};
    use crate::observation::probe::{MemberFault, Outcome};
    use crate::observation::{Observation, Snapshot, TargetKey};
    use api::etcd_cluster::{Operation, OperationKind};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    /// Every member that answers belongs to another etcd cluster.
    fn swapped() -> Story {
        let mut story = Story::with_voters(3, 3);
        for index in 0..3 {
            let Outcome::Answered(report) = &mut story.observation.probes.get_mut(&name(index)).unwrap().outcome else {
                panic!("it does not answer")
            };
            report.cluster_id = 0xdead;
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
        let Outcome::Answered(report) = &mut mixed.observation.probes.get_mut(&name(2)).unwrap().outcome else {
            panic!("it does not answer")
        };
        report.cluster_id = 0xdead;
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
            Plan::Do(Step::Record { annotations, .. }) => {
                annotations.get(names::CLUSTER_ID_ANNOTATION).cloned().flatten()
            }
            _ => None,
        };
        assert_eq!(records(&begins_beside(1)).as_deref(), Some("c"));
        let mut beside = begins_beside(3);
        let plan = beside.plan();
        let Plan::Block(hold) = &plan else { panic!("{plan:?}") };
        assert_eq!(hold.reason, reasons::CLUSTER_ID_CHANGED);
        assert!(
            hold.message.contains("no cluster ID is recorded yet: etcd cluster c answers, with 3 members"),
            "{hold:?}"
        );
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
        let Outcome::Answered(report) = &mut story.observation.probes.get_mut(&name(2)).unwrap().outcome else {
            panic!("it does not answer")
        };
        report.cluster_id = 0xdead;
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
        let Outcome::Answered(report) = &mut story.observation.probes.get_mut(&name(2)).unwrap().outcome else {
            panic!("it does not answer")
        };
        report.cluster_id = 0xdead;
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
}
