//! The handover, from a Cluster that names an etcd to a control plane that uses it, and what changes afterwards.
//!
//! The order makes the handover safe: first the endpoints, then the client Secret (the gate), then the end of the
//! pause. A step is planned only once the effect of the step before it has been observed.

use super::wanted::{given, overwritten, wanted, wants_endpoints};
use super::{
    Hold, KINDS, PEOPLE, Plan, Step, UNWATCHED_SECRETS, block, claimed_by_another, in_use, look_again, preconditions,
    wait,
};
use crate::observation::{
    ControlPlane, ControlPlaneView, Etcd, EtcdView, Need, Observation, PUBLISHED_BY_HOOK_ANNOTATION, Pause,
};
use api::conditions::reasons;
use api::names;

pub(super) fn plan(observation: &Observation) -> Plan {
    if let Some((other, etcd)) = claimed_by_another(observation).zip(observation.found_etcd()) {
        let named_by = if observation.cluster.by_annotation {
            format!("the annotation {}", names::MANAGED_ETCD_ANNOTATION)
        } else {
            "spec.managedExternalEtcdRef".to_owned()
        };
        let message = format!(
            "{} belongs to Cluster {other}: change or remove {named_by} of Cluster {}",
            etcd.reference, observation.cluster.view.name
        );
        return block(reasons::ETCD_BELONGS_TO_ANOTHER_CLUSTER, message).again(PEOPLE);
    }
    if let Some(etcd) = observation.found_etcd()
        && etcd.claim.is_open()
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
    if let Some(held) = another_store(observation) {
        return held;
    }
    in_use::plan(observation).unwrap_or_else(|| of_etcd(observation))
}

/// Refuses to hand another etcd to a control plane that runs on one already, just because the Cluster was changed: its
/// API servers would go on with the data of the other etcd. An etcd counts as another one if nothing says that the
/// control plane has ever used it: none of the control plane's endpoints is published by it or recorded on it, and it
/// does not own the client Secret that we handed over. A client Secret that somebody else made says nothing, because it
/// may belong to an etcd that the user manages. If the placeholder was written over the endpoints, those that we wrote
/// last count. To use the other etcd nevertheless, the user deletes the client Secret.
fn another_store(observation: &Observation) -> Option<Plan> {
    let (etcd, control_plane) = (observation.found_etcd()?, observation.found_control_plane()?);
    let published = observation.secrets.published.as_ref()?;
    let mut used = control_plane.real_endpoints();
    if used.is_empty() {
        used = observation.written.as_ref().map(|written| written.endpoints.clone()).unwrap_or_default();
    }
    let was_handed_over = published.ours && published.owners.contains(&etcd.uid);
    // If another provider publishes the certificate and the endpoints are not known, only the record on the etcd object
    // can say that this etcd has been used.
    let is_recorded = used.is_empty() && !published.ours && etcd.in_use.as_ref().is_some_and(|lists| !lists.is_empty());
    if !control_plane.initialized || was_handed_over || is_recorded || etcd.has_one_of(&used) {
        return None;
    }
    // Its endpoints show which etcd it is. Until it has some, nothing is recorded on it: the record would say that the
    // control plane has used it.
    if etcd.endpoints.is_empty() {
        return Some(wait(reasons::WAITING_FOR_ETCD, why_not_usable(etcd)));
    }
    let cluster = &observation.cluster.view.name;
    let runs_with = if used.is_empty() {
        "with endpoints that the placeholder has replaced".to_owned()
    } else {
        format!("with the endpoints {}", used.join(","))
    };
    let message = format!(
        "{} runs on another etcd, {runs_with}. If it were handed {}, its API servers would go on with the data of that \
         etcd. Name the earlier etcd again in Cluster {cluster}, or name none if you manage etcd yourself; or, if {} \
         has the data, keep a copy of Secret {secret} and delete it",
        control_plane.reference,
        etcd.reference,
        etcd.reference.name,
        secret = names::apiserver_client_secret(cluster)
    );
    Some(block(reasons::ETCD_REPLACED, message).again(PEOPLE))
}

