//! Replaces Machines that no longer match the spec. New Machines come first. An outdated Machine is deleted like any
//! other once it is not needed any more.
//!
//! If API servers use the endpoints of the members, every API server keeps as many endpoints as it needs until it uses
//! the new ones. The control plane is told once, when all the new members are there (rule 5). Up to three members are
//! doubled, so that all endpoints stay. Of more members, some old ones leave before that: f + 1 stay. With a lower
//! `maxSurge`, the control plane is told of the members that are there when no other old member may leave. If no API
//! server uses the endpoints, one Machine after the other is replaced.
//!
//! With `maxSurge: 0` there is no room for another Machine, so an old member leaves before a new one joins in its
//! place.

use super::in_use::InUse;
use super::repair::{can_be_made_again, is_kept, is_paused, recovers};
use super::step::WhyDeleted;
use super::{Plan, Step, View, corrupt, retire, upgrade};
use crate::observation::Template;
use crate::roster::Seat;
use api::etcd_cluster::RolloutType;
use api::names;

/// Deletes an outdated Machine whose time has come.
pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    // This rule passes over a Machine that is held back. Growth deletes it as soon as nothing prevents that, and makes
    // it again.
    let free = |seat: &&Seat<'_>| seat.admitted && seat.machine.is_some_and(|machine| !is_paused(machine));
    let mut old: Vec<&Seat<'_>> =
        view.roster.seats.iter().filter(|seat| is_outdated(view, seat)).filter(free).collect();
    if old.is_empty() || !may_replace(view) {
        return None;
    }
    // A Machine that a person has chosen goes first, then the one that serves least, and the leader last. Of equals,
    // the oldest goes first.
    old.sort_by_key(|seat| (!is_chosen(seat), seat.is_voter(), seat.is_well(), seat.leads()));
    let machine = old.into_iter().find(|seat| is_replaceable(view, seat))?.machine?;
    Some(Plan::Do(Step::DeleteMachine { name: machine.name.clone(), why: WhyDeleted::Outdated }))
}

/// Whether any Machine may be replaced now.
fn may_replace(view: &View<'_>) -> bool {
    let in_use = InUse::of(view);
    // An outdated voter that no API server uses may go whatever its health: a bad spec may have made it, and nothing
    // may be known of it. The health of a voter that is leaving anyway does not matter either.
    let counts = |seat: &&Seat<'_>| !seat.is_leaving() && (!is_outdated(view, seat) || in_use.has(seat));
    view.roster.is_listed()
        && view.roster.voters().filter(counts).all(Seat::is_settled)
        && matches!(view.observation.template, Template::Found { .. })
        && view.observation.not_owned.is_empty()
        && recovers(view).is_none()
        && obstacle(view).is_none()
}

/// Whether a person wants a Machine to go before others.
pub(super) fn is_chosen(seat: &Seat<'_>) -> bool {
    seat.machine.is_some_and(|machine| machine.annotations.contains_key(names::DELETE_MACHINE_ANNOTATION))
}

/// Whether a seat's Machine stays for now, and is to be replaced because it does not match the spec.
pub(crate) fn is_outdated(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let rolls = view.observation.etcd.spec.rollout_strategy.type_ == RolloutType::RollingUpdate && view.has_begun();
    rolls && is_kept(view, seat) && is_superseded(view, seat)
}

/// Whether other Machines are there, or come, in place of a seat's Machine, because it does not match the spec. After
/// its Machine is deleted, the member stays as long as API servers use its endpoint. Meanwhile the spec may change so
/// that its Machine matches again. Then the Machines in its place do not.
pub(super) fn is_superseded(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let differs = |seat: &Seat<'_>| seat.machine.is_some_and(|machine| !view.is_up_to_date(machine));
    let others_differ = || view.roster.voters().any(|other| is_kept(view, other) && differs(other));
    differs(seat) || (seat.is_leaving() && others_differ())
}

/// Whether an outdated member is not needed any more. A voter is needed until all new members are there, or until
/// enough others are there and API servers can do without its endpoint. A Machine that is about to join is needed as
/// long as there are too few voters without it. With `maxSurge: 0`, all wanted voters have to be well, and no other
/// Machine may be on its way out.
fn is_replaceable(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let well = |counts: &dyn Fn(&Seat<'_>) -> bool| {
        view.roster.voters().filter(|other| is_kept(view, other) && other.is_well() && counts(other)).count()
    };
    let others = well(&|other| other.id() != seat.id());
    if !seat.is_voter() {
        let comes = if seat.member.is_some() { !seat.fails() } else { seat.joining };
        return others >= view.wanted() || !comes;
    }
    let is_free = || !InUse::of(view).has(seat) || (is_full(view) && spares(view, seat));
    let is_next = || view.removes_first() && is_full(view) && may_go_first(view);
    well(&|other| !is_outdated(view, other)) >= view.wanted() || ((others >= view.wanted() || is_next()) && is_free())
}

/// Whether a healthy member may leave before its replacement joins: no machine of an earlier member is left in the
/// infrastructure, and another machine would boot.
pub(super) fn may_go_first(view: &View<'_>) -> bool {
    view.observation.machines.len() <= view.wanted() && can_be_made_again(view)
}

