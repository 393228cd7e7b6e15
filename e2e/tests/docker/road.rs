//! The whole road: from one apply to a working Kubernetes cluster with an etcd of its own.

use crate::clusters::servers;
use crate::deletion::deleted;
use crate::departure::the_control_plane_was_woken;
use anyhow::{Result, ensure};
use e2e::bed::{ClusterHandle, Manifests};
use e2e::docker::{DockerBed, Workload};
use std::time::{Duration, Instant};

/// How long each stage may take, on a busy computer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Three members, one control-plane node and one worker. Then the deletion, in which the control plane must not wait
/// for an API server that has lost its etcd.
pub(crate) async fn one_control_plane(bed: &mut DockerBed) -> Result<()> {
    let handle = travel(bed, "examples/docker/cluster.yaml", "road1", 1).await?;
    let before = bed.plane.mark();
    deleted(bed, &handle, "with an API server that works").await?;
    the_control_plane_was_woken(&bed.plane.requests_since(before)?, &handle)
}

/// Three members, three control-plane nodes, one worker.
pub(crate) async fn three_control_planes(bed: &mut DockerBed) -> Result<()> {
    travel(bed, "examples/docker/three-control-planes.yaml", "road3", 3).await.map(drop)
}

/// The manifest of the managed-external-etcd proposal: three control-plane nodes, no workers, and the older kinds
/// DockerCluster and DockerMachine.
pub(crate) async fn of_the_proposal(bed: &mut DockerBed) -> Result<()> {
    let manifests = Manifests::of("examples/docker/proposal.yaml", "proposal", "my-cluster")?;
    let handle = ClusterHandle::new(&bed.client(), &manifests).with_etcd("my-cluster-etcd-cluster");
    follow(bed, &manifests, &handle, 3).await
}

/// Follows an example. Its one worker is one more Node.
pub(crate) async fn travel(
    bed: &mut DockerBed,
    example: &str,
    name: &str,
    control_planes: usize,
) -> Result<ClusterHandle> {
    let manifests = Manifests::of(example, name, name)?;
    let handle = ClusterHandle::new(&bed.client(), &manifests);
    follow(bed, &manifests, &handle, control_planes + 1).await?;
    Ok(handle)
}

/// Applies documents once, and does nothing by hand. Etcd becomes Ready, every Node becomes Ready, and every member's
/// data contains what is stored through the API server.
async fn follow(bed: &DockerBed, manifests: &Manifests, handle: &ClusterHandle, nodes: usize) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, &manifests.namespace).await?;
    let begun = Instant::now();
    manifests.apply(&client).await?;
    let lap = |what: &str| println!("  apply → {what:<32} {:>5.1} s", begun.elapsed().as_secs_f32());
    let status = handle.until_ready(PATIENCE).await?;
    lap("EtcdCluster Ready");
    ensure!(status.members.len() == 3 && status.ready_replicas == 3, "{:?}", status.members);
    handle.until_control_plane_data(PATIENCE).await?;
    lap("control-plane Machine data");
    let workload = Workload::until_ready(bed, handle, PATIENCE).await?;
    lap("Kubernetes API server ready");
    workload.store("it-works").await?;
    workload.until_nodes(nodes, PATIENCE).await?;
    lap("all Nodes Ready");

    let seen = workload.kubectl(&["get", "nodes", "--output", "name"])?;
    ensure!(seen.lines().count() == nodes, "kubectl sees {seen}");
    for member in &status.members {
        let keys = ["/opt/bin/etcdctl.sh", "get", "/registry/configmaps/kube-system/it-works", "--keys-only"];
        let found = bed.exec(&member.machine, &keys).await?;
        ensure!(found.contains("it-works"), "member {} has {found:?}", member.name);
    }
    // The examples have our condition in the Cluster's availability gates.
    handle.until_cluster_condition("Available", "True", "Available", PATIENCE).await?;
    let endpoints: Vec<&str> = status.endpoints.split(',').collect();
    for machine in handle.control_plane_machines().await? {
        let servers = servers(bed, &machine).await?;
        ensure!(servers == endpoints, "the API server on {machine} has {servers:?}, etcd {endpoints:?}");
    }
    Ok(())
}
