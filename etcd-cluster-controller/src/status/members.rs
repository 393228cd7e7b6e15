//! `status.members`: etcd's member list joined with the health checks.

use crate::observation::{Check, Member, Membership, Observation, Report, hex};
use api::etcd_cluster::{MemberRole, MemberStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The members by name and ID. If the member list is not known, those of before, with their health brought up to date.
pub(super) fn members(seen: &Observation, before: &[MemberStatus]) -> Vec<MemberStatus> {
    let mut members: Vec<MemberStatus> = match &seen.membership {
        Membership::Known { members, .. } => members
            .iter()
            .map(|(id, member)| {
                let recorded = before.iter().find(|status| status.id == hex(*id));
                let entry = listed(seen, *id, member, recorded);
                checked(seen, entry)
            })
            .collect(),
        Membership::NotAsked | Membership::Unknown(_) => {
            before.iter().cloned().map(|entry| checked(seen, entry)).collect()
        }
    };
    members.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    members
}

fn listed(seen: &Observation, id: u64, member: &Member, recorded: Option<&MemberStatus>) -> MemberStatus {
    let machine = seen.machine_of(id, member).map(|machine| machine.name.clone());
    let base = recorded.cloned().unwrap_or_else(|| MemberStatus {
        name: String::new(),
        id: hex(id),
        machine: String::new(),
        peer_url: String::new(),
        client_url: String::new(),
        role: MemberRole::Learner,
        leader: false,
        version: String::new(),
        healthy_since: None,
        unhealthy_since: None,
        message: String::new(),
        database_size_bytes: None,
    });
    MemberStatus {
        name: member.name.clone(),
        machine: machine.unwrap_or_default(),
        peer_url: member.peer_urls.first().cloned().unwrap_or_default(),
        client_url: member.client_urls.first().cloned().unwrap_or_default(),
        role: if member.learner { MemberRole::Learner } else { MemberRole::Voter },
        ..base
    }
}

/// Brings a member's health up to date. No check (we could not ask) changes nothing: a fault of ours is not its fault.
fn checked(seen: &Observation, member: MemberStatus) -> MemberStatus {
    let now = Time(seen.now);
    match seen.checks.get(&member.machine) {
        Some(Check::Healthy { report }) if hex(report.member_id) == member.id => healthy(member, report, now),
        // Something healthy answers at the address, and it is another member.
        Some(Check::Healthy { .. }) => failing(seen, member, "another member answers at its address", now),
        Some(Check::Failing(message)) => failing(seen, member, message, now),
        Some(Check::NoAddress) | None => member,
    }
}

fn healthy(member: MemberStatus, report: &Report, now: Time) -> MemberStatus {
    MemberStatus {
        leader: report.leader == report.member_id,
        version: report.version.clone(),
        healthy_since: Some(member.healthy_since.unwrap_or(now)),
        unhealthy_since: None,
        message: String::new(),
        database_size_bytes: Some(noticeable(member.database_size_bytes, report.database_size)),
        ..member
    }
}

/// The member counts as healthy until its checks have failed for long enough. The first message is kept: later ones
/// only alternate between ways of not answering.
fn failing(seen: &Observation, member: MemberStatus, message: &str, now: Time) -> MemberStatus {
    let since = member.unhealthy_since.clone().unwrap_or(now);
    let failed_for = seen.now.as_second() - since.0.as_second();
    let given_up = failed_for >= i64::from(seen.etcd.spec.health_check.unhealthy_after_seconds);
    MemberStatus {
        message: if member.unhealthy_since.is_some() { member.message } else { message.to_owned() },
        healthy_since: if given_up { None } else { member.healthy_since },
        leader: member.leader && !given_up,
        unhealthy_since: Some(since),
        ..member
    }
}

/// The size to show: the new one only if it differs by a tenth, so that a busy database causes few writes.
fn noticeable(shown: Option<i64>, size: i64) -> i64 {
    match shown {
        // Unsigned, as what is shown may have been written by anybody.
        Some(shown) if size.abs_diff(shown) < (shown.unsigned_abs() / 10).max(1) => shown,
        _ => size,
    }
}
