//! Users who write to a cluster all the time, and read what others have written.

use anyhow::{Result, ensure};
use e2e::docker::Workload;
use e2e::history::objects::{ObjectLoad, ObjectWriters};
use std::time::Duration;

/// A few requests in a second: the computer has a whole cluster to carry as well.
const LOAD: ObjectLoad = ObjectLoad { writers: 3, rest: Duration::from_millis(200) };
/// Fewer acknowledged writes show little.
const FEWEST: usize = 100;

/// Writers that go on until they are stopped, through the cluster's own API servers.
pub(crate) struct Writer(ObjectWriters);

impl Writer {
    /// Begins.
    pub(crate) async fn start(workload: &Workload) -> Result<Self> {
        Ok(Self(ObjectWriters::begin(workload.kubeconfig(), "kube-system", LOAD).await?))
    }

    /// Ends. Nothing that was acknowledged is lost or overwritten unseen, nobody saw time go back, and there was no longer time
    /// without an acknowledged write than `gap`.
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
