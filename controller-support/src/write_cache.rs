//! Reading our own writes. A watch lags behind, and a controller that decides from the state before its last write
//! would write the same again.

use crate::ttl_cache::TtlCache;
use kube::Resource;
use std::sync::Arc;
use std::time::Duration;

/// No watch lags behind by more than this. An older entry belongs to an object that is gone (the last write is often
/// the one that removed its finalizer), or to the time before the management cluster was restored from a backup.
const TTL: Duration = Duration::from_secs(600);

/// Remembers the answers to our writes, and what was read after a conflict, until the watch has caught up.
#[derive(Debug)]
pub struct WriteCache<K>(TtlCache<String, Entry<K>>);

#[derive(Debug)]
struct Entry<K> {
    object: Arc<K>,
    /// Whether it is the answer to a write of ours. Otherwise another writer has changed it.
    is_ours: bool,
}

impl<K> Clone for Entry<K> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), is_ours: self.is_ours }
    }
}

impl<K> Default for WriteCache<K> {
    fn default() -> Self {
        Self(TtlCache::new(TTL))
    }
}

impl<K: Resource> WriteCache<K> {
    /// Remembers what the API server answered to a write of ours.
    pub fn remember(&self, answer: K) {
        self.insert(answer, true);
    }

    /// Remembers what was read after the API server has refused a write of ours, because another writer was faster.
    pub fn remember_read(&self, object: K) {
        self.insert(object, false);
    }

    fn insert(&self, object: K, is_ours: bool) {
        if let Some(uid) = object.meta().uid.clone() {
            self.0.insert(uid, Entry { object: Arc::new(object), is_ours });
        }
    }

    /// Forgets what was remembered of an object, after the API server has refused a write for that version. A restore
    /// of the management cluster may have undone that version, and everything that the watch shows would then be older.
    pub fn forget(&self, uid: &str) {
        self.0.remove(uid);
    }

    /// What this reconcile has made of an object by its own writes. An object that another writer has changed since is
    /// returned as it was decided from, so a write for that version is refused.
    #[must_use]
    pub fn as_written(&self, decided_from: Arc<K>) -> Arc<K> {
        let uid = decided_from.meta().uid.as_deref().unwrap_or_default();
        match self.0.get(uid) {
            Some(entry) if entry.is_ours && revision(entry.object.as_ref()) > revision(decided_from.as_ref()) => {
                entry.object
            }
            _ => decided_from,
        }
    }

    /// The newer of `cached` (from a watch) and what was remembered of the same object: to decide from.
    #[must_use]
    pub fn newest(&self, cached: Arc<K>) -> Arc<K> {
        let Some(uid) = cached.meta().uid.as_deref() else { return cached };
        match self.0.get(uid) {
            Some(entry) if revision(entry.object.as_ref()) > revision(cached.as_ref()) => entry.object,
            Some(_) => {
                self.0.remove(uid);
                cached
            }
            None => cached,
        }
    }
}

/// Resource versions are comparable numbers: Kubernetes has guaranteed this since 1.35 (KEP-5504), and it was true
/// before.
fn revision<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn config_map(uid: &str, version: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.uid = Some(uid.to_owned());
        map.metadata.resource_version = Some(version.to_owned());
        map
    }

    #[test]
    fn the_newer_one_wins_and_is_then_forgotten() {
        let memory = WriteCache::default();
        memory.remember(config_map("a", "10"));
        let version = |cached| memory.newest(Arc::new(cached)).metadata.resource_version.clone().unwrap();
        assert_eq!(version(config_map("a", "9")), "10");
        assert_eq!(version(config_map("b", "9")), "9");
        assert_eq!(version(config_map("a", "11")), "11");
        assert_eq!(version(config_map("a", "9")), "9", "nothing is remembered once the watch has caught up");
    }

    #[test]
    fn what_another_writer_has_made_is_decided_from_and_never_written_over() {
        let memory = WriteCache::default();
        memory.remember(config_map("a", "10"));
        let version = |map: Arc<ConfigMap>| map.metadata.resource_version.clone().unwrap();
        let decided_from = || Arc::new(config_map("a", "9"));
        assert_eq!(version(memory.as_written(decided_from())), "10", "the write before it is ours");
        memory.remember_read(config_map("a", "11"));
        assert_eq!(version(memory.as_written(decided_from())), "9", "so that the API server refuses it");
        assert_eq!(version(memory.newest(decided_from())), "11");
        assert_eq!(version(memory.as_written(Arc::new(config_map("a", "11")))), "11");
    }

    #[test]
    fn what_a_restore_has_undone_is_forgotten_after_a_conflict() {
        let memory = WriteCache::default();
        memory.remember(config_map("a", "10"));
        memory.remember(config_map("b", "11"));
        memory.forget("a");
        let version = |cached| memory.newest(Arc::new(cached)).metadata.resource_version.clone().unwrap();
        assert_eq!(version(config_map("a", "3")), "3");
        assert_eq!(version(config_map("b", "3")), "11");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_has_gone_is_forgotten_in_time() {
        let memory = WriteCache::default();
        memory.remember(config_map("gone", "10"));
        tokio::time::advance(TTL).await;
        let restored = memory.newest(Arc::new(config_map("gone", "3")));
        assert_eq!(restored.metadata.resource_version.as_deref(), Some("3"));
    }
}
