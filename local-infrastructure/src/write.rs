//! Writes of our objects.

use crate::crd::{FIELD_MANAGER, FINALIZER};
use controller_support::{Result, ResultExt, WriteCache, apply};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::fmt::Debug;

/// One of our kinds.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned> Kind for K {}

/// Applies all that we own outside the status: the finalizer, and one field of the spec. The UID makes sure that a
/// deleted object is not created again.
///
/// # Errors
/// If the API server refuses the write.
pub(crate) async fn write<K: Kind>(
    client: &Client,
    object: &K,
    finalizer: bool,
    (field, value): (&str, Option<impl Serialize>),
) -> Result<K> {
    let name = object.name_any();
    let mut desired = ours(object);
    desired["spec"] = json!({});
    if finalizer {
        desired["metadata"]["finalizers"] = json!([FINALIZER]);
    }
    if let Some(value) = value {
        desired["spec"][field] = json!(value);
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let answer = api(client, object).patch(&name, &parameters, &Patch::Apply(&desired)).await;
    answer.doing(|| format!("applying {} {name}", K::kind(&())))
}

/// Applies the status to the version that it was computed from, and remembers the answer. Returns whether the object
/// still exists.
///
/// # Errors
/// The same as for [`apply::write_remembered_status`].
pub(crate) async fn write_status<K: Kind>(
    client: &Client,
    written: &WriteCache<K>,
    object: &K,
    status: &impl Serialize,
) -> Result<bool> {
    apply::write_remembered_status(&api(client, object), FIELD_MANAGER, written, object, status).await
}

fn ours<K: Kind>(object: &K) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": object.name_any(), "uid": object.uid()},
    })
}

fn api<K: Kind>(client: &Client, object: &K) -> Api<K> {
    Api::namespaced(client.clone(), &object.namespace().unwrap_or_default())
}
