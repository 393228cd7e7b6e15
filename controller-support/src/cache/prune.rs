//! What is not kept in memory, because no controller reads it from a watch.

use api::names;
use kube::api::DynamicObject;
use serde_json::Value;

/// Fields in the status of Cluster API's objects: a copy of the conditions of an earlier contract, and what the Node of
/// a Machine runs. Every Machine is watched, including those of workers.
const UNREAD: [&str; 2] = ["deprecated", "nodeInfo"];

/// Drops managed fields, [`UNREAD`] fields, and the bootstrap data of Machines. Bootstrap data takes tens of kilobytes
/// for each Machine, is secret, and is read live where it is needed.
pub(super) fn prune(object: &mut DynamicObject) {
    object.metadata.managed_fields = None;
    if let Some(status) = object.data.get_mut("status").and_then(Value::as_object_mut) {
        for field in UNREAD {
            status.remove(field);
        }
    }
    if object.data["type"] == names::CLUSTER_SECRET_TYPE
        && let Some(data) = object.data["data"].as_object_mut()
    {
        data.remove("value");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_secrets_only_bootstrap_data_are_dropped() {
        let pruned = |type_: &str| {
            let data = json!({"value": "aGVsbG8=", "format": "Y2xvdWQtY29uZmln"});
            let mut secret: DynamicObject = serde_json::from_value(json!({
                "metadata": {"name": "a", "managedFields": [{"manager": "m"}]}, "type": type_, "data": data,
            }))
            .unwrap();
            prune(&mut secret);
            assert_eq!(secret.metadata.managed_fields, None);
            secret.data["data"].clone()
        };
        assert_eq!(pruned(names::CLUSTER_SECRET_TYPE), json!({"format": "Y2xvdWQtY29uZmln"}));
        assert_eq!(pruned("Opaque"), json!({"value": "aGVsbG8=", "format": "Y2xvdWQtY29uZmln"}));
    }

    #[test]
    fn of_a_machine_all_is_kept_that_is_read() {
        let status = json!({"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}], "conditions": [
            {"type": "Ready", "status": "True"}], "v1beta2": {"conditions": []}, "nodeRef": {"name": "n"}});
        let mut machine: DynamicObject = serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"l": "v"}}, "spec": {"clusterName": "demo"}, "status": status,
        }))
        .unwrap();
        let before = machine.clone();
        prune(&mut machine);
        assert_eq!(machine, before);
        machine.data["status"]["nodeInfo"] = json!({"kernelVersion": "6.12"});
        machine.data["status"]["deprecated"] = json!({"v1beta1": {"conditions": []}});
        prune(&mut machine);
        assert_eq!(machine, before);
    }
}
