//! Members that have different data, which etcd tells by its alarm CORRUPT. It cannot tell which copy is the right one: the
//! alarm is about a member that differs from the leader or from most others. A new member copies the leader, and one that
//! leaves takes its copy with it. So until a person has ended the alarm, nobody joins and no copy goes. Only a person who
//! deletes a Machine has decided on that copy: its member leaves, by all the other rules, and another one joins where that
//! is needed. One whose Machine was taken away by force leaves once it has failed: nothing keeps that copy any more.

use super::{Plan, View, beside, block, retire, wait};
use crate::alarms::{CORRUPT, describe, raised, why_unknown};
use crate::observation::has_hook;
use crate::observation::probe::{Alarm, alarms as reported};
use crate::roster::Seat;
use api::conditions::reasons;
use api::names;
use std::collections::BTreeSet;

/// Why no copy goes, and nobody joins where that is so too.
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

/// Whether there is such an alarm: then [`hold`] says why no copy goes.
pub(super) fn holds(view: &View<'_>) -> bool {
    !alarms(view).is_empty()
}

/// What is known of alarms: by the voters that are well, or else by those beside which a person lets others join.
fn known<'v>(view: &'v View<'_>) -> Option<BTreeSet<&'v Alarm>> {
    let beside = || view.roster.voters().filter(|seat| beside::is_agreed(view, seat));
    raised(&view.roster).or_else(|| reported(beside().filter_map(|seat| seat.probe?.report())))
}

/// All such alarms.
fn alarms<'v>(view: &'v View<'_>) -> BTreeSet<&'v Alarm> {
    let all = known(view).unwrap_or_default();
    all.into_iter().filter(|alarm| alarm.kind == CORRUPT).collect()
}

/// Those about members that are there. One that names nobody may be about each of them. etcd keeps that of a member
/// that has left until somebody ends it: the copy that it was about is gone, and others join. Whether theirs are the
/// right ones only a person can say, as one check of etcd names one member.
fn standing<'v>(view: &'v View<'_>) -> BTreeSet<&'v Alarm> {
    let is_there = |alarm: &&Alarm| alarm.member_id == 0 || view.roster.by_member(alarm.member_id).is_some();
    alarms(view).into_iter().filter(is_there).collect()
}

/// Whether an alarm names a member.
pub(super) fn is_named(view: &View<'_>, seat: &Seat<'_>) -> bool {
    standing(view).iter().any(|alarm| Some(alarm.member_id) == seat.id())
}

/// Whether the copy of a member may go. One whose machine goes without waiting for us, or whose Machine is gone, is lost
/// already; not that of a member that never had a Machine of ours.
pub(super) fn lets_go(view: &View<'_>, seat: &Seat<'_>) -> Result<(), String> {
    let Some(why) = hold(view) else { return Ok(()) };
    match seat.machine {
        Some(machine) if !machine.deleting => Err(why),
        None if !seat.orphaned => Err(why),
        Some(machine) if has_hook(machine) && machine.annotations.contains_key(names::DELETED_FOR_ANNOTATION) => {
            let (namespace, name, annotation) = (&machine.namespace, &machine.name, names::DELETED_FOR_ANNOTATION);
            Err(format!(
                "this controller itself may have deleted the Machine earlier, and {why}. To give up the data of this member now, run: kubectl annotate -n {namespace} machines.cluster.x-k8s.io {name} {annotation}-"
            ))
        }
        _ => Ok(()),
    }
}

/// Why nobody joins now. One may, where a member that a person gives up cannot leave before.
pub(super) fn obstacle_to_joining(view: &View<'_>) -> Option<Plan> {
    if known(view).is_none() {
        return Some(wait(reasons::HEALTH_UNKNOWN, why_unknown(&view.roster)));
    }
    let why = hold(view).filter(|_| !standing(view).is_empty())?;
    let is_owed = |seat: &Seat<'_>| is_given_up(view, seat) && retire::waits_for_another(view, seat);
    (!view.roster.voters().any(is_owed)).then(|| block(reasons::DATA_CORRUPT, why))
}

/// Whether leadership leaves a member before another one joins in its place: that one would copy what a person gives up.
pub(super) fn leads_no_longer(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let stays = |id: u64| view.roster.by_member(id).is_some_and(|seat| !seat.is_leaving());
    holds(view)
        && view.roster.is_listed()
        && seat.leads()
        && is_given_up(view, seat)
        && retire::may_leave(view, seat).is_err()
        && seat.id().and_then(|id| retire::next_leader(view, id)).is_some_and(stays)
}

/// Whether a person gives a member up.
fn is_given_up(view: &View<'_>, seat: &Seat<'_>) -> bool {
    seat.is_leaving() && lets_go(view, seat).is_ok()
}
