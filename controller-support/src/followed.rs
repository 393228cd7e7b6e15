//! Watches that a controller begins to follow while it runs, because its objects refer to their kinds.

use crate::{Cached, Caches};
use futures::StreamExt;
use kube::Resource;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::reflector::ObjectRef;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedSender;

/// Turns changes of other objects into reconciles of the controller's objects, of kind `K`.
pub struct Followed<K: Resource<DynamicType: Hash + Eq>> {
    known: Mutex<HashSet<(ApiResource, Option<String>)>>,
    reconciles: UnboundedSender<ObjectRef<K>>,
}

impl<K: Resource<DynamicType: Hash + Eq + Send> + 'static> Followed<K> {
    /// Sends the objects that are to be reconciled to `reconciles`.
    #[must_use]
    pub fn new(reconciles: UnboundedSender<ObjectRef<K>>) -> Self {
        Self { known: Mutex::default(), reconciles }
    }

    /// [`Caches::watch`]. From the first call on, every change of an object reconciles what `map` returns for it.
    pub fn watch(
        &self,
        caches: &Caches,
        resource: &ApiResource,
        selector: Option<&str>,
        map: impl Fn(&DynamicObject) -> Vec<ObjectRef<K>> + Send + 'static,
    ) -> Cached {
        let cached = caches.watch(resource, selector);
        let watched = (resource.clone(), selector.map(str::to_owned));
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(watched) {
            let (mut changes, reconciles) = (Box::pin(cached.changes()), self.reconciles.clone());
            tokio::spawn(async move {
                while let Some(object) = changes.next().await {
                    for concerned in map(&object) {
                        // The receiver ends with the controller.
                        if reconciles.send(concerned).is_err() {
                            return;
                        }
                    }
                }
            });
        }
        cached
    }
}
