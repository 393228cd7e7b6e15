//! Stuck Machines: a stuck Machine has no voter, and by all appearances will not get one. It has not become a member
//! within its grace, its learner does not get promoted, or something other than this controller has removed its member.
//! It is replaced like a [marked](super::marked) one.
//!
//! A stuck Machine is reported after one grace and replaced after two. What has kept it from voting, such as a
//! template, an image or a command, may keep the next Machine from voting too. So each Machine gets one grace more than
//! the Machine before it, until one of them votes.

use super::View;
use super::growth::{is_late, missing_since};
use crate::quorum::{never_member, survives};
use crate::roster::{Seat, Verdict, number};
use api::conditions::PAUSED;
use api::etcd_cluster::RemediationMode;
use controller_support::external::MachineView;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// The most graces that a Machine has to become a voter: together an hour, unless `startupGraceSeconds` says otherwise.
/// A learner that answers always has this many, because it may be receiving a large database. It has them again whenever
/// it has been silent, up to twice as many since it could boot, and never fewer than these since the voters are well: a
/// learner that answers off and on is replaced too.
const MOST: u64 = 6;

/// A Machine that will not become a voter by all appearances.
struct Stuck {
    /// Why it is stuck.
    why: &'static str,
    /// The time from which on it is to be replaced.
    replaced_from: Timestamp,
}

/// Whether a Machine is stuck. Before etcd has begun, no Machine is: another one would initialize etcd in its place.
/// Nor is a Machine stuck while a member is listed that runs on no known Machine, because that may be its own.
fn of(view: &View<'_>, seat: &Seat<'_>, machine: &MachineView) -> Option<Stuck> {
    let (observation, roster) = (view.observation, &view.roster);
    if machine.deleting || seat.is_voter() || !view.has_begun() || roster.unseated().is_some() {
        return None;
    }
    // etcd accepts no new member while a voter is away, and a machine waits for that. A learner that has failed only
    // waits for a quorum.
    let has_failed = seat.member.is_some() && seat.is_unhealthy() && has_quorum(view);
    let voters = if has_failed { Timestamp::default() } else { all_well_since(view)? };
    let grace = i64::from(observation.etcd.spec.health_check.startup_grace_seconds);
    let past = |time: Timestamp| if observation.is_ahead(time) { Timestamp::default() } else { time };
    let able = voters.max(past(unpaused_since(view)?));
    let after = |since: Timestamp, graces: u64| {
        let graces = i64::try_from(graces).ok()?.saturating_mul(grace);
        Timestamp::from_second(since.as_second().saturating_add(graces)).ok()
    };
    // MachineHealthChecks of Cluster API count from the infrastructure's time too.
    let provisioned = past(machine.infrastructure_ready_since.unwrap_or_default());
    let could_boot = observation.could_boot_since(machine)?.max(provisioned);
    let (why, replaced_from) = if let Some((_, since)) = missing_since(observation, machine) {
        ("its member is missing from the member list", after(past(since).max(able), 1)?)
    } else if !is_late(observation, machine) {
        return None;
    } else if seat.member.is_none() {
        let learns = |other: &Seat<'_>| other.member.is_some() && !other.is_voter();
        // The member that answers may be this Machine's own, or it may be another learner's turn.
        if roster.answering_at(seat).is_some() || roster.seats.iter().any(learns) || is_kept_without_room(view, seat) {
            return None;
        }
        ("it does not become a member", after(could_boot.max(able), graces(view, machine))?)
    } else {
        let off_and_on = after(could_boot, 2 * MOST)?.max(after(able, MOST)?);
        let replaced_from = match seat.verdict {
            Verdict::Healthy { since } => after(since.max(able), MOST)?.min(off_and_on),
            _ if seat.is_unhealthy() => after(could_boot.max(able), graces(view, machine))?,
            _ => off_and_on,
        };
        ("its member does not get beyond a learner", replaced_from)
    };
    Some(Stuck { why, replaced_from })
}

/// Since when nothing has been paused: a machine that is paused may not boot. `None`: a moment ago, something was
/// paused.
fn unpaused_since(view: &View<'_>) -> Option<Timestamp> {
    let conditions = view.observation.etcd.status.iter().flat_map(|status| &status.conditions);
    match conditions.into_iter().find(|condition| condition.type_ == PAUSED) {
        Some(paused) if paused.status == "False" => Some(paused.last_transition_time.0),
        Some(_) => None,
        None => Some(Timestamp::default()),
    }
}

fn has_quorum(view: &View<'_>) -> bool {
    let well = view.roster.voters().filter(|seat| seat.is_well()).count();
    survives(view.roster.voters().count(), well) >= 0
}

/// Since when every voter has been healthy. `None`: one is not, or nothing is known.
fn all_well_since(view: &View<'_>) -> Option<Timestamp> {
    let mut latest = None;
    for voter in view.roster.voters() {
        let Verdict::Healthy { since } = voter.verdict else { return None };
        latest = latest.max(Some(since));
    }
    latest
}

/// Whether the Machine would be kept, because it may still join, while there is no room for another Machine before it
/// is gone.
fn is_kept_without_room(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let status = view.observation.etcd.status.as_ref();
    !view.has_room() && never_member(&view.roster, seat, status, view.has_begun()).is_none()
}

/// Why a Machine is stuck, if it is to be replaced now.
pub(super) fn now(view: &View<'_>, seat: &Seat<'_>, machine: &MachineView) -> Option<&'static str> {
    of(view, seat, machine).filter(|stuck| stuck.replaced_from <= view.observation.now).map(|stuck| stuck.why)
}

/// How long until the next Machine is to be replaced. `None`: no Machine is, or only Machines whose time has come
/// already.
pub(super) fn due(view: &View<'_>) -> Option<Duration> {
    let now = view.observation.now;
    let seats = view.roster.seats.iter().filter_map(|seat| of(view, seat, seat.machine?));
    let next = seats.map(|stuck| stuck.replaced_from).filter(|from| *from > now).min()?;
    Duration::try_from(next.duration_since(now)).ok()
}

/// A message about when the Machine is replaced automatically. Empty if it is only reported.
pub(super) fn then(view: &View<'_>, seat: &Seat<'_>, machine: &MachineView) -> String {
    if view.observation.etcd.spec.remediation.mode == RemediationMode::Report {
        return String::new();
    }
    let stuck = of(view, seat, machine);
    stuck.map(|stuck| format!("; the Machine is replaced at {:.0} or later", stuck.replaced_from)).unwrap_or_default()
}

/// How many graces a Machine has. It has the most while its infrastructure is still being made. After that it has two,
/// and one more for each Machine that was made before it and after the newest voter's Machine, by the numbers in their
/// names, which are never used again. If no voter's Machine has a number, it has the most too.
fn graces(view: &View<'_>, machine: &MachineView) -> u64 {
    if !machine.infrastructure_ready && view.observation.address(machine).is_none() {
        return MOST;
    }
    let of = |machine: &MachineView| number(&machine.name);
    let newest = view.roster.voters().filter_map(|seat| of(seat.machine?)).max();
    let (Some(newest), Some(own)) = (newest, of(machine)) else { return MOST };
    own.saturating_sub(newest).saturating_add(1).clamp(2, MOST)
}
