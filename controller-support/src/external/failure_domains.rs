//! Failure domains of a Cluster: places, such as zones, that may fail as a whole. Cluster API copies them from the
//! infrastructure into the Cluster's status, as they are.

use super::string;
use serde_json::Value;
use std::collections::BTreeSet;

/// Names of the failure domains for control planes. KubeadmControlPlane does not use others either. They are a list in
/// v1beta2, and a map by name in v1beta1.
pub(super) fn read(object: &Value) -> BTreeSet<String> {
    let is_for_control_planes = |domain: &Value| domain["controlPlane"] == true;
    match object.pointer("/status/failureDomains") {
        Some(Value::Array(list)) => {
            list.iter().filter(|domain| is_for_control_planes(domain)).filter_map(|d| string(d, "/name")).collect()
        }
        Some(Value::Object(map)) => {
            let chosen = map.iter().filter(|(_, domain)| is_for_control_planes(domain));
            chosen.map(|(name, _)| name.clone()).collect()
        }
        _ => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_contracts_are_read() {
        for (what, domains, expected) in [
            ("none", json!(null), vec![]),
            (
                "v1beta2",
                json!([{"name": "b", "controlPlane": true}, {"name": "a", "controlPlane": true, "attributes": {"k": "v"}}]),
                vec!["a", "b"],
            ),
            ("v1beta2, for workers", json!([{"name": "a", "controlPlane": false}, {"name": "b"}]), vec![]),
            ("v1beta2, strange", json!([{"controlPlane": true}, {"name": "", "controlPlane": true}, "a", 1]), vec![]),
            (
                "v1beta1",
                json!({"b": {"controlPlane": true}, "a": {"controlPlane": true, "attributes": {"k": "v"}}}),
                vec!["a", "b"],
            ),
            ("v1beta1, for workers", json!({"a": {"controlPlane": false}, "b": {}}), vec![]),
            ("v1beta1, strange", json!({"a": true, "b": null}), vec![]),
            ("neither", json!("a"), vec![]),
        ] {
            let found = read(&json!({"status": {"failureDomains": domains}}));
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{what}");
        }
        assert_eq!(read(&json!({})), BTreeSet::new());
    }
}
