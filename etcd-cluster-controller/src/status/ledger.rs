//! The record of what is being done to etcd, and of what was done to members whose Machines still exist. The record
//! survives a kill at any point. A removal is written down before it is begun, and stays recorded until the Machine is
//! gone, even if its operation was called off. So whichever manager made the call, and whenever etcd carries it out,
//! the member is known to have been removed by us.

use crate::observation::hex;
use crate::plan::{Plan, Step, View};
use api::etcd_cluster::{EtcdClusterStatus, LastRemediation, Operation, OperationKind, RemovalState, RemovedMember};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The operation after this reconcile.
pub(super) fn operation(before: Option<Operation>, next: &Plan, failed: Option<&str>) -> Option<Operation> {
    match next {
        // The operation begins when this status is written.
        Plan::Do(Step::Begin(operation)) => Some(operation.clone()),
        Plan::Do(Step::Finish(_)) => None,
        // Only failed moves of leadership are counted. Each count is a write, and so an event, which would defeat the
        // back-off of a failed step.
        Plan::Do(Step::MoveLeader { .. }) if failed.is_some() => {
            before.map(|operation| Operation { attempt: operation.attempt.saturating_add(1), ..operation })
        }
        _ => before,
    }
}

/// The latest replacement of an unhealthy member after this reconcile.
pub(super) fn last_remediation(before: Option<LastRemediation>, next: &Plan) -> Option<LastRemediation> {
    match next {
        // The replacement begins when this status is written.
        Plan::Do(Step::BeginRemediation(record)) => Some(record.clone()),
        _ => before,
    }
}

/// The Machines that were released without having become members. Before etcd has begun, no UID is forgotten: a manager
/// whose watches lag may still find the etcd of a Machine that is gone.
pub(super) fn released_machine_uids(view: &View<'_>, before: &EtcdClusterStatus, next: &Plan) -> Vec<String> {
    let is_there = |uid: &String| view.observation.machines.values().any(|machine| machine.uid == *uid);
    let mut uids: Vec<String> =
        before.released_machine_uids.iter().filter(|uid| !view.has_begun() || is_there(uid)).cloned().collect();
    if let Plan::Do(Step::NoteRelease { machine_uid }) = next {
        uids.push(machine_uid.clone());
    }
    uids
}

/// The members that have left etcd or are about to leave, and whose Machines still exist. `failed`: why the step could
/// not be done.
pub(super) fn removed_members(
    view: &View<'_>,
    before: &EtcdClusterStatus,
    (next, failed): (&Plan, Option<&str>),
) -> Vec<RemovedMember> {
    let now = || Time(view.observation.now);
    let machines = || view.observation.machines.values();
    let mut records: Vec<RemovedMember> = before.removed_members.clone();
    match (next, &before.operation) {
        (Plan::Do(Step::Begin(operation)), _) if operation.kind == OperationKind::RemoveMember => {
            let machine = machines().find(|machine| machine.uid == operation.machine_uid);
            records.retain(|record| record.id != operation.member_id);
            records.push(RemovedMember {
                id: operation.member_id.clone(),
                machine: machine.map(|machine| machine.name.clone()).unwrap_or_default(),
                machine_uid: operation.machine_uid.clone(),
                state: RemovalState::Removing,
                never_started: true,
                since: now(),
            });
        }
        (Plan::Do(Step::Finish(Some(state))), Some(operation)) => {
            let done = records.iter_mut().filter(|record| record.id == operation.member_id);
            done.for_each(|record| (record.state, record.since) = (*state, now()));
        }
        _ => {}
    }
    // The member may start until it is removed. A learner that has lost its data may remove itself at that moment, to
    // join again. etcd confirms only one of the two removals, so a learner is known to stay out only if etcd has
    // confirmed its removal to us.
    let is_confirmed =
        |id: &str| matches!(next, Plan::Do(Step::RemoveMember(may)) if failed.is_none() && hex(may.member_id()) == id);
    let stays_out = |id: &str| {
        let seat = view.roster.members().find(|(member, _)| hex(*member) == id).map(|(_, seat)| seat);
        seat.is_some_and(|seat| seat.has_started() && (seat.is_voter() || is_confirmed(id)))
    };
    for record in records.iter_mut().filter(|record| record.state == RemovalState::Removing) {
        record.never_started &= !stays_out(&record.id);
    }
    if view.roster.is_listed() {
        // The operation was called off because of a list that still had the member, and etcd has removed the member
        // since. raft may commit a proposal long after the caller has stopped waiting for it, and a manager may have
        // been paused before it made the call.
        let is_off = |id: &str| before.operation.as_ref().is_none_or(|operation| operation.member_id != id);
        let is_late = |record: &&mut RemovedMember| {
            record.state == RemovalState::Removing && is_off(&record.id) && !is_listed(view, &record.id)
        };
        let late = records.iter_mut().filter(is_late);
        late.for_each(|record| (record.state, record.since) = (RemovalState::Removed, now()));
        // The member is listed again: its etcd was restored, or the list before was read from another cluster. A
        // restored or newly added member has another ID, so the Machine counts as well.
        records.retain(|record| {
            let back = is_member(view, &record.machine) || is_listed(view, &record.id);
            record.state == RemovalState::Removing || !back
        });
        records.extend(missing(view, before, &records));
    }
    records.retain(|record| machines().any(|machine| machine.uid == record.machine_uid));
    records.sort_by(|a, b| a.id.cmp(&b.id));
    records
}

/// Whether the list has a member.
fn is_listed(view: &View<'_>, id: &str) -> bool {
    view.roster.members().any(|(member, _)| hex(member) == id)
}

/// Whether a Machine carries a member in the list, under any ID.
fn is_member(view: &View<'_>, machine: &str) -> bool {
    view.roster.by_machine(machine).is_some_and(|seat| seat.member.is_some())
}

/// Members in the previous status that are no longer in the list, and have no record of a removal.
fn missing(view: &View<'_>, before: &EtcdClusterStatus, records: &[RemovedMember]) -> Vec<RemovedMember> {
    let known = |id: &str| records.iter().any(|record| record.id == id);
    let gone = before.members.iter().filter(|member| !is_listed(view, &member.id) && !known(&member.id));
    let gone = gone.filter(|member| !is_member(view, &member.machine));
    let record = |member: &api::etcd_cluster::MemberStatus| {
        let machine = view.observation.machines.get(&member.machine)?;
        Some(RemovedMember {
            id: member.id.clone(),
            machine: machine.name.clone(),
            machine_uid: machine.uid.clone(),
            state: RemovalState::Missing,
            never_started: member.name.is_empty(),
            since: Time(view.observation.now),
        })
    };
    gone.filter_map(record).collect()
}
