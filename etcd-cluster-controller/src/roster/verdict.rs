//! The verdict on the health of a member, and the words in which it is reported.

use super::excuse::is_excused;
use crate::observation::probe::{MemberFault, RunKind};
use crate::observation::{Member, Observation, Outcome, Probe, hex, is_deleted_by_others};
use api::etcd_cluster::{Health, MemberStatus};
use controller_support::external::MachineView;
use k8s_openapi::jiff::Timestamp;

/// What is taken to be true about a member's health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its checks succeed.
    Healthy {
        /// Since when.
        since: Timestamp,
    },
    /// Its checks fail, but not for long enough to count.
    Failing {
        /// Since when.
        since: Timestamp,
        /// How the checks fail, with the URL.
        why: String,
    },
    /// Its checks have failed for `unhealthyAfterSeconds` without a gap and, if there is a quorum, for as long since
    /// the quorum has been there.
    Unhealthy {
        /// Since when.
        since: Timestamp,
        /// How the checks fail, with the URL.
        why: String,
    },
    /// It could not be checked: it is not known to be healthy, but no member is at fault for that.
    Unknown {
        /// Why.
        why: String,
    },
}

/// The reason shown for a member that may belong to a Machine on its way.
pub(super) const UNPLACED: &str = "it may be that of a new Machine, which has no address yet";

/// The reason shown for a member that is starting.
pub(super) const NEW: &str = "it has not answered since it became a member";

/// The reason shown for a member that does not answer this controller, but that the other members hear.
pub(super) const HEARD: &str = "the other members hear it, and this controller does not";

/// The reason shown for a member that does not answer this controller, while no leader can say whether it hears the
/// member.
pub(super) const NOT_LISTENED: &str = "whether the other members hear it is not known";

/// The verdict Unknown, with a reason that begins with `why`. The first message is kept: it also says how the check
/// failed, and later messages only alternate between ways of not answering.
fn unknown_since(observation: &Observation, id: u64, why: &str, probe: &Probe) -> Verdict {
    Verdict::Unknown { why: said_since(observation, id, why, probe) }
}

/// The message that the status already has for the reason `why`, or a new one.
pub(super) fn said_since(observation: &Observation, id: u64, why: &str, probe: &Probe) -> String {
    let said = observation.recorded(id).map(|status| &status.message).filter(|message| message.starts_with(why));
    said.cloned().unwrap_or_else(|| format!("{why}: {}", explain(probe)))
}

/// Whether a member has never answered, and has never been found failing.
fn is_new(status: &MemberStatus) -> bool {
    status.health == Health::Unknown && status.unhealthy_since.is_none() && status.version.is_empty()
}

/// The verdict on the member of a Machine.
pub(super) fn verdict(
    observation: &Observation,
    (id, member): (u64, &Member),
    machine: &MachineView,
    probe: Option<&Probe>,
) -> Verdict {
    let Some(probe) = probe else { return Verdict::Unknown { why: "it has not been checked yet".to_owned() } };
    if is_of_another(observation, id, probe) {
        let why = format!("another member answers at its address {}", probe.url);
        return match is_given_up(observation, id, machine, probe) {
            true => Verdict::Unhealthy { since: probe.run.since, why },
            false => Verdict::Unknown { why },
        };
    }
    let (run, interval) = (probe.run, observation.interval());
    let after = observation.etcd.spec.health_check.unhealthy_after();
    match run.kind_at(observation.now, interval) {
        RunKind::Healthy => Verdict::Healthy { since: run.since },
        RunKind::Failing if probe.expected != Some(id) => unknown_since(observation, id, NEW, probe),
        RunKind::Failing => {
            // The first message is kept. Later messages only alternate between ways of not answering.
            let recorded = observation.recorded(id).filter(|status| !status.message.is_empty());
            let same = |status: &&MemberStatus| {
                status.unhealthy_since.as_ref().is_some_and(|time| time.0.as_second() == run.since.as_second())
            };
            let why = recorded.filter(same).map_or_else(|| explain(probe), |status| status.message.clone());
            let since = run.since;
            let long = run.has_failed_for(after, observation.now, interval);
            let is_excused = is_excused(observation, run, after);
            // A member that joins as a voter votes before its etcd runs.
            let boots = observation.is_in_grace(machine);
            if boots && !member.learner && observation.recorded(id).is_none_or(is_new) {
                unknown_since(observation, id, NEW, probe)
            } else if long && observation.is_heard(id) {
                unknown_since(observation, id, HEARD, probe)
            } else if long && observation.is_hearing_unknown() {
                // Without a quorum there is no leader, and nothing is removed.
                unknown_since(observation, id, NOT_LISTENED, probe)
            } else if long && !is_excused {
                Verdict::Unhealthy { since, why }
            } else if member.learner && observation.recorded(id).is_none_or(is_new) {
                // etcd lists a new learner before its etcd starts.
                unknown_since(observation, id, NEW, probe)
            } else {
                Verdict::Failing { since, why }
            }
        }
        RunKind::Unknown => Verdict::Unknown { why: explain(probe) },
    }
}

/// Whether the answer comes from another member or another cluster. Such an answer says nothing about this member.
fn is_of_another(observation: &Observation, id: u64, probe: &Probe) -> bool {
    match &probe.outcome {
        Outcome::Answered(report) => report.member_id != id || is_of_another_cluster(observation, report.cluster_id),
        Outcome::MemberFault(MemberFault::OtherCluster { .. } | MemberFault::OtherMember { .. }) => true,
        Outcome::MemberFault(_) | Outcome::OurFault(_) | Outcome::NoAddress => false,
    }
}

/// Whether a member at whose address another one answers counts as failed: a person has deleted its Machine, and the
/// other members have not heard it for long enough. Otherwise such a Machine could never go, with an etcd on it that
/// takes writes which nobody else has.
fn is_given_up(observation: &Observation, id: u64, machine: &MachineView, probe: &Probe) -> bool {
    let (run, after) = (probe.run, observation.etcd.spec.health_check.unhealthy_after());
    let is_heard = observation.is_heard(id) || observation.is_hearing_unknown();
    is_deleted_by_others(machine)
        && probe.expected == Some(id)
        && run.has_failed_for(after, observation.now, observation.interval())
        && !is_heard
        && !is_excused(observation, run, after)
}

fn is_of_another_cluster(observation: &Observation, id: u64) -> bool {
    observation.cluster_id().is_some_and(|known| known != hex(id))
}

/// How a probe failed, with the URL.
pub(super) fn explain(probe: &Probe) -> String {
    let why = match (&probe.outcome, probe.member_fault()) {
        (_, Some(fault)) => fault.to_string(),
        (Outcome::OurFault(fault), _) => fault.to_string(),
        (Outcome::NoAddress, _) => return "its Machine has no address".to_owned(),
        (Outcome::Answered(_), None) => return format!("{} has not been checked for too long", probe.url),
        (Outcome::MemberFault(fault), None) => fault.to_string(),
    };
    if why.contains("://") { why } else { format!("{}: {why}", probe.url) }
}

/// How the probe of a Machine that is not a member ended, with the URL.
pub(super) fn explain_no_member(observation: &Observation, probe: &Probe) -> String {
    let is_current = probe.run.kind_at(observation.now, observation.interval()) == RunKind::Healthy;
    match (&probe.outcome, probe.member_fault()) {
        (Outcome::Answered(_), None) if is_current && observation.members().is_some() => {
            format!("{} answers; the member list does not show it yet", probe.url)
        }
        (Outcome::Answered(_), None) if is_current => format!("{} answers; the member list is being read", probe.url),
        _ => explain(probe),
    }
}
