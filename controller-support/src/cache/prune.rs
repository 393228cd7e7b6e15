//! What is not kept in memory, because no controller reads it from a watch.

use api::names;
use kube::api::DynamicObject;

/// Drops managed fields, and the bootstrap data of Machines: tens of kilobytes each, secret, and read live where they are
/// needed.
pub(super) fn prune(object: &mut DynamicObject) {
    object.metadata.managed_fields = None;
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
    fn only_bootstrap_data_are_dropped() {
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
        let mut machine: DynamicObject =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {}})).unwrap();
        let before = machine.clone();
        prune(&mut machine);
        assert_eq!(machine.data["spec"], before.data["spec"]);
    }
}
