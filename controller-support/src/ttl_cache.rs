//! A map whose entries expire: for answers that cost a request, and for what is remembered of objects that may be gone.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// With fewer entries than this, nothing is swept out.
const SMALL: usize = 64;

/// Remembers values for a while.
///
/// Guarantees: an expired entry is never returned; the memory is bounded by twice the entries that were ever alive at
/// the same time; an operation costs constant time on average.
#[derive(Debug)]
pub struct TtlCache<K, V> {
    ttl: Duration,
    entries: Mutex<Entries<K, V>>,
}

#[derive(Debug)]
struct Entries<K, V> {
    map: HashMap<K, (Instant, V)>,
    /// The size at which expired entries are swept out. It follows the number of live entries, so that sweeping costs
    /// little.
    sweep_at: usize,
}

impl<K: Hash + Eq, V: Clone> TtlCache<K, V> {
    /// A cache whose entries expire `ttl` after they were inserted.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, entries: Mutex::new(Entries { map: HashMap::new(), sweep_at: SMALL }) }
    }

    /// The value, if it has not expired.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let entries = self.lock();
        entries.map.get(key).filter(|(at, _)| at.elapsed() < self.ttl).map(|(_, value)| value.clone())
    }

    /// How long ago the value was inserted, if it has not expired.
    pub fn age<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        self.lock().map.get(key).map(|(at, _)| at.elapsed()).filter(|age| *age < self.ttl)
    }

    /// Remembers a value from now on.
    pub fn insert(&self, key: K, value: V) {
        let mut entries = self.lock();
        if entries.map.len() >= entries.sweep_at {
            entries.map.retain(|_, (at, _)| at.elapsed() < self.ttl);
            entries.sweep_at = (2 * entries.map.len()).max(SMALL);
        }
        entries.map.insert(key, (Instant::now(), value));
    }

    /// Forgets a value.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.lock().map.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, Entries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_value_is_remembered_until_it_expires() {
        let cache = TtlCache::new(TTL);
        cache.insert("a".to_owned(), 1);
        tokio::time::advance(TTL / 2).await;
        assert_eq!((cache.get("a"), cache.age("a")), (Some(1), Some(TTL / 2)));
        cache.insert("a".to_owned(), 2);
        tokio::time::advance(TTL / 2).await;
        assert_eq!(cache.get("a"), Some(2), "inserting again counts");
        tokio::time::advance(TTL / 2).await;
        assert_eq!((cache.get("a"), cache.age("a")), (None, None));
        cache.insert("b".to_owned(), 3);
        cache.remove("b");
        assert_eq!(cache.get("b"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_expired_does_not_pile_up() {
        let cache = TtlCache::new(TTL);
        for round in 0..100 {
            for key in 0..SMALL {
                cache.insert((round, key), ());
            }
            tokio::time::advance(TTL).await;
        }
        assert!(cache.lock().map.len() <= 2 * SMALL, "{}", cache.lock().map.len());
    }
}
