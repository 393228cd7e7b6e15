//! From a Cluster that names an etcd to a control plane that uses it, and what changes afterwards.
//!
//! The order is what makes it safe: endpoints, then the client Secret (the gate), then the pause is lifted. Each step
//! is only planned once the effect of the one before has been observed.

use super::{
    KINDS, PEOPLE, Plan, Step, UNWATCHED_SECRETS, block, claimed_by_another, in_use, look_again, preconditions,
    remediation, wait,
};
use crate::observation::{Claim, ControlPlane, ControlPlaneView, Etcd, EtcdView, Observation, Pause};
use api::conditions::reasons;
use api::names;

pub(super) fn plan(observation: &Observation) -> Plan {
    if let Some(other) = claimed_by_another(observation) {
        let message = format!("etcd belongs to Cluster {other}: name another one, or none");
        return block(reasons::ETCD_BELONGS_TO_ANOTHER_CLUSTER, message, Some(PEOPLE));
    }
    if let Some(etcd) = observation.found_etcd()
        && etcd.claim == Claim::Free
        && !etcd.deleting
    {
        return Plan::Do(Step::ClaimEtcd);
    }
    if let Some(invalid) = invalid_control_plane(observation) {
        return invalid;
    }
    if let Some(step) = barrier(observation) {
        return Plan::Do(step);
    }
    if !observation.released()
        && let Some(held) = preconditions::of_user(observation)
    {
        return held;
    }
    if let Some(tell) = in_use::plan(observation) {
        return tell;
    }
    match (of_etcd(observation), remediation::plan(observation)) {
        // What etcd asks for comes first.
        (Plan::Do(step), _) | (_, Some(step)) => Plan::Do(step),
        (rest, None) => rest,
    }
}

fn of_etcd(observation: &Observation) -> Plan {
    match &observation.etcd {
        Etcd::NotNamed => Plan::Steady,
        Etcd::Invalid { message, retryable } => {
            block(reasons::ETCD_KIND_INVALID, message.clone(), retryable.then(|| look_again(observation)))
        }
        Etcd::Missing(reference) => {
            let message = format!("{}.{} {} does not exist", reference.kind, reference.group, reference.name);
            wait(reasons::ETCD_NOT_FOUND, message, None)
        }
        Etcd::Found(etcd) => with_etcd(observation, etcd),
    }
}

fn with_etcd(observation: &Observation, etcd: &EtcdView) -> Plan {
    match observation.found_control_plane().filter(|control_plane| !control_plane.deleting) {
        Some(control_plane) if differs(etcd, control_plane) => {
            preconditions::of_endpoints(etcd, control_plane).unwrap_or_else(|| write_endpoints(observation, etcd))
        }
        _ if !etcd.usable() => wait(reasons::WAITING_FOR_ETCD, why_not_usable(etcd), None),
        Some(control_plane) => publish(observation, etcd, control_plane),
        None => wait_for_control_plane(observation),
    }
}

/// A control plane that nobody could hand etcd to. Nothing is written to it.
fn invalid_control_plane(observation: &Observation) -> Option<Plan> {
    match &observation.control_plane {
        // Its CRD may be given the annotations.
        ControlPlane::Unknown { message, unsupported: true } => {
            Some(block(reasons::CONTROL_PLANE_INVALID, message.clone(), Some(look_again(observation))))
        }
        ControlPlane::Found(control_plane) if control_plane.endpoints.is_none() => {
            let message = format!(
                "{} {} is made for local etcd: create it again with {}: {{endpoints: [{}]{}}} \
                 (a change from local to external etcd is refused)",
                control_plane.reference.kind,
                control_plane.reference.name,
                control_plane.adapter.field(),
                names::PLACEHOLDER_ENDPOINT,
                if control_plane.adapter.kubeadm { ", caFile, certFile, keyFile" } else { "" }
            );
            Some(block(reasons::CONTROL_PLANE_INVALID, message, None))
        }
        _ => None,
    }
}

/// Keeps the pause as it should be in view of what has been handed over. None: it is so, or it is the user's.
fn barrier(observation: &Observation) -> Option<Step> {
    let control_plane = observation.found_control_plane()?;
    match (control_plane.pause, observation.released()) {
        // A paused control plane is never deleted.
        (Pause::Ours, _) if control_plane.deleting => Some(Step::Unpause),
        _ if control_plane.deleting => None,
        (Pause::None, false) => Some(Step::Pause),
        // Before the release our pause stays; after it the last writes come first, unless etcd is not there to ask.
        (Pause::Ours, true) if !in_hand(observation) => Some(Step::Unpause),
        (Pause::UsersOverOurs, _) => Some(Step::DropMarker),
        // Whoever has taken our pause away wants it so: the marker stays as a reminder until the release.
        (Pause::TakenAway, true) => Some(Step::DropMarker),
        _ => None,
    }
}

