//! Watches that a controller begins to follow while it runs: those of kinds that it learns from its objects.

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

/// Turns the changes of other objects into reconciles of a controller's own, of kind `K`.
pub struct Followed<K: Resource<DynamicType: Hash + Eq>> {
    known: Mutex<HashSet<(ApiResource, Option<String>)>>,
    reconciles: UnboundedSender<ObjectRef<K>>,
}

impl<K: Resource<DynamicType: Hash + Eq + Send> + 'static> Followed<K> {
    /// What is to be reconciled goes to `reconciles`.
    #[must_use]
    pub fn new(reconciles: UnboundedSender<ObjectRef<K>>) -> Self {
        Self { known: Mutex::default(), reconciles }
    }

    /// [`Caches::watch`]. From the first use on, what `map` answers for an object is reconciled whenever that changes.
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
