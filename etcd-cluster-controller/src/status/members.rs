//! `status.members`: the roster's members for people.

use crate::observation::hex;
use crate::plan::View;
use crate::roster::{Seat, Verdict};
use api::etcd_cluster::{Health, MemberRole, MemberStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// The members, sorted by name and ID. If the member list is not known, the members of the previous status, with their
/// present health. During a deletion no member is probed, so all of it stays as it was.
pub(super) fn members(view: &View<'_>) -> Vec<MemberStatus> {
    let etcd = &view.observation.etcd;
    if etcd.metadata.deletion_timestamp.is_some() {
        return etcd.status.iter().flat_map(|status| status.members.clone()).collect();
    }
    let mut members: Vec<MemberStatus> = view.roster.seats.iter().filter_map(|seat| member(view, seat)).collect();
    members.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    members
}

fn member(view: &View<'_>, seat: &Seat<'_>) -> Option<MemberStatus> {
    let (id, member) = seat.member.as_ref()?;
    let before = view.observation.recorded(*id);
    let machine = seat.machine.map(|machine| machine.name.clone());
    // A recorded Machine that still exists carries another member by now, and is shown at that member.
    let is_gone = |name: &String| !view.observation.machines.contains_key(name);
    let earlier = || before.map(|before| before.machine.clone()).filter(is_gone);
    let failure_domain = seat.machine.map(|machine| machine.failure_domain.clone().unwrap_or_default());
    let report = seat.probe.and_then(|probe| probe.report()).filter(|report| report.member_id == *id);
    let healthy_before = before.and_then(|before| before.healthy_since.clone());
    let (health, healthy_since, unhealthy_since) = match &seat.verdict {
        Verdict::Healthy { since } => (Health::Healthy, Some(healthy_before.unwrap_or(seconds(*since))), None),
        Verdict::Failing { since, .. } if seat.counts => (Health::Healthy, None, Some(seconds(*since))),
        Verdict::Failing { since, .. } => {
            // A member that was unhealthy before this controller started stays unhealthy until it answers.
            let known = before.filter(|before| before.health == Health::Unhealthy);
            let since = known.and_then(|before| before.unhealthy_since.clone()).unwrap_or(seconds(*since));
            (known.map_or(Health::Unknown, |before| before.health), None, Some(since))
        }
        Verdict::Unhealthy { since, .. } => (Health::Unhealthy, None, Some(seconds(*since))),
        Verdict::Unknown { .. } => (Health::Unknown, None, None),
    };
    Some(MemberStatus {
        name: member.name.clone(),
        id: hex(*id),
        machine: machine.or_else(earlier).unwrap_or_default(),
        failure_domain: failure_domain
            .or_else(|| before.map(|before| before.failure_domain.clone()))
            .unwrap_or_default(),
        peer_url: member.peer_urls.first().cloned().unwrap_or_default(),
        client_url: member.client_urls.first().cloned().unwrap_or_default(),
        role: if member.learner { MemberRole::Learner } else { MemberRole::Voter },
        leader: seat.leads(),
        version: report.map_or_else(|| before.map_or("", |b| &b.version).to_owned(), |report| report.version.clone()),
        health,
        healthy_since,
        unhealthy_since,
        message: seat.why().to_owned(),
        database_size_bytes: match (before.and_then(|before| before.database_size_bytes), report) {
            (shown, Some(report)) => Some(noticeable(shown, report.database_size)),
            (shown, None) => shown,
        },
        certificate_expires: report
            .and_then(|report| report.certificate_expires.map(seconds))
            .or_else(|| before.and_then(|before| before.certificate_expires.clone())),
    })
}

/// A time as it comes back from the API server.
fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// The size to show. It changes only if the new size differs by a tenth, so that a busy database causes few writes.
fn noticeable(shown: Option<i64>, size: i64) -> i64 {
    match shown {
        // Computed as unsigned, because the size in the status may be any number that a person has written.
        Some(shown) if size.abs_diff(shown) < (shown.unsigned_abs() / 10).max(1) => shown,
        _ => size,
    }
}
