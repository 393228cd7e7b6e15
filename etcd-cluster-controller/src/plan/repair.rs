//! Voters that have failed for long enough are replaced. A replacement boots first, and then the Machine of the failed voter
//! is deleted: it goes the way of every Machine that is deleted, and the replacement joins in its place. With an even number of
//! voters it is deleted at once, as no failure less is survived without it. A voter that recovers before that stays, and the
//! replacement is one Machine too many.

use super::retire::may_leave;
use super::{Plan, Step, View, wait};
use crate::observation::Observation;
use crate::plan::step::WhyDeleted;
use crate::roster::Seat;
use api::conditions::reasons;
use api::etcd_cluster::{LastRemediation, RemediationMode};
use controller_support::external::MachineView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

/// Goes on with what was begun, also where `spec.remediation` has changed since; or begins with the next one.
pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    if !view.roster.is_listed() {
        return None;
    }
    let Some(seat) = replaced(view) else { return begin(view) };
    let machine = seat.machine?;
    let is_even = view.roster.voters().count() % 2 == 0;
    let is_time = is_even || replacement_is_up(view) || kept_well(view) >= view.wanted();
    // What is lacking otherwise is seen to by growth: it makes the replacement, and admits it.
    (is_time && may_leave(view, seat).is_ok())
        .then(|| Plan::Do(Step::DeleteMachine { name: machine.name.clone(), why: WhyDeleted::Unhealthy }))
}

/// The voter whose replacement was begun: it is still unhealthy, and its Machine is not deleted yet.
pub(crate) fn replaced<'v, 'a>(view: &'v View<'a>) -> Option<&'v Seat<'a>> {
    let last = last(view.observation)?;
    let is_it = |machine: &MachineView| machine.uid == last.machine_uid && !machine.deleting;
    let mut voters = view.roster.voters().filter(|seat| seat.is_unhealthy());
    voters.find(|seat| seat.machine.is_some_and(is_it))
}

/// Whether a seat's Machine stays, as far as is decided so far.
pub(super) fn is_kept(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let is_replaced = || replaced(view).is_some_and(|other| other.id() == seat.id() && seat.member.is_some());
    seat.machine.is_some_and(|machine| !machine.deleting) && !is_replaced()
}

/// Whether a Machine that stays boots, or has a learner: it joins, or votes, as soon as etcd can take it.
fn replacement_is_up(view: &View<'_>) -> bool {
    let has_address = |seat: &Seat<'_>| seat.machine.is_some_and(|machine| view.observation.address(machine).is_some());
    // Also one whose grace is over: beside a voter that is down, etcd lets nobody join.
    let comes = |seat: &Seat<'_>| !seat.is_voter() && (seat.member.is_some() || seat.admitted);
    view.roster.seats.iter().any(|seat| is_kept(view, seat) && comes(seat) && has_address(seat))
}

/// Machines that stay and have a healthy voter.
fn kept_well(view: &View<'_>) -> usize {
    view.roster.voters().filter(|seat| seat.is_healthy() && is_kept(view, seat)).count()
}

/// Writes the next replacement down. One at a time: a failed voter that is on its way out goes first.
fn begin(view: &View<'_>) -> Option<Plan> {
    let observation = view.observation;
    if observation.etcd.spec.remediation.mode == RemediationMode::Report {
        return None;
    }
    if view.roster.voters().any(|seat| seat.is_leaving() && !seat.is_healthy()) {
        return None;
    }
    let failed = view.roster.voters().filter(|seat| seat.is_unhealthy() && !seat.is_leaving());
    // Where it must not be removed, a replacement could not join either.
    let mut failed = failed.filter(|seat| may_leave(view, seat).is_ok());
    let (seat, machine) = failed.find_map(|seat| Some((seat, seat.machine?)))?;
    let retry = retry(observation, machine);
    if let Some(hold) = retry.and_then(|last| hold(observation, seat, last)) {
        return Some(hold);
    }
    Some(Plan::Do(Step::BeginRemediation(LastRemediation {
        machine: machine.name.clone(),
        machine_uid: machine.uid.clone(),
        timestamp: Time(observation.now),
        retry_count: retry.map_or(0, |last| last.retry_count.saturating_add(1)),
    })))
}

/// Why a voter that has failed is not replaced now, for people. `None`: it has not failed for long enough.
pub(super) fn why_not(view: &View<'_>, seat: &Seat<'_>) -> Option<String> {
    if !seat.is_voter() || !seat.is_unhealthy() {
        return None;
    }
    if view.observation.etcd.spec.remediation.mode == RemediationMode::Report {
        let machine = seat.machine.map_or("", |machine| machine.name.as_str());
        return Some(format!(
            "it is not replaced by itself (spec.remediation.mode): delete Machine {machine} to have that done"
        ));
    }
    may_leave(view, seat).err().map(|why| format!("it is not replaced now: {why}"))
}

fn last(observation: &Observation) -> Option<&LastRemediation> {
    observation.etcd.status.as_ref()?.last_remediation.as_ref()
}

/// The replacement before this one, if it may have failed for the same reason: the Machine was made after it, and not long ago.
fn retry<'a>(observation: &'a Observation, machine: &MachineView) -> Option<&'a LastRemediation> {
    let last = last(observation)?;
    let healthy_period = i64::from(observation.etcd.spec.remediation.min_healthy_period_seconds);
    let made_after = machine.created.as_ref().is_some_and(|created| created.0 >= last.timestamp.0);
    (made_after && seconds_since(observation, last) < healthy_period).then_some(last)
}

fn seconds_since(observation: &Observation, last: &LastRemediation) -> i64 {
    observation.now.as_second().saturating_sub(last.timestamp.0.as_second())
}

/// Why a replacement that fails too is not replaced now.
fn hold(observation: &Observation, seat: &Seat<'_>, last: &LastRemediation) -> Option<Plan> {
    let limits = &observation.etcd.spec.remediation;
    let (name, machine) = (seat.name(), &last.machine);
    if limits.max_retry.is_some_and(|most| last.retry_count >= most) {
        let message = format!(
            "member {}, and {} replacements in a row have failed, as many as spec.remediation.maxRetry allows. Find out why, then delete the Machine of {name} to have it replaced",
            seat.describe(),
            last.retry_count.saturating_add(1)
        );
        let period = i64::from(limits.min_healthy_period_seconds) - seconds_since(observation, last);
        let period = Duration::from_secs(u64::try_from(period).unwrap_or_default().max(1));
        return Some(wait(reasons::REMEDIATION_LIMIT_REACHED, message).again(period));
    }
    let left = i64::from(limits.retry_period_seconds) - seconds_since(observation, last);
    let left = u64::try_from(left).ok().filter(|left| *left > 0)?;
    let message = format!(
        "member {}. It was to replace the one of Machine {machine}, and is replaced itself in {left} s (spec.remediation.retryPeriodSeconds)",
        seat.describe()
    );
    Some(wait(reasons::REMEDIATION_DELAYED, message).again(Duration::from_secs(left)))
}
