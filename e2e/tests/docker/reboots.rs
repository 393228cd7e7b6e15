//! Etcd's machines reboot, one after another and all at once, and everything comes back by itself.
//!
//! Docker gives addresses away in the order in which containers start, so after a power cut each may get another's. Etcd
//! can't live with that, and neither the docker infrastructure nor docker offers to keep them; the machines' image does.

use crate::clusters::{PATIENCE, change, up};
use anyhow::{Context, Result, ensure};
use e2e::bed::Look;
use e2e::docker::DockerBed;
use e2e::until::until;
use serde_json::json;
use std::time::Instant;

const ETCDCTL: &str = "/opt/bin/etcdctl.sh";

/// Each machine reboots by `systemctl reboot`, the next one when etcd is whole again; then the power of all of them is cut.
/// What was written is there, addresses and members are the same, the control plane has not been touched.
pub(crate) async fn of_all_machines(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    Look::make_namespace(&bed.client(), "reboots").await?;
    let look = up(bed, "reboots", "reboots", 3).await?;
    let closely = json!({"spec": {"healthCheck": {"intervalSeconds": 1, "unhealthyAfterSeconds": 2}}});
    change(&look, "EtcdCluster", &look.etcd, &closely).await?;
    let machines = look.member_names(3);
    let before = look.until_ready(PATIENCE).await?;
    let endpoints = look.control_plane_endpoints().await?;
    let control_plane = look.control_plane_machines().await?;
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
        let status = look.status().await?;
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
    ensure!(look.control_plane_endpoints().await? == endpoints, "the endpoints have changed");
    ensure!(look.control_plane_machines().await? == control_plane, "the control plane has rolled");
    Ok(())
}

/// Waits until every machine answers for itself, and has what was written.
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
