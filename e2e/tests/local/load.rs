//! A low load beside a story that is about something else: whatever happens there, etcd's judge finds nothing wrong with what
//! clients are told meanwhile.

use crate::bring_up::PATIENCE;
use crate::rolls::nothing_is_lost;
use anyhow::{Result, ensure};
use e2e::bed::{Bed, ClusterHandle};
use e2e::history::{History, Load, MemberData};
use e2e::scenarios::is_full;
use e2e::until::until;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// One client that writes and reads, and one that watches. They follow the endpoints that are published.
const LOW: Load = Load { seed: None, clients: 1, keys: 4, rest: Duration::from_millis(50), keep_endpoints: false };
/// The longest that nothing may be written: a few elections.
const STALL: Duration = Duration::from_secs(10);
/// Between two looks at what is published.
const LOOKS: Duration = Duration::from_millis(500);

/// A load that is going on. Dropping it ends it.
pub(crate) struct LowLoad {
    handle: ClusterHandle,
    history: History,
    follower: Follower,
}

impl LowLoad {
    /// Begins to write to the etcd of a cluster that is up, and that nobody else writes to. Not through an
    /// [`EtcdProxy`](e2e::faults::EtcdProxy): watches do not pass it.
    pub(crate) async fn begin(bed: &Bed, handle: &ClusterHandle) -> Result<Self> {
        // There may be several clusters in a namespace.
        let name = format!("{}-{}", handle.namespace, handle.cluster);
        let history = History::begin(bed.world(), &name, &handle.staged_etcd_access().await?, LOW).await?;
        let follower = Follower(tokio::spawn(follow(handle.clone(), history.told())));
        Ok(Self { handle: handle.clone(), history, follower })
    }

    /// The same for a cluster that comes up, if there is an etcd already to write to: it may have its first member only.
    pub(crate) async fn begin_if_possible(bed: &Bed, handle: &ClusterHandle) -> Result<Option<Self>> {
        let is_there = !handle.status().await?.endpoints.is_empty() && handle.staged_etcd_access().await.is_ok();
        if is_there { Self::begin(bed, handle).await.map(Some) } else { Ok(None) }
    }

    /// Waits until that is possible.
    pub(crate) async fn begin_early(bed: &Bed, handle: &ClusterHandle) -> Result<Self> {
        let what = format!("there is an etcd of {} to write to", handle.etcd);
        until(what, PATIENCE, async || Self::begin_if_possible(bed, handle).await).await
    }

    /// The same with `E2E_FULL` alone: the core has no time to spare.
    pub(crate) async fn begin_early_if_full(bed: &Bed, handle: &ClusterHandle) -> Result<Option<Self>> {
        if is_full() { Self::begin_early(bed, handle).await.map(Some) } else { Ok(None) }
    }

    /// Ends it where clients had to wait for long, as without a quorum: nothing that was acknowledged is lost. The logs of
    /// all members tell what became of requests without an answer.
    pub(crate) async fn judged_by_logs(self, logs: &[MemberData]) -> Result<()> {
        nothing_is_lost(&self.handle, self.history, logs).await.map(drop)
    }

    /// Ends it: nothing that was acknowledged is lost, and no write waited for long. Members have left with their logs, so the
    /// judge gets none.
    pub(crate) async fn judged(self) -> Result<()> {
        let figures = nothing_is_lost(&self.handle, self.history, &[]).await?;
        drop(self.follower);
        ensure!(figures.longest_stall <= STALL, "{figures}");
        Ok(())
    }
}

/// Ends with the load.
struct Follower(JoinHandle<()>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follow(handle: ClusterHandle, told: watch::Sender<Vec<String>>) {
    loop {
        // The API server may be away.
        if let Ok(status) = handle.status().await
            && !status.endpoints.is_empty()
        {
            told.send_replace(status.endpoints.split(',').map(str::to_owned).collect());
        }
        tokio::time::sleep(LOOKS).await;
    }
}
