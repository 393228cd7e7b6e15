//! Strangers, the members that no Machine carries: where each of them comes from, and when it counts as unhealthy.
//! Strangers are probed at the client URLs in the member list. A stranger that answers is still not counted on: nothing
//! says how long its machine stays.

use super::Seat;
use super::excuse::is_excused;
use super::verdict::{HEARD, NOT_LISTENED, Verdict, said_since};
use crate::observation::probe::RunKind;
use crate::observation::{Member, Observation, Probe, host};
use api::names;
use std::time::Duration;

/// The reason shown for a member that never had a Machine of this EtcdCluster.
pub(super) const NO_MACHINE: &str = "it runs on no Machine of this EtcdCluster";

/// The beginning of the reason shown for a member that had a Machine.
const ITS_MACHINE: &str = "its Machine ";

/// The Machine that the status names for a member, if it names one.
fn recorded_machine(observation: &Observation, id: u64) -> Option<&String> {
    observation.recorded(id).map(|status| &status.machine).filter(|name| !name.is_empty())
}

/// Whether a member had a Machine that is gone. A Machine that exists, but carries another member or has another owner,
/// is not gone.
pub(super) fn is_orphaned(observation: &Observation, id: u64) -> bool {
    let is_gone = |name: &String| !observation.machines.contains_key(name) && !observation.not_owned.contains(name);
    recorded_machine(observation, id).is_some_and(is_gone)
}

/// Why no Machine carries a member. If its Machine was made again and carries another member, the member is still named
/// after that Machine.
fn why(observation: &Observation, id: u64) -> String {
    let called = || observation.recorded(id).map(|status| &status.name);
    let made_again = || called().filter(|name| observation.machines.contains_key(*name));
    match recorded_machine(observation, id).or_else(made_again) {
        Some(name) if observation.not_owned.contains(name) => {
            format!("{ITS_MACHINE}{name} is not controlled by this EtcdCluster")
        }
        Some(name) if observation.machines.contains_key(name) => format!("{ITS_MACHINE}{name} carries another member"),
        Some(name) => format!("{ITS_MACHINE}{name} is gone"),
        None => NO_MACHINE.to_owned(),
    }
}

/// Whether a message is about a member without a Machine that a person could delete. A status has nothing but the
/// message to tell a stranger by, and the caller compares two statuses.
pub(crate) fn tells_of_no_machine(message: &str) -> bool {
    message.starts_with(NO_MACHINE) || message.starts_with(ITS_MACHINE)
}

/// The verdict on a stranger. It is Unknown until the stranger has failed for long enough, has also failed for as long
/// since there has been a quorum, and the leader does not hear it.
pub(super) fn verdict(observation: &Observation, id: u64, probe: Option<&Probe>) -> Verdict {
    let whose = why(observation, id);
    let Some(probe) = probe else { return Verdict::Unknown { why: whose } };
    let unknown = |how: &str| Verdict::Unknown { why: said_since(observation, id, &format!("{whose}, {how}"), probe) };
    let (run, now, interval) = (probe.run, observation.now, observation.interval());
    let long = patience(observation, id);
    match run.kind_at(now, interval) {
        RunKind::Healthy => Verdict::Unknown { why: format!("{whose}, and it answers at {}", probe.url) },
        RunKind::Unknown => unknown("and it could not be asked"),
        RunKind::Failing if !run.has_failed_for(long, now, interval) => unknown(FAILS),
        RunKind::Failing if observation.is_heard(id) => unknown(HEARD),
        RunKind::Failing if observation.is_hearing_unknown() => unknown(NOT_LISTENED),
        RunKind::Failing if is_excused(observation, run, long) => unknown(FAILS),
        RunKind::Failing => Verdict::Unhealthy {
            since: run.since,
            why: said_since(observation, id, &format!("{whose}, {FAILS}"), probe),
        },
    }
}

const FAILS: &str = "and its checks fail";

/// How long a stranger has to fail to be unhealthy. A stranger that has served on a Machine of ours has as long as any
/// other member. One that never has may still be starting, so it has the start-up grace in addition.
pub(crate) fn patience(observation: &Observation, id: u64) -> Duration {
    let checks = &observation.etcd.spec.health_check;
    let has_served = observation.recorded(id).is_some_and(|status| !status.version.is_empty());
    let grace = if has_served && is_orphaned(observation, id) { Duration::ZERO } else { checks.startup_grace() };
    checks.unhealthy_after() + grace
}

/// Where a stranger answers its checks right now, in the role that the member list gives it. It can be asked, but is
/// not counted on.
pub(crate) fn answers_at<'a>(observation: &Observation, seat: &Seat<'a>) -> Option<&'a str> {
    let probe = seat.probe.filter(|_| seat.machine.is_none())?;
    let is_current = probe.run.kind_at(observation.now, observation.interval()) == RunKind::Healthy;
    let is_well = probe.outcome.kind() == RunKind::Healthy;
    let is_as_listed = probe.report().is_some_and(|report| report.learner != seat.is_voter());
    (is_current && is_well && is_as_listed).then_some(probe.url.as_str())
}

/// Where a member can be asked right now: at its Machine if it is healthy, or where a stranger answers.
pub(crate) fn serves_at(observation: &Observation, seat: &Seat<'_>) -> Option<String> {
    match seat.machine {
        Some(machine) if seat.is_healthy() => observation.client_url(machine),
        Some(_) => None,
        None => answers_at(observation, seat).map(str::to_owned),
    }
}

/// Where to probe a stranger: at its client URLs, or before it has published any, at the hosts of its peer URLs.
pub(crate) fn client_urls(member: &Member) -> Vec<String> {
    if !member.client_urls.is_empty() {
        return member.client_urls.clone();
    }
    let hosts = member.peer_urls.iter().filter_map(|url| host::host_of(url));
    hosts.map(|host| names::client_url(&host)).collect()
}