fn of_etcd(observation: &Observation) -> Plan {
    match &observation.etcd {
        Etcd::NotNamed => Plan::Steady,
        Etcd::Invalid { message, retryable } => {
            let invalid = block(reasons::ETCD_KIND_INVALID, message.clone());
            if *retryable { invalid.again(look_again(observation)) } else { invalid }
        }
        Etcd::Missing(reference) => {
            let (cluster, namespace) = (&observation.cluster.view.name, &observation.cluster.view.namespace);
            let message = format!(
                "{}.{} {} does not exist in namespace {namespace}: create it, or correct the name in Cluster {cluster}",
                reference.kind, reference.group, reference.name
            );
            wait(reasons::ETCD_NOT_FOUND, message)
        }
        Etcd::Found(etcd) => with_etcd(observation, etcd),
    }
}

fn with_etcd(observation: &Observation, etcd: &EtcdView) -> Plan {
    let control_plane = observation.found_control_plane().filter(|control_plane| !control_plane.deleting);
    if let Some(control_plane) = control_plane
        && let Some(endpoints) = wanted(observation, etcd, control_plane)
    {
        return preconditions::of_endpoints(etcd, endpoints, control_plane)
            .unwrap_or_else(|| write_endpoints(observation, endpoints, control_plane));
    }
    match control_plane {
        _ if !etcd.usable() => wait(reasons::WAITING_FOR_ETCD, why_not_usable(etcd)),
        Some(control_plane) => publish(observation, etcd, control_plane),
        None => wait_for_control_plane(observation),
    }
}

/// Blocks if the control plane cannot be given an external etcd. Nothing is written into such a control plane.
fn invalid_control_plane(observation: &Observation) -> Option<Plan> {
    match &observation.control_plane {
        // Somebody may add the annotations to its CRD.
        ControlPlane::Unknown { message, unsupported: true, .. } => {
            Some(block(reasons::CONTROL_PLANE_INVALID, message.clone()).again(look_again(observation)))
        }
        ControlPlane::Found(control_plane) if control_plane.endpoints.is_none() => {
            let kubeadm = control_plane.adapter.kubeadm;
            let mut message = format!(
                "{} is made for local etcd, and a change from local to external etcd is refused: create it again with \
                 {}: {{endpoints: [{}]{}}}",
                control_plane.reference,
                control_plane.adapter.field(),
                names::PLACEHOLDER_ENDPOINT,
                if kubeadm { ", caFile, certFile, keyFile" } else { "" }
            );
            // Source: Cluster API's reconcileDelete of KubeadmControlPlane ("deletion blocked because following objects
            // still exist").
            if let Some(etcd) = observation.found_etcd().filter(|etcd| kubeadm && is_unused(observation, etcd)) {
                let reference = &etcd.reference;
                message += &format!(
                    "; if it has Machines, delete {reference} first: the control plane is not gone until the Cluster \
                     has no other Machine"
                );
                if reference.group == names::ETCD_CLUSTER_GROUP {
                    let (annotation, name) = (names::CONFIRM_DELETION_ANNOTATION, &reference.name);
                    message += &format!(". To delete {reference}, give it the annotation {annotation}: {name}");
                }
            }
            Some(block(reasons::CONTROL_PLANE_INVALID, message))
        }
        _ => None,
    }
}

/// Whether nothing says that a control plane has used this etcd: there is neither a record of endpoints in use nor a
/// client Secret.
fn is_unused(observation: &Observation, etcd: &EtcdView) -> bool {
    etcd.in_use.is_none() && observation.secrets.published.is_none()
}

/// Sets or lifts our pause, depending on what has been handed over. None: the pause is as it should be, or it is the
/// user's.
fn barrier(observation: &Observation) -> Option<Step> {
    let control_plane = observation.found_control_plane()?;
    let (pause, deleting) = (control_plane.pause, control_plane.deleting);
    match (pause, observation.released()) {
        _ if deleting => None,
        // Others have overwritten the endpoints, and it is too early to write them again. No machine may be made with
        // what the others have written.
        (Pause::None, true) if backs_off(observation).is_some() => Some(pause_step(observation)),
        (Pause::None, false) if pauses(observation) => Some(pause_step(observation)),
        // Our pause stays until the release. After the release, the handover writes what is missing and then lifts the
        // pause. If etcd is not usable, nothing can be written, and the pause is lifted here unless the endpoints are
        // foreign.
        (Pause::Ours, true) if !in_hand(observation) && !is_foreign(observation) => Some(Step::Unpause),
        _ => None,
    }
}

