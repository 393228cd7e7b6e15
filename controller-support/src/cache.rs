//! Watches that several controllers share: one connection and one copy for each kind, started on first use.

use crate::backoff::WatchBackoff;
use futures::{Stream, StreamExt, stream};
use kube::api::{Api, DynamicObject};
use kube::discovery::ApiResource;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, watch};

/// Changes that a slow reader may be behind before it is given everything anew.
const BACKLOG: usize = 1024;
/// How long the first list of a kind may take before a reconcile gives up and comes back.
const FIRST_LIST: Duration = Duration::from_secs(10);

/// Every shared watch of the process.
#[derive(Clone)]
pub struct Caches {
    client: Client,
    running: Arc<Mutex<HashMap<Watched, Cached>>>,
}

/// What a watch gives.
type Watch = watcher::Result<watcher::Event<DynamicObject>>;

/// A kind and a label selector.
type Watched = (ApiResource, Option<String>);

impl Caches {
    /// No watch yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, running: Arc::default() }
    }

    /// The watch of all objects of a kind, or of those that match `selector`. It is started if it is not there yet, and
    /// runs as long as the process.
    #[must_use]
    pub fn watch(&self, resource: &ApiResource, selector: Option<&str>) -> Cached {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running
            .entry((resource.clone(), selector.map(str::to_owned)))
            .or_insert_with(|| Cached::start(&self.client, resource, selector))
            .clone()
    }
}

/// A shared watch: what is there, and what changes.
#[derive(Clone)]
pub struct Cached {
    resource: ApiResource,
    store: Store<DynamicObject>,
    changes: broadcast::Sender<Arc<DynamicObject>>,
    /// Whether the first list has come. The store knows it too, but wakes only one of those who wait for it
    /// (`DelayedInit` of kube-runtime 5.0.0 keeps one waker).
    listed: watch::Receiver<bool>,
}

impl Cached {
    fn start(client: &Client, resource: &ApiResource, selector: Option<&str>) -> Self {
        let mut config = watcher::Config::default();
        if let Some(selector) = selector {
            config = config.labels(selector);
        }
        let events = watcher(Api::<DynamicObject>::all_with(client.clone(), resource), config)
            .modify(|object| object.metadata.managed_fields = None)
            .backoff(WatchBackoff::default());
        Self::of(resource, events)
    }

    /// Follows the events of a watch.
    fn of(resource: &ApiResource, events: impl Stream<Item = Watch> + Send + 'static) -> Self {
        let (reader, mut writer) = store_of(resource);
        let (changes, _) = broadcast::channel(BACKLOG);
        let (has_listed, listed) = watch::channel(false);
        let (kept, sender, kind) = (reader.clone(), changes.clone(), resource.kind.clone());
        tokio::spawn(async move {
            let mut before: HashMap<String, Arc<DynamicObject>> = HashMap::new();
            futures::pin_mut!(events);
            while let Some(event) = events.next().await {
                let event = match event {
                    Ok(event) => event,
                    Err(error) => {
                        tracing::warn!(%kind, %error, "watch interrupted, trying again");
                        continue;
                    }
                };
                if matches!(event, watcher::Event::Init) {
                    before = by_key(kept.state());
                }
                writer.apply_watcher_event(&event);
                // Nobody listening is no error: a controller may only read the store.
                match event {
                    watcher::Event::Apply(object) | watcher::Event::Delete(object) => {
                        let _ = sender.send(Arc::new(object));
                    }
                    watcher::Event::InitDone => {
                        has_listed.send_replace(true);
                        announce(&sender, std::mem::take(&mut before), kept.state());
                    }
                    watcher::Event::Init | watcher::Event::InitApply(_) => {}
                }
            }
        });
        Self { resource: resource.clone(), store: reader, changes, listed }
    }

    /// The kind that is watched.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// What the watch knows. Empty until the first list has come; see [`Cached::ready`].
    #[must_use]
    pub fn store(&self) -> &Store<DynamicObject> {
        &self.store
    }

    /// Waits for the first list. False if it has not come in time: the API server may be down, and nothing is known.
    pub async fn ready(&self) -> bool {
        let mut listed = self.listed.clone();
        tokio::time::timeout(FIRST_LIST, listed.wait_for(|listed| *listed)).await.is_ok_and(|listed| listed.is_ok())
    }

    /// One object, as the watch has seen it last.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<DynamicObject>> {
        self.store.get(&ObjectRef::new_with(name, self.resource.clone()).within(namespace))
    }

    /// The objects of a namespace that satisfy a condition.
    pub fn select(&self, namespace: &str, wanted: impl Fn(&DynamicObject) -> bool) -> Vec<Arc<DynamicObject>> {
        self.store.state_filter(|object| object.namespace().as_deref() == Some(namespace) && wanted(object))
    }

    /// Every change from now on, deletions included, after everything that is there already.
    pub fn changes(&self) -> impl Stream<Item = Arc<DynamicObject>> + Send + 'static {
        let receiver = self.changes.subscribe();
        let store = self.store.clone();
        let first = stream::iter(store.state());
        first.chain(
            stream::unfold((receiver, store), |(mut receiver, store)| async move {
                let batch = match receiver.recv().await {
                    Ok(object) => vec![object],
                    Err(broadcast::error::RecvError::Lagged(_)) => store.state(),
                    Err(broadcast::error::RecvError::Closed) => return None,
                };
                Some((stream::iter(batch), (receiver, store)))
            })
            .flatten(),
        )
    }
}

fn store_of(resource: &ApiResource) -> (Store<DynamicObject>, kube::runtime::reflector::store::Writer<DynamicObject>) {
    let writer = kube::runtime::reflector::store::Writer::new(resource.clone());
    (writer.as_reader(), writer)
}

fn key(object: &DynamicObject) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

fn by_key(objects: Vec<Arc<DynamicObject>>) -> HashMap<String, Arc<DynamicObject>> {
    objects.into_iter().map(|object| (key(&object), object)).collect()
}

/// After a new list: all that is there, and all that has gone while the watch was down.
fn announce(
    sender: &broadcast::Sender<Arc<DynamicObject>>,
    before: HashMap<String, Arc<DynamicObject>>,
    now: Vec<Arc<DynamicObject>>,
) {
    let present: HashSet<String> = now.iter().map(|object| key(object)).collect();
    let gone = before.into_iter().filter(|(key, _)| !present.contains(key)).map(|(_, object)| object);
    for object in now.into_iter().chain(gone) {
        let _ = sender.send(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Secret;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn everybody_who_waits_for_the_first_list_is_woken_by_it() {
        let list = Duration::from_secs(1);
        let events = stream::once(async move {
            tokio::time::sleep(list).await;
            Ok(watcher::Event::InitDone)
        });
        let secrets = Cached::of(&ApiResource::erase::<Secret>(&()), events.chain(stream::pending()));
        let begun = Instant::now();
        let waiting = [(); 3].map(|()| {
            let secrets = secrets.clone();
            tokio::spawn(async move { secrets.ready().await })
        });
        for one in waiting {
            assert!(one.await.unwrap());
        }
        assert!(begun.elapsed() < FIRST_LIST, "somebody has waited for {:?}", begun.elapsed());
        assert!(secrets.ready().await, "later too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_does_not_come_is_not_waited_for_for_ever() {
        let secrets = Cached::of(&ApiResource::erase::<Secret>(&()), stream::pending());
        assert!(!secrets.ready().await);
    }
}
