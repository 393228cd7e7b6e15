//! More Machines than wanted: `replicas` was lowered, or a voter has recovered whose replacement is there already. All that are
//! too many are deleted, so that the control plane is told of the members that stay all at once; their members leave etcd one
//! after the other, as those of every Machine that is deleted.

use super::corrupt;
use super::in_use::InUse;
use super::repair::{is_kept, is_paused, recovers};
use super::rollout::{is_chosen, is_outdated};
use super::step::WhyDeleted;
use super::{Plan, Step, View};
use crate::roster::{Seat, number};
use controller_support::external::MachineView;
use std::cmp::Reverse;

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let kept = view.roster.seats.iter().filter(|seat| is_kept(view, seat));
    let kept: Vec<_> = kept.filter_map(|seat| Some((seat, seat.machine?))).collect();
    // Where there is no room for more, those that carry no member yet are made later, one in the place of another.
    let is_crowded = view.removes_first() && kept.len() > view.wanted();
    let empty: Vec<_> = kept.iter().copied().filter(|(seat, _)| is_crowded && seat.member.is_none()).collect();
    // In a rollout there are as many as wanted of each kind at most.
    let (old, new): (Vec<_>, Vec<_>) = kept.into_iter().partition(|(seat, _)| is_outdated(view, seat));
    let too_many =
        if empty.is_empty() { [new, old].into_iter().find(|group| group.len() > view.wanted())? } else { empty };
    let free: Vec<_> = too_many.into_iter().filter(|(_, machine)| !is_paused(machine)).collect();
    let in_domain_of =
        |machine: &MachineView| free.iter().filter(|(_, other)| other.failure_domain == machine.failure_domain).count();
    let in_use = InUse::of(view);
    let is_unused = in_use.is_empty() && !in_use.is_unknown();
    let leads = |seat: &Seat<'_>| is_unused && seat.leads();
    let (seat, machine) =
        free.iter().min_by_key(|(seat, machine)| order(seat, machine, in_domain_of(machine), leads(seat)))?;
    // A Machine that is held back carries nothing, whatever is known of the others. Where Machines may be missing,
    // nobody counts.
    let may_choose =
        (!seat.admitted || (is_settled(view) && !corrupt::holds(view))) && view.observation.not_owned.is_empty();
    (may_choose && recovers(view).is_none())
        .then(|| Plan::Do(Step::DeleteMachine { name: machine.name.clone(), why: WhyDeleted::Surplus }))
}

/// Whether it is known of every voter how it is: one that begins to fail may soon be the one to go.
fn is_settled(view: &View<'_>) -> bool {
    view.roster.is_listed() && view.roster.voters().all(Seat::is_settled)
}

/// Whom a person has chosen goes first; then who serves least: those that have failed, those that are not members yet,
/// learners. Of healthy voters one goes that shares its failure domain with most others, and of these the newest, also
/// if it leads: the oldest are in every list of endpoints that API servers may still use. The very oldest is never the
/// first to go: it may be the only one of such a list. So only Machines that may go count for a domain: one that is
/// paused would make the oldest one's domain look full. Where no API server uses any, the leader goes last: leadership
/// need not move.
fn order(
    seat: &Seat<'_>,
    machine: &MachineView,
    in_its_domain: usize,
    leads: bool,
) -> (bool, u8, Reverse<usize>, bool, Reverse<Option<u64>>) {
    let serves = match () {
        () if seat.is_voter() && seat.is_unhealthy() => 0,
        () if !seat.admitted => 1,
        () if seat.member.is_none() => 2,
        () if !seat.is_voter() => 3,
        () => 4,
    };
    (!is_chosen(seat), serves, Reverse(in_its_domain), leads, Reverse(number(&machine.name)))
}
