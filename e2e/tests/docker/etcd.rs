//! Etcd on machines of the docker infrastructure.

mod times;

use crate::clusters::{PATIENCE, deleted_without_a_trace};
use anyhow::{Result, ensure};
use e2e::bed::{ClusterHandle, Manifests};
use e2e::docker::{DockerBed, EXAMPLE};
use e2e::until::until;
use std::time::Instant;

/// One apply makes three members on unmodified infrastructure. Etcd, the control plane and the containers agree, and a
/// deletion leaves nothing.
pub(crate) async fn three_members(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "etcd").await?;
    let manifests = Manifests::of(EXAMPLE, "etcd", "demo")?;
    let handle = ClusterHandle::new(&client, &manifests);
    let (begun, mark) = (Instant::now(), bed.plane.mark());
    manifests.apply(&client).await?;
    let status = handle.until_ready(PATIENCE).await?;
    let ready = begun.elapsed();
    times::print(bed, &handle, mark).await?;
    println!("  {:<62}{:>4.1}", "EtcdCluster Ready", ready.as_secs_f32());
    ensure!(status.members.len() == 3 && status.ready_replicas == 3, "{:?}", status.members);
    let endpoints: Vec<String> = status.endpoints.split(',').map(str::to_owned).collect();
    until("the control plane has etcd's endpoints", PATIENCE, async || {
        let published = handle.control_plane_endpoints().await?;
        ensure!(published == endpoints, "the control plane has {published:?}, the status {endpoints:?}");
        Ok(Some(()))
    })
    .await?;

    let list = bed.exec("demo-etcd-0", &["/opt/bin/etcdctl.sh", "member", "list"]).await?;
    let voters = list.lines().filter(|line| line.contains(", started, ") && line.ends_with(", false")).count();
    ensure!(voters == 3 && list.lines().count() == 3, "etcd's own list of members:\n{list}");
    for machine in ["demo-etcd-0", "demo-etcd-1", "demo-etcd-2"] {
        let unit = bed.exec(machine, &["systemctl", "show", "etcd", "--property=ActiveState,UnitFileState"]).await?;
        ensure!(unit == "ActiveState=active\nUnitFileState=enabled\n", "systemd on {machine} says {unit}");
    }
    deleted_without_a_trace(bed, &handle).await
}
