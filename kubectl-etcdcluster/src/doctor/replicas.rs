//! The wanted number of members.

use super::{Finding, Installation, Subject};
use serde_json::Value;

/// The default in the CRD.
const DEFAULT: i64 = 3;

pub(super) fn check(subject: &Subject, _: &Installation) -> Vec<Finding> {
    let replicas = subject.etcd.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(DEFAULT);
    vec![match replicas {
        1 => Finding::warning(
            "one member: no failure is survived, and a member that is lost takes its data with it",
            "set spec.replicas to 3 for anything that matters",
        ),
        3 | 5 | 7 => Finding::ok(format!("{replicas} members survive {} failing", (replicas - 1) / 2)),
        other => Finding::fault(format!("spec.replicas is {other}"), "set it to 1, 3, 5 or 7"),
    }]
}
