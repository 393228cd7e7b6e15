//! The gate: no control-plane Machine is made before etcd is Ready and the API servers' client certificate exists, in
//! whatever order things happen, and whether or not the hook is running.

use crate::clusters::{PATIENCE, annotate, applied, control_plane_machines, documents, gate_was_kept, gone, released};
use anyhow::{Context, Result, ensure};
use e2e::apply::apply_object;
use e2e::bed::ClusterHandle;
use e2e::docker::DockerBed;
use e2e::scenarios::{is_full, seed};
use e2e::until::until;
use futures::future::try_join_all;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::json;
use std::time::{Duration, Instant};

/// Clusters whose control plane races us: how many with `E2E_FULL`, how many without it, and how many at the same time.
const RACES: (usize, usize, usize) = (20, 4, 4);
/// How much earlier than our objects those of the control plane exist.
const HEAD_START: Duration = Duration::from_secs(5);
/// The message of the control plane's manager when the gate stops it.
const REFUSED: &str = "external certificate not found";

/// With the hook stopped, nothing pauses the control plane. It still makes no Machine: not before etcd is Ready, and
/// not then, because the client Secret is missing. When the hook is back, it goes on.
pub(crate) async fn hook_away(bed: &mut DockerBed) -> Result<()> {
    // Without bootstrap data, no machine becomes a member, however long the control plane's manager takes.
    bed.restart_manager_with(&["etcd-cluster"]).await?;
    ClusterHandle::make_namespace(&bed.client(), "gate-hook").await?;
    let before = bed.plane.mark();
    let handle = applied(bed, "gate-hook", "gate-hook", 1).await?;
    let refused = until("the control plane's manager has tried", PATIENCE, async || {
        let made = !handle.control_plane_machines().await?.is_empty();
        Ok(refusals(bed, &handle)?.or(made.then_some(0)))
    })
    .await?;
    ensure!(!handle.status().await?.ready, "etcd was Ready before the control plane's manager tried: nothing is shown");
    nothing_has_started(&handle).await?;

    bed.restart_manager_with(&["etcd-cluster", "etcdadm-bootstrap"]).await?;
    handle.until_ready(PATIENCE).await?;
    ensure!(!handle.control_plane_is_paused().await?, "somebody has paused the control plane; is the hook running?");
    annotate(&handle, "KubeadmControlPlane", &handle.control_plane, "example.org/look", Some("again")).await?;
    until("the control plane's manager has tried again", PATIENCE, async || {
        Ok(refusals(bed, &handle)?.filter(|now| *now > refused))
    })
    .await?;
    nothing_has_started(&handle).await?;
    let made = control_plane_machines(&bed.plane.requests_since(before)?, &handle);
    ensure!(made.is_empty(), "the control plane made a Machine:\n{made}");

    let begun = Instant::now();
    bed.restart_manager_with(&[]).await?;
    released(&handle).await?;
    println!("  the hook is back → first Machine {:>5.1} s", begun.elapsed().as_secs_f32());
    gate_was_kept(&bed.plane.requests_since(before)?, &handle)
}

/// The control plane's manager races us from the first moment, each time with the documents in another order.
pub(crate) async fn races(bed: &mut DockerBed) -> Result<()> {
    let races = if is_full() { RACES.0 } else { RACES.1 };
    let seed = seed()?;
    println!("  E2E_SEED={seed} repeats these orders");
    let mut orders = StdRng::seed_from_u64(seed);
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "gate-races").await?;
    let numbers: Vec<usize> = (1..=races).collect();
    for wave in numbers.chunks(RACES.2) {
        let begun = Instant::now();
        let before = bed.plane.mark();
        let clusters = wave.iter().map(|number| documents("gate-races", &format!("race-{number}"), 1));
        let clusters = clusters.collect::<Result<Vec<_>>>()?;
        let looks: Vec<ClusterHandle> =
            clusters.iter().map(|manifests| ClusterHandle::new(&client, manifests)).collect();
        let shuffled: Vec<_> = clusters
            .iter()
            .map(|manifests| {
                let mut documents = manifests.documents().to_vec();
                documents.shuffle(&mut orders);
                documents
            })
            .collect();
        try_join_all(shuffled.iter().map(async |documents| {
            for document in documents {
                apply_object(&client, document).await?;
            }
            anyhow::Ok(())
        }))
        .await?;
        try_join_all(looks.iter().map(released)).await?;
        let requests = bed.plane.requests_since(before)?;
        for handle in &looks {
            gate_was_kept(&requests, handle).with_context(|| format!("E2E_SEED={seed}, {}", handle.cluster))?;
        }
        println!("  {} to {}: released after {:.1} s", wave[0], wave[wave.len() - 1], begun.elapsed().as_secs_f32());
        for handle in &looks {
            handle.delete("Cluster", &handle.cluster).await?;
        }
        try_join_all(looks.iter().map(|handle| gone(bed, handle))).await?;
    }
    Ok(())
}

/// The control plane and everything that it needs exist seconds before any of our objects.
pub(crate) async fn control_plane_first(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "gate-first").await?;
    let before = bed.plane.mark();
    // Not even the Cluster names an etcd yet.
    let all = documents("gate-first", "gate-first", 1)?;
    let handle = ClusterHandle::new(&client, &all);
    let theirs = all.clone().without(|document| document["kind"] == "EtcdCluster").with("Cluster", |cluster| {
        cluster["metadata"]["annotations"] = json!({});
    });
    theirs.apply_in_order(&client, &["KubeadmControlPlane"]).await?;
    let begun = Instant::now();
    until("the control plane's manager has tried", PATIENCE, async || refusals(bed, &handle)).await?;
    tokio::time::sleep(HEAD_START.saturating_sub(begun.elapsed())).await;
    nothing_has_started(&handle).await?;
    ensure!(!handle.control_plane_is_paused().await?, "a Cluster that names no etcd is none of the hook's business");

    all.apply(&client).await?;
    released(&handle).await?;
    gate_was_kept(&bed.plane.requests_since(before)?, &handle)
}

/// How many times the gate kept the control plane's manager from making a Machine of this cluster; `None` if never.
fn refusals(bed: &DockerBed, handle: &ClusterHandle) -> Result<Option<usize>> {
    let log = bed.world().logs().join("capi-control-plane.log");
    let text = std::fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
    let found = text.lines().filter(|line| line.contains(REFUSED) && line.contains(&handle.control_plane)).count();
    Ok(Some(found).filter(|found| *found > 0))
}

/// The control plane has made nothing, and could not have.
async fn nothing_has_started(handle: &ClusterHandle) -> Result<()> {
    let machines = handle.control_plane_machines().await?;
    ensure!(machines.is_empty(), "the control plane has made Machines {machines:?}");
    let configs = handle.names("KubeadmConfig", "").await?;
    ensure!(configs.is_empty(), "the control plane has made KubeadmConfigs {configs:?}");
    let client = api::names::apiserver_client_secret(&handle.cluster);
    ensure!(!handle.secret_names().await?.contains(&client), "Secret {client} is there");
    Ok(())
}