/// How many Machines there may be beyond the wanted number.
fn surge(view: &View<'_>) -> usize {
    let in_use = InUse::of(view);
    if view.removes_first() {
        return 0;
    }
    if in_use.is_empty() {
        return 1;
    }
    // f + 1 members stay, even of a longer earlier list. Of three members, all stay at the cost of one more Machine.
    let needed = if view.wanted() <= 3 { view.wanted() } else { view.wanted().max(in_use.longest()) / 2 + 1 };
    let given = view.observation.etcd.spec.rollout_strategy.rolling_update.as_ref().and_then(|given| given.max_surge);
    // Another Machine always replaces a single member first, because that member has the only copy of the data.
    given.and_then(|given| usize::try_from(given).ok()).map_or(needed, |given| given.max(1))
}

/// Whether all the new members are there before the first old one goes.
pub(super) fn is_doubling(view: &View<'_>) -> bool {
    surge(view) >= view.wanted()
}

/// Whether all Machines that stay have voters that are well, and there is no room for more Machines.
fn is_full(view: &View<'_>) -> bool {
    let kept = || view.roster.seats.iter().filter(|seat| is_kept(view, seat));
    kept().count() >= view.wanted() + surge(view) && kept().all(|seat| seat.is_voter() && seat.is_well())
}

/// Whether every list of endpoints in use can do without an old member. Members that are already leaving go first.
fn spares(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let in_use = InUse::of(view);
    let is_first = !view.roster.voters().any(|other| other.is_leaving() && in_use.has(other));
    is_first && in_use.endangered_by(seat, None).is_none()
}

/// Whether the control plane has to be told of the members that are there, because another old member may leave only
/// after that.
pub(super) fn must_be_told(view: &View<'_>) -> bool {
    let in_use = InUse::of(view);
    // A leaving member that only its endpoint keeps takes the room of the next new member.
    if !in_use.is_behind() && view.roster.seats.iter().any(|seat| retire::is_held_by_its_endpoint(view, seat)) {
        return true;
    }
    let old: Vec<&Seat<'_>> = view.roster.seats.iter().filter(|seat| is_outdated(view, seat)).collect();
    // Surplus Machines go first, and so do members that may leave already.
    let is_settled = (1..=view.wanted()).contains(&old.len());
    let may_leave =
        |seat: &Seat<'_>| seat.is_leaving() && in_use.has(seat) && retire::keeps_endpoints(view, seat).is_ok();
    let is_stuck = is_full(view) && !is_doubling(view) && may_replace(view);
    is_settled
        && is_stuck
        && !view.roster.voters().any(may_leave)
        && !old.into_iter().any(|seat| is_replaceable(view, seat))
}

/// Whether another Machine has to be made.
pub(super) fn is_lacking(view: &View<'_>) -> bool {
    let kept: Vec<&Seat<'_>> = view.roster.seats.iter().filter(|seat| is_kept(view, seat)).collect();
    let old = kept.iter().filter(|seat| is_outdated(view, seat)).count();
    if kept.len() - old >= view.wanted() {
        return false;
    }
    if old == 0 || kept.len() < view.wanted() {
        return true;
    }
    obstacle(view).is_none() && kept.len() < view.wanted() + surge(view)
}

/// Why the rollout does not go on now.
fn obstacle(view: &View<'_>) -> Option<String> {
    obstacle_to_replacing(view).or_else(|| upgrade::refusal(view))
}

/// Why no healthy member may be replaced now, for whatever reason.
pub(super) fn obstacle_to_replacing(view: &View<'_>) -> Option<String> {
    if let Some(why) = corrupt::hold(view) {
        return Some(why);
    }
    let in_use = InUse::of(view);
    if in_use.is_unknown() {
        return Some(format!(
            "annotation {} is missing, so it is not known which endpoints the API servers use. If they use no endpoint of this etcd, set the annotation to an empty value",
            names::ENDPOINTS_IN_USE_ANNOTATION
        ));
    }
    // A rollout with the published list is finished first: until the control plane uses that list, the earlier members
    // stay as well.
    if in_use.is_behind() {
        return Some("the control plane has yet to roll out with the endpoints that are already published".to_owned());
    }
    needs_a_person(view)
}

/// Whether no rollout goes on before a person has changed something.
pub(super) fn is_refused(view: &View<'_>) -> bool {
    needs_a_person(view).or_else(|| upgrade::refusal(view)).is_some()
}

/// Why only a person may replace members: without a quorum, a new member that joined with a vote could not be removed
/// again.
fn needs_a_person(view: &View<'_>) -> Option<String> {
    let message = "members of etcd before 3.5.20 join with a vote, which is safe only while a person watches. Replace them one by one: delete a Machine, and wait until MachinesDeleting is False";
    upgrade::joins_as_voter(view).then(|| message.to_owned())
}

/// What a rollout waits for that no other rule reports.
pub(crate) fn waits_for(view: &View<'_>) -> Option<String> {
    let outdated = view.roster.seats.iter().filter(|seat| is_outdated(view, seat));
    let paused = outdated.filter_map(|seat| seat.machine.filter(|machine| is_paused(machine)));
    let paused: Vec<&str> = paused.map(|machine| machine.name.as_str()).collect();
    if paused.is_empty() { obstacle(view) } else { Some(format!("Machine {} is paused", paused.join(", "))) }
}
