//! A GitOps loop applies the same manifest again and again, which restores the placeholder. Nothing changes, neither in
//! the management cluster nor in the workload cluster.

use crate::clusters::{PATIENCE, gone};
use anyhow::{Context, Result, ensure};
use api::names;
use e2e::apply::apply_object;
use e2e::bed::{ClusterHandle, Manifests};
use e2e::docker::{DockerBed, Workload};
use e2e::process::output;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DynamicObject;
use serde_json::json;
use std::time::{Duration, Instant};

/// How many times the placeholder is restored: half of them by server-side apply, and half by kubectl's default apply.
const RESTORATIONS: usize = 200;
/// How long it takes until all controllers have handled the last one, and a rollout would have begun.
const SETTLES: Duration = Duration::from_secs(30);

/// The control plane's generation changes at most once, no Machine is replaced, and kubeadm's configuration never
/// contains the placeholder.
pub(crate) async fn same_manifest_again(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "gitops").await?;
    let manifests = Manifests::of("examples/docker/cluster.yaml", "gitops", "gitops")?.replicas(1);
    let manifests = manifests.without(|document| document["kind"] == "MachineDeployment");
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    let workload = Workload::until_ready(bed, &handle, PATIENCE).await?;
    workload.until_nodes(1, PATIENCE).await?;
    let before = generation(&handle.control_plane().await?)?;
    let (endpoints, machines) = (handle.control_plane_endpoints().await?, handle.names("Machine", "").await?);

    let file = bed.world().state("gitops")?.join("cluster.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests.documents()});
    std::fs::write(&file, list.to_string()).with_context(|| format!("write {}", file.display()))?;
    let begun = Instant::now();
    for _ in 0..RESTORATIONS / 2 {
        for document in manifests.documents() {
            apply_object(&client, document).await?;
        }
        let mut kubectl = std::process::Command::new(&bed.world().tools().kubectl);
        kubectl.arg("--kubeconfig").arg(bed.plane.kubeconfig()?).args(["apply", "--filename"]).arg(&file);
        tokio::task::spawn_blocking(move || output(&mut kubectl)).await??;
        has_no_placeholder(&workload).await?;
    }
    println!("  {RESTORATIONS} restorations took {:.1} s", begun.elapsed().as_secs_f32());
    tokio::time::sleep(SETTLES).await;

    let after = generation(&handle.control_plane().await?)?;
    ensure!(after <= before + 1, "the control plane's generation went from {before} to {after}");
    let found = handle.control_plane_endpoints().await?;
    ensure!(found == endpoints, "the control plane had {endpoints:?}, and has {found:?}");
    let left = handle.names("Machine", "").await?;
    ensure!(left == machines, "Machines were {machines:?}, and are {left:?}");
    has_no_placeholder(&workload).await?;
    handle.delete("Cluster", &handle.cluster).await?;
    gone(bed, &handle).await
}

async fn has_no_placeholder(workload: &Workload) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(workload.client(), "kube-system");
    let map = maps.get("kubeadm-config").await.context("read kubeadm-config")?;
    let text = serde_json::to_string(&map.data)?;
    ensure!(!text.contains(names::PLACEHOLDER_ENDPOINT), "kubeadm-config contains the placeholder: {text}");
    Ok(())
}

fn generation(object: &DynamicObject) -> Result<i64> {
    object.metadata.generation.context("the API server counts generations")
}
