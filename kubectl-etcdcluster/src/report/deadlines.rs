//! What happens by itself, and when: from the fields with a time, and from the messages that name one.

use super::Trouble;
use crate::snapshot::Snapshot;
use api::etcd_cluster::Health;
use etcd_cluster_controller::build::{replaced_before_expiry, replaces_from};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// Something that happens by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deadline {
    /// The time.
    pub at: Time,
    /// What happens then, or what has to have happened.
    pub what: String,
}

/// All future deadlines, the next one first.
pub(super) fn deadlines(snapshot: &Snapshot, troubles: &[Trouble]) -> Vec<Deadline> {
    let mut found: Vec<Deadline> = members(snapshot).collect();
    found.extend(replaces_from(&snapshot.etcd).map(|at| Deadline {
        at: Time(at),
        what: "Machines that were made before spec.rolloutAfter begin to be replaced".to_owned(),
    }));
    found.extend(expiries(snapshot));
    found.extend(troubles.iter().flat_map(|trouble| in_message(&trouble.message)));
    found.retain(|deadline| deadline.at.0 > snapshot.now);
    found.sort_by(|a, b| (a.at.0, &a.what).cmp(&(b.at.0, &b.what)));
    found.dedup();
    found
}

/// Members whose checks fail, but not for long enough yet to count as unhealthy.
fn members(snapshot: &Snapshot) -> impl Iterator<Item = Deadline> {
    let after = SignedDuration::from_secs(i64::from(snapshot.etcd.spec.health_check.unhealthy_after_seconds));
    let members = snapshot.etcd.status.iter().flat_map(|status| &status.members);
    let failing = members.filter(|member| member.health != Health::Unhealthy);
    failing.filter_map(move |member| {
        let at = member.unhealthy_since.as_ref()?.0.checked_add(after).ok()?;
        let name = if member.name.is_empty() { &member.id } else { &member.name };
        Some(Deadline { at: Time(at), what: format!("member {name} counts as unhealthy, unless it answers before") })
    })
}

/// Deadlines that are further away are not reported.
const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The deadlines of members that are replaced before their certificates expire.
fn expiries(snapshot: &Snapshot) -> impl Iterator<Item = Deadline> {
    let machines = snapshot.machines.iter().map(|machine| &machine.view.name);
    machines.filter_map(|machine| {
        let at = replaced_before_expiry(&snapshot.etcd, machine)?;
        (at.duration_since(snapshot.now) <= SOON).then_some(())?;
        let what = format!("Machine {machine} is to be replaced, before the certificate of its member expires");
        Some(Deadline { at: Time(at), what })
    })
}

/// The clauses of a message that contain a time, such as "if this is still so at …, the reason becomes
/// MachineNotBooting". The time itself is removed from them.
fn in_message(message: &str) -> Vec<Deadline> {
    let clauses = message.split("; ").flat_map(|part| part.split(". "));
    let clauses = clauses.filter_map(|clause| {
        let words = clause.split(|sign: char| sign.is_whitespace() || matches!(sign, ',' | '(' | ')'));
        let mut times = words.map(|word| word.trim_end_matches('.')).rev();
        let (word, at) = times.find_map(|word| Some((word, word.parse::<Timestamp>().ok()?)))?;
        let what = clause.replace(&format!("at {word}"), "then").replace(word, "then");
        Some(Deadline { at: Time(at), what: what.trim().trim_end_matches('.').to_owned() })
    });
    clauses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_with_a_time_is_a_deadline() {
        let message = "Machine demo-etcd-1 is not a member yet: https://10.0.0.2:2379: connection refused; if this is still so at 2026-11-23T08:10:00Z, the reason becomes MachineNotBooting";
        let found = in_message(message);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.0.to_string(), "2026-11-23T08:10:00Z");
        assert_eq!(found[0].what, "if this is still so then, the reason becomes MachineNotBooting");
        let message = "member demo-etcd-1 is a learner (its Machine could boot at 2026-11-23T08:00:00Z); if it is still a learner at 2026-11-23T08:10:00Z, look at it";
        let found = in_message(message);
        let [past, next] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(past.at.0.to_string(), "2026-11-23T08:00:00Z", "it is left out as what is past");
        assert_eq!(next.what, "if it is still a learner then, look at it");
        assert!(in_message("nothing has a time here; 3.6.16 is a version").is_empty());
    }
}
