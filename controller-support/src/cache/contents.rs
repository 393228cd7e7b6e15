//! The objects of a watch, its indexes, and the subscribers to its changes. Pure except for the channels.

use super::Index;
use kube::ResourceExt;
use kube::api::DynamicObject;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::mpsc;

type Object = Arc<DynamicObject>;

/// Objects by namespace, then by key, then by name. The cost of a look-up depends only on the number of objects found.
#[derive(Default)]
struct Shelf(HashMap<String, HashMap<String, BTreeMap<String, Object>>>);

impl Shelf {
    fn get(&self, namespace: &str, key: &str) -> impl Iterator<Item = &Object> {
        self.0.get(namespace).and_then(|keys| keys.get(key)).into_iter().flat_map(BTreeMap::values)
    }

    fn put(&mut self, key: String, object: &Object) {
        let keys = self.0.entry(object.namespace().unwrap_or_default()).or_default();
        keys.entry(key).or_default().insert(object.name_any(), object.clone());
    }

    fn take(&mut self, key: &str, object: &DynamicObject) -> Option<Object> {
        let namespace = object.namespace().unwrap_or_default();
        let keys = self.0.get_mut(&namespace)?;
        let names = keys.get_mut(key)?;
        let taken = names.remove(&object.name_any());
        if names.is_empty() {
            keys.remove(key);
            if keys.is_empty() {
                self.0.remove(&namespace);
            }
        }
        taken
    }

    fn all(&self) -> impl Iterator<Item = &Object> {
        self.0.values().flat_map(HashMap::values).flat_map(BTreeMap::values)
    }
}

/// Invariant: the objects, the indexes and what every subscriber has received agree.
#[derive(Default)]
pub(super) struct Contents {
    /// By name: the key is the name itself.
    objects: Shelf,
    indexes: HashMap<&'static str, (Index, Shelf)>,
    subscribers: Vec<mpsc::UnboundedSender<Object>>,
}

impl Contents {
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Object> {
        self.objects.get(namespace, name).next().cloned()
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Object> {
        self.objects.0.get(namespace).into_iter().flat_map(HashMap::values).flat_map(BTreeMap::values)
    }

    /// `None`: the index has not been built yet.
    pub(super) fn by_index(&self, index: &Index, namespace: &str, key: &str) -> Option<Vec<Object>> {
        self.indexes.get(index.name).map(|(_, shelf)| shelf.get(namespace, key).cloned().collect())
    }

    pub(super) fn build(&mut self, index: Index) {
        let mut shelf = Shelf::default();
        for object in self.objects.all() {
            for key in (index.keys)(object) {
                shelf.put(key, object);
            }
        }
        self.indexes.insert(index.name, (index, shelf));
    }

    /// Every object that exists, and then every change. No change is lost, however slow the reader is. Each unread
    /// change costs one pointer, and controllers empty their queues even when they have no time to reconcile.
    pub(super) fn subscribe(&mut self) -> mpsc::UnboundedReceiver<Object> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for object in self.objects.all() {
            // This cannot fail: we still have the receiver.
            let _ = sender.send(object.clone());
        }
        self.subscribers.push(sender);
        receiver
    }

    pub(super) fn put(&mut self, object: &Object) {
        self.take(object);
        self.objects.put(object.name_any(), object);
        for (index, shelf) in self.indexes.values_mut() {
            for key in (index.keys)(object) {
                shelf.put(key, object);
            }
        }
        self.notify(object);
    }

    pub(super) fn remove(&mut self, object: &Object) {
        self.take(object);
        self.notify(object);
    }

    /// Takes a new list. Subscribers get everything that exists, and everything that disappeared while the watch was
    /// down.
    pub(super) fn replace(&mut self, now: &[Object]) {
        let mut gone: HashMap<(String, String), Object> = self.objects.all().map(|o| (key(o), o.clone())).collect();
        for object in now {
            gone.remove(&key(object));
            self.put(object);
        }
        for object in gone.values() {
            self.remove(object);
        }
    }

    fn take(&mut self, object: &DynamicObject) {
        let Some(before) = self.objects.take(&object.name_any(), object) else { return };
        for (index, shelf) in self.indexes.values_mut() {
            for key in (index.keys)(&before) {
                shelf.take(&key, &before);
            }
        }
    }

    fn notify(&mut self, object: &Object) {
        self.subscribers.retain(|subscriber| subscriber.send(object.clone()).is_ok());
    }
}

fn key(object: &DynamicObject) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}
