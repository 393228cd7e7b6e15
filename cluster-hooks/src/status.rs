//! What is reported: the condition `ManagedExternalEtcdReady` of the Cluster, and a condition of the control plane.
//! Both are derived from the plan. Of the first, the plan reads only whether it exists, and since when it has not been
//! True.

pub mod health;

use crate::context::REFUSED;
use crate::observation::{ClusterState, ControlPlaneView, Etcd, Joining, KUBEADM_CONFIG, Observation, Pause};
use crate::plan::{Plan, earlier, way_out};
use api::conditions::{Draft, MANAGED_EXTERNAL_ETCD_READY, from_drafts, reasons};
use api::endpoints::EndpointList;
use api::names;
use controller_support::Hold;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use std::time::Duration;

/// The shortest time between two writes that change only the message while something is under way. The message may
/// change with every member.
const MESSAGES: Duration = Duration::from_secs(10);

/// What to do about a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// Nothing: it is correct, or it is not ours to write.
    Nothing,
    /// Write it.
    Write(Condition),
    /// Only the message is outdated, or others have overwritten it: write it after this time.
    Later(Duration),
}

/// Compares the condition of the Cluster with what the plan says. `since_write`: how long ago this process last wrote
/// the condition, if it has.
pub fn report(observation: &Observation, plan: &Plan, since_write: Option<Duration>) -> Update {
    let Some(draft) = draft(observation, plan) else { return Update::Nothing };
    let cluster = &observation.cluster;
    compare(cluster.condition.as_ref(), of_cluster(cluster, draft, &observation.now), since_write)
}

/// Whether the write of the condition may be deferred for a moment: it is the Cluster's first one, and says only what
/// is waited for. Most likely the rest of the manifests is about to be applied. A Cluster that is being deleted gets no
/// more manifests.
pub fn can_wait(cluster: &ClusterState, plan: &Plan) -> bool {
    cluster.condition.is_none() && !cluster.view.deleting && matches!(plan, Plan::Wait(_))
}

/// The condition that is written before anything else: see [`crate::plan::Step::Announce`].
pub fn announcement(cluster: &ClusterState, hold: &Hold, now: &Time) -> Condition {
    of_cluster(cluster, Draft::new(MANAGED_EXTERNAL_ETCD_READY, false, hold.reason, hold.message.clone()), now)
}

/// The API server refuses something, most likely to us, so nothing is known for certain. A paused Cluster is left
/// alone, and so is one that names no etcd and does not have our condition.
///
/// `since_write` is as in [`report`]. A new message is not written at once, see
/// [`DeferredStatuses::left_if`](controller_support::DeferredStatuses::left_if).
pub fn failure(cluster: &ClusterState, message: String, now: &Time, since_write: Option<Duration>) -> Update {
    if cluster.view.is_paused() || (cluster.view.etcd.is_none() && cluster.condition.is_none()) {
        return Update::Nothing;
    }
    let draft = Draft::unknown(MANAGED_EXTERNAL_ETCD_READY, reasons::REFUSED, message);
    let draft = draft.in_known_words(cluster.condition.as_slice());
    compare(cluster.condition.as_ref(), of_cluster(cluster, draft, now), since_write)
}

/// Why the control plane has been paused, for the event.
pub fn pause_note(observation: &Observation, control_plane: &ControlPlaneView) -> String {
    let reference = &control_plane.reference;
    // A released control plane is paused only while others overwrite the endpoints.
    match observation.written.as_ref().filter(|_| observation.released()) {
        Some(written) => format!(
            "{reference} is paused: others overwrite its etcd endpoints. It goes on when they are written again at {:.0}",
            written.due()
        ),
        None => format!("{reference} is paused until etcd is ready and handed over"),
    }
}

/// Reports that the API server does not accept what we write into the control plane.
pub fn refused(cluster: &ClusterState, refusal: &str) -> Hold {
    let message = format!("{refusal}; this controller tries again every {} s", REFUSED.as_secs());
    let draft = Draft::new(MANAGED_EXTERNAL_ETCD_READY, false, reasons::CONTROL_PLANE_INVALID, message);
    let known = draft.in_known_words(cluster.condition.as_slice());
    Hold::new(known.reason, known.message).again(REFUSED)
}

fn of_cluster(cluster: &ClusterState, draft: Draft, now: &Time) -> Condition {
    let mut conditions = from_drafts(cluster.condition.as_slice(), vec![draft], cluster.generation, now);
    conditions.swap_remove(0)
}

fn compare(before: Option<&Condition>, after: Condition, since_write: Option<Duration>) -> Update {
    let Some(before) = before else { return Update::Write(after) };
    if *before == after {
        return Update::Nothing;
    }
    let message_only = Condition { message: after.message.clone(), ..before.clone() } == after;
    // If nothing is under way, a person has probably done something, such as a pause, and checks whether it was
    // noticed.
    let can_wait = message_only && after.reason != reasons::READY;
    match since_write {
        Some(elapsed) if can_wait && elapsed < MESSAGES => Update::Later(MESSAGES.saturating_sub(elapsed)),
        _ => Update::Write(after),
    }
}

fn draft(observation: &Observation, plan: &Plan) -> Option<Draft> {
    let (reason, message) = summarize(observation, plan)?;
    if reason == reasons::WAITING_FOR_ETCD && serves(observation) {
        let message = format!("{message}; the control plane goes on with the endpoints that it has");
        return Some(Draft::new(MANAGED_EXTERNAL_ETCD_READY, true, reasons::AVAILABLE, message));
    }
    let held = matches!(plan, Plan::Wait(_) | Plan::Block(_));
    Some(Draft::new(MANAGED_EXTERNAL_ETCD_READY, !held, reason, message))
}

