//! Nothing fails, but the computer is busy: there are no warnings, and a cluster that is Available stays so.

use crate::bring_up::{PATIENCE, released};
use crate::records::{Record, always_available, warnings};
use anyhow::{Context, Result, ensure};
use api::EtcdCluster;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::scenarios::is_full;
use e2e::until::until;
use futures::future::try_join_all;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The sizes that a cluster goes through.
const LIVES: [&[usize]; 3] = [&[3], &[1, 3], &[3, 5]];
/// How many clusters there are in all, and how many with `E2E_FULL` set.
const WAYS: (usize, usize) = (3, 50);
/// Clusters side by side.
const AT_ONCE: usize = 3;

/// Clusters with three members, clusters that grow from one member to three or from three to five, three clusters at
/// a time, on a computer whose processors are all busy.
pub(crate) async fn nobody_is_warned(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let ways = if is_full() { WAYS.1 } else { WAYS.0 };
    let _load = Load::start();
    let mut begun = 0;
    while begun < ways {
        let batch: Vec<usize> = (begun..ways.min(begun + AT_ONCE)).collect();
        begun += batch.len();
        let looks = try_join_all(batch.into_iter().map(|number| async move {
            let sizes = LIVES[number % LIVES.len()];
            live(bed, number, sizes).await.with_context(|| format!("cluster {number}, of sizes {sizes:?}"))
        }));
        for handle in looks.await? {
            handle.delete("Cluster", &handle.cluster).await?;
        }
    }
    println!("without_faults::nobody_is_warned: {begun} clusters");
    Ok(())
}

async fn live(bed: &Bed, number: usize, sizes: &[usize]) -> Result<ClusterHandle> {
    let client = bed.client();
    let namespace = format!("without-faults-{number}");
    ClusterHandle::make_namespace(&client, &namespace).await?;
    let record = Record::of(&client, &namespace).await?;
    let manifests = Manifests::new(&namespace, "demo")?.replicas(i64::try_from(sizes[0])?);
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    for size in sizes {
        let patch = Patch::Merge(json!({"spec": {"replicas": size}}));
        handle.etcds().patch(&handle.etcd, &PatchParams::default(), &patch).await?;
        until(format!("{size} members are ready"), PATIENCE * 2, async || {
            let status = handle.status().await?;
            ensure!(status.ready && status.members.len() == *size, "{:?}", status.conditions);
            Ok(Some(()))
        })
        .await?;
        released_with(&handle, *size).await?;
    }
    // Events come a moment after what they are about.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let warnings = warnings(&client, &namespace).await?;
    ensure!(warnings.is_empty(), "{} warnings: {warnings:#?}", warnings.len());
    let states = record.stop().await?;
    always_available(&states)?;
    nobody_is_doubted(&states)?;
    Ok(handle)
}

/// Checks that no status says that a member runs on no Machine: a lagging watch is not a reason to say so.
fn nobody_is_doubted(states: &[EtcdCluster]) -> Result<()> {
    let conditions = states.iter().filter_map(|etcd| etcd.status.as_ref()).flat_map(|status| &status.conditions);
    let doubts: Vec<&str> = conditions
        .map(|condition| condition.message.as_str())
        .filter(|said| said.contains("runs on no Machine"))
        .collect();
    ensure!(doubts.is_empty(), "it was said: {doubts:#?}");
    Ok(())
}

/// The control plane has the endpoints of all members.
async fn released_with(handle: &ClusterHandle, size: usize) -> Result<()> {
    until(format!("the control plane has {size} endpoints"), PATIENCE, async || {
        let found = handle.control_plane_endpoints().await?;
        ensure!(found.len() == size && !found.iter().any(|url| url.contains("placeholder")), "it has {found:?}");
        Ok(Some(()))
    })
    .await?;
    if size == 3 && handle.control_plane_machines().await?.is_empty() { released(handle).await } else { Ok(()) }
}

/// Keeps every processor busy until it is dropped.
struct Load(Arc<AtomicBool>);

impl Load {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(stop)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
