//! One of our watches lags behind: our decisions are based on old state, and still nothing is made twice.

use crate::boots::look_again;
use crate::bring_up::released;
use crate::kills::made_once;
use crate::load::LowLoad;
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::faults::FaultyManager;
use e2e::scenarios::is_full;
use e2e::until::until;
use futures::future::try_join_all;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// What our manager watches while a cluster comes up. Without `E2E_FULL` only the first three lag behind: these are
/// what it decides on membership by.
const WATCHES: &[&str] = &[
    "machines",
    "secrets",
    "etcdclusters",
    "clusters",
    "etcdadmconfigs",
    "kubeadmcontrolplanes",
    "configmaps",
    "localclusters",
    "localmachinetemplates",
];
/// How often a change of the spec makes the manager decide again while a watch lags behind.
const DECISIONS: i64 = 3;
/// How long a watch lags behind at least, after its first event.
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

/// Another client changes the EtcdCluster, and our manager's watch does not show it for as long as this takes. Our
/// writes are refused until the manager reads the EtcdCluster itself, so the cluster comes up all the same.
pub(crate) async fn beside_another_writer(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let (client, namespace) = (bed.client(), "stale-writer");
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manager = FaultyManager::start(bed, namespace, Some(namespace), Vec::new()).await?;
    let before = bed.plane.mark();
    let manifests = Manifests::new(namespace, "demo")?;
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    until("the manager knows the EtcdCluster", PATIENCE, async || {
        let etcd = handle.etcds().get(&handle.etcd).await?;
        Ok((!etcd.finalizers().is_empty()).then_some(()))
    })
    .await?;
    manager.hold_watch("etcdclusters");
    let note = json!({"metadata": {"annotations": {"example.com/note": "by another client"}}});
    handle.etcds().patch(&handle.etcd, &PatchParams::default(), &Patch::Merge(&note)).await?;
    let load = LowLoad::begin_early(bed, &handle).await?;
    handle.until_ready(PATIENCE).await?;
    let kept = manager.release_watch("etcdclusters");
    ensure!(kept > 0, "the watch has shown everything: nothing is shown");
    released(&handle).await?;
    bed.exactly(&[(&handle, 3)]).await?;
    made_once(bed, namespace, before)?;
    load.judged_of(bed, 3).await?;
    manager.stop().await?;
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
    // Without this, only retries make it decide again, and a slow computer has few of those in this time. Changes of the
    // spec are not seen where their own watch lags behind.
    for decision in 1..=if resource == "etcdclusters" { 0 } else { DECISIONS } {
        look_again(&handle, &json!({"spec": {"healthCheck": {"unhealthyAfterSeconds": 60 + decision}}})).await?;
    }
    tokio::time::sleep(LAGS).await;
    let kept = manager.release_watch(resource);
    let load = LowLoad::begin_early(bed, &handle).await?;
    println!("stale::watches_one_by_one: {kept} pieces of the watch of {resource} were kept");
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    bed.exactly(&[(&handle, 3)]).await?;
    made_once(bed, &namespace, before)?;
    load.judged_of(bed, 3).await?;
    manager.stop().await?;
    Ok(())
}
