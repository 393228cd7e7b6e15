//! Which EtcdClusters have a status that is left unwritten for a moment.

use api::EtcdCluster;
use controller_support::TtlCache;
use kube::ResourceExt;
use std::time::Duration;

/// How long words and counts may be behind while one step follows the other, from the first one that was left out. Longer
/// than a chain of steps takes, and too short for anybody to miss it: steps that change nothing must not hide what happens.
const MOMENT: Duration = Duration::from_secs(1);
/// What was begun longer ago than this is forgotten: its EtcdCluster is gone.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Since when the status of EtcdClusters has been left unwritten, by UID.
pub(crate) struct Untold(TtlCache<String, ()>);

impl Default for Untold {
    fn default() -> Self {
        Self(TtlCache::new(FORGOTTEN))
    }
}

impl Untold {
    /// Whether the status may be left unwritten (once more). The first time begins the moment.
    pub(crate) fn is_for_a_moment(&self, etcd: &EtcdCluster) -> bool {
        let uid = etcd.uid().unwrap_or_default();
        match self.0.age(&uid) {
            Some(age) => age < MOMENT,
            None => {
                self.0.insert(uid, ());
                true
            }
        }
    }

    /// The status is written now.
    pub(crate) fn end(&self, etcd: &EtcdCluster) {
        self.0.remove(&etcd.uid().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;

    #[tokio::test(start_paused = true)]
    async fn a_moment_is_counted_from_its_beginning() {
        let (untold, mut story) = (Untold::default(), Story::new(3));
        let etcd = story.etcd().clone();
        for _ in 0..4 {
            assert!(untold.is_for_a_moment(&etcd));
            tokio::time::advance(MOMENT / 4).await;
        }
        assert!(!untold.is_for_a_moment(&etcd), "steps that never end are told of");
        untold.end(&etcd);
        assert!(untold.is_for_a_moment(&etcd));
    }
}
