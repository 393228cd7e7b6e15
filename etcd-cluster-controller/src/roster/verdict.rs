//! How a member is, and in which words that is told.

use super::excuse::is_excused;
use crate::observation::probe::{MemberFault, RunKind};
use crate::observation::{Member, Observation, Outcome, Probe, hex};
use api::etcd_cluster::{Health, MemberStatus};
use controller_support::external::MachineView;
use k8s_openapi::jiff::Timestamp;

/// What is held to be true of a member's health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its checks succeed.
    Healthy {
        /// Since when.
        since: Timestamp,
    },
    /// Its checks fail, not yet for long enough to hold that against it.
    Failing {
        /// Since when.
        since: Timestamp,
        /// How, with the URL.
        why: String,
    },
    /// Its checks have failed for `unhealthyAfterSeconds` without a gap; if there is a quorum, for as long since.
    Unhealthy {
        /// Since when.
        since: Timestamp,
        /// How, with the URL.
        why: String,
    },
    /// It could not be checked: it is not known to be well, and that is nobody's fault.
    Unknown {
        /// Why.
        why: String,
    },
}

/// What is known of a member that may be that of a Machine on its way.
pub(super) const UNPLACED: &str = "it may be that of a new Machine, which has no address yet";

/// What is known of a member that is starting.
pub(super) const NEW: &str = "it has not answered since it became a member";

/// What is known of a member that does not answer this controller, and that the other members hear.
pub(super) const HEARD: &str = "the other members hear it, and this controller does not";

/// What is known of a member that does not answer this controller, where there is no leader that could say more.
pub(super) const NOT_LISTENED: &str = "whether the other members hear it is not known";

/// A member of which nothing is known, and why. The first message is kept: how follows, and later ones only alternate between
/// ways of not answering.
fn unknown_since(observation: &Observation, id: u64, why: &str, probe: &Probe) -> Verdict {
    Verdict::Unknown { why: said_since(observation, id, why, probe) }
}

/// What has been said of it since it is so.
pub(super) fn said_since(observation: &Observation, id: u64, why: &str, probe: &Probe) -> String {
    let said = observation.recorded(id).map(|status| &status.message).filter(|message| message.starts_with(why));
    said.cloned().unwrap_or_else(|| format!("{why}: {}", explain(probe)))
}

/// Whether a member has never answered so far, nor been held to be unwell.
fn is_new(status: &MemberStatus) -> bool {
    status.health == Health::Unknown && status.unhealthy_since.is_none() && status.version.is_empty()
}

/// How the member of a Machine is.
pub(super) fn verdict(
    observation: &Observation,
    (id, member): (u64, &Member),
    machine: &MachineView,
    probe: Option<&Probe>,
) -> Verdict {
    let Some(probe) = probe else { return Verdict::Unknown { why: "it has not been checked yet".to_owned() } };
    if is_of_another(observation, id, probe) {
        return Verdict::Unknown { why: format!("another member answers at its address {}", probe.url) };
    }
    let (run, interval) = (probe.run, observation.interval());
    let after = observation.etcd.spec.health_check.unhealthy_after();
    match run.kind_at(observation.now, interval) {
        RunKind::Healthy => Verdict::Healthy { since: run.since },
        RunKind::Failing if probe.expected != Some(id) => unknown_since(observation, id, NEW, probe),
        RunKind::Failing => {
            // The first message is kept: later ones only alternate between ways of not answering.
            let recorded = observation.recorded(id).filter(|status| !status.message.is_empty());
            let same = |status: &&MemberStatus| {
                status.unhealthy_since.as_ref().is_some_and(|time| time.0.as_second() == run.since.as_second())
            };
            let why = recorded.filter(same).map_or_else(|| explain(probe), |status| status.message.clone());
            let since = run.since;
            let long = run.has_failed_for(after, observation.now, interval);
            let is_excused = is_excused(observation, run, after);
            // One that joins as a voter votes before its etcd runs.
            let boots = observation.is_in_grace(machine);
            if boots && !member.learner && observation.recorded(id).is_none_or(is_new) {
                unknown_since(observation, id, NEW, probe)
            } else if long && observation.is_heard(id) {
                unknown_since(observation, id, HEARD, probe)
            } else if long && observation.is_hearing_unknown() {
                // Without a quorum nobody leads, and nothing is removed.
                unknown_since(observation, id, NOT_LISTENED, probe)
            } else if long && !is_excused {
                Verdict::Unhealthy { since, why }
            } else if member.learner && observation.recorded(id).is_none_or(is_new) {
                // etcd adds it first and starts it then.
                unknown_since(observation, id, NEW, probe)
            } else {
                Verdict::Failing { since, why }
            }
        }
        RunKind::Unknown => Verdict::Unknown { why: explain(probe) },
    }
}

/// Whether an answer has another identity: it says nothing of this member.
fn is_of_another(observation: &Observation, id: u64, probe: &Probe) -> bool {
    match &probe.outcome {
        Outcome::Answered(report) => report.member_id != id || is_of_another_cluster(observation, report.cluster_id),
        Outcome::MemberFault(MemberFault::OtherCluster { .. } | MemberFault::OtherMember { .. }) => true,
        Outcome::MemberFault(_) | Outcome::OurFault(_) | Outcome::NoAddress => false,
    }
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

/// The same of a Machine that is not a member.
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
