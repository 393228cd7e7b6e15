//! One of our watches lags behind: our decisions are based on old state, and still nothing is made twice.

use crate::bring_up::released;
use crate::kills::made_once;
use crate::load::LowLoad;
use anyhow::{Context, Result};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::faults::FaultyManager;
use e2e::scenarios::is_full;
use e2e::until::until;
use futures::future::try_join_all;
use std::time::Duration;

/// What our manager watches while a cluster comes up. Without `E2E_FULL` only the first three lag behind: these are
/// what it decides on membership by.
const WATCHES: &[&str] = &["machines", "secrets", "etcdclusters", "clusters", "etcdadmconfigs", "kubeadmcontrolplanes"];
/// How long a watch lags behind, after its first event.
const LAGS: Duration = Duration::from_secs(8);
/// How long a cluster may take to come up beside the others.
const PATIENCE: Duration = Duration::from_secs(300);

/// One cluster for each watch, side by side. The watch is held back from the beginning until some time after its
/// first event. Then the cluster comes up, and everything in it was made once.
pub(crate) async fn watches_one_by_one(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let shared = &*bed;
    let watches = if is_full() { WATCHES } else { &WATCHES[..3] };
    try_join_all(watches.iter().map(|resource| async move {
        lagging(shared, resource).await.with_context(|| format!("the watch of {resource} lags behind"))
    }))
    .await?;
    bed.start_manager(0).await
}

async fn lagging(bed: &Bed, resource: &str) -> Result<()> {
    let (client, namespace) = (bed.client(), format!("stale-{resource}"));
    ClusterHandle::make_namespace(&client, &namespace).await?;
    let manager = FaultyManager::start(bed, &namespace, Some(&namespace), Vec::new()).await?;
    manager.hold_watch(resource);
    let before = bed.plane.mark();
    let manifests = Manifests::new(&namespace, "demo")?;
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    until(format!("events of {resource} are kept"), PATIENCE, async || Ok((manager.kept(resource) > 0).then_some(())))
        .await?;
    tokio::time::sleep(LAGS).await;
    let kept = manager.release_watch(resource);
    let load = LowLoad::begin_early(bed, &handle).await?;
    println!("stale::watches_one_by_one: {kept} pieces of the watch of {resource} were kept");
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    bed.exactly(&[(&handle, 3)]).await?;
    made_once(bed, &namespace, before)?;
    load.judged().await?;
    manager.stop().await?;
    Ok(())
}