/// Whether the etcd that the Cluster names is a reason to pause. It is not if its kind is invalid and the Cluster names
/// it in the field that other providers use too.
fn pauses(observation: &Observation) -> bool {
    observation.cluster.by_annotation || !matches!(observation.etcd, Etcd::Invalid { .. })
}

/// The next step of a pause. The condition comes first: see [`Step::Announce`].
fn pause_step(observation: &Observation) -> Step {
    if observation.cluster.condition.is_some() {
        return Step::Pause;
    }
    // What the condition will say after the pause, so that it is written only once.
    Step::Announce(match of_etcd(observation) {
        Plan::Wait(hold) | Plan::Block(hold) => hold,
        Plan::Steady | Plan::Do(_) => Hold::new(reasons::WAITING_FOR_ETCD, "etcd is being handed over"),
    })
}

/// Whether etcd can be handed over. The handover then lifts the pause at its end.
fn in_hand(observation: &Observation) -> bool {
    observation.found_etcd().is_some_and(EtcdView::usable)
}

/// Whether the control plane has no endpoints, or endpoints that are neither those that it was given nor etcd's. No
/// machine may be made with them.
fn is_foreign(observation: &Observation) -> bool {
    let Some(control_plane) = observation.found_control_plane() else { return false };
    let found = control_plane.sorted_endpoints();
    let of_etcd = observation.found_etcd().is_some_and(|etcd| etcd.endpoints == found);
    !control_plane.has_endpoints() || given(observation, control_plane).is_some_and(|given| *given != found && !of_etcd)
}

/// Why the endpoints that others have overwritten are not written again yet. The more overwrites there are, the later
/// they are corrected, because each correction may make the control plane replace machines.
fn backs_off(observation: &Observation) -> Option<Plan> {
    let (etcd, control_plane) = (observation.found_etcd()?, observation.found_control_plane()?);
    let endpoints = wants_endpoints(observation, etcd, control_plane)?;
    let written = overwritten(observation, endpoints)?;
    if observation.cluster.topology || written.is_due(observation.now.0) {
        return None;
    }
    let Some(by) = &observation.reads.field_manager else { return Some(Plan::Do(Step::Read(Need::FieldManager))) };
    let found = control_plane.endpoints.as_deref().unwrap_or_default().join(",");
    let message = format!(
        "{by} overwrites {}.endpoints of {} with {found}. The control plane is paused, and this controller writes the \
         endpoints again at {}. Leave this field out of what {by} applies, or have {by} apply {}",
        control_plane.adapter.field(),
        control_plane.reference,
        written.due(),
        endpoints.join(",")
    );
    let left = written.due().duration_since(observation.now.0).unsigned_abs();
    Some(block(reasons::ENDPOINTS_REVERTED_BY_OTHERS, message).again(left))
}

fn write_endpoints(observation: &Observation, endpoints: &[String], control_plane: &ControlPlaneView) -> Plan {
    if observation.cluster.topology {
        let message = format!(
            "a ClusterClass manages {}, and would revert what this controller writes into it. The variables and \
             patches of the class cannot know etcd's endpoints, which change when a member is replaced. Create the \
             Cluster without spec.topology; or have a runtime extension of the class write {} into {}.endpoints, and \
             write them again when they have changed and status.ready is true",
            control_plane.reference,
            endpoints.join(","),
            control_plane.adapter.field()
        );
        return block(reasons::CONTROL_PLANE_INVALID, message);
    }
    if let Some(later) = backs_off(observation) {
        return later;
    }
    let again = overwritten(observation, endpoints).is_some();
    match &observation.reads.field_manager {
        None if again => Plan::Do(Step::Read(Need::FieldManager)),
        by => {
            let overwritten_by = by.clone().filter(|_| again);
            Plan::Do(Step::WriteEndpoints { endpoints: endpoints.to_vec(), overwritten_by })
        }
    }
}

