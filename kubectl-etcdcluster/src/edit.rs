//! An edited manifest: the EtcdCluster in it, the patch that would be sent for it, and the differences between two
//! objects. Pure.

use anyhow::{Context, Result, bail};
use api::names::ETCD_CLUSTER_GROUP;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The annotation in which `kubectl apply` records what was applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Longer values are not shown.
const LONGEST: usize = 60;
/// Fields whose values may be secret.
const SECRET: [&str; 5] = ["content", "passwd", "caCert", "sshAuthorizedKeys", "secret"];

/// The documents of a file.
///
/// # Errors
/// When it is not YAML.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    let documents = serde_yaml::Deserializer::from_str(text);
    documents.map(|document| Value::deserialize(document).context("it is not YAML")).collect()
}

/// Whether an object is an EtcdCluster of this provider.
#[must_use]
pub fn is_etcd_cluster(object: &Value) -> bool {
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
    object["kind"] == "EtcdCluster" && group == Some(ETCD_CLUSTER_GROUP)
}

/// The EtcdClusters among the documents of a file.
///
/// # Errors
/// When it cannot be parsed, or has no EtcdCluster: then the error says what it has.
pub fn etcd_clusters(text: &str) -> Result<Vec<Value>> {
    let (found, others): (Vec<Value>, Vec<Value>) = documents(text)?.into_iter().partition(is_etcd_cluster);
    let others: Vec<&str> = others.iter().filter_map(|other| other["kind"].as_str()).collect();
    match (found.is_empty(), others.is_empty()) {
        (false, _) => Ok(found),
        (true, true) => bail!("it has no objects"),
        (true, false) => bail!("it has no EtcdCluster of {ETCD_CLUSTER_GROUP}; it has: {}", others.join(", ")),
    }
}

/// The patch that `kubectl apply` would send without `--server-side`: the fields of the manifest, and null for fields
/// that were applied last time and are no longer in it. Nothing if the object was never applied in that way.
#[must_use]
pub fn client_side_patch(live: &Value, manifest: &Value) -> Option<Value> {
    let last = live["metadata"]["annotations"][LAST_APPLIED].as_str()?;
    let last: Value = serde_json::from_str(last).ok()?;
    // The record always has both of these, even if the manifest did not.
    let mut manifest = manifest.clone();
    let metadata = manifest["metadata"].as_object_mut()?;
    metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    metadata.insert("namespace".to_owned(), live["metadata"]["namespace"].clone());
    Some(merge_patch(&last, &manifest))
}

fn merge_patch(last: &Value, manifest: &Value) -> Value {
    let (Value::Object(last), Value::Object(wanted)) = (last, manifest) else { return manifest.clone() };
    let gone = last.keys().filter(|name| !wanted.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let kept =
        wanted.iter().map(|(name, value)| (name.clone(), merge_patch(last.get(name).unwrap_or(&Value::Null), value)));
    Value::Object(kept.chain(gone).collect())
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its path, such as `spec.etcdadmConfigSpec.version`.
    pub path: String,
    /// Its value before, for users; nothing if it did not exist.
    pub before: Option<String>,
    /// Its value after.
    pub after: Option<String>,
}

/// The differences between two versions of an object, in spec, labels and annotations.
#[must_use]
pub fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    for pointer in ["/metadata/labels", "/metadata/annotations", "/spec"] {
        let path = pointer.trim_start_matches('/').replace('/', ".");
        compare(&path, before.pointer(pointer), after.pointer(pointer), &mut found);
    }
    found.retain(|change| !change.path.ends_with(LAST_APPLIED));
    found
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    if before == after {
        return;
    }
    let empty = Map::new();
    let fields = |value: Option<&'_ Value>| value.is_none_or(Value::is_object);
    if fields(before) && fields(after) {
        let (before, after) =
            (before.and_then(Value::as_object).unwrap_or(&empty), after.and_then(Value::as_object).unwrap_or(&empty));
        for name in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            compare(&format!("{path}.{name}"), before.get(name), after.get(name), found);
        }
        return;
    }
    let show = |value: Option<&Value>| value.map(|value| shown(path, value));
    found.push(Change { path: path.to_owned(), before: show(before), after: show(after) });
}

