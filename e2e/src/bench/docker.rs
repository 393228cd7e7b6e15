//! On Cluster API's docker infrastructure: the milestones of a bring-up up to a Kubernetes cluster, and the death of a
//! member.

use super::{PATIENCE, median};
use crate::bed::{ClusterHandle, Manifests};
use crate::bench::table::Table;
use crate::demo::docker::travel;
use crate::demo::milestones::Milestones;
use crate::docker::DockerBed;
use crate::percentile::percentile;
use crate::until::until;
use crate::world::World;
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

const EXAMPLE: &str = "examples/docker/cluster.yaml";
/// The fewest members that are killed, one after the other. The slowest of fewer would say little.
const KILLS: usize = 5;
/// How long everything settles before the next member is killed.
const SETTLES: Duration = Duration::from_secs(15);
/// The milestones, measured from the apply on, each with its goal and the closest peer's figure.
const MILESTONES: [(&str, &str, &str); 4] = [
    ("EtcdCluster Ready", "15 s", "48–50 s"),
    ("control-plane Machine data", "", ""),
    ("Kubernetes API server ready", "70 s", "73 s by hand, one member"),
    ("first Node Ready", "", ""),
];

/// Measures `rounds` bring-ups of three members and one control-plane node, after one that does not count. Prints a
/// table of medians.
///
/// # Errors
/// If a cluster does not come up or is not gone in time.
pub async fn run(world: &World, rounds: usize) -> Result<()> {
    let begun = Instant::now();
    let bed = DockerBed::start(world).await?;
    eprintln!("Docker and management plane ready after {:.1} s", begun.elapsed().as_secs_f32());
    bring_up(&bed, "warm-up").await?;
    let mut seen = Vec::new();
    for round in 0..rounds {
        let milestones = bring_up(&bed, &format!("docker-{round}")).await?;
        eprintln!("round {}", round + 1);
        milestones.table().iter().for_each(|line| eprintln!("{line}"));
        seen.push(milestones);
    }
    let mut table = Table::default();
    for (what, goal, peer) in MILESTONES {
        let times: Option<Vec<_>> = seen.iter().map(|milestones| milestones.when(what)).collect();
        let figure = median(times.with_context(|| format!("{what} was not reached"))?);
        table.row(&format!("apply → {what}, on docker"), format!("{:.1} s", figure.as_secs_f64()), goal, peer);
    }
    let mut times = kills(&bed, rounds.max(KILLS)).await?;
    times.sort();
    let what = format!("member killed → three healthy voters, on docker, of {}:", times.len());
    let figure = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    table.row(&format!("{what} median"), figure(median(times.clone())), "", "153–158 s");
    table.row(&format!("{what} p95"), figure(percentile(&times, 95).unwrap_or_default()), "≤ 90 s", "");
    print!("{table}");
    bed.stop().await
}

/// Kills the machine of a follower, and next time that of the leader, this many times in all, each time when all three
/// members are healthy. Returns how long it took each time until they were healthy again: 60 s of failing checks, which
/// is the default, and the replacement.
async fn kills(bed: &DockerBed, times: usize) -> Result<Vec<Duration>> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "docker-kills").await?;
    let manifests = Manifests::of(EXAMPLE, "docker-kills", "docker-kills")?;
    let manifests = manifests.without(|document| document["kind"] == "MachineDeployment").without_control_plane();
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    let mut took = Vec::new();
    for round in 0..times {
        tokio::time::sleep(SETTLES).await;
        let status = handle.status().await?;
        let leads = round % 2 == 1;
        let victim =
            status.members.into_iter().find(|member| member.leader == leads).context("no such member")?.machine;
        let begun = Instant::now();
        bed.kill(&victim).await?;
        until(format!("{victim} is replaced"), PATIENCE * 2, async || {
            let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
            let is_gone = machines.len() == 3 && !machines.contains(&victim);
            ensure!(is_gone && status.ready && status.ready_replicas == 3, "{machines:?}: {:?}", status.conditions);
            ensure!(status.members.len() == 3, "the members are {:?}", status.members);
            Ok(Some(()))
        })
        .await?;
        took.push(begun.elapsed());
        eprintln!("kill {}: {:.1} s", round + 1, took[round].as_secs_f64());
    }
    handle.delete("Cluster", &handle.cluster).await?;
    handle.until_nothing_is_left(&["Cluster", "Machine"], PATIENCE).await?;
    Ok(took)
}

/// One bring-up, and the deletion of its cluster, so that the next one has the computer to itself.
async fn bring_up(bed: &DockerBed, name: &str) -> Result<Milestones> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, name).await?;
    let manifests = Manifests::of(EXAMPLE, name, name)?.without(|document| document["kind"] == "MachineDeployment");
    let handle = ClusterHandle::new(&client, &manifests);
    let begun = Instant::now();
    manifests.apply(&client).await?;
    let (_, milestones) = travel(bed, &handle, begun, 1, |_, _| ()).await?;
    handle.delete("Cluster", &handle.cluster).await?;
    handle.until_nothing_is_left(&["Cluster", "Machine"], PATIENCE).await?;
    Ok(milestones)
}
