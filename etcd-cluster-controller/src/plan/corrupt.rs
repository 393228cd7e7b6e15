//! Members that have different data, which etcd tells by its alarm CORRUPT. It cannot tell which copy is the right one: the
//! alarm is about a member that differs from the leader or from most others. A new member copies the leader, and one that
//! leaves takes its copy with it. So until a person has ended the alarm, nobody joins and no copy goes. Only whoever deletes
//! a Machine has decided on that copy: its member leaves, by all the other rules, and another one joins where it needs that.

use super::{Plan, View, block, retire};
use crate::alarms::{CORRUPT, describe, raised};
use crate::observation::has_hook;
use crate::observation::probe::Alarm;
use crate::roster::Seat;
use api::conditions::reasons;
use api::names;
use std::collections::BTreeSet;

/// Why nobody joins, and no copy goes.
pub(crate) fn hold(view: &View<'_>) -> Option<String> {
    let alarms = standing(view);
    (!alarms.is_empty()).then(|| {
        format!(
            "nobody joins, and no member is replaced or removed but those whose Machines a person deletes: {}",
            describe(&view.roster, &alarms)
        )
    })
}

/// The alarms that hold. etcd keeps that of a member that has left until somebody disarms it, and it says nothing of those that
/// are there. One that names nobody may be about each of them.
fn standing<'v>(view: &'v View<'_>) -> BTreeSet<&'v Alarm> {
    let is_there = |alarm: &&Alarm| alarm.member_id == 0 || view.roster.by_member(alarm.member_id).is_some();
    let all = raised(&view.roster).unwrap_or_default();
    all.into_iter().filter(|alarm| alarm.kind == CORRUPT).filter(is_there).collect()
}

/// Whether an alarm names a member.
pub(super) fn is_named(view: &View<'_>, seat: &Seat<'_>) -> bool {
    standing(view).iter().any(|alarm| Some(alarm.member_id) == seat.id())
}

/// Whether the copy of a member may go. One whose machine goes without waiting for us is lost already.
pub(super) fn lets_go(view: &View<'_>, seat: &Seat<'_>) -> Result<(), String> {
    let Some(why) = hold(view) else { return Ok(()) };
    match seat.machine {
        Some(machine) if !machine.deleting => Err(why),
        Some(machine) if has_hook(machine) && machine.annotations.contains_key(names::DELETED_FOR_ANNOTATION) => {
            let (namespace, name, annotation) = (&machine.namespace, &machine.name, names::DELETED_FOR_ANNOTATION);
            Err(format!(
                "this controller had deleted it before, and {why}. To give its data up now: kubectl annotate -n {namespace} machines.cluster.x-k8s.io {name} {annotation}-"
            ))
        }
        _ => Ok(()),
    }
}

/// Why nobody joins now. One may, where a member that a person gives up cannot leave before.
pub(super) fn obstacle_to_joining(view: &View<'_>) -> Option<Plan> {
    let why = hold(view)?;
    let is_owed = view.roster.voters().any(|seat| waits_for_another(view, seat));
    (!is_owed).then(|| block(reasons::DATA_CORRUPT, why))
}

/// Whether leadership leaves a member before another one joins in its place: that one would copy what a person gives up.
pub(super) fn leads_no_longer(view: &View<'_>, seat: &Seat<'_>) -> bool {
    hold(view).is_some()
        && view.roster.is_listed()
        && seat.leads()
        && waits_for_another(view, seat)
        && seat.id().is_some_and(|id| retire::next_leader(view, id).is_some())
}

/// Whether a person gives a member up that leaves when another one has joined.
fn waits_for_another(view: &View<'_>, seat: &Seat<'_>) -> bool {
    seat.is_leaving() && retire::waits_for_another(view, seat) && lets_go(view, seat).is_ok()
}
