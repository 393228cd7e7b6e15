//! What is being done to etcd, and what was done to members whose Machines are still there. It survives a kill at any point:
//! the removal is written before it is begun, and remembered until the Machine is gone, also where its operation was
//! called off. Whoever made the call, and whenever etcd carries it out, the member has left at our word.

use crate::observation::hex;
use crate::plan::{Plan, Step, View};
use api::etcd_cluster::{EtcdClusterStatus, LastRemediation, Operation, OperationKind, RemovalState, RemovedMember};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The operation after this reconcile.
pub(super) fn operation(before: Option<Operation>, next: &Plan, failed: Option<&str>) -> Option<Operation> {
    match next {
        // The write of this status is the beginning.
        Plan::Do(Step::Begin(operation)) => Some(operation.clone()),
        Plan::Do(Step::Finish(_)) => None,
        // Only these are counted: the write is an event, which defeats the back-off of what has failed.
        Plan::Do(Step::MoveLeader { .. }) if failed.is_some() => {
            before.map(|operation| Operation { attempt: operation.attempt.saturating_add(1), ..operation })
        }
        _ => before,
    }
}

/// The latest replacement of an unhealthy member after this reconcile.
pub(super) fn last_remediation(before: Option<LastRemediation>, next: &Plan) -> Option<LastRemediation> {
    match next {
        // The write of this status is the beginning.
        Plan::Do(Step::BeginRemediation(record)) => Some(record.clone()),
        _ => before,
    }
}

/// The Machines that are let go without having become members. Before etcd has begun none is forgotten: a manager whose
/// watches lag may still find the etcd of one that is gone.
pub(super) fn released_machine_uids(view: &View<'_>, before: &EtcdClusterStatus, next: &Plan) -> Vec<String> {
    let is_there = |uid: &String| view.observation.machines.values().any(|machine| machine.uid == *uid);
    let mut uids: Vec<String> =
        before.released_machine_uids.iter().filter(|uid| !view.has_begun() || is_there(uid)).cloned().collect();
    if let Plan::Do(Step::NoteRelease { machine_uid }) = next {
        uids.push(machine_uid.clone());
    }
    uids
}

/// The members that left, or are about to, and whose Machines are still there. `failed`: why the step could not be
/// done.
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
    // It may start until it is removed. A learner that has lost its data may take itself out just then, to join again:
    // etcd says yes to one of two removals, so a learner stays out whose removal it has confirmed to us.
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
        // Its operation was called off by a list that still had it, and etcd has carried the call out since: raft may
        // commit what was proposed long after nobody waits for it, or a manager was stopped before it called.
        let is_off = |id: &str| before.operation.as_ref().is_none_or(|operation| operation.member_id != id);
        let is_late = |record: &&mut RemovedMember| {
            record.state == RemovalState::Removing && is_off(&record.id) && !is_listed(view, &record.id)
        };
        let late = records.iter_mut().filter(is_late);
        late.for_each(|record| (record.state, record.since) = (RemovalState::Removed, now()));
        // Listed again: an etcd that was restored, or a list that was read from another cluster before. A restore, or a member
        // that was added again, comes with another ID.
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

/// Whether a Machine carries a member of the list, under whatever ID.
fn is_member(view: &View<'_>, machine: &str) -> bool {
    view.roster.by_machine(machine).is_some_and(|seat| seat.member.is_some())
}

/// Members of the status before that the list no longer has, and that nobody has recorded as removed.
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
