//! Replaces what differs from run to run.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Fields that depend on the history of an object, and not on its state.
const HISTORY: [&str; 6] =
    ["resourceVersion", "generation", "observedGeneration", "managedFields", "creationTimestamp", "databaseSizeBytes"];
/// Fields that depend on chance: any voter may lead.
const CHANCE: [&str; 1] = ["leader"];

/// Texts that occur in one run only, and what they stand for. The longest come first.
pub(super) struct Names(Vec<(String, String)>);

impl Names {
    /// The texts in the objects of a namespace.
    pub(super) fn in_objects(namespace: &str, objects: &[(&str, Value)]) -> Self {
        let mut names = vec![(namespace.to_owned(), "<namespace>".to_owned())];
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        for (kind, object) in objects {
            let name = text(&object["metadata"]["name"]).unwrap_or_default();
            let mut put = |value: &Value, of: String| names.extend(text(value).map(|value| (value, of)));
            put(&object["metadata"]["uid"], format!("<uid of {kind} {name}>"));
            for address in object["status"]["addresses"].as_array().into_iter().flatten() {
                if address["address"] != object["metadata"]["name"] {
                    put(&address["address"], format!("<address of {name}>"));
                }
            }
            if *kind == "LocalCluster" {
                put(&object["spec"]["controlPlaneEndpoint"]["host"], "<control plane's address>".to_owned());
            }
            if *kind == "EtcdCluster" {
                put(&object["status"]["clusterID"], "<cluster ID>".to_owned());
                for member in object["status"]["members"].as_array().into_iter().flatten() {
                    put(&member["id"], format!("<ID of member {}>", member["name"].as_str().unwrap_or_default()));
                }
            }
            // The only generated name is that of the control plane's Machine.
            let labels = &object["metadata"]["labels"];
            if *kind == "Machine" && labels.get("cluster.x-k8s.io/control-plane").is_some() {
                names.push((name, "<control-plane machine>".to_owned()));
            }
        }
        names.sort_by_key(|(text, _)| Reverse(text.len()));
        Self(names)
    }

    /// A text, with what differs from run to run replaced.
    pub(super) fn replace(&self, text: &str) -> String {
        let replaced = self.0.iter().fold(text.to_owned(), |text, (name, of)| text.replace(name, of));
        if replaced.parse::<Timestamp>().is_ok() {
            return "<time>".to_owned();
        }
        // Lists of endpoints are sorted by address, and addresses differ from run to run.
        let mut parts: Vec<&str> = replaced.split(',').collect();
        parts.sort_unstable();
        parts.join(",")
    }

    /// A value, with what differs from run to run replaced or left out.
    pub(super) fn normal(&self, value: Value) -> Value {
        match value {
            Value::String(text) => match written(&text) {
                Some(value) => self.normal(value),
                None => Value::String(self.replace(&text)),
            },
            Value::Array(values) => {
                let mut values: Vec<Value> = values.into_iter().map(|value| self.normal(value)).collect();
                if values.iter().all(Value::is_string) {
                    values.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
                }
                Value::Array(values)
            }
            Value::Object(fields) => {
                let kept = fields
                    .into_iter()
                    .filter(|(key, _)| !HISTORY.contains(&key.as_str()) && !CHANCE.contains(&key.as_str()))
                    .map(|(key, value)| (self.replace(&key), self.normal(value)));
                Value::Object(kept.collect::<Map<_, _>>())
            }
            other => other,
        }
    }
}

/// The object or list that a text contains, as some annotations do.
fn written(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(|value: &Value| value.is_object() || value.is_array())
}

/// Adds every path at which two values differ.
pub(super) fn differences(found: &mut Vec<String>, path: &str, have: &Value, want: &Value) {
    match (have, want) {
        (Value::Object(have), Value::Object(want)) => {
            let keys: BTreeSet<&String> = have.keys().chain(want.keys()).collect();
            for key in keys {
                let (have, want) = (have.get(key).unwrap_or(&Value::Null), want.get(key).unwrap_or(&Value::Null));
                differences(found, &format!("{path}/{key}"), have, want);
            }
        }
        (Value::Array(have), Value::Array(want)) if have.len() == want.len() => {
            for (index, (have, want)) in have.iter().zip(want).enumerate() {
                differences(found, &format!("{path}/{index}"), have, want);
            }
        }
        _ if have == want => {}
        _ => found.push(format!("{path}: {have}, and not {want}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(namespace: &str, uid: &str, address: &str, id: &str, time: &str) -> Value {
        let machine = json!({
            "metadata": {"name": "m-0", "uid": uid, "namespace": namespace, "resourceVersion": time},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        });
        let wrote = json!({"at": time, "endpoints": [format!("https://{address}:2379")]}).to_string();
        let annotations = json!({"at": format!("https://{address}:2379"), "wrote": wrote});
        let etcd = json!({
            "metadata": {"ownerReferences": [{"uid": uid}], "annotations": annotations},
            "status": {"members": [{"name": "m-0", "id": id, "leader": true, "healthySince": time}]},
        });
        let names = Names::in_objects(namespace, &[("LocalMachine", machine), ("EtcdCluster", etcd.clone())]);
        names.normal(etcd)
    }

    #[test]
    fn two_runs_are_alike_and_a_difference_has_its_path() {
        let one = run("a-1", "0aa7", "10.77.0.12", "8e9e", "2026-11-22T08:00:00Z");
        let other = run("b-22", "11c3", "10.77.0.7", "91bc", "2026-11-22T09:11:12Z");
        assert_eq!(one, other);
        let mut changed = other;
        changed["metadata"]["annotations"]["at"] = json!("https://10.77.9.9:2379");
        let mut found = Vec::new();
        differences(&mut found, "E ", &one, &changed);
        let wanted =
            "E /metadata/annotations/at: \"https://<address of m-0>:2379\", and not \"https://10.77.9.9:2379\"";
        assert_eq!(found, [wanted]);
    }
}
