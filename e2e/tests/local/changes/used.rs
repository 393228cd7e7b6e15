//! API servers that use the etcd whose spec changes, and clients that write through them.

use super::PATIENCE;
use crate::ill::STALL;
use anyhow::{Result, ensure};
use e2e::bed::{Bed, ClusterHandle, ControlPlaneStub};
use e2e::history::objects::{ObjectLoad, ObjectWriters};
use std::time::Duration;

/// A few requests per second: other clusters run beside this one.
const LOAD: ObjectLoad = ObjectLoad { writers: 2, rest: Duration::from_millis(100) };
/// The fewest acknowledged writes that prove something.
const FEWEST: usize = 30;

/// The API servers of a cluster.
pub(super) struct Servers {
    number: usize,
    stub: ControlPlaneStub,
    writers: ObjectWriters,
}

impl Servers {
    /// Waits until all API servers use the published endpoints, and begins to write through them.
    pub(super) async fn begin(bed: &Bed, handle: &ClusterHandle, number: usize) -> Result<Self> {
        let stub = ControlPlaneStub::start(bed, handle).await?;
        let endpoints = handle.until_ready(PATIENCE).await?.endpoints;
        all_use(&stub, handle, &endpoints).await?;
        let writers = ObjectWriters::begin(&stub.kubeconfig, "kube-system", LOAD).await?;
        Ok(Self { number, stub, writers })
    }

    /// Checks that each API server was replaced once, by one that uses the endpoints published now, that no write was
    /// lost and none failed, and that no client waited for long. Returns the control plane.
    pub(super) async fn have_rolled(self, handle: &ClusterHandle) -> Result<ControlPlaneStub> {
        all_use(&self.stub, handle, &handle.status().await?.endpoints).await?;
        let started = self.stub.seen().started;
        ensure!(started == 2 * self.number, "{started} API servers were started for {} and one rollout", self.number);
        let record = self.writers.end().await?;
        let figures = record.figures();
        println!("  {}: {figures}", handle.namespace);
        record.check()?;
        ensure!(figures.writes >= FEWEST && figures.failed == 0 && figures.longest_stall <= STALL, "{figures}");
        Ok(self.stub)
    }
}

async fn all_use(stub: &ControlPlaneStub, handle: &ClusterHandle, endpoints: &str) -> Result<()> {
    stub.until_all_use(endpoints, PATIENCE).await?;
    handle.until_cluster_condition("ManagedExternalEtcdReady", "True", "Ready", PATIENCE).await.map(drop)
}
