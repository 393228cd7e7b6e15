//! Replaces voters that have failed for long enough. The replacement boots first. Then the Machine of the failed voter
//! is deleted like any other, and the replacement joins in its place. With an even number of voters, the Machine is
//! deleted immediately, because etcd survives no fewer failures without the voter. With `maxSurge: 0` it is deleted
//! immediately too, because there is no room for its replacement before. A voter that recovers before the deletion
//! stays, and the replacement is then surplus.

use super::growth::missing_since;
use super::retire::may_leave;
use super::{Hold, Plan, Step, View, upgrade};
use crate::observation::probe::MemberFault;
use crate::observation::{Observation, Outcome, Template};
use crate::plan::step::WhyDeleted;
use crate::roster::strangers::patience;
use crate::roster::{Seat, Verdict};
use api::conditions::reasons;
use api::etcd_cluster::{LastRemediation, RemediationMode};
use api::names;
use controller_support::external::MachineView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// The field of `spec.remediation` that says when a replacement is replaced itself.
pub(super) const RETRY_PERIOD: &str = "retryPeriodSeconds";

/// Continues the replacement that was begun, even if `spec.remediation` has changed since; or begins the next one.
pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    if !view.roster.is_listed() {
        return None;
    }
    let Some(seat) = replaced(view) else { return begin(view) };
    let machine = seat.machine.filter(|machine| !is_paused(machine))?;
    // Growth does the rest: it creates the replacement, and admits it.
    (is_time(view) && may_leave(view, seat).is_ok())
        .then(|| Plan::Do(Step::DeleteMachine { name: machine.name.clone(), why: WhyDeleted::Unhealthy }))
}

/// Whether a failed voter can go now. Until then it may come back, and its removal would gain nothing.
fn is_time(view: &View<'_>) -> bool {
    is_even(view)
        || replacement_is_up(view)
        || kept_well(view) >= view.wanted()
        || (view.removes_first() && can_be_made_again(view))
}

/// The same for a voter that no Machine carries.
pub(super) fn is_time_without_a_machine(view: &View<'_>, voter: &Seat<'_>) -> bool {
    is_time(view) || goes_from(view, voter).is_some_and(|from| from <= view.observation.now)
}

/// How long until the next voter that no Machine carries stops waiting for another Machine.
pub(super) fn due(view: &View<'_>) -> Option<Duration> {
    let now = view.observation.now;
    let apart = view.roster.voters().filter(|seat| seat.machine.is_none());
    let next = apart.filter_map(|seat| goes_from(view, seat)).filter(|from| *from > now).min()?;
    Duration::try_from(next.duration_since(now)).ok()
}

/// When a failed voter that no Machine carries stops waiting for a Machine. A Machine that does not join within its
/// grace is replaced only while no voter is away, and this voter cannot be brought back. So the voter waits for the
/// grace of that Machine, and no longer.
///
/// A Machine that could boot before this voter began to fail may be late for any reason, and says nothing about the
/// next Machine. If no later Machine comes, because none is wanted or none can be made, the earlier one counts
/// nevertheless, with a grace that begins when the voter has failed for long enough. Otherwise both would stay for
/// good.
fn goes_from(view: &View<'_>, voter: &Seat<'_>) -> Option<Timestamp> {
    let observation = view.observation;
    let Verdict::Unhealthy { since, .. } = voter.verdict else { return None };
    let joins = view.roster.seats.iter().filter(|seat| seat.admitted && !seat.is_voter() && is_kept(view, seat));
    let could_boot = joins.filter_map(|seat| observation.could_boot_since(seat.machine?));
    let (new, old): (Vec<Timestamp>, Vec<Timestamp>) = could_boot.partition(|could_boot| *could_boot >= since);
    let failed = || since.checked_add(patience(observation, voter.id()?)).ok();
    let begins = new.into_iter().min().or_else(|| failed().filter(|_| !old.is_empty()))?;
    let grace = i64::from(observation.etcd.spec.health_check.startup_grace_seconds);
    Timestamp::from_second(begins.as_second().saturating_add(grace)).ok()
}