/// A value for users. A value that may be secret is not shown.
fn shown(path: &str, value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().any(Value::is_object) => return format!("({} entries)", items.len()),
        other => other.to_string(),
    };
    let name = path.rsplit('.').next().unwrap_or_default();
    // A proxy's URL may have a password in it.
    let is_secret = SECRET.contains(&name) || (text.contains("://") && text.contains('@'));
    match () {
        () if is_secret => "(not shown)".to_owned(),
        () if text.is_empty() => "\"\"".to_owned(),
        () if text.chars().count() > LONGEST || text.contains('\n') => "(long)".to_owned(),
        () => text,
    }
}

impl Change {
    /// The change as a line.
    #[must_use]
    pub fn describe(&self) -> String {
        match (&self.before, &self.after) {
            (None, Some(after)) => format!("{}: set to {after}", self.path),
            (Some(before), None) => format!("{}: {before} is removed", self.path),
            (Some(before), Some(after)) if before == after => format!("{}: changed", self.path),
            (before, after) => {
                let text = |value: &Option<String>| value.clone().unwrap_or_default();
                format!("{}: {} → {}", self.path, text(before), text(after))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_etcd_cluster_is_found_among_others() {
        let text = "kind: Cluster\napiVersion: cluster.x-k8s.io/v1beta2\n---\nkind: EtcdCluster\napiVersion: etcdcluster.cluster.x-k8s.io/v1beta1\nmetadata: {name: a}\n---\nkind: EtcdCluster\napiVersion: operator.etcd.io/v1alpha1\n";
        let found = etcd_clusters(text).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["metadata"]["name"], "a");
        let error = etcd_clusters("kind: Cluster\napiVersion: cluster.x-k8s.io/v1beta2\n").unwrap_err().to_string();
        assert!(error.ends_with("it has: Cluster"), "{error}");
        assert!(etcd_clusters("").unwrap_err().to_string().contains("no objects"));
        assert!(etcd_clusters("a: [").is_err());
    }

    #[test]
    fn what_is_no_longer_in_the_manifest_is_taken_away_as_kubectl_does() {
        let config = json!({"version": "3.6.16", "etcd": {"snapshotCount": 1}});
        let metadata = json!({"name": "a", "namespace": "default", "annotations": {}});
        let last = json!({"metadata": metadata, "spec": {"replicas": 3, "etcdadmConfigSpec": config}});
        let annotations = json!({LAST_APPLIED: last.to_string(), "written-by": "the controller"});
        let live = json!({"metadata": {"namespace": "default", "annotations": annotations}, "spec": last["spec"]});
        let spec = json!({"replicas": 3, "etcdadmConfigSpec": {"version": "3.6.17"}});
        let manifest = json!({"metadata": {"name": "a"}, "spec": spec});
        let patch = client_side_patch(&live, &manifest).unwrap();
        assert_eq!(patch["spec"]["etcdadmConfigSpec"], json!({"version": "3.6.17", "etcd": null}));
        assert_eq!(patch["metadata"], metadata, "annotations of others stay");
        assert_eq!(client_side_patch(&json!({"metadata": {}}), &manifest), None, "it was never applied so");
    }

    #[test]
    fn changes_name_the_field_and_hide_what_may_be_secret() {
        let before = json!({
            "metadata": {"annotations": {"a": "1", LAST_APPLIED: "x"}},
            "spec": {"replicas": 3, "etcdadmConfigSpec": {"version": "3.6.16", "files": [{"path": "/a", "content": "s3cret"}],
                "proxy": {"httpProxy": "http://me:s3cret@proxy"}, "preEtcdadmCommands": ["a"]}}
        });
        let mut after = before.clone();
        after["metadata"]["annotations"] = json!({LAST_APPLIED: "y"});
        after["spec"]["replicas"] = json!(5);
        let config = &mut after["spec"]["etcdadmConfigSpec"];
        config["files"][0]["content"] = json!("other s3cret");
        config["proxy"]["httpProxy"] = json!("http://me:s3cret@other");
        config["preEtcdadmCommands"] = json!(["a", "b"]);
        config["etcd"] = json!({"snapshotCount": 5000});
        let lines: Vec<String> = changes(&before, &after).iter().map(Change::describe).collect();
        assert_eq!(
            lines,
            [
                "metadata.annotations.a: 1 is removed",
                "spec.etcdadmConfigSpec.etcd.snapshotCount: set to 5000",
                "spec.etcdadmConfigSpec.files: changed",
                "spec.etcdadmConfigSpec.preEtcdadmCommands: [\"a\"] → [\"a\",\"b\"]",
                "spec.etcdadmConfigSpec.proxy.httpProxy: changed",
                "spec.replicas: 3 → 5",
            ]
        );
        assert!(changes(&before, &before).is_empty());
    }
}
