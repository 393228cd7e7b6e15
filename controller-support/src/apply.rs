//! Writes: server-side apply with one field manager, or a narrow patch of objects that others own. Any answer other
//! than success is an error, unless a function says otherwise.

use crate::error::{Error, Result, ResultExt};
use crate::write_cache::WriteCache;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions, TypeMeta,
};
use kube::discovery::ApiResource;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::time::Duration;

/// The delay after a write that was refused because the object has changed. The watch is about to report the change.
pub const CATCH_UP: Duration = Duration::from_millis(200);

/// Applies an object of ours. Fields that we do not set are left to others.
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
/// Any answer other than success, including AlreadyExists.
pub async fn create<K>(api: &Api<K>, field_manager: &str, object: &K) -> Result<K>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    let parameters = PostParams { field_manager: Some(field_manager.to_owned()), ..PostParams::default() };
    api.create(&parameters, object).await.doing(|| format!("creating {}", object.name_any()))
}

/// Applies a status. `object` carries apiVersion, kind, name and `status` only. For an object of ours see
/// [`write_status`].
pub async fn apply_status<K>(api: &Api<K>, field_manager: &str, name: &str, object: &Value) -> Result<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = PatchParams::apply(field_manager).force();
    api.patch_status(name, &parameters, &Patch::Apply(object)).await.doing(|| format!("writing the status of {name}"))
}

/// The outcome of [`write_status`].
#[derive(Clone, Debug)]
pub enum StatusWrite<K> {
    /// It is written; this is the object now.
    Written(Box<K>),
    /// Nothing is written: the object is no longer the one, or the version, that the status was computed from. Read it
    /// again, and decide again.
    Outdated,
    /// The object is gone.
    Gone,
}

/// Applies the whole status of `read`, an object of ours, if the object still has the version that the status was
/// computed from. So a process that is behind cannot restore an older status.
///
/// # Errors
/// Any answer other than success, a conflict, or that the object is gone.
pub async fn write_status<K>(
    api: &Api<K>,
    field_manager: &str,
    read: &K,
    status: &impl Serialize,
) -> Result<StatusWrite<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    match apply_status(api, field_manager, &read.name_any(), &status_of(read, status)).await {
        Ok(answer) => Ok(StatusWrite::Written(Box::new(answer))),
        Err(error) if error.is_conflict() => Ok(StatusWrite::Outdated),
        Err(error) if error.is_not_found() => Ok(StatusWrite::Gone),
        Err(error) => Err(error),
    }
}

/// Does the same for a controller that remembers what it writes. Returns whether the object still exists.
///
/// # Errors
/// [`Error::NotReady`] if somebody else has changed the object: everything is decided again. As [`write_status`]
/// otherwise.
pub async fn write_remembered_status<K>(
    api: &Api<K>,
    field_manager: &str,
    written: &WriteCache<K>,
    read: &K,
    status: &impl Serialize,
) -> Result<bool>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    match write_status(api, field_manager, read, status).await? {
        StatusWrite::Written(answer) => written.remember(*answer),
        StatusWrite::Gone => return Ok(false),
        StatusWrite::Outdated => {
            read_after_conflict(api, written, read).await;
            return Err(has_changed::<K>());
        }
    }
    Ok(true)
}

/// Reads an object after the API server has refused a write because the object has changed, and remembers it in place of
/// what was remembered. So the next decision is made from its present state. A watch may lag far behind if the API
/// server has much to do. Until it has caught up, each further write would only be refused, and be more work for the API
/// server.
///
/// The reconcile must end, and not write to the object any more: what it would write was not decided from what is
/// remembered now.
pub async fn read_after_conflict<K>(api: &Api<K>, written: &WriteCache<K>, read: &K)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let (kind, name, uid) = (K::kind(&()), read.name_any(), read.uid().unwrap_or_default());
    // A restore of the management cluster may have undone what is remembered.
    written.forget(&uid);
    match api.get_opt(&name).await {
        Ok(Some(live)) if live.uid().as_ref() == Some(&uid) => written.remember_read(live),
        // The watch is about to report that it is gone.
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "{kind} {name} was not read after a conflict"),
    }
}

/// The error of a reconcile that ends because another writer has changed the object: everything is decided again.
#[must_use]
pub fn has_changed<K: Resource<DynamicType = ()>>() -> Error {
    Error::NotReady(format!("the {} has changed meanwhile; deciding again", K::kind(&())))
}

/// A status with the UID, so that a later object of the same name does not get it, and with the resource version.
fn status_of<K: Resource<DynamicType = ()>>(read: &K, status: &impl Serialize) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": read.name_any(), "uid": read.uid(), "resourceVersion": read.resource_version()},
        "status": status,
    })
}

