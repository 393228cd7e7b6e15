//! The manager as a process: size, start, memory.

use super::{PATIENCE, table::Table};
use crate::bed::{Bed, ClusterHandle, Manifests, programs};
use crate::until::until;
use anyhow::{Context, Result};
use std::fs;
use std::time::{Duration, Instant};

/// How long the manager idles before its memory is read.
const SETTLE: Duration = Duration::from_secs(30);

/// Measures the manager with all controllers and one ready cluster.
pub(super) async fn measure(bed: &mut Bed, table: &mut Table) -> Result<()> {
    let size = fs::metadata(programs()?.join("manager")).context("look at the manager")?.len();
    table.row("manager: binary", format!("{:.1} MB", mega(size)), "≤ 20 MB", "61 + 58 MB");

    let client = bed.client();
    ClusterHandle::make_namespace(&client, "process").await?;
    let manifests = Manifests::new("process", "demo")?;
    manifests.apply(&client).await?;
    ClusterHandle::new(&client, &manifests).until_ready(PATIENCE).await?;

    let mut starts = Vec::new();
    for _ in 0..5 {
        bed.kill_manager(0).await?;
        let begun = Instant::now();
        bed.start_manager(0).await?;
        until("a controller has reconciled", PATIENCE, async || {
            let metrics = bed.admin(0, "/metrics").await?;
            Ok(metrics.lines().any(|line| line.contains("reconciles_total{") && line.contains("\"ok\"")).then_some(()))
        })
        .await?;
        starts.push(begun.elapsed());
    }
    let start = super::median(starts).as_secs_f64();
    table.row("manager: start → first reconcile, no lease", format!("{start:.2} s"), "≤ 0.2 s", "0.2 s");

    tokio::time::sleep(SETTLE).await;
    let pid = bed.manager(0)?.pid().context("the manager has ended")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("read the manager's memory")?;
    let memory = |field| anyhow::Ok(format!("{:.1} MiB", mebibytes(&status, field)?));
    table.row("manager: idle memory (resident)", memory("VmRSS:")?, "≤ 20 MiB", "59 + 58 MB");
    table.row("manager: peak memory (resident)", memory("VmHWM:")?, "", "68 + 62 MB");
    Ok(())
}

/// A field of `/proc/<pid>/status`, in MiB.
pub(super) fn mebibytes(status: &str, field: &str) -> Result<f64> {
    let line = status.lines().find(|line| line.starts_with(field)).with_context(|| format!("no {field}"))?;
    let kibibytes: u32 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(f64::from(kibibytes) / 1024.0)
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
