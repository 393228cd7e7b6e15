//! Which changes between two statuses are worth an event: what has become true, and what has stopped being true.

use crate::roster::strangers::tells_of_no_machine;
use api::conditions::{self as c, reasons};
use api::etcd_cluster::{EtcdClusterStatus, Health, OperationKind, RemovalState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// An event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Somebody should look at it.
    pub warning: bool,
    /// CamelCase reason.
    pub reason: &'static str,
    /// The sentence for people.
    pub note: String,
}

/// Reasons for which a person has to do something, or should know.
const ALARMING: &[&str] = &[
    reasons::CLUSTER_USES_ANOTHER_ETCD,
    reasons::CLAIMED_BY_SEVERAL_CLUSTERS,
    reasons::MACHINES_NOT_OWNED,
    reasons::TEMPLATE_NOT_FOUND,
    reasons::TEMPLATE_INVALID,
    reasons::SECRET_INVALID,
    reasons::NAME_TAKEN,
    reasons::REFUSED,
    reasons::MACHINE_NOT_BOOTING,
    reasons::QUORUM_LOST,
    reasons::CLUSTER_ID_CHANGED,
    reasons::DELETION_NOT_CONFIRMED,
    reasons::WOULD_LOSE_DATA,
    reasons::DATA_CORRUPT,
    reasons::NO_SPACE,
    reasons::ALARM_RAISED,
    reasons::REMEDIATION_LIMIT_REACHED,
    reasons::UNSUPPORTED_VERSION_CHANGE,
];

/// Conditions that may have one of these reasons. A later condition may repeat what an earlier one reports.
const TELLING: [&str; 7] = [
    c::READY,
    c::NO_ALARMS,
    c::AVAILABLE,
    c::MACHINES_UP_TO_DATE,
    c::REMEDIATING,
    c::SCALING_DOWN,
    c::MACHINES_DELETING,
];

/// Whether a person has to do something for this reason, or should know.
pub(super) fn is_alarming(reason: &str) -> bool {
    ALARMING.contains(&reason)
}

/// Compares two statuses.
#[must_use]
pub fn transitions(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<Transition> {
    let mut found = Vec::new();
    let mut normal = |reason, note: String| found.push(Transition { warning: false, reason, note });
    if after.initialized && !before.initialized {
        normal("Initialized", "the first member is up".to_owned());
    }
    if after.ready && !before.ready {
        normal("Ready", format!("{} members are healthy: {}", after.ready_replicas, after.endpoints));
    }
    for record in after.removed_members.iter().filter(|record| record.state == RemovalState::Removed) {
        if !before.removed_members.iter().any(|old| old.id == record.id && old.state == RemovalState::Removed) {
            normal("MemberRemoved", format!("member {} of Machine {} has left etcd", record.id, record.machine));
        }
    }
    // `removedMembers` has a removal only as long as its Machine exists. If no Machine carried the member, the end of
    // the operation shows the removal.
    let ended = before.operation.as_ref().filter(|_| after.operation.is_none());
    let ended = ended.filter(|ended| ended.kind == OperationKind::RemoveMember && ended.machine_uid.is_empty());
    if let Some(ended) = ended.filter(|ended| after.members.iter().all(|member| member.id != ended.member_id)) {
        normal("MemberRemoved", format!("member {}, which no Machine carried, has left etcd", ended.member_id));
    }
    if let Some(begun) = after.last_remediation.as_ref().filter(|begun| before.last_remediation.as_ref() != Some(begun))
    {
        normal(reasons::REPLACING_MEMBER, format!("the member of Machine {} is being replaced", begun.machine));
    }
    let leaving =
        |status: &EtcdClusterStatus| status.conditions.iter().find(|c| c.type_ == c::MACHINES_DELETING).cloned();
    if let Some(now) = leaving(after).filter(|now| now.reason == reasons::WAITING_FOR_SAFE_REMOVAL)
        && leaving(before).is_none_or(|old| old.reason != now.reason)
    {
        normal(reasons::WAITING_FOR_SAFE_REMOVAL, now.message);
    }
    let mut warning = |reason, note: String| found.push(Transition { warning: true, reason, note });
    for member in after.members.iter().filter(|member| member.health == Health::Unhealthy) {
        let known = before.members.iter().any(|old| old.id == member.id && old.health == Health::Unhealthy);
        if !known {
            let name = if member.name.is_empty() { &member.id } else { &member.name };
            let since = member.unhealthy_since.as_ref().map(|since| format!(" since {:.0}", since.0));
            let next = match after.members.len() {
                1 => "It is kept, as its data would go with it: bring its machine back".to_owned(),
                _ if tells_of_no_machine(&member.message) => {
                    "It is removed as soon as etcd can do without it, unless Ready says otherwise".to_owned()
                }
                _ => format!(
                    "Ready says what is done about it; to have it replaced by hand, delete Machine {}",
                    member.machine
                ),
            };
            let note = format!(
                "member {name} has failed its checks{}: {}. {next}",
                since.unwrap_or_default(),
                member.message,
            );
            warning("MemberUnhealthy", note);
        }
    }
    for record in after.removed_members.iter().filter(|record| record.state == RemovalState::Missing) {
        if !before.removed_members.iter().any(|old| old.id == record.id) {
            let note = format!(
                "member {} of Machine {} is no longer in the member list, and this controller did not remove it. Ready says what is done about it; to have it replaced at once, delete Machine {}",
                record.id, record.machine, record.machine
            );
            warning(reasons::MEMBER_MISSING, note);
        }
    }
    for (index, type_) in TELLING.into_iter().enumerate() {
        let mut earlier = TELLING[..index].iter().filter_map(|type_| alarming(&after.conditions, type_));
        if let Some(now) = alarming(&after.conditions, type_)
            && alarming(&before.conditions, type_).is_none_or(|old| old.reason != now.reason)
            && earlier.all(|c| c.reason != now.reason)
        {
            let reason = ALARMING.iter().copied().find(|reason| *reason == now.reason).unwrap_or(reasons::QUORUM_LOST);
            warning(reason, now.message.clone());
        }
    }
    found
}

fn alarming<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_ && is_alarming(&c.reason))
}