/// Changes some fields of an object that others own. Give `metadata.resourceVersion` in the patch to have it refused
/// if the object has changed.
pub async fn merge<K>(api: &Api<K>, field_manager: &str, name: &str, patch: &Value) -> Result<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = PatchParams { field_manager: Some(field_manager.to_owned()), ..PatchParams::default() };
    api.patch(name, &parameters, &Patch::Merge(patch)).await.doing(|| format!("changing {name}"))
}

/// A dry run of [`merge`]: returns the object as it would become, and changes nothing.
pub async fn try_merge<K>(api: &Api<K>, field_manager: &str, name: &str, patch: &Value) -> Result<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    let field_manager = Some(field_manager.to_owned());
    let parameters = PatchParams { dry_run: true, field_manager, ..PatchParams::default() };
    api.patch(name, &parameters, &Patch::Merge(patch)).await.doing(|| format!("trying to change {name}"))
}

/// Deletes an object with background propagation, if the preconditions are met. Returns the object if it stays for a
/// while.
///
/// # Errors
/// Any answer other than success, including a conflict and an object that is gone.
pub async fn delete(
    api: &Api<DynamicObject>,
    kind: &str,
    name: &str,
    conditions: Preconditions,
) -> Result<Option<DynamicObject>> {
    let answer = api.delete(name, &DeleteParams::background().preconditions(conditions)).await;
    Ok(answer.doing(|| format!("deleting {kind} {name}"))?.left())
}

/// The API of a kind that is only known at run time, in one namespace.
#[must_use]
pub fn dynamic(client: &Client, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, resource)
}

/// Reads an object live, by a list with a single name. This needs no permission beyond those of a watch. If the version
/// is not served, a list fails, whereas a get would answer as if the object were gone.
///
/// # Errors
/// When the API server does not answer with a list.
pub async fn get_live(
    client: &Client,
    resource: &ApiResource,
    namespace: &str,
    name: &str,
) -> Result<Option<DynamicObject>> {
    let one = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = dynamic(client, resource, namespace).list(&one).await;
    let mut found = found.doing(|| format!("reading {} {namespace}/{name}", resource.kind))?;
    Ok(found.items.pop().map(|mut object| {
        // An object in a list has no `apiVersion` and `kind`.
        let (api_version, kind) = (resource.api_version.clone(), resource.kind.clone());
        object.types.get_or_insert(TypeMeta { api_version, kind });
        object
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use std::convert::Infallible;

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}})).unwrap()
    }

    #[tokio::test]
    async fn a_status_for_another_version_is_told_and_is_no_error() {
        let written = async |code: u16| {
            let answer = move |_: Request<Body>| async move {
                let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code});
                let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                Ok::<_, Infallible>(response.unwrap())
            };
            let api: Api<Pod> = Api::namespaced(Client::new(tower::service_fn(answer), "default"), "default");
            write_status(&api, "test", &pod(), &json!({"phase": "Running"})).await
        };
        assert!(matches!(written(409).await, Ok(StatusWrite::Outdated)));
        assert!(matches!(written(404).await, Ok(StatusWrite::Gone)));
        assert!(written(403).await.is_err());
    }

    #[tokio::test]
    async fn after_a_conflict_the_present_state_counts_although_the_watch_lags_behind() {
        // The version of a pod "a" that is there now, with its UID.
        let newest = async |now: Option<(&'static str, &'static str)>| {
            let answer = move |request: Request<Body>| async move {
                let refusal = |code: u16| {
                    (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}))
                };
                let (code, body) = match now {
                    _ if request.method() != "GET" => refusal(409),
                    Some((version, uid)) => {
                        (200, json!({"metadata": {"name": "a", "uid": uid, "resourceVersion": version}}))
                    }
                    None => refusal(404),
                };
                let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                Ok::<_, Infallible>(response.unwrap())
            };
            let api: Api<Pod> = Api::namespaced(Client::new(tower::service_fn(answer), "default"), "default");
            let written = WriteCache::default();
            // A write of ours. Then another writer was faster, or a restore of the management cluster undid ours.
            let mut ours = pod();
            ours.metadata.resource_version = Some("8".to_owned());
            written.remember(ours.clone());
            let refused = write_remembered_status(&api, "test", &written, &ours, &json!({"phase": "Running"})).await;
            assert!(matches!(refused, Err(Error::NotReady(_))));
            let newest = written.newest(std::sync::Arc::new(pod()));
            newest.metadata.resource_version.clone().unwrap_or_default()
        };
        assert_eq!(newest(Some(("9", "u"))).await, "9");
        assert_eq!(newest(Some(("3", "u"))).await, "7", "what the watch shows: it is about to notice the restore");
        assert_eq!(newest(Some(("9", "made again"))).await, "7");
        assert_eq!(newest(None).await, "7");
    }

    #[test]
    fn a_status_names_the_version_that_it_was_computed_from() {
        let body = status_of(&pod(), &json!({"phase": "Running"}));
        assert_eq!(body["metadata"], json!({"name": "a", "uid": "u", "resourceVersion": "7"}));
        assert_eq!(body["status"]["phase"], "Running");
    }
}