/// Whether etcd serves the control plane although it is not Ready, because it is being scaled, or a member is away or
/// being replaced: it can be written to, and more than half of the endpoints in the control plane still belong to it.
fn serves(observation: &Observation) -> bool {
    let etcd = observation.found_etcd().filter(|etcd| etcd.available && !etcd.deleting);
    let given = observation.found_control_plane().and_then(|control_plane| control_plane.endpoints.as_ref());
    let (Some(etcd), Some(given)) = (etcd, given) else { return false };
    let own = given.iter().filter(|url| etcd.endpoints.contains(url)).count();
    observation.released() && own > given.len() / 2
}

/// Reason and message. None: there is nothing to report yet, or it is not ours to report.
fn summarize(observation: &Observation, plan: &Plan) -> Option<(&'static str, String)> {
    if observation.etcd == Etcd::NotNamed {
        return None;
    }
    let rolling = rolling(observation);
    match plan {
        // There is more to do before anything can be reported.
        Plan::Do(_) => None,
        // A paused Cluster is left alone, its status included.
        Plan::Wait(hold) if hold.reason == reasons::PAUSED => None,
        Plan::Wait(hold) | Plan::Block(hold) => Some((hold.reason, joined([Some(hold.message.clone()), rolling]))),
        // Etcd is gone, or never existed: Cluster API does the rest of the deletion.
        Plan::Steady if observation.cluster.view.deleting => None,
        Plan::Steady => {
            let paused = observation.found_control_plane().is_some_and(|c| c.pause == Pause::Users);
            let reason = if rolling.is_some() { reasons::CONTROL_PLANE_ROLLING_OUT } else { reasons::READY };
            let paused =
                paused.then(|| "etcd has been handed over; the control plane is paused by its user".to_owned());
            Some((reason, joined([paused, rolling])))
        }
    }
}

/// What the control plane is doing while it is not done with earlier endpoints.
fn rolling(observation: &Observation) -> Option<String> {
    let control_plane = observation.found_control_plane()?;
    if observation.cluster.view.deleting {
        return None;
    }
    if let Some(unrecorded) = unrecorded(observation, control_plane) {
        return Some(unrecorded);
    }
    let earlier = earlier(observation);
    if earlier.is_empty() {
        return None;
    }
    let present = control_plane.real_endpoints();
    let leaving: Vec<&str> =
        earlier.urls().into_iter().filter(|url| !present.iter().any(|other| other == url)).collect();
    let used = match leaving.as_slice() {
        [] => format!("no more than {}", earlier.urls().into_iter().collect::<Vec<_>>().join(", ")),
        urls => urls.join(", "),
    };
    let (reference, present) = (&control_plane.reference, present.into_iter().collect());
    if let Some(joining) = observation.reads.joining.as_ref().and_then(|joining| would_join(joining, &present)) {
        let way_out = way_out(observation).map(|way_out| format!(". {way_out}")).unwrap_or_default();
        let message = format!("{reference} has replaced its machines, and {joining}. API servers may still use {used}");
        return Some(message + &way_out);
    }
    let progress = control_plane.rollout.progress();
    Some(format!(
        "{reference} replaces its machines ({progress}); until that is done, API servers may still use {used}"
    ))
}

/// The record of the endpoints in use is lost, and cannot be made again yet. It has been looked for: otherwise nothing
/// has been read.
fn unrecorded(observation: &Observation, control_plane: &ControlPlaneView) -> Option<String> {
    let etcd = observation.found_etcd().filter(|etcd| etcd.in_use.is_none())?;
    observation.reads.used.as_ref()?;
    let present = control_plane.real_endpoints().into_iter().collect();
    let joining = observation.reads.joining.as_ref().and_then(|joining| would_join(joining, &present));
    let why =
        joining.unwrap_or_else(|| format!("its machines do not show it yet ({})", control_plane.rollout.progress()));
    let way_out = way_out(observation).map(|way_out| format!(". {way_out}")).unwrap_or_default();
    Some(format!(
        "it is not known which endpoints the API servers of {} use, because annotation {} of {} is missing, and {why}. \
         Until it is known, the old members stay{way_out}",
        control_plane.reference,
        names::ENDPOINTS_IN_USE_ANNOTATION,
        etcd.reference
    ))
}

/// What a person can do about endpoints in kubeadm's configuration that are not the present ones.
const ROLL_OUT: &str = "roll the control plane out once more, which brings it up to date";

/// With which earlier endpoints a further machine would join, or that it would join with none, or that this is not
/// known. None: with the present ones.
fn would_join(joining: &Joining, present: &EndpointList) -> Option<String> {
    let map = format!("ConfigMap kube-system/{KUBEADM_CONFIG} of the Kubernetes cluster");
    match joining {
        Joining::Unknown(why) => Some(format!(
            "it is not known with which endpoints another machine would join, because {map} cannot be read: {why}"
        )),
        Joining::With(list) if list.is_empty() || list == present => None,
        Joining::With(list) => {
            let urls: Vec<&str> = list.iter().map(String::as_str).collect();
            Some(format!("another one would join with {}, which {map} has: {ROLL_OUT}", urls.join(", ")))
        }
        Joining::WithNone => Some(format!(
            "the API server of another one would not start, because {map} has no endpoint of etcd, or only the \
             placeholder: {ROLL_OUT}"
        )),
    }
}

fn joined(texts: [Option<String>; 2]) -> String {
    texts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
