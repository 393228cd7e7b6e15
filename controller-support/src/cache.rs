//! Watches that several controllers share: one connection and one copy for each kind, started on first use.

mod contents;
mod index;
mod prune;
#[cfg(test)]
mod tests;

pub use index::{BY_CONTROLLER_UID, Index};

use crate::backoff::WatchBackoff;
use crate::error::{Error, Result, answer, code};
use crate::kinds::Kinds;
use crate::scope::Scope;
use contents::Contents;
use futures::{FutureExt, Stream, StreamExt, stream};
use kube::Client;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{Lookup, Store};
use kube::runtime::{WatchStreamExt, watcher};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;

/// How long the first list of a kind may take before a reconcile gives up, to be tried again.
const FIRST_LIST: Duration = Duration::from_secs(10);

/// Every shared watch of the process.
#[derive(Clone)]
pub struct Caches {
    client: Client,
    kinds: Kinds,
    scope: Scope,
    running: Running,
}

/// The watches that run.
type Running = Arc<Mutex<HashMap<Watched, Cached>>>;

/// Where a watch is registered. It is removed there when its version is no longer served.
struct Known {
    kinds: Kinds,
    running: Running,
    watched: Watched,
}

impl Known {
    /// Removes the watch first: whoever is told of the loss starts again, and must not get the watch that has ended.
    async fn lose(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.watched);
        self.kinds.lose(&self.watched.0).await;
    }
}

/// An item of a watch: an event or an error.
type Watch = watcher::Result<watcher::Event<DynamicObject>>;

/// A kind and a label selector.
type Watched = (ApiResource, Option<String>);

impl Caches {
    /// Starts with no watch. If the version of a watch is no longer served, it is forgotten in `kinds`.
    #[must_use]
    pub fn new(client: Client, kinds: Kinds, scope: Scope) -> Self {
        Self { client, kinds, scope, running: Arc::default() }
    }

    /// The watch of all objects of a kind in scope, or of those that match `selector`. The first call starts it. It
    /// runs as long as the version is served.
    ///
    /// It does not keep managed fields, bootstrap data and a few other fields that no controller reads from a watch.
    #[must_use]
    pub fn watch(&self, resource: &ApiResource, selector: Option<&str>) -> Cached {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running
            .entry((resource.clone(), selector.map(str::to_owned)))
            .or_insert_with(|| self.start(resource, selector))
            .clone()
    }

    fn start(&self, resource: &ApiResource, selector: Option<&str>) -> Cached {
        let mut config = watcher::Config::default();
        if let Some(selector) = selector {
            config = config.labels(selector);
        }
        let events = watcher(self.scope.api(self.client.clone(), resource), config)
            .modify(prune::prune)
            .backoff(WatchBackoff::default());
        let watched = (resource.clone(), selector.map(str::to_owned));
        let known = Known { kinds: self.kinds.clone(), running: self.running.clone(), watched };
        let (cached, following) = Cached::follow(resource, events, Some(known));
        tokio::spawn(following);
        cached
    }
}

/// The state of a watch's list.
#[derive(Clone, Debug, Default)]
struct Listing {
    /// The first list has arrived, and the kind is still served.
    listed: bool,
    /// The last failure, if no event has come since.
    failure: Option<String>,
    /// The API server has refused the list, so waiting does not help.
    refused: bool,
}

/// A shared watch: the objects that exist, and their changes.
#[derive(Clone)]
pub struct Cached {
    resource: ApiResource,
    /// For [`kube::runtime::Controller`], which looks objects up in it.
    store: Store<DynamicObject>,
    contents: Arc<RwLock<Contents>>,
    listing: watch::Receiver<Listing>,
}

impl Cached {
    /// Returns the copy, and a future that follows the events. The caller has to spawn the future: the copy is only as
    /// new as the last event that the future has processed.
    fn follow(
        resource: &ApiResource,
        events: impl Stream<Item = Watch> + Send + 'static,
        known: Option<Known>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let writer = Writer::new(resource.clone());
        let (listing, listing_read) = watch::channel(Listing::default());
        let cached = Self {
            resource: resource.clone(),
            store: writer.as_reader(),
            contents: Arc::default(),
            listing: listing_read,
        };
        let following = cached.clone().keep_up(events, writer, listing, known);
        (cached, following)
    }

    /// A watch that has reported these objects and reports no more, for tests of code that reads a watch.
    #[must_use]
    pub fn fixed(resource: &ApiResource, objects: Vec<DynamicObject>) -> Self {
        let listed = objects.into_iter().map(watcher::Event::InitApply);
        let events = [watcher::Event::Init].into_iter().chain(listed).chain([watcher::Event::InitDone]);
        let (cached, following) = Self::follow(resource, stream::iter(events.map(Ok).collect::<Vec<_>>()), None);
        // The future waits for nothing, so this completes it.
        let _ = following.now_or_never();
        cached
    }