/// Whether another Machine could be made, and would boot and start etcd.
pub(super) fn can_be_made_again(view: &View<'_>) -> bool {
    matches!(view.observation.template, Template::Found { .. })
        && view.cluster().is_some_and(|cluster| cluster.infrastructure_ready)
        && upgrade::why_none_is_made(view).is_none()
}

/// With an even number of voters, the failed voter goes before anything else is done: without it, etcd survives one
/// more failure.
pub(super) fn at_once(view: &View<'_>) -> Option<Plan> {
    is_even(view).then(|| plan(view))?.filter(|plan| matches!(plan, Plan::Do(_)))
}

fn is_even(view: &View<'_>) -> bool {
    view.roster.voters().count().is_multiple_of(2)
}

/// The voter whose replacement was begun: it has been unhealthy ever since, and its Machine is not deleted yet.
pub(super) fn replaced<'v, 'a>(view: &'v View<'a>) -> Option<&'v Seat<'a>> {
    let last = last(view.observation)?;
    on_record(view, last)
        .filter(|seat| matches!(&seat.verdict, Verdict::Unhealthy { since, .. } if *since <= last.time.0))
}

/// The voter that a record is about, as long as its Machine is not deleted.
fn on_record<'v, 'a>(view: &'v View<'a>, last: &LastRemediation) -> Option<&'v Seat<'a>> {
    let is_it = |machine: &MachineView| machine.uid == last.machine_uid && !machine.deleting;
    view.roster.voters().find(|seat| seat.machine.is_some_and(is_it))
}

/// The replacement that a Machine created now is made for, which is written on the Machine.
pub(crate) fn made_for(observation: &Observation) -> Option<LastRemediation> {
    under_way(&View::new(observation)).cloned()
}

/// The replacement that is under way. The Machine to be replaced may already be on its way out. If there is no room for
/// another Machine before, it may be gone.
pub(crate) fn under_way<'a>(view: &View<'a>) -> Option<&'a LastRemediation> {
    let last = last(view.observation)?;
    let goes = |machine: &MachineView| machine.uid == last.machine_uid && machine.deleting;
    (replaced(view).is_some() || view.observation.machines.values().any(goes) || is_owed(view, last)).then_some(last)
}

/// Whether the Machine of a replacement has yet to be created, after the Machine that it replaces has gone.
fn is_owed(view: &View<'_>, last: &LastRemediation) -> bool {
    let observation = view.observation;
    let is_about = |machine: &MachineView| {
        machine.uid == last.machine_uid
            || made_as_replacement(machine).is_some_and(|of| of.machine_uid == last.machine_uid)
    };
    view.removes_first()
        && view.has_room()
        && is_recent(observation, last)
        && !observation.machines.values().any(is_about)
}

/// How much longer a voter whose replacement was begun has to be healthy until the replacement is surplus: a member
/// that answers once may fail again. Zero if the voter has failed again or its health is not known. `None`: there is
/// nothing to wait for.
pub(super) fn recovers(view: &View<'_>) -> Option<Duration> {
    let last = last(view.observation)?;
    let seat = on_record(view, last)?;
    let since = match &seat.verdict {
        Verdict::Healthy { since } => since,
        // It is being replaced.
        Verdict::Unhealthy { since, .. } if *since <= last.time.0 => return None,
        // Failures are only reported, so nothing is done about the voter. If its replacement exists, the plan waits:
        // otherwise the voter would be deleted as surplus.
        Verdict::Unhealthy { .. } if only_reports(view.observation) && !has_replacement(view, last) => return None,
        // It has failed again, or may have. That is decided first.
        Verdict::Unhealthy { .. } | Verdict::Failing { .. } | Verdict::Unknown { .. } => return Some(Duration::ZERO),
    };
    let steady = i64::from(view.observation.etcd.spec.health_check.unhealthy_after_seconds);
    let left = steady - (view.observation.now.as_second() - since.as_second());
    u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_secs)
}

