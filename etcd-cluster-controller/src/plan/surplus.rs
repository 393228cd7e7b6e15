//! More Machines than wanted: `replicas` was lowered, or a voter has recovered whose replacement is there already. All that are
//! too many are deleted, so that the control plane is told of the members that stay all at once; their members leave etcd one
//! after the other, as those of every Machine that is deleted.

use super::repair::is_kept;
use super::step::WhyDeleted;
use super::{Plan, Step, View};
use crate::build::is_up_to_date;
use crate::roster::{Seat, number};
use controller_support::external::MachineView;
use std::cmp::Reverse;

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let kept = view.roster.seats.iter().filter(|seat| is_kept(view, seat));
    let kept: Vec<(&Seat<'_>, &MachineView)> = kept.filter_map(|seat| Some((seat, seat.machine?))).collect();
    if kept.len() <= view.wanted() {
        return None;
    }
    let (seat, machine) = kept.into_iter().min_by_key(|(seat, machine)| order(view, seat, machine))?;
    // A Machine that is held back carries nothing, whatever is known of the others. Where Machines may be missing, nobody counts.
    let may_choose = (!seat.admitted || is_settled(view)) && view.observation.not_owned.is_empty();
    may_choose.then(|| Plan::Do(Step::DeleteMachine { name: machine.name.clone(), why: WhyDeleted::Surplus }))
}

/// Whether it is known of every voter how it is: one that begins to fail may soon be the one to go.
fn is_settled(view: &View<'_>) -> bool {
    view.roster.is_listed() && view.roster.voters().all(|seat| seat.is_healthy() || seat.is_unhealthy())
}

/// Who serves least goes first: those that have failed, those that are not members yet, learners, those of an earlier spec, the
/// leader last, and the newest of those that are alike.
fn order(view: &View<'_>, seat: &Seat<'_>, machine: &MachineView) -> (u8, bool, bool, Reverse<Option<u64>>) {
    let serves = match () {
        () if seat.is_voter() && seat.is_unhealthy() => 0,
        () if !seat.admitted => 1,
        () if seat.member.is_none() => 2,
        () if !seat.is_voter() => 3,
        () => 4,
    };
    (serves, is_up_to_date(view.observation, machine), seat.leads(), Reverse(number(&machine.name)))
}
