//! Applies documents as `kubectl apply --server-side` does.

use anyhow::{Context, Result};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;

/// Field manager of what scenarios apply.
pub const FIELD_MANAGER: &str = "e2e";

/// Applies every document of `yaml` in order, and returns the objects as the server then has them.
///
/// Namespaced objects that name no namespace go to `default`.
///
/// # Errors
/// At the first document that cannot be read, whose kind the server does not know, or that the server refuses. The
/// earlier ones stay applied.
pub async fn apply(client: &Client, yaml: &str) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for document in documents(yaml)? {
        applied.push(apply_object(client, &document).await?);
    }
    Ok(applied)
}

/// Applies one object, as [`apply`] does.
///
/// # Errors
/// As for [`apply`].
pub async fn apply_object(client: &Client, object: &Value) -> Result<DynamicObject> {
    let (api, name) = api_for(client, object).await?;
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(object)).await.with_context(|| format!("apply {}", describe(object)))
}

/// The API of `object`'s kind and namespace, and its name.
///
/// # Errors
/// When `object` lacks `apiVersion`, `kind` or `metadata.name`, or the server does not know the kind.
pub async fn api_for(client: &Client, object: &Value) -> Result<(Api<DynamicObject>, String)> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let api_version = text("/apiVersion").with_context(|| format!("{}: no apiVersion", describe(object)))?;
    let kind = text("/kind").with_context(|| format!("{}: no kind", describe(object)))?;
    let name = text("/metadata/name").with_context(|| format!("{}: no metadata.name", describe(object)))?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (resource, capabilities) = pinned_kind(client, &GroupVersionKind::gvk(group, version, kind))
        .await
        .with_context(|| format!("{}: the server does not know {api_version} {kind}", describe(object)))?;
    let api = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            Api::namespaced_with(client.clone(), text("/metadata/namespace").unwrap_or("default"), &resource)
        }
    };
    Ok((api, name.to_owned()))
}

/// The documents of a YAML stream, without the empty ones.
///
/// # Errors
/// When one is not YAML.
pub fn documents(yaml: &str) -> Result<Vec<Value>> {
    let mut documents = Vec::new();
    for (index, document) in serde_yaml::Deserializer::from_str(yaml).enumerate() {
        let value = Value::deserialize(document).with_context(|| format!("document {} is not YAML", index + 1))?;
        if !value.is_null() {
            documents.push(value);
        }
    }
    Ok(documents)
}

fn describe(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object");
    match (text("/metadata/namespace"), text("/metadata/name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        _ => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_documents_are_skipped() {
        let found = documents("---\n# nothing\n---\nkind: A\n---\nkind: B\n").unwrap();
        assert_eq!(found.iter().map(|value| value["kind"].as_str().unwrap()).collect::<Vec<_>>(), ["A", "B"]);
    }
}
