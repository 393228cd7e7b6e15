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
/// cluster some day. Removes it too while the recorded cluster has a quorum, whether or not that ID answers at this
/// moment. This comes when nothing else is to be done, because someone may set the annotation again each time.
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
/// check does not show that it is gone. Machines that a person has deleted do not count: what is on them goes with them.
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
mod tests;
