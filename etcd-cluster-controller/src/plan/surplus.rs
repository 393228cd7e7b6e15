//! Surplus Machines: `replicas` was lowered, or a voter has recovered whose replacement is already there. All surplus
//! Machines are deleted first, so that the control plane is told once of the members that stay. Their members then
//! leave etcd one after the other, like those of every deleted Machine.

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
    // If there is no room for more Machines, surplus Machines without a member go first. They are created again later,
    // one in the place of another.
    let is_crowded = view.removes_first() && kept.len() > view.wanted();
    let empty: Vec<_> = kept.iter().copied().filter(|(seat, _)| is_crowded && seat.member.is_none()).collect();
    // In a rollout, there are at most as many old Machines as wanted, and as many new ones.
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
    // A Machine that is held back has no member, so what is known of the others does not matter. Nothing is surplus
    // while there are Machines that this EtcdCluster does not control, because Machines may be missing.
    let may_choose =
        (!seat.admitted || (is_settled(view) && !corrupt::holds(view))) && view.observation.not_owned.is_empty();
    (may_choose && recovers(view).is_none())
        .then(|| Plan::Do(Step::DeleteMachine { name: machine.name.clone(), why: WhyDeleted::Surplus }))
}

/// Whether the health of every voter is known: a voter that begins to fail may soon be the one to go.
fn is_settled(view: &View<'_>) -> bool {
    view.roster.is_listed() && view.roster.voters().all(Seat::is_settled)
}

/// The order in which surplus Machines go. A Machine that a person has chosen goes first. Then those go that serve
/// least: voters that have failed, Machines that are not members yet, learners. Of healthy voters, one goes that shares
/// its failure domain with the most others, and of these the newest, even if it leads: the oldest are in every list of
/// endpoints that API servers may still use.
///
/// The very oldest is never the first to go, because it may be the only one of such a list. So only Machines that may
/// go count for a domain: otherwise a paused Machine would make the domain of the oldest look full. If no API server
/// uses any list, the leader goes last, so that leadership need not move.
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
