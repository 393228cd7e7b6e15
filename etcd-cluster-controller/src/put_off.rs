//! Tasks that nothing waits for, and that are put off for a while when they cannot be done.

use controller_support::TtlCache;
use std::time::Duration;

/// How long a task that nothing waits for is put off. Without this it would be tried in every reconcile, several times
/// a second.
pub(crate) const PUT_OFF: Duration = Duration::from_secs(600);

/// The tasks that are put off for [`PUT_OFF`], by the UID of the object and the name of the task.
pub(crate) struct PutOff(TtlCache<String, ()>);

impl Default for PutOff {
    fn default() -> Self {
        Self(TtlCache::new(PUT_OFF))
    }
}

impl PutOff {
    /// Whether a task is still put off.
    pub(crate) fn has(&self, uid: &str, what: &str) -> bool {
        self.0.get(&key(uid, what)).is_some()
    }

    /// Puts a task off.
    pub(crate) fn put(&self, uid: &str, what: &str) {
        self.0.insert(key(uid, what), ());
    }

    /// Ends the delay: the task is tried again as soon as it is wanted.
    pub(crate) fn forget(&self, uid: &str, what: &str) {
        self.0.remove(&key(uid, what));
    }
}

fn key(uid: &str, what: &str) -> String {
    format!("{uid}/{what}")
}
