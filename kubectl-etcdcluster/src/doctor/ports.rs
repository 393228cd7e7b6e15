//! What is known of the ports 2379 and 2380. This program sends nothing to machines: it may be anywhere.

use super::{Finding, Installation, Subject};
use serde_json::Value;

pub(super) fn check(subject: &Subject, _: &Installation) -> Vec<Finding> {
    let members = subject.live.as_ref().and_then(|live| live.pointer("/status/members")?.as_array());
    let all: Vec<&Value> = members.into_iter().flatten().collect();
    let healthy = all.iter().filter(|member| member["health"] == "Healthy").count();
    let mut found = match (all.len(), healthy) {
        (0, _) => vec![Finding::unseen(
            "no member has answered yet; this program did not look",
            "the manager and the control plane have to reach port 2379 of etcd's machines, and these each other at 2380",
        )],
        (members, healthy) if members == healthy => {
            vec![Finding::ok(format!("2379: the manager reaches all {members} members, by their status"))]
        }
        (members, healthy) => vec![Finding::warning(
            format!("2379: {healthy} of {members} members answer the manager, by their status"),
            "kubectl etcdcluster why NAME has what the others said",
        )],
    };
    if !all.is_empty() {
        found.push(Finding::unseen("2380, and the way from the control plane to 2379: this program did not look", ""));
    }
    found
}