/// Publishes the client certificate and then lifts the pause: the endpoints are in the control plane by now. A control
/// plane that runs already has a certificate, and is not held back until it has another one.
fn publish(observation: &Observation, etcd: &EtcdView, control_plane: &ControlPlaneView) -> Plan {
    match hand_client_over(observation, etcd, control_plane) {
        Plan::Wait(_) | Plan::Block(_) if control_plane.pause == Pause::Ours && control_plane.initialized => {
            Plan::Do(Step::Unpause)
        }
        plan => plan,
    }
}

fn hand_client_over(observation: &Observation, etcd: &EtcdView, control_plane: &ControlPlaneView) -> Plan {
    let secrets = &observation.secrets;
    let cluster = &observation.cluster.view.name;
    let (staged, published) = (names::staged_apiserver_client_secret(cluster), names::apiserver_client_secret(cluster));
    let waiting = |message| wait(reasons::WAITING_FOR_CLIENT_CERTIFICATE, message).again(UNWATCHED_SECRETS);
    if !secrets.ca {
        let name = names::control_plane_ca_secret(cluster);
        return waiting(format!("etcd's provider has not made Secret {name} with etcd's CA certificate yet"));
    }
    if observation.about_to_release()
        && let Some(held) = preconditions::of_release(observation, control_plane)
    {
        return held;
    }
    match (&secrets.published, &secrets.staged) {
        (None, Some(Ok(pair))) => Plan::Do(Step::PublishClient(pair.clone())),
        (None, Some(Err(message))) => waiting(message.clone()),
        // Without a staged certificate to compare it with, it is not known whether this one is of etcd's CA.
        (Some(found), Some(Err(message))) if !found.ours => waiting(message.clone()),
        (None, None) => waiting(format!("etcd's provider has made neither Secret {staged} nor Secret {published} yet")),
        (Some(found), Some(Ok(pair)))
            if found.ours && (found.pair.as_ref() != Some(pair) || !found.owners.contains(&etcd.uid)) =>
        {
            Plan::Do(Step::UpdateClient(pair.clone()))
        }
        // It may be of another CA, and nobody renews it.
        (Some(found), Some(Ok(pair))) if !found.ours && found.pair.as_ref() != Some(pair) => {
            let message = format!(
                "Secret {published} was not made by this provider, and its certificate differs from the one in Secret \
                 {staged}, which etcd's provider made and renews. Delete Secret {published} to have it replaced, or \
                 add the annotation {PUBLISHED_BY_HOOK_ANNOTATION}: \"true\" to it to have it updated"
            );
            block(reasons::CLIENT_CERTIFICATE_DIFFERS, message).again(PEOPLE)
        }
        (Some(_), _) if control_plane.pause == Pause::Ours => Plan::Do(Step::Unpause),
        (Some(_), _) => Plan::Steady,
    }
}

fn wait_for_control_plane(observation: &Observation) -> Plan {
    let waiting = |message| wait(reasons::WAITING_FOR_CONTROL_PLANE, message);
    match &observation.control_plane {
        ControlPlane::Missing(reference) => waiting(format!(
            "{reference} does not exist in namespace {}: create it, or correct spec.controlPlaneRef of Cluster {}",
            observation.cluster.view.namespace, observation.cluster.view.name
        )),
        ControlPlane::Unknown { message, .. } => waiting(message.clone()).again(KINDS.1),
        ControlPlane::Found(view) => waiting(format!("{} is being deleted", view.reference)),
        ControlPlane::Unset => {
            waiting("the Cluster has no control plane: set spec.controlPlaneRef to a KubeadmControlPlane".to_owned())
        }
    }
}

fn why_not_usable(etcd: &EtcdView) -> String {
    match (etcd.deleting, etcd.ready) {
        (true, _) => etcd.describe("is being deleted"),
        (false, true) => format!(
            "{} says that it is ready, and has no endpoints in its status: its provider must publish them",
            etcd.reference
        ),
        (false, false) => etcd.describe("is not ready"),
    }
}
