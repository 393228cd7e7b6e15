//! Every object of an API server as YAML, in one file for each kind. Of Secrets, only the names of their values are
//! kept.

use super::{make_directory, write_file};
use anyhow::{Context, Result, ensure};
use kube::api::{DynamicObject, ListParams};
use kube::core::TypeMeta;
use kube::discovery::{ApiResource, Discovery, verbs};
use kube::{Api, Client};
use serde_json::Value;
use std::path::Path;

/// API groups that are left out. CRDs are longer than everything else, and are files of releases; events are in the
/// core group too.
const LEFT_OUT: [&str; 2] = ["apiextensions.k8s.io", "events.k8s.io"];
/// This annotation contains a whole manifest as it was applied, including the values of a Secret.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What replaces the value of a Secret.
const HIDDEN: &str = "(not shown)";

/// Writes all objects below a directory.
///
/// # Errors
/// When the kinds cannot be listed, or with all kinds whose objects could not be written.
pub(super) async fn write(client: &Client, directory: &Path) -> Result<()> {
    make_directory(directory)?;
    let discovery =
        Discovery::new(client.clone()).exclude(&LEFT_OUT).run().await.context("ask what kinds there are")?;
    let mut missing = Vec::new();
    for (kind, capabilities) in discovery.groups().flat_map(|group| group.recommended_resources()) {
        if capabilities.supports_operation(verbs::LIST)
            && let Err(error) = write_kind(client, &kind, directory).await
        {
            missing.push(format!("{}: {error:#}", kind.plural));
        }
    }
    ensure!(missing.is_empty(), "{}", missing.join("; "));
    Ok(())
}

/// Writes the objects of a kind, if there are any.
async fn write_kind(client: &Client, kind: &ApiResource, directory: &Path) -> Result<()> {
    let objects = Api::<DynamicObject>::all_with(client.clone(), kind).list(&ListParams::default()).await?.items;
    if objects.is_empty() {
        return Ok(());
    }
    let documents = objects.into_iter().map(|object| document(kind, object)).collect::<Result<String>>()?;
    write_file(&directory.join(file_name(kind)), documents)
}

/// The name that `kubectl get` takes: `machines.cluster.x-k8s.io.yaml`, `secrets.yaml`.
fn file_name(kind: &ApiResource) -> String {
    match kind.group.as_str() {
        "" => format!("{}.yaml", kind.plural),
        group => format!("{}.{group}.yaml", kind.plural),
    }
}

fn document(kind: &ApiResource, mut object: DynamicObject) -> Result<String> {
    // Items of a list often lack their type.
    object.types = Some(TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() });
    object.metadata.managed_fields = None;
    let mut value = serde_json::to_value(object)?;
    if kind.group.is_empty() && kind.kind == "Secret" {
        hide_values(&mut value);
    }
    Ok(format!("---\n{}", serde_yaml::to_string(&value)?))
}

fn hide_values(secret: &mut Value) {
    for field in ["data", "stringData"] {
        let values = secret.get_mut(field).and_then(Value::as_object_mut).into_iter();
        for value in values.flat_map(|values| values.values_mut()) {
            *value = Value::from(HIDDEN);
        }
    }
    if let Some(annotations) = secret.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::GroupVersionKind;
    use serde_json::json;

    fn shown(group: &str, kind: &str, object: &Value) -> Value {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let text = document(&kind, serde_json::from_value(object.clone()).unwrap()).unwrap();
        assert!(!text.contains("c2VjcmV0"), "{text}");
        assert!(text.starts_with("---\n"), "{text}");
        serde_yaml::from_str(&text).unwrap()
    }

    #[test]
    fn of_a_secret_the_names_of_its_values_are_told_and_nothing_more() {
        let secret = json!({
            "metadata": {
                "name": "demo-managed-etcd",
                "labels": {"a": "b"},
                "annotations": {LAST_APPLIED: "{\"data\":{\"tls.key\":\"c2VjcmV0\"}}", "c": "d"},
                "managedFields": [{"manager": "us"}],
            },
            "type": "Opaque",
            "data": {"tls.crt": "c2VjcmV0", "tls.key": "c2VjcmV0"},
        });
        let wanted = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "demo-managed-etcd", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "type": "Opaque",
            "data": {"tls.crt": HIDDEN, "tls.key": HIDDEN},
        });
        assert_eq!(shown("", "Secret", &secret), wanted);
    }

    #[test]
    fn everything_else_is_told_as_it_is() {
        let map = json!({"metadata": {"name": "a"}, "data": {"key": "value"}});
        let mut wanted = map.clone();
        wanted["apiVersion"] = json!("v1");
        wanted["kind"] = json!("ConfigMap");
        assert_eq!(shown("", "ConfigMap", &map), wanted);
        // A kind of this name in another group is not the Secret of Kubernetes.
        let other = json!({"metadata": {"name": "a"}, "data": {"key": "value"}});
        assert_eq!(shown("example.org", "Secret", &other)["data"], json!({"key": "value"}));
    }

    #[test]
    fn files_are_called_after_the_kind_and_its_group() {
        let name =
            |group: &str, kind: &str| file_name(&ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1beta2", kind)));
        assert_eq!(name("cluster.x-k8s.io", "Machine"), "machines.cluster.x-k8s.io.yaml");
        assert_eq!(name("", "Secret"), "secrets.yaml");
    }
}
