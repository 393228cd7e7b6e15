//! What is worth an event: what has become true, or stopped being so, between two statuses.

use super::is_well;
use api::conditions::{self as c, reasons};
use api::etcd_cluster::{EtcdClusterStatus, MemberRole};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// An event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Somebody should look at it.
    pub warning: bool,
    /// What the controller was about.
    pub action: &'static str,
    /// CamelCase reason.
    pub reason: &'static str,
    /// The sentence for people.
    pub note: String,
}

/// Reasons for which a person has to do something, or should know.
const ALARMING: &[&str] = &[
    reasons::CLUSTER_USES_ANOTHER_ETCD,
    reasons::CLAIMED_BY_SEVERAL_CLUSTERS,
    reasons::TEMPLATE_NOT_FOUND,
    reasons::TEMPLATE_INVALID,
    reasons::SECRET_INVALID,
    reasons::NAME_TAKEN,
    reasons::REFUSED,
    reasons::MACHINE_NOT_BOOTING,
    reasons::QUORUM_LOST,
];

/// Compares two statuses.
#[must_use]
pub fn transitions(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<Transition> {
    let mut found = Vec::new();
    let mut normal =
        |reason, note: String| found.push(Transition { warning: false, action: "Reconcile", reason, note });
    if after.initialized && !before.initialized {
        normal("Initialized", "the first member is up".to_owned());
    }
    if after.ready && !before.ready {
        normal("Ready", format!("{} members are healthy: {}", after.ready_replicas, after.endpoints));
    }
    let mut warning =
        |reason, note: String| found.push(Transition { warning: true, action: "Reconcile", reason, note });
    for member in after.members.iter().filter(|member| member.role == MemberRole::Voter && !is_well(member)) {
        let was_well = before.members.iter().any(|old| old.id == member.id && is_well(old));
        if was_well {
            warning("MemberUnhealthy", format!("member {}: {}", member.name, member.message));
        }
    }
    for type_ in [c::READY, c::AVAILABLE] {
        if let Some(now) = alarming(&after.conditions, type_)
            && alarming(&before.conditions, type_).is_none_or(|old| old.reason != now.reason)
            && !(type_ == c::AVAILABLE && alarming(&after.conditions, c::READY).is_some_and(|r| r.reason == now.reason))
        {
            let reason = ALARMING.iter().copied().find(|reason| *reason == now.reason).unwrap_or(reasons::QUORUM_LOST);
            warning(reason, now.message.clone());
        }
    }
    found
}

fn alarming<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_ && c.status != "True" && ALARMING.contains(&c.reason.as_str()))
}