/// Etcd is there to be handed over, and the handover itself lifts the pause at its end.
fn in_hand(observation: &Observation) -> bool {
    observation.found_etcd().is_some_and(EtcdView::usable)
}

/// Endpoints are written while etcd is Ready only: a member that is away for a minute must not roll the control plane.
/// The one exception: somebody has put the placeholder back (by applying the manifest again) into a control plane that
/// is running.
pub(super) fn wants_endpoints(etcd: &EtcdView, control_plane: &ControlPlaneView) -> bool {
    differs(etcd, control_plane) && preconditions::of_endpoints(etcd, control_plane).is_none()
}

fn differs(etcd: &EtcdView, control_plane: &ControlPlaneView) -> bool {
    let differs = control_plane.endpoints.as_ref() != Some(&etcd.endpoints);
    let lost = control_plane.initialized && !control_plane.has_endpoints();
    !etcd.endpoints.is_empty() && !etcd.deleting && differs && (etcd.ready || lost)
}

fn write_endpoints(observation: &Observation, etcd: &EtcdView) -> Plan {
    if observation.cluster.topology {
        let message = format!(
            "the ClusterClass writes this control plane and would revert the endpoints: have it write {}",
            etcd.endpoints.join(",")
        );
        return block(reasons::CONTROL_PLANE_INVALID, message, None);
    }
    Plan::Do(Step::WriteEndpoints(etcd.endpoints.clone()))
}

/// The endpoints are in the control plane: now the client certificate, and then the pause.
fn publish(observation: &Observation, etcd: &EtcdView, control_plane: &ControlPlaneView) -> Plan {
    let secrets = &observation.secrets;
    let cluster = &observation.cluster.view.name;
    let waiting = |message| wait(reasons::WAITING_FOR_CLIENT_CERTIFICATE, message, Some(UNWATCHED_SECRETS));
    if !secrets.ca {
        let name = names::control_plane_ca_secret(cluster);
        return waiting(format!("Secret {name} with etcd's CA certificate is not there"));
    }
    if observation.about_to_release()
        && let Some(held) = preconditions::of_release(observation, control_plane)
    {
        return held;
    }
    match (&secrets.published, &secrets.staged) {
        (None, Some(Ok(pair))) => Plan::Do(Step::PublishClient(pair.clone())),
        (None, Some(Err(message))) => waiting(message.clone()),
        (None, None) => waiting(format!(
            "etcd's provider has made neither Secret {} nor Secret {}",
            names::staged_apiserver_client_secret(cluster),
            names::apiserver_client_secret(cluster)
        )),
        (Some(published), Some(Ok(pair)))
            if published.ours && (published.pair.as_ref() != Some(pair) || !published.owners.contains(&etcd.uid)) =>
        {
            Plan::Do(Step::UpdateClient(pair.clone()))
        }
        (Some(_), _) => match control_plane.pause {
            Pause::Ours => Plan::Do(Step::Unpause),
            Pause::None | Pause::Users | Pause::UsersOverOurs | Pause::TakenAway => Plan::Steady,
        },
    }
}

fn wait_for_control_plane(observation: &Observation) -> Plan {
    let (message, again) = match &observation.control_plane {
        ControlPlane::Missing(reference) => (format!("{} {} does not exist", reference.kind, reference.name), None),
        ControlPlane::Unknown { message, .. } => (message.clone(), Some(KINDS.1)),
        ControlPlane::Found(view) => {
            (format!("{} {} is being deleted", view.reference.kind, view.reference.name), None)
        }
        ControlPlane::Unset => {
            ("the Cluster names no control plane: set spec.controlPlaneRef to a KubeadmControlPlane".to_owned(), None)
        }
    };
    wait(reasons::WAITING_FOR_CONTROL_PLANE, message, again)
}

/// What the provider says about itself, in its own words.
fn why_not_usable(etcd: &EtcdView) -> String {
    let name = format!("{} {}", etcd.reference.kind, etcd.reference.name);
    if etcd.deleting {
        return format!("{name} is being deleted");
    }
    if etcd.ready {
        return format!("{name} says that it is ready, and has no endpoints");
    }
    match &etcd.condition {
        Some((reason, message)) if message.is_empty() => format!("{name} is not ready: {reason}"),
        Some((reason, message)) => format!("{name} is not ready: {reason}: {message}"),
        None => format!("{name} is not ready"),
    }
}
