//! Users who write to a cluster all the time, and read what others wrote.

use anyhow::{Result, ensure};
use e2e::docker::Workload;
use e2e::history::objects::{ObjectLoad, ObjectWriters};
use std::time::Duration;

/// A few requests per second: the computer also runs the whole cluster.
const LOAD: ObjectLoad = ObjectLoad { writers: 3, rest: Duration::from_millis(200) };
/// Fewer acknowledged writes show little.
const FEWEST: usize = 100;

/// Writers that run until they are stopped. They use the cluster's own API servers.
pub(crate) struct Writer(ObjectWriters);

impl Writer {
    /// Begins to write.
    pub(crate) async fn start(workload: &Workload) -> Result<Self> {
        Ok(Self(ObjectWriters::begin(workload.kubeconfig(), "kube-system", LOAD).await?))
    }

    /// Stops the writers. Checks that no acknowledged write was lost or overwritten unseen, that no read went back in
    /// time, and that the longest time without an acknowledged write was at most `gap`.
    pub(crate) async fn stop(self, gap: Duration) -> Result<()> {
        let record = self.0.end().await?;
        let figures = record.figures();
        println!("  {figures}");
        record.check()?;
        ensure!(figures.writes >= FEWEST, "only {} writes: {figures}", figures.writes);
        ensure!(figures.longest_stall <= gap, "for more than {} s nothing could be written: {figures}", gap.as_secs());
        Ok(())
    }
}
