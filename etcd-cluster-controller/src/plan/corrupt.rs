//! Members that have different data, which etcd reports by its alarm CORRUPT. etcd cannot tell which copy is the right
//! one: the alarm names a member that differs from the leader or from most others. A new member copies the leader, and
//! a member that leaves takes its copy with it. So until a person has ended the alarm, no member joins and no copy is
//! given up.
//!
//! A person who deletes a Machine has decided on that copy. Its member leaves by all the other rules, and another
//! member joins if one is needed. A member whose Machine was removed by force leaves once it has failed, because
//! nothing keeps its copy any more.

use super::{Plan, View, beside, block, retire, wait};
use crate::alarms::{CORRUPT, describe, raised, why_unknown};
use crate::observation::has_hook;
use crate::observation::probe::{Alarm, alarms as reported};
use crate::roster::Seat;
use api::conditions::reasons;
use api::names;
use controller_support::external::MachineView;
use std::collections::BTreeSet;

/// Why no copy is given up. The text also says that no member joins, if that is so.
pub(crate) fn hold(view: &View<'_>) -> Option<String> {
    let alarms = alarms(view);
    let joining = if standing(view).is_empty() { "" } else { "no member joins, and " };
    (!alarms.is_empty()).then(|| {
        format!(
            "{joining}no member is replaced or removed, except members whose Machines a person deletes, and failed members whose Machines are gone: {}",
            describe(&view.roster, &alarms)
        )
    })
}

/// Whether an alarm CORRUPT is known: [`hold`] then says why no copy is given up.
pub(super) fn holds(view: &View<'_>) -> bool {
    !alarms(view).is_empty()
}

/// The alarms by the voters that are well. If none is well, by the voters beside which a person lets Machines be
/// admitted. `None`: no such voter has reported.
fn known<'v>(view: &'v View<'_>) -> Option<BTreeSet<&'v Alarm>> {
    let beside = || view.roster.voters().filter(|seat| beside::is_agreed(view, seat));
    raised(&view.roster).or_else(|| reported(beside().filter_map(|seat| seat.probe?.report())))
}

/// All known alarms CORRUPT.
fn alarms<'v>(view: &'v View<'_>) -> BTreeSet<&'v Alarm> {
    let all = known(view).unwrap_or_default();
    all.into_iter().filter(|alarm| alarm.kind == CORRUPT).collect()
}

/// The alarms CORRUPT about members that are still there. An alarm that names no member may be about any of them. etcd
/// keeps the alarm of a member that has left until a person ends it. Its copy is gone by then, so other members may
/// join. Only a person can say whether the remaining copies are right, because one check of etcd names one member.
fn standing<'v>(view: &'v View<'_>) -> BTreeSet<&'v Alarm> {
    let is_there = |alarm: &&Alarm| alarm.member_id == 0 || view.roster.by_member(alarm.member_id).is_some();
    alarms(view).into_iter().filter(is_there).collect()
}

/// Whether an alarm CORRUPT names a member.
pub(super) fn is_named(view: &View<'_>, seat: &Seat<'_>) -> bool {
    standing(view).iter().any(|alarm| Some(alarm.member_id) == seat.id())
}

/// Whether the copy of a member may be given up. The copy is lost already if its machine goes without waiting for us,
/// or if its Machine is gone. The copy of a member that never had a Machine of ours is kept. `Err`: why the copy is
/// kept.
pub(super) fn lets_go(view: &View<'_>, seat: &Seat<'_>) -> Result<(), String> {
    let Some(why) = hold(view) else { return Ok(()) };
    match seat.machine {
        Some(machine) if !machine.deleting => Err(why),
        None if !seat.orphaned => Err(why),
        Some(machine) if has_hook(machine) && machine.annotations.contains_key(names::DELETED_FOR_ANNOTATION) => {
            let command = command_to_give_up(machine);
            Err(format!(
                "this controller itself may have deleted the Machine earlier, and {why}. To give up the data of this member now, run: {command}"
            ))
        }
        _ => Ok(()),
    }
}

/// The command by which a person takes over the deletion of a Machine, and gives up what is on it.
pub(super) fn command_to_give_up(machine: &MachineView) -> String {
    format!(
        "kubectl annotate -n {} machines.cluster.x-k8s.io {} {}-",
        machine.namespace,
        machine.name,
        names::DELETED_FOR_ANNOTATION
    )
}

/// Why no member may join now. A member may join although there is an alarm, if a member that a person gives up cannot
/// leave before that.
pub(super) fn obstacle_to_joining(view: &View<'_>) -> Option<Plan> {
    if known(view).is_none() {
        return Some(wait(reasons::HEALTH_UNKNOWN, why_unknown(&view.roster)));
    }
    let why = hold(view).filter(|_| !standing(view).is_empty())?;
    let is_owed = |seat: &Seat<'_>| is_given_up(view, seat) && retire::waits_for_another(view, seat);
    (!view.roster.voters().any(is_owed)).then(|| block(reasons::DATA_CORRUPT, why))
}

/// Whether leadership moves away from a member before another member joins in its place: the new member copies the
/// leader, and a person has given up the data of this one.
pub(super) fn leads_no_longer(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let stays = |id: u64| view.roster.by_member(id).is_some_and(|seat| !seat.is_leaving());
    holds(view)
        && view.roster.is_listed()
        && seat.leads()
        && is_given_up(view, seat)
        && retire::may_leave(view, seat).is_err()
        && seat.id().and_then(|id| retire::next_leader(view, id)).is_some_and(stays)
}

/// Whether a person has given up the data of a member.
fn is_given_up(view: &View<'_>, seat: &Seat<'_>) -> bool {
    seat.is_leaving() && lets_go(view, seat).is_ok()
}
