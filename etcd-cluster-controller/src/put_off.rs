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

    /// For how much longer a task is put off that is put off for `time`, which is less than [`PUT_OFF`].
    pub(crate) fn left(&self, time: Duration, uid: &str, what: &str) -> Option<Duration> {
        let left = time.checked_sub(self.0.age(&key(uid, what))?)?;
        (!left.is_zero()).then_some(left)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_is_put_off_for_as_long_as_it_says() {
        let put_off = PutOff::default();
        let soon = PUT_OFF / 10;
        let has = |put_off: &PutOff| (put_off.left(soon, "a", "task"), put_off.has("a", "task"));
        assert_eq!(has(&put_off), (None, false));
        put_off.put("a", "task");
        assert_eq!(has(&put_off), (Some(soon), true));
        tokio::time::advance(soon / 4).await;
        assert_eq!(has(&put_off), (Some(soon * 3 / 4), true));
        tokio::time::advance(soon * 3 / 4).await;
        assert_eq!(has(&put_off), (None, true));
        tokio::time::advance(PUT_OFF - soon).await;
        assert_eq!(has(&put_off), (None, false));
    }
}
