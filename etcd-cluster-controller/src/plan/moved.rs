//! `clusterctl move`: what it has moved away is left alone, and it has to wait while a move would lose something.
//!
//! clusterctl creates every object again in the target, with a new UID and without its status, and then deletes it
//! here. Before it deletes an object, it replaces all annotations with a mark of its own, and removes the finalizers.
//! Meanwhile the Cluster is paused on both sides. If that pause is lost, the mark says the same.

use super::{Plan, Step, View, deletion, repair};
use crate::observation::Observation;
use api::etcd_cluster::{EtcdClusterStatus, RemovalState};
use api::names;
use kube::ResourceExt;

/// The object that says that the members now belong to another management cluster, so nothing is done to them from
/// here. `None`: no object says so; or the deletion has been confirmed since, which the Cluster hook does when the
/// Cluster is deleted.
pub(super) fn away(observation: &Observation) -> Option<String> {
    let (etcd, mark) = (observation.etcd.as_ref(), names::DELETE_FOR_MOVE_ANNOTATION);
    if deletion::is_confirmed(etcd) {
        return None;
    }
    let what = if etcd.annotations().contains_key(mark) {
        format!("EtcdCluster {}", etcd.name_any())
    } else {
        let machine = observation.machines.values().find(|machine| machine.annotations.contains_key(mark))?;
        format!("Machine {}", machine.name)
    };
    Some(format!(
        "{what} has annotation {mark}: clusterctl has moved it to another management cluster, which looks after the members now. If it has not, remove the annotation"
    ))
}

/// What a move would lose now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Nothing: all that matters can be derived again.
    Nothing,
    /// What would be lost, in words.
    Of(String),
    /// The member list is not known at this moment, and nothing else would be lost. The previous answer still holds.
    Unknown,
}

/// What a move would lose now. clusterctl moves neither a status nor a deletion, and no Machine may join under another
/// UID than the admitted one. `after`: the status that is written next.
pub(crate) fn loss(observation: &Observation, next: &Plan, after: &EtcdClusterStatus) -> Loss {
    let view = View::new(observation);
    if has_made_nothing(&view, next) {
        return Loss::Nothing;
    }
    match before_the_list(&view, next, after).or_else(|| odd_seat(&view)) {
        Some(what) => Loss::Of(what),
        None if view.roster.is_listed() => Loss::Nothing,
        None => Loss::Unknown,
    }
}

/// Whether nothing has been made for the EtcdCluster, and nothing is about to be made, for example because its Cluster
/// uses another EtcdCluster.
fn has_made_nothing(view: &View<'_>, next: &Plan) -> bool {
    let makes = matches!(next, Plan::Do(step) if changes_members(step));
    view.observation.machines.is_empty() && !view.has_begun() && !makes
}

/// What would be lost, whatever the member list says.
fn before_the_list(view: &View<'_>, next: &Plan, after: &EtcdClusterStatus) -> Option<String> {
    let observation = view.observation;
    if let Plan::Do(step) = next
        && changes_members(step)
    {
        return Some(step.describe());
    }
    if !after.initialized || !after.creation_complete {
        return Some("etcd has not been complete yet".to_owned());
    }
    if let Some(begun) = &after.operation {
        return Some(begun.to_string());
    }
    if let Some(record) = after.removed_members.first() {
        let how = match record.state {
            RemovalState::Removing => "may be about to leave",
            RemovalState::Removed | RemovalState::Missing => "has left, or is missing",
        };
        return Some(format!("member {} {how}, and Machine {} is there", record.id, record.machine));
    }
    if !after.released_machine_uids.is_empty() {
        return Some("a Machine is being let go that has not become a member".to_owned());
    }
    if let Some(going) = observation.machines.values().find(|machine| machine.deleting) {
        return Some(format!("Machine {} is being deleted", going.name));
    }
    if let Some(last) = repair::under_way(view) {
        return Some(format!("the member of Machine {} is being replaced", last.machine));
    }
    (observation.machines.len() != view.wanted())
        .then(|| format!("there are {} Machines, and {} are wanted", observation.machines.len(), view.wanted()))
}

/// A Machine without a voter, or a member without a Machine, by the member list.
fn odd_seat(view: &View<'_>) -> Option<String> {
    let mut seats = view.roster.seats.iter().filter(|_| view.roster.is_listed());
    let odd = seats.find(|seat| seat.machine.is_none() || !seat.is_voter())?;
    Some(match odd.machine {
        Some(machine) => format!("Machine {} has no member that votes", machine.name),
        None => format!("member {} has no Machine", odd.name()),
    })
}

/// Whether a step changes the membership or the Machines, or is part of such a change. The other steps only record what
/// can be derived again.
fn changes_members(step: &Step) -> bool {
    match step {
        Step::Record { .. }
        | Step::EnsureCertificates
        | Step::LabelCa
        | Step::PublishInit { .. }
        | Step::SetProviderId { .. }
        | Step::AddHook { .. } => false,
        Step::CreateMachine { .. }
        | Step::Admit { .. }
        | Step::DeleteHeldBack { .. }
        | Step::BeginRemediation(_)
        | Step::DeleteMachine { .. }
        | Step::Begin(_)
        | Step::Finish(_)
        | Step::MoveLeader { .. }
        | Step::RemoveMember(_)
        | Step::NoteRelease { .. }
        | Step::ReleaseHook { .. }
        | Step::DeleteMachines { .. }
        | Step::RemoveFinalizer => true,
    }
}