/// Whether failures of voters are only reported.
fn only_reports(observation: &Observation) -> bool {
    why_only_reported(observation, true).is_some()
}

/// Why the failure of a member, or of a Machine without one, is only reported: what in the spec says so. With
/// `InitialCorruptCheck`, a voter whose data differs from another's does not start. It looks like any other that has
/// failed, and it may have the right data. Its replacement would copy the leader, so one member after the other would
/// get what the leader has. A learner has a copy of the leader's data already.
pub(super) fn why_only_reported(observation: &Observation, is_voter: bool) -> Option<&'static str> {
    let spec = &observation.etcd.spec;
    if spec.remediation.mode == RemediationMode::Report {
        return Some("spec.remediation.mode");
    }
    let settings = spec.etcdadm_config_spec.etcd.as_ref().filter(|_| is_voter)?;
    settings.checks_data_at_start().then_some(
        "InitialCorruptCheck is on: if the log of its etcd has \"found data inconsistency with peers\", its data differs from another member's, and may be right",
    )
}

/// Whether there is a Machine that was made for this replacement.
fn has_replacement(view: &View<'_>, last: &LastRemediation) -> bool {
    let mut made = view.observation.live_machines().filter_map(made_as_replacement);
    made.any(|of| of.machine_uid == last.machine_uid)
}

/// Whether a seat's Machine stays, by what has been decided so far.
pub(super) fn is_kept(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let is_replaced = || replaced(view).is_some_and(|other| other.id() == seat.id() && seat.member.is_some());
    seat.machine.is_some_and(|machine| !machine.deleting) && !is_replaced()
}

/// Whether a Machine that stays boots or has a learner: it joins or votes as soon as etcd accepts it.
fn replacement_is_up(view: &View<'_>) -> bool {
    view.roster.seats.iter().any(|seat| is_kept(view, seat) && !seat.is_voter() && comes(view, seat))
}

fn comes(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let Some(machine) = seat.machine.filter(|machine| view.observation.address(machine).is_some()) else {
        return false;
    };
    // A refused connection says that the machine is on. Its grace may be over, because it has waited while a voter was
    // down.
    let is_on = matches!(seat.probe.map(|probe| &probe.outcome), Some(Outcome::MemberFault(MemberFault::Refused)));
    let joins = seat.joining || (seat.admitted && is_on);
    match seat.member {
        Some(_) => !seat.fails(),
        None => joins && missing_since(view.observation, machine).is_none(),
    }
}

/// How many Machines stay and have a healthy voter.
fn kept_well(view: &View<'_>) -> usize {
    view.roster.voters().filter(|seat| seat.is_healthy() && is_kept(view, seat)).count()
}

/// Whether a Machine is paused, because a person looks into it. It is left alone then, as in Cluster API.
pub(crate) fn is_paused(machine: &MachineView) -> bool {
    machine.annotations.contains_key(names::PAUSED_ANNOTATION)
}

/// Records the next replacement. They go one at a time: a failed voter that is on its way out goes first.
fn begin(view: &View<'_>) -> Option<Plan> {
    let observation = view.observation;
    if only_reports(observation) {
        return None;
    }
    if view.roster.voters().any(|seat| seat.is_leaving() && seat.is_unhealthy()) {
        return None;
    }
    let is_free = |seat: &&Seat<'_>| seat.machine.is_some_and(|machine| !machine.deleting && !is_paused(machine));
    let failed = view.roster.voters().filter(|seat| seat.is_unhealthy()).filter(is_free);
    // If the voter must not be removed, its replacement could not join either.
    let failed = failed.filter(|seat| may_leave(view, seat).is_ok());
    let mut held = None;
    for (seat, machine) in failed.filter_map(|seat| Some((seat, seat.machine?))) {
        let period = (observation.etcd.spec.remediation.retry_period_seconds, RETRY_PERIOD);
        match limit(observation, machine, &seat.describe(), period) {
            // Another failed voter may not have to wait.
            Some(hold) => held = held.or(Some(Plan::Wait(hold))),
            None => return Some(record(observation, machine)),
        }
    }
    held
}

