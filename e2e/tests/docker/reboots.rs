//! Machines reboot, one after another and all at once, and everything recovers by itself.
//!
//! Docker assigns addresses in the order in which containers start, so each may get another one after a power cut. Etcd
//! cannot work like that. Neither the docker infrastructure nor docker can keep addresses, but the images of machines
//! do.

use crate::clusters::{PATIENCE, look_closely, up};
use anyhow::{Context, Result, ensure};
use e2e::bed::{ClusterHandle, Manifests};
use e2e::docker::{DockerBed, Workload};
use e2e::until::until;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;
use std::time::Instant;

/// Three members, a control-plane node, a worker.
const WHOLE: &str = "examples/docker/cluster.yaml";
const ETCDCTL: &str = "/opt/bin/etcdctl.sh";

/// Every container of a cluster with a control-plane node and a worker reboots, first one after another and then all at
/// once, including the load balancer. Afterwards Kubernetes works, and has everything that was stored.
pub(crate) async fn of_a_whole_cluster(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "reboots-all").await?;
    let manifests = Manifests::of(WHOLE, "reboots-all", "reboots-all")?;
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    let workload = Workload::until_ready(bed, &handle, PATIENCE).await?;
    let nodes = workload.until_nodes(2, PATIENCE).await?;
    workload.store("before").await?;

    let containers: Vec<String> = bed.containers().await?;
    let etcd = handle.member_names(3);
    for machine in &containers {
        let begun = Instant::now();
        if etcd.contains(machine) {
            bed.reboot(machine).await?;
        } else {
            // Nodes wait a minute and a half for their Pods' sandboxes, and a load balancer has no systemd.
            bed.power_cut(std::slice::from_ref(machine)).await?;
        }
        well_again(bed, &handle, &workload, &nodes, machine).await?;
        println!("  {machine:<36} rebooted: all well after {:>5.1} s", begun.elapsed().as_secs_f32());
    }
    let begun = Instant::now();
    bed.power_cut(&containers).await?;
    well_again(bed, &handle, &workload, &nodes, "power-cut").await?;
    println!("  {:<36} all well after {:>5.1} s", "power cut", begun.elapsed().as_secs_f32());
    Ok(())
}

/// Waits until stored objects can be read, more can be stored, every member is healthy, and every Node's kubelet has
/// reported after the reboot.
async fn well_again(
    bed: &DockerBed,
    handle: &ClusterHandle,
    workload: &Workload,
    nodes: &[String],
    after: &str,
) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(workload.client(), "kube-node-lease");
    let maps: Api<ConfigMap> = Api::namespaced(workload.client(), "kube-system");
    let mut attempt = 0;
    let mut renewed = BTreeMap::new();
    until(format!("the API server works after {after}"), PATIENCE, async || {
        maps.get("before").await.context("read what was stored before")?;
        attempt += 1;
        workload.store(&format!("{after}-{attempt}")).await?;
        for lease in leases.list(&ListParams::default()).await?.items {
            renewed.insert(lease.name_any(), lease.spec.and_then(|spec| spec.renew_time));
        }
        Ok(Some(()))
    })
    .await?;
    until(format!("etcd and the kubelets are well after {after}"), PATIENCE, async || {
        for member in handle.member_names(3) {
            bed.exec(&member, &[ETCDCTL, "endpoint", "health", "--command-timeout=2s"]).await?;
        }
        for node in nodes {
            let lease = leases.get(node).await.with_context(|| format!("lease of {node}"))?;
            let again = lease.spec.and_then(|spec| spec.renew_time);
            ensure!(renewed.get(node) != Some(&again), "the kubelet of {node} has not reported since");
        }
        Ok(Some(()))
    })
    .await?;
    let ready = workload.until_nodes(nodes.len(), PATIENCE).await?;
    ensure!(ready == nodes, "Nodes were {nodes:?}, and are {ready:?}");
    Ok(())
}

/// Each machine reboots by `systemctl reboot`, one when etcd is whole again after the other. Then the power of all of
/// them is cut. What was written is there, addresses and members are the same, and the control plane has not changed.
pub(crate) async fn of_etcds_machines(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    ClusterHandle::make_namespace(&bed.client(), "reboots").await?;
    let handle = up(bed, "reboots", "reboots", 3).await?;
    look_closely(&handle).await?;
    let machines = handle.member_names(3);
    let before = handle.until_ready(PATIENCE).await?;
    let endpoints = handle.control_plane_endpoints().await?;
    let control_plane = handle.control_plane_machines().await?;
    bed.exec(&machines[0], &[ETCDCTL, "put", "/written", "before"]).await?;

    for machine in &machines {
        let begun = Instant::now();
        bed.reboot(machine).await?;
        let down = begun.elapsed().as_secs_f32();
        all_serve(bed, &machines).await?;
        println!("  {machine} rebooted after {down:>4.1} s, served after {:>4.1} s", begun.elapsed().as_secs_f32());
    }

    let begun = Instant::now();
    bed.power_cut(&machines).await?;
    let mut given = Vec::new();
    for machine in &machines {
        given.push(bed.address(machine).await?);
    }
    all_serve(bed, &machines).await?;
    println!(
        "  power cut: all served after {:>4.1} s; docker gave {}",
        begun.elapsed().as_secs_f32(),
        given.join(", ")
    );

    let after = until("etcd is as it was", PATIENCE, async || {
        let status = handle.status().await?;
        let well = status.ready && status.members.iter().all(|member| member.healthy_since.is_some());
        ensure!(well, "ready: {}, members: {:?}", status.ready, status.members);
        Ok(Some(status))
    })
    .await?;
    ensure!(
        after.cluster_id == before.cluster_id,
        "another etcd: {} instead of {}",
        after.cluster_id,
        before.cluster_id
    );
    let members = |status: &api::EtcdClusterStatus| -> Vec<_> {
        status
            .members
            .iter()
            .map(|member| (member.name.clone(), member.id.clone(), member.client_url.clone()))
            .collect()
    };
    ensure!(members(&after) == members(&before), "{:?} instead of {:?}", members(&after), members(&before));
    ensure!(handle.control_plane_endpoints().await? == endpoints, "the endpoints have changed");
    ensure!(handle.control_plane_machines().await? == control_plane, "the control plane has rolled");
    Ok(())
}

/// Waits until every machine answers by itself, and has what was written.
async fn all_serve(bed: &DockerBed, machines: &[String]) -> Result<()> {
    for machine in machines {
        until(format!("{machine} serves"), PATIENCE, async || {
            let own = format!("{ETCDCTL} --command-timeout=2s get /written --print-value-only");
            let value = bed.exec(machine, &["sh", "-c", &own]).await.context("ask etcd")?;
            ensure!(value.trim() == "before", "it has {value:?}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}