    /// Follows the events until they end, or until the version is no longer served.
    async fn keep_up(
        self,
        events: impl Stream<Item = Watch> + Send + 'static,
        mut writer: Writer<DynamicObject>,
        listing: watch::Sender<Listing>,
        known: Option<Known>,
    ) {
        futures::pin_mut!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take_in(event, &mut writer, &listing),
                Err(error) => {
                    tracing::warn!(kind = self.resource.kind, %error, "watch interrupted, trying again");
                    let was_listed = listing.borrow().listed;
                    match (note(&listing, &error), &known) {
                        (404, Some(known)) if was_listed => return known.lose().await,
                        // The version disappeared between its look-up and the first list, so no reader has objects of
                        // this version.
                        (404, Some(known)) => known.kinds.forget_version(&self.resource).await,
                        _ => {}
                    }
                }
            }
        }
    }

    fn take_in(
        &self,
        event: watcher::Event<DynamicObject>,
        writer: &mut Writer<DynamicObject>,
        listing: &watch::Sender<Listing>,
    ) {
        // The store comes first: a controller that is notified of an object looks it up there.
        writer.apply_watcher_event(&event);
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            watcher::Event::Apply(object) => {
                // Keep the store's copy, so that there is only one.
                let kept = self.store.get(&object.to_object_ref(self.resource.clone()));
                contents.put(&kept.unwrap_or_else(|| Arc::new(object)));
            }
            watcher::Event::Delete(object) => contents.remove(&Arc::new(object)),
            watcher::Event::InitDone => contents.replace(&self.store.state()),
            watcher::Event::Init | watcher::Event::InitApply(_) => return,
        }
        drop(contents);
        listing.send_if_modified(|listing| {
            let changed = !listing.listed || listing.failure.is_some();
            *listing = Listing { listed: true, failure: None, refused: false };
            changed
        });
    }

    /// The kind that is watched.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// What [`kube::runtime::Controller`] looks objects up in.
    #[must_use]
    pub fn store(&self) -> &Store<DynamicObject> {
        &self.store
    }

    /// Waits for the first list. False if it has failed or has not arrived in time: then nothing is known. This does
    /// not wait for a list that is known to fail, because one kind must not delay everything else that a reconcile has
    /// to do. The watch keeps trying, and the objects that it finds cause reconciles like any other change.
    pub async fn ready(&self) -> bool {
        let mut listing = self.listing.clone();
        let come = listing.wait_for(|listing| listing.listed || listing.failure.is_some());
        tokio::time::timeout(FIRST_LIST, come).await.is_ok_and(|listing| listing.is_ok_and(|listing| listing.listed))
    }

    /// [`Cached::ready`], with an error that says why.
    ///
    /// # Errors
    /// Nothing is known of the objects of this kind: [`Error::Refused`] if the API server refuses the list, and
    /// [`Error::NotReady`] if the list is only late.
    pub async fn ensure_ready(&self) -> Result<()> {
        if self.ready().await {
            return Ok(());
        }
        let Listing { failure, refused, .. } = self.listing.borrow().clone();
        let kind = &self.resource.plural;
        Err(match failure {
            Some(why) if refused => Error::Refused(format!("{kind} cannot be listed: {why}")),
            Some(why) => Error::NotReady(format!("{kind} are not listed yet: {why}")),
            None => Error::NotReady(format!("{kind} are not listed yet: the API server has not answered")),
        })
    }

    /// The last failure, if no event has come since.
    #[cfg(test)]
    fn failure(&self) -> Option<String> {
        self.listing.borrow().failure.clone()
    }

    /// One object, as the watch last reported it.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<DynamicObject>> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).get(namespace, name)
    }

    /// The objects of a namespace that have `key` in an index, by name. The cost does not depend on the number of other
    /// objects, except at the first use of an index.
    #[must_use]
    pub fn by_index(&self, index: &Index, namespace: &str, key: &str) -> Vec<Arc<DynamicObject>> {
        let known = self.contents.read().unwrap_or_else(PoisonError::into_inner).by_index(index, namespace, key);
        known.unwrap_or_else(|| {
            let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
            contents.build(*index);
            contents.by_index(index, namespace, key).unwrap_or_default()
        })
    }

    /// All objects of a namespace: prefer [`Cached::by_index`].
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<DynamicObject>> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).in_namespace(namespace).cloned().collect()
    }

    /// Every object that exists, and then every change, including deletions.
    pub fn changes(&self) -> impl Stream<Item = Arc<DynamicObject>> + Send + 'static {
        let receiver = self.contents.write().unwrap_or_else(PoisonError::into_inner).subscribe();
        stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) }).fuse()
    }
}

/// Remembers a failure. Returns the API server's code, or 0 if there is none.
fn note(listing: &watch::Sender<Listing>, error: &watcher::Error) -> u16 {
    let (code, text) = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => (code(error), answer(error)),
        watcher::Error::WatchError(status) => (status.code, status.message.clone()),
        watcher::Error::NoResourceVersion => (0, error.to_string()),
    };
    listing.send_modify(|listing| {
        // If there was a list, a 404 means that the version is no longer served: its watch ends, and another one
        // begins.
        listing.refused = matches!(code, 401 | 403) || (code == 404 && !listing.listed);
        listing.listed &= code != 404;
        listing.failure = Some(text);
    });
    code
}
