//! A person deletes Machines of etcd below a cluster that is in use.

use crate::clusters::{PATIENCE, gone};
use crate::writes::Writer;
use anyhow::{Result, ensure};
use e2e::bed::{ClusterHandle, Manifests};
use e2e::docker::{DockerBed, Workload};
use e2e::until::{Broken, until};
use futures::try_join;
use std::time::Duration;

/// How long it may take to replace two members one after the other, with a rollout of the control plane in between.
const REPLACED: Duration = Duration::from_secs(600);
/// How long replaced API servers may keep a writer from writing, until the load balancer notices.
const GAP: Duration = Duration::from_secs(30);

/// A person deletes two of three Machines at the same time. They are replaced one after the other: the second when the
/// control plane has rolled out with the endpoints of the members that stay. Writes go on.
pub(crate) async fn two_of_three_machines(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "by-hand").await?;
    let manifests = Manifests::of("examples/docker/cluster.yaml", "by-hand", "by-hand")?;
    let manifests = manifests.without(|document| document["kind"] == "MachineDeployment");
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    let workload = Workload::until_ready(bed, &handle, PATIENCE).await?;
    workload.until_nodes(1, PATIENCE).await?;
    let before = handle.etcd_machines().await?;
    let writer = Writer::start(&workload).await?;

    try_join!(handle.delete("Machine", &before[0]), handle.delete("Machine", &before[1]))?;
    until("three other members are well, and the control plane has their endpoints", REPLACED, async || {
        let (machines, status) = (handle.etcd_machines().await?, handle.status().await?);
        let available = status.conditions.iter().find(|condition| condition.type_ == "Available");
        ensure!(available.is_none_or(|condition| condition.status != "False"), Broken(format!("{available:?}")));
        ensure!(
            machines.len() == 3 && !before[..2].iter().any(|name| machines.contains(name)),
            "Machines {machines:?}"
        );
        ensure!(status.ready && status.ready_replicas == 3, "{:?}", status.conditions);
        let published = handle.control_plane_endpoints().await?.join(",");
        ensure!(published == status.endpoints, "the control plane has {published}, etcd {}", status.endpoints);
        Ok(Some(()))
    })
    .await?;
    workload.until_nodes(1, PATIENCE).await?;
    writer.stop(GAP).await?;
    handle.delete("Cluster", &handle.cluster).await?;
    gone(bed, &handle).await
}
