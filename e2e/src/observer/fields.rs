//! Which fields a patch changes, in a few words.

use serde_json::Value;
use std::collections::BTreeSet;

/// Up to this many fields are named in full. If there are more, only the parts of the object that
/// contain them are named.
const IN_FULL: usize = 4;
/// Fields that identify the object, which is named anyway.
const NAMES: [&str; 6] =
    ["apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion"];

/// The fields that a patch sets or removes. Those of a JSON patch are its paths.
pub(super) fn changed(patch: &Value) -> Vec<String> {
    let mut fields = BTreeSet::new();
    match patch {
        Value::Array(steps) => fields.extend(steps.iter().filter_map(|step| step["path"].as_str()).map(str::to_owned)),
        patch => leaves(patch, &mut Vec::new(), &mut fields),
    }
    fields.retain(|field| !NAMES.contains(&field.as_str()));
    if fields.len() > IN_FULL {
        let part = |field: &String| field.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
        fields = fields.iter().map(part).collect();
    }
    fields.into_iter().collect()
}

/// Collects every field that is not an object, by its path. A removed field is marked as such.
fn leaves<'a>(value: &'a Value, path: &mut Vec<&'a str>, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(inner) if !inner.is_empty() => {
            for (name, value) in inner {
                path.push(name);
                leaves(value, path, fields);
                path.pop();
            }
        }
        // The patch is empty, or the audit log does not have it.
        _ if path.is_empty() => {}
        Value::Null => fields.extend([format!("{} (taken away)", path.join("."))]),
        _ => fields.extend([path.join(".")]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn few_fields_are_told_in_full_and_of_many_where_they_are() {
        let hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd";
        assert_eq!(
            changed(&json!({"metadata": {"uid": "u", "annotations": {hook: null}}})),
            [format!("metadata.annotations.{hook} (taken away)")]
        );
        let endpoints = json!({"clusterConfiguration": {"etcd": {"external": {"endpoints": ["https://1:2379"]}}}});
        assert_eq!(
            changed(&json!({"spec": {"kubeadmConfigSpec": endpoints}})),
            ["spec.kubeadmConfigSpec.clusterConfiguration.etcd.external.endpoints"]
        );
        let whole = json!({
            "apiVersion": "v1", "kind": "Machine", "metadata": {"name": "m", "labels": {"a": "1", "b": "2"}},
            "spec": {"clusterName": "c", "bootstrap": {"configRef": {"kind": "k", "name": "n"}}},
        });
        assert_eq!(changed(&whole), ["metadata.labels", "spec.bootstrap", "spec.clusterName"]);
    }

    #[test]
    fn a_json_patch_names_its_paths_and_what_was_not_told_changes_nothing() {
        assert_eq!(changed(&json!([{"op": "remove", "path": "/metadata/finalizers"}])), ["/metadata/finalizers"]);
        assert!(changed(&Value::Null).is_empty());
        assert!(changed(&json!({})).is_empty());
    }
}