/// Records the replacement of a Machine's member.
pub(super) fn record(observation: &Observation, machine: &MachineView) -> Plan {
    Plan::Do(Step::BeginRemediation(LastRemediation {
        machine: machine.name.clone(),
        machine_uid: machine.uid.clone(),
        time: Time(observation.now),
        retry_count: retry(observation, machine).map_or(0, |last| last.retry_count.saturating_add(1)),
    }))
}

/// A message about why a voter that has failed is not replaced now. `None`: it has not failed for long enough, or
/// nothing prevents its replacement.
pub(super) fn why_not(view: &View<'_>, seat: &Seat<'_>) -> Option<String> {
    if let Some(until) = seat.excused_until(view.observation).filter(|_| seat.is_voter()) {
        return Some(format!(
            "failures while there was no quorum do not count: the member is unhealthy if it still fails at {until:.0}"
        ));
    }
    if !seat.is_voter() || !seat.is_unhealthy() {
        return None;
    }
    if let Some(why) = why_only_reported(view.observation, true) {
        let machine = seat.machine.map_or("", |machine| machine.name.as_str());
        return Some(format!("it is not replaced automatically ({why}): delete Machine {machine} to have it replaced"));
    }
    may_leave(view, seat).err().map(|why| format!("it is not replaced now: {why}"))
}

pub(super) fn last(observation: &Observation) -> Option<&LastRemediation> {
    observation.etcd.status.as_ref()?.last_remediation.as_ref()
}

/// The replacement that a Machine was made for, if that is so recent that the Machine has probably failed for the same
/// reason.
fn retry(observation: &Observation, machine: &MachineView) -> Option<LastRemediation> {
    made_as_replacement(machine).filter(|last| is_recent(observation, last))
}

/// The replacement that a Machine was made for.
fn made_as_replacement(machine: &MachineView) -> Option<LastRemediation> {
    serde_json::from_str(machine.annotations.get(names::REMEDIATION_FOR_ANNOTATION)?).ok()
}

/// Whether a replacement that was begun then still counts as one. A time in the future is from before the clock was set
/// back, and says nothing.
fn is_recent(observation: &Observation, last: &LastRemediation) -> bool {
    let since = observation.now.as_second().saturating_sub(last.time.0.as_second());
    (0..i64::from(observation.etcd.spec.remediation.min_healthy_period_seconds)).contains(&since)
}

/// Why a replacement is not replaced itself now. `what`: its member, and what is wrong with the member. `period`: how
/// long the replacement waits, and the field that says so.
pub(super) fn limit(
    observation: &Observation,
    machine: &MachineView,
    what: &str,
    (period, field): (i32, &str),
) -> Option<Hold> {
    let limits = &observation.etcd.spec.remediation;
    let last = retry(observation, machine)?;
    // After this time, it does not count as a retry any more.
    let over = |seconds: i32| {
        last.time.0.as_second().saturating_add(i64::from(seconds.min(limits.min_healthy_period_seconds)))
    };
    let (at, reason, message) = if limits.max_retry.is_some_and(|most| last.retry_count >= most) {
        let message = format!(
            "member {what}, and {} replacements in a row have failed, one more than spec.remediation.maxRetry. Find out why, then delete Machine {} to have it replaced",
            last.retry_count.saturating_add(1),
            machine.name
        );
        (over(i32::MAX), reasons::REMEDIATION_LIMIT_REACHED, message)
    } else {
        let at = over(period);
        let message = format!(
            "member {what}. Its Machine was made to replace the member of Machine {}, and is itself replaced at {:.0} (spec.remediation.{field})",
            last.machine,
            Timestamp::from_second(at).unwrap_or(Timestamp::MAX)
        );
        (at, reasons::REMEDIATION_DELAYED, message)
    };
    let left = u64::try_from(at - observation.now.as_second()).ok().filter(|left| *left > 0)?;
    Some(Hold::new(reason, message).again(Duration::from_secs(left)))
}
