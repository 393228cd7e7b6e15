//! A low load beside a story about something else: whatever happens there, the judge finds nothing wrong with what
//! clients are told meanwhile.

use crate::bring_up::PATIENCE;
use crate::rolls::nothing_is_lost;
use crate::scale::data_of;
use anyhow::{Result, ensure};
use e2e::bed::{Bed, ClusterHandle};
use e2e::history::{History, Load, MemberData};
use e2e::scenarios::is_full;
use e2e::until::until;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// One client that writes and reads, and one that watches. They follow the published endpoints.
const LOW: Load = Load { seed: None, clients: 1, keys: 4, rest: Duration::from_millis(50), keep_endpoints: false };
/// The longest that nothing may be written: a few elections.
const STALL: Duration = Duration::from_secs(10);
/// Time between two reads of the published endpoints.
const LOOKS: Duration = Duration::from_millis(500);

/// A load that goes on until it is judged or dropped.
pub(crate) struct LowLoad {
    handle: ClusterHandle,
    history: History,
    follower: Follower,
}

impl LowLoad {
    /// Begins to write to the etcd of a cluster that is up and that has no other clients that write.
    pub(crate) async fn begin(bed: &Bed, handle: &ClusterHandle) -> Result<Self> {
        // There may be several clusters in a namespace.
        let name = format!("{}-{}", handle.namespace, handle.cluster);
        let history = History::begin(bed.world(), &name, &handle.staged_etcd_access().await?, LOW).await?;
        let follower = Follower(tokio::spawn(follow(handle.clone(), history.told())));
        Ok(Self { handle: handle.clone(), history, follower })
    }

    /// The same for a cluster that is coming up, if it has an etcd to write to already. This may have only its first
    /// member.
    pub(crate) async fn begin_if_possible(bed: &Bed, handle: &ClusterHandle) -> Result<Option<Self>> {
        let is_there = !handle.status().await?.endpoints.is_empty() && handle.staged_etcd_access().await.is_ok();
        if is_there { Self::begin(bed, handle).await.map(Some) } else { Ok(None) }
    }

    /// Waits until a load is possible, and begins it.
    pub(crate) async fn begin_early(bed: &Bed, handle: &ClusterHandle) -> Result<Self> {
        let what = format!("there is an etcd of {} to write to", handle.etcd);
        until(what, PATIENCE, async || Self::begin_if_possible(bed, handle).await).await
    }

    /// The same with `E2E_FULL` alone: the core scenarios have no time to spare.
    pub(crate) async fn begin_early_if_full(bed: &Bed, handle: &ClusterHandle) -> Result<Option<Self>> {
        if is_full() { Self::begin_early(bed, handle).await.map(Some) } else { Ok(None) }
    }

    /// Ends a load whose clients had to wait for long, as without a quorum. Checks that no acknowledged write is lost.
    /// The logs of all members show what became of requests without an answer.
    pub(crate) async fn judged_by_logs(self, logs: &[MemberData]) -> Result<()> {
        nothing_is_lost(&self.handle, self.history, logs).await.map(drop)
    }

    /// Ends the load. Checks that no acknowledged write is lost, and that no write waited for long. The judge gets no
    /// logs, because members have left with theirs.
    pub(crate) async fn judged(self) -> Result<()> {
        self.judged_soon(&[]).await
    }

    /// The same where the first `members` members have stayed: their logs show what became of requests without an
    /// answer.
    pub(crate) async fn judged_of(self, bed: &Bed, members: usize) -> Result<()> {
        let logs = data_of(bed, &self.handle, &self.handle.member_names(members))?;
        self.judged_soon(&logs).await
    }

    async fn judged_soon(self, logs: &[MemberData]) -> Result<()> {
        let figures = nothing_is_lost(&self.handle, self.history, logs).await?;
        drop(self.follower);
        ensure!(figures.longest_stall <= STALL, "{figures}");
        Ok(())
    }
}

/// Updates the load's endpoints until the load ends.
struct Follower(JoinHandle<()>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follow(handle: ClusterHandle, told: watch::Sender<Vec<String>>) {
    loop {
        // The API server may be down.
        if let Ok(status) = handle.status().await
            && !status.endpoints.is_empty()
        {
            told.send_replace(status.endpoints.split(',').map(str::to_owned).collect());
        }
        tokio::time::sleep(LOOKS).await;
    }
}
