//! What a Machine says of itself, beyond what its view has.

use api::conditions::{MACHINE_READY, MACHINE_UP_TO_DATE};
use api::etcd_cluster::MachineDeletion;
use kube::api::DynamicObject;
use serde_json::Value;

/// What one Machine says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its condition `UpToDate`, if it has one.
    pub up_to_date: Option<bool>,
    /// Its condition `Ready`, if it has one.
    pub ready: Option<Ready>,
    /// How long Cluster API tries to drain and delete its Node.
    pub deletion_timeouts: MachineDeletion,
}

/// The condition `Ready` of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// `Some(true)` is True, `Some(false)` is False, `None` is Unknown.
    pub status: Option<bool>,
    /// Why.
    pub message: String,
}

impl Shown {
    /// Reads a Machine of version v1beta2. Of an earlier one, timeouts are not read: they are not changed there either.
    #[must_use]
    pub fn read(machine: &DynamicObject) -> Self {
        let conditions = machine.data.pointer("/status/conditions").and_then(Value::as_array);
        let condition = |type_: &str| conditions.into_iter().flatten().find(|found| found["type"] == type_);
        let status = |found: &Value| match found["status"].as_str() {
            Some("True") => Some(true),
            Some("False") => Some(false),
            _ => None,
        };
        let ready = |found: &Value| Ready {
            status: status(found),
            message: found["message"].as_str().unwrap_or_default().to_owned(),
        };
        let seconds = |field: &str| {
            let seconds = machine.data.pointer(&format!("/spec/deletion/{field}"))?.as_i64()?;
            i32::try_from(seconds).ok()
        };
        Self {
            up_to_date: condition(MACHINE_UP_TO_DATE).map(|found| status(found) == Some(true)),
            ready: condition(MACHINE_READY).map(ready),
            deletion_timeouts: MachineDeletion {
                node_drain_timeout_seconds: seconds("nodeDrainTimeoutSeconds"),
                node_volume_detach_timeout_seconds: seconds("nodeVolumeDetachTimeoutSeconds"),
                node_deletion_timeout_seconds: seconds("nodeDeletionTimeoutSeconds"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_machine_says_is_read() {
        let machine: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "demo-etcd-0"},
            "spec": {"deletion": {"nodeDrainTimeoutSeconds": 60, "nodeDeletionTimeoutSeconds": 10}},
            "status": {"conditions": [{"type": "UpToDate", "status": "False"},
                {"type": "Ready", "status": "Unknown", "message": "* NodeHealthy: Waiting for a Node"}]}
        }))
        .unwrap();
        let shown = Shown::read(&machine);
        assert_eq!(shown.up_to_date, Some(false));
        let message = "* NodeHealthy: Waiting for a Node".to_owned();
        assert_eq!(shown.ready, Some(Ready { status: None, message }));
        let timeouts = MachineDeletion {
            node_drain_timeout_seconds: Some(60),
            node_volume_detach_timeout_seconds: None,
            node_deletion_timeout_seconds: Some(10),
        };
        assert_eq!(shown.deletion_timeouts, timeouts);
        let bare: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "demo-etcd-0"}})).unwrap();
        assert_eq!(Shown::read(&bare), Shown::default());
    }
}
