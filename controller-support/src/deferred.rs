//! Statuses whose write is deferred for a moment, because more is about to change.

use crate::ttl_cache::TtlCache;
use std::time::Duration;

/// How long a status may be outdated, from the first write that was deferred. This is longer than a chain of steps
/// takes, and too short for a person to notice. There must be a limit: otherwise, changes that never end would hide
/// what happens.
const MOMENT: Duration = Duration::from_secs(2);
/// A deferral that began longer ago than this is forgotten, because its object is gone.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Since when the status of objects has been deferred, by UID.
pub struct DeferredStatuses(TtlCache<String, ()>);

impl Default for DeferredStatuses {
    fn default() -> Self {
        Self(TtlCache::new(FORGOTTEN))
    }
}

impl DeferredStatuses {
    /// How much longer the status may be deferred. The first call begins the moment. `None`: the moment is over.
    pub fn left(&self, uid: &str) -> Option<Duration> {
        match self.0.age(uid) {
            Some(age) => MOMENT.checked_sub(age).filter(|left| !left.is_zero()),
            None => {
                self.0.insert(uid.to_owned(), ());
                Some(MOMENT)
            }
        }
    }

    /// The same for a status that may be deferred only if `can_wait`. `None`: the status is written now, which ends the
    /// moment.
    ///
    /// A failure is deferred because it may soon be over, and because its write causes a watch event, which defeats the
    /// back-off.
    pub fn left_if(&self, can_wait: bool, uid: &str) -> Option<Duration> {
        let left = can_wait.then(|| self.left(uid)).flatten();
        if left.is_none() {
            self.end(uid);
        }
        left
    }

    /// The status is written now.
    pub fn end(&self, uid: &str) {
        self.0.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_moment_is_counted_from_its_beginning() {
        let deferred = DeferredStatuses::default();
        for quarters in (1..=4).rev() {
            assert_eq!(deferred.left("a"), Some(MOMENT / 4 * quarters));
            tokio::time::advance(MOMENT / 4).await;
        }
        assert_eq!(deferred.left("a"), None, "changes that never end are told of");
        assert_eq!(deferred.left("b"), Some(MOMENT), "each object has its own");
        deferred.end("a");
        assert_eq!(deferred.left("a"), Some(MOMENT));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_ends_the_moment() {
        let deferred = DeferredStatuses::default();
        assert_eq!(deferred.left_if(true, "a"), Some(MOMENT));
        tokio::time::advance(MOMENT / 2).await;
        assert_eq!(deferred.left_if(false, "a"), None, "it may not wait");
        assert_eq!(deferred.left_if(true, "a"), Some(MOMENT), "another moment has begun");
        tokio::time::advance(MOMENT).await;
        assert_eq!(deferred.left_if(true, "a"), None, "it is over");
        assert_eq!(deferred.left_if(true, "a"), Some(MOMENT), "it was written");
    }
}
