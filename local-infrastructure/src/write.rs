//! How objects of ours are written.

use crate::crd::{FIELD_MANAGER, FINALIZER};
use controller_support::{
    Error, Result, ResultExt, WriteCache,
    apply::{self, StatusWrite},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::fmt::Debug;

/// A kind of ours.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned> Kind for K {}

/// Applies everything of ours outside the status: the finalizer, and one field of the spec. The uid makes sure that an object
/// that is gone is not made again.
///
/// # Errors
/// If the API server refuses it.
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

/// Applies the status over the version that it was computed from, and remembers the answer. Whether the object is still
/// there.
///
/// # Errors
/// [`Error::NotReady`] if somebody else has changed the object: everything is decided again. Or if the API server
/// refuses it.
pub(crate) async fn write_status<K: Kind>(
    client: &Client,
    written: &WriteCache<K>,
    object: &K,
    status: &impl Serialize,
) -> Result<bool> {
    match apply::write_status(&api(client, object), FIELD_MANAGER, object, status).await? {
        StatusWrite::Written(answer) => {
            written.remember(*answer);
            Ok(true)
        }
        StatusWrite::Gone => Ok(false),
        StatusWrite::Outdated => {
            // A restore of the management cluster may have undone what is remembered.
            written.forget(&object.uid().unwrap_or_default());
            Err(Error::NotReady(format!("the {} has changed meanwhile; deciding again", K::kind(&()))))
        }
    }
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
