//! The status of a control plane, as Cluster API's contract v1beta2 for control planes defines it.

use super::rollout::Known;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// The status of a control plane that has observed this generation of its spec and has these API servers. `before` is
/// its last status.
pub(super) fn status(generation: i64, servers: &[Known], before: &Value, now: Timestamp) -> Value {
    let ready = servers.iter().filter(|server| server.ready).count();
    let up_to_date = servers.iter().filter(|server| !server.old).count();
    let was_initialized = before.pointer("/initialization/controlPlaneInitialized") == Some(&json!(true));
    let how_far = format!("{up_to_date} of {} API servers are up to date", servers.len());
    let how_many = format!("{ready} of {} API servers are ready", servers.len());
    let rolls = up_to_date < servers.len();
    let available = if ready > 0 { "Available" } else { "NotAvailable" };
    let rolling_out = if rolls { "RollingOut" } else { "NotRollingOut" };
    json!({
        "observedGeneration": generation,
        "initialization": {"controlPlaneInitialized": was_initialized || ready > 0},
        // There are no Nodes.
        "externalManagedControlPlane": true,
        "replicas": servers.len(),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "upToDateReplicas": up_to_date,
        "conditions": [
            condition(before, "Available", ready > 0, available, &how_many, now),
            condition(before, "RollingOut", rolls, rolling_out, &how_far, now),
        ],
    })
}

/// A condition. Its time changes only with its status.
fn condition(before: &Value, type_: &str, is_true: bool, reason: &str, message: &str, now: Timestamp) -> Value {
    let status = if is_true { "True" } else { "False" };
    let mut known = before["conditions"].as_array().into_iter().flatten();
    let same = known.find(|condition| condition["type"] == type_ && condition["status"] == status);
    let since = same.map_or_else(|| json!(now), |condition| condition["lastTransitionTime"].clone());
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_and_a_condition_keeps_its_time_until_it_changes() {
        let at = |time: &str| time.parse::<Timestamp>().unwrap();
        let (old, new, down) =
            (Known { old: true, ready: true }, Known { old: false, ready: true }, Known { old: false, ready: false });
        let none = status(1, &[down], &Value::Null, at("2026-01-01T00:00:00Z"));
        assert_eq!(none["initialization"]["controlPlaneInitialized"], false);
        let up = status(1, &[new], &none, at("2026-01-01T00:00:01Z"));
        let rolls = status(2, &[old, down], &up, at("2026-01-01T00:00:02Z"));
        assert_eq!(
            (&rolls["replicas"], &rolls["readyReplicas"], &rolls["upToDateReplicas"], &rolls["observedGeneration"]),
            (&json!(2), &json!(1), &json!(1), &json!(2))
        );
        let times = |status: &Value| {
            let conditions = status["conditions"].as_array().unwrap();
            conditions.iter().map(|it| it["lastTransitionTime"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(times(&rolls), ["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"]);
        assert_eq!(rolls["conditions"][1]["message"], "1 of 2 API servers are up to date");
        let down_again = status(2, &[down], &rolls, at("2026-01-01T00:00:03Z"));
        assert_eq!(down_again["initialization"]["controlPlaneInitialized"], true);
    }
}
