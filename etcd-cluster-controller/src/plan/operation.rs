//! Finishes what was begun. The operation in the status is the fence: it is written before anything is done to etcd. A
//! manager that finds it reads etcd first, because a call that timed out may still have been carried out.
//!
//! An operation that is no longer wanted or safe is called off, so that other work goes on: it may never be permitted
//! again. Only a live list calls it off (`Step::is_fenced`). Even that is not final, because etcd may carry out a call
//! later. So the record of the removal stays (`status/ledger.rs`, `docs/decisions/0026-called-off-removals.md`).

use super::{Plan, Step, View, corrupt, retire, wait};
use crate::observation::hex;
use crate::quorum::is_gone;
use crate::roster::Seat;
use api::conditions::reasons;
use api::etcd_cluster::{Operation, OperationKind, RemovalState};

/// How often leadership is moved before etcd is left to elect a leader by itself.
const MOVES: i32 = 3;

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let operation = view.observation.etcd.status.as_ref()?.operation.as_ref()?;
    if !view.roster.is_listed() {
        let message = format!(
            "{operation} began at {:.0}; it is not known how it ended, because the member list cannot be read: {}",
            operation.since.0,
            view.observation.why_not_listed()
        );
        return Some(wait(reasons::MEMBERSHIP_UNKNOWN, message));
    }
    if is_gone(&view.observation.membership, &operation.member_id) {
        let removal = (operation.kind == OperationKind::RemoveMember).then_some(RemovalState::Removed);
        return Some(Plan::Do(Step::Finish(removal)));
    }
    Some(resume(view, operation).unwrap_or(Plan::Do(Step::Finish(None))))
}

/// The next step of the operation, if it is still wanted and still safe.
fn resume(view: &View<'_>, operation: &Operation) -> Option<Plan> {
    let id = u64::from_str_radix(&operation.member_id, 16).ok()?;
    let seat = view.roster.by_member(id).filter(|seat| retire::leaves(view, seat))?;
    let permission = retire::may_leave(view, seat).ok();
    // The record of a removal is kept for the Machine that it names. A watch that was late may not have shown the
    // Machine when the removal was begun.
    if permission.is_some() && seat.machine.is_some_and(|machine| machine.uid != operation.machine_uid) {
        return Some(Plan::Do(begin(view, operation.kind, seat, id)));
    }
    match operation.kind {
        OperationKind::RemoveMember => permission.map(|permission| Plan::Do(Step::RemoveMember(permission))),
        OperationKind::MoveLeader if permission.is_some() || corrupt::leads_no_longer(view, seat) => {
            let to = retire::next_leader(view, id).filter(|_| seat.leads() && operation.attempt < MOVES);
            Some(match to {
                Some(to) => Plan::Do(Step::MoveLeader { from: id, to }),
                None if permission.is_some() => Plan::Do(begin(view, OperationKind::RemoveMember, seat, id)),
                None => wait(
                    reasons::DATA_CORRUPT,
                    format!(
                        "member {id:x} still leads after {MOVES} attempts to move leadership away. Its data was given up, and a member that joins would copy this data. Move leadership by hand (etcdctl move-leader), or restart etcd on that machine"
                    ),
                ),
            })
        }
        OperationKind::MoveLeader => None,
    }
}

/// An operation on the member of a seat that begins now.
pub(super) fn begin(view: &View<'_>, kind: OperationKind, seat: &Seat<'_>, id: u64) -> Step {
    Step::Begin(Operation {
        kind,
        member_id: hex(id),
        machine_uid: seat.machine.map(|machine| machine.uid.clone()).unwrap_or_default(),
        since: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(view.observation.now),
        attempt: 0,
    })
}
