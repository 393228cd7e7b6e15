//! What we request of the API server.

use super::{PATIENCE, remove, table::Table};
use crate::bed::{Bed, ClusterHandle, Manifests};
use crate::plane::users::PROVIDER;
use anyhow::Result;
use std::time::Duration;

/// How many minutes a ready cluster is left alone.
const IDLE_MINUTES: u32 = 2;

/// Counts the requests of one bring-up, and of minutes in which nothing happens.
pub(super) async fn requests(bed: &Bed, table: &mut Table) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "counted").await?;
    let manifests = Manifests::new("counted", "demo")?;
    let handle = ClusterHandle::new(&client, &manifests);
    let mark = bed.plane.mark();
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    // The handover to the control plane is a part of the bring-up.
    handle.until_control_plane_data(PATIENCE).await?;
    let requests = bed.plane.requests_since(mark)?.user(PROVIDER);
    eprintln!("requests of one bring-up:\n{requests}");
    table.row("API requests of ours, apply → control plane released", requests.len().to_string(), "≤ 60", "369–419");

    // The control plane's Machine settles in the meantime.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let mark = bed.plane.mark();
    tokio::time::sleep(Duration::from_secs(60) * IDLE_MINUTES).await;
    let idle = bed.plane.requests_since(mark)?.user(PROVIDER);
    let others = idle.filter(|request| request.verb != "watch");
    if !others.is_empty() {
        eprintln!("requests while idle:\n{others}");
    }
    let minutes = f64::from(IDLE_MINUTES);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let per_minute = |count: usize| format!("{:.1}", count as f64 / minutes);
    table.row("idle: requests per minute, beside renewed watches", per_minute(others.len()), "0", "2 + watches");
    table.row("idle: renewed watches per minute", per_minute(idle.len() - others.len()), "", "1.6");
    remove(bed, &handle).await
}
