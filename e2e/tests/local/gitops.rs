//! A client applies the same manifest again and again, which restores the placeholder in it. No machine gets it.

use crate::bring_up::{PATIENCE, released};
use crate::records::warnings;
use anyhow::{Context, Result, ensure};
use api::names;
use e2e::apply::{FIELD_MANAGER, apply_object};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::process::output;
use e2e::until::until;
use kube::api::{DynamicObject, ListParams};
use std::path::Path;
use std::time::Duration;

/// How many applies of each kind there are, server-side and client-side.
const ROUNDS: usize = 6;
/// How long all controllers may take to react to the last apply.
const SETTLES: Duration = Duration::from_secs(5);

/// With a real control plane, whose Machines get no further than their bootstrap data: its generation changes at most
/// once, its Machine stays, and no bootstrap data contain the placeholder.
pub(crate) async fn same_manifest_again(bed: &mut Bed) -> Result<()> {
    let applied = apply_again(bed).await?;
    let (first, last) = applied.generations;
    ensure!(last <= first + 1, "after {} applies its generation went from {first} to {last}", ROUNDS * 2);
    Ok(())
}

/// The same without the admission policy, as before Kubernetes 1.36. The hook restores the endpoints, and says who
/// overwrites them. It restores them less often than they are overwritten.
pub(crate) async fn without_the_policy(bed: &mut Bed) -> Result<()> {
    let Applied { handle, generations: (first, last) } = apply_again(bed).await?;
    ensure!(last > first + 1, "the placeholder was never there: a policy has kept the endpoints");
    ensure!(
        last - first < 2 * ROUNDS as i64,
        "after {} applies its generation went from {first} to {last}",
        ROUNDS * 2
    );
    handle.until_cluster_condition("ManagedExternalEtcdReady", "True", "Ready", PATIENCE).await?;
    ensure!(!handle.control_plane_is_paused().await?, "the control plane is still paused");
    let told = warnings(&bed.client(), &handle.namespace).await?;
    let is_named = |text: &String| text.contains("EndpointsRevertedByOthers") && text.contains(FIELD_MANAGER);
    ensure!(told.iter().any(is_named), "nobody is named: {told:#?}");
    Ok(())
}

/// A cluster whose manifest was applied again and again.
struct Applied {
    handle: ClusterHandle,
    /// Generations of its control plane before and after.
    generations: (i64, i64),
}

/// Applies the manifest of a cluster that is up in both ways, and checks what is true with and without the policy.
async fn apply_again(bed: &Bed) -> Result<Applied> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "gitops").await?;
    let manifests = Manifests::new("gitops", "demo")?.replicas(1);
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    let endpoints = handle.control_plane_endpoints().await?;
    let before = handle.control_plane().await?;
    let machines = handle.control_plane_machines().await?;

    let file = bed.world().state("gitops")?.join("cluster.json");
    write(&manifests, &file)?;
    for _ in 0..ROUNDS {
        for document in manifests.documents() {
            apply_object(&client, document).await?;
        }
        let mut kubectl = bed.kubectl()?;
        kubectl.arg("--kubeconfig").arg(bed.plane.kubeconfig()?).args(["apply", "--filename"]).arg(&file);
        tokio::task::spawn_blocking(move || output(&mut kubectl)).await??;
    }
    tokio::time::sleep(SETTLES).await;

    until("the control plane has etcd's endpoints", PATIENCE, async || {
        let found = handle.control_plane_endpoints().await?;
        ensure!(found == endpoints, "it had {endpoints:?}, and has {found:?}");
        Ok(Some(()))
    })
    .await?;
    let (first, last) = (generation(&before)?, generation(&handle.control_plane().await?)?);
    println!("  {} applies: generation {first} → {last}", ROUNDS * 2);
    let found = handle.control_plane_machines().await?;
    ensure!(found == machines, "its Machines were {machines:?}, and are {found:?}");
    for name in &found {
        let data = handle.secret(name, "value").await?;
        ensure!(!data.contains(names::PLACEHOLDER_ENDPOINT), "the data of {name} contain the placeholder");
    }
    for config in handle.api("KubeadmConfig").list(&ListParams::default()).await? {
        let text = serde_json::to_string(&config.data)?;
        ensure!(!text.contains(names::PLACEHOLDER_ENDPOINT), "{:?} contains the placeholder", config.metadata.name);
    }
    Ok(Applied { handle, generations: (first, last) })
}

fn generation(object: &DynamicObject) -> Result<i64> {
    object.metadata.generation.context("the API server counts generations")
}

/// The documents as one file, for kubectl.
fn write(manifests: &Manifests, file: &Path) -> Result<()> {
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": manifests.documents()});
    std::fs::write(file, list.to_string()).with_context(|| format!("write {}", file.display()))
}
