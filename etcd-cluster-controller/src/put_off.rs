//! What nothing waits for, and could not be done: when it is tried again.

use controller_support::TtlCache;
use std::time::Duration;

/// How long what nothing waits for is not tried again. Reconciles may come several times a second.
pub(crate) const PUT_OFF: Duration = Duration::from_secs(600);

/// What of an object is not tried again for [`PUT_OFF`], by the object's UID.
pub(crate) struct PutOff(TtlCache<String, ()>);

impl Default for PutOff {
    fn default() -> Self {
        Self(TtlCache::new(PUT_OFF))
    }
}

impl PutOff {
    /// Whether it is not to be tried yet.
    pub(crate) fn has(&self, uid: &str, what: &str) -> bool {
        self.0.get(&key(uid, what)).is_some()
    }

    /// From now on it is not tried.
    pub(crate) fn put(&self, uid: &str, what: &str) {
        self.0.insert(key(uid, what), ());
    }

    /// It is tried again as soon as it is wanted.
    pub(crate) fn forget(&self, uid: &str, what: &str) {
        self.0.remove(&key(uid, what));
    }
}

fn key(uid: &str, what: &str) -> String {
    format!("{uid}/{what}")
}
