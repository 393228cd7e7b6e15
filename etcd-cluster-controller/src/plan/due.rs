//! When to look again, if nothing happens before. Members are not watched but asked: that costs the API server nothing.

use super::Plan;
use crate::observation::Observation;
use api::conditions::reasons;
use std::time::Duration;

/// How often a member on its way is asked while it should come up any moment, in the first time after its admission.
const EAGER: (Duration, i64) = (Duration::from_millis(100), 120);
/// How often afterwards, until its grace is over.
const PATIENT: Duration = Duration::from_secs(2);
/// How often to ask for a kind or template that is not there and that no watch can tell of.
const BLOCKED: Duration = Duration::from_secs(10);

/// How long to wait. `None`: a watch tells.
#[must_use]
pub fn due(seen: &Observation, plan: &Plan) -> Option<Duration> {
    if seen.etcd.metadata.deletion_timestamp.is_some() {
        // Machines that go are watched; only a refusal has to be tried again.
        return matches!(plan, Plan::Block(_)).then_some(BLOCKED);
    }
    let interval =
        Duration::from_secs(u64::try_from(seen.etcd.spec.health_check.interval_seconds).unwrap_or(10).max(1));
    let checks = (!seen.machines.is_empty()).then_some(interval);
    match plan {
        Plan::Wait(reason) if reason.reason == reasons::PAUSED => None,
        Plan::Wait(reason) if is_coming_up(reason.reason) => {
            let admitted = seen.live_machines().filter(|machine| seen.is_admitted(machine));
            let youngest = admitted.map(|machine| seen.age(machine)).min().unwrap_or(i64::MAX);
            let grace = i64::from(seen.etcd.spec.health_check.startup_grace_seconds);
            Some(match youngest {
                // Far below zero our clock is wrong: that must not mean eagerness for as long.
                _ if youngest.abs() < EAGER.1 => EAGER.0,
                _ if youngest < grace => PATIENT.min(interval),
                _ => interval,
            })
        }
        // The API server has not told whether there is a template, and no watch will.
        Plan::Wait(reason) if reason.reason == reasons::TEMPLATE_NOT_FOUND => {
            Some(checks.unwrap_or(BLOCKED).min(BLOCKED))
        }
        Plan::Wait(_) | Plan::Steady => checks,
        Plan::Block(_) => Some(checks.unwrap_or(BLOCKED).min(BLOCKED)),
        // The write causes an event; this is for the case that somebody else had made it already.
        Plan::Do(_) => Some(Duration::from_secs(1)),
    }
}

fn is_coming_up(reason: &str) -> bool {
    [reasons::WAITING_FOR_MEMBER, reasons::WAITING_FOR_PROMOTION, reasons::MEMBERSHIP_UNKNOWN].contains(&reason)
}
