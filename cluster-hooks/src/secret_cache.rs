//! Secrets that no watch of ours knows: those of a provider that does not label them, and one that was created a moment
//! ago. They are remembered for a while, so that a busy Cluster does not mean a request for every event.

use kube::api::DynamicObject;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// For how long an answer is good enough. Whoever waits for such a Secret looks again after as long.
pub const TTL: Duration = Duration::from_secs(10);

type Answers = HashMap<(String, String), (Instant, Option<Arc<DynamicObject>>)>;

/// Answers by namespace and name.
#[derive(Default)]
pub struct SecretCache(Mutex<Answers>);

impl SecretCache {
    /// What was answered of late. The outer None: nothing.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Option<Arc<DynamicObject>>> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, answer) = answers.get(&(namespace.to_owned(), name.to_owned()))?;
        (at.elapsed() < TTL).then(|| answer.clone())
    }

    /// Remembers an answer, and forgets old ones.
    pub fn remember(&self, namespace: &str, name: &str, answer: Option<Arc<DynamicObject>>) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|_, (at, _)| at.elapsed() < TTL);
        answers.insert((namespace.to_owned(), name.to_owned()), (Instant::now(), answer));
    }

    /// Makes the next look a real one.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(namespace.to_owned(), name.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_good_for_a_while() {
        let secret_cache = SecretCache::default();
        assert!(secret_cache.get("default", "a").is_none());
        secret_cache.remember("default", "a", None);
        assert!(matches!(secret_cache.get("default", "a"), Some(None)));
        assert!(secret_cache.get("other", "a").is_none());
        tokio::time::advance(TTL).await;
        assert!(secret_cache.get("default", "a").is_none());
        secret_cache.remember("default", "b", None);
        assert_eq!(secret_cache.0.lock().unwrap().len(), 1, "old answers are not kept");
        secret_cache.forget("default", "b");
        assert!(secret_cache.get("default", "b").is_none());
    }
}
