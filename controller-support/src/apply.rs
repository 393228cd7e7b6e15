//! Writing: server-side apply with one field manager, or a narrow patch on objects that others own.

use crate::error::{Result, ResultExt};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;

/// Applies an object of ours. Fields that we do not name are left to others.
///
/// # Errors
/// Any answer but success.
pub async fn apply<K>(api: &Api<K>, field_manager: &str, object: &K) -> Result<K>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    let name = object.meta().name.clone().unwrap_or_default();
    let parameters = PatchParams::apply(field_manager).force();
    api.patch(&name, &parameters, &Patch::Apply(object)).await.doing(|| format!("applying {name}"))
}

/// Creates an object of ours.
///
/// # Errors
/// Any answer but success, AlreadyExists among them.
pub async fn create<K>(api: &Api<K>, field_manager: &str, object: &K) -> Result<K>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    let parameters = PostParams { field_manager: Some(field_manager.to_owned()), ..PostParams::default() };
    api.create(&parameters, object).await.doing(|| format!("creating {}", object.name_any()))
}

/// Applies the whole status of an object of ours. `object` carries apiVersion, kind, name and `status` only.
///
/// # Errors
/// Any answer but success.
pub async fn apply_status<K>(api: &Api<K>, field_manager: &str, name: &str, object: &Value) -> Result<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = PatchParams::apply(field_manager).force();
    api.patch_status(name, &parameters, &Patch::Apply(object)).await.doing(|| format!("writing the status of {name}"))
}

/// Changes some fields of an object that others own. Give `metadata.resourceVersion` in the patch to have it refused
/// if the object has changed.
///
/// # Errors
/// Any answer but success.
pub async fn merge<K>(api: &Api<K>, field_manager: &str, name: &str, patch: &Value) -> Result<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = PatchParams { field_manager: Some(field_manager.to_owned()), ..PatchParams::default() };
    api.patch(name, &parameters, &Patch::Merge(patch)).await.doing(|| format!("changing {name}"))
}

/// The API of a kind that is only known at run time, in one namespace.
#[must_use]
pub fn dynamic(client: &Client, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, resource)
}
