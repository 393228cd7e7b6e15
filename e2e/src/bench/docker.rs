//! Bring-up on Cluster API's docker infrastructure: each part of the way to a Kubernetes cluster.

use super::{PATIENCE, median};
use crate::bed::{Look, Manifests};
use crate::bench::table::Table;
use crate::demo::docker::travel;
use crate::demo::milestones::Milestones;
use crate::docker::DockerBed;
use crate::world::World;
use anyhow::{Context, Result};
use std::time::Instant;

const EXAMPLE: &str = "examples/docker/cluster.yaml";
/// What is measured, from the apply on; with its goal and the closest peer's figure.
const MILESTONES: [(&str, &str, &str); 4] = [
    ("EtcdCluster Ready", "29 s", "48–50 s"),
    ("control-plane Machine data", "", ""),
    ("Kubernetes API server ready", "70 s", "73 s by hand, one member"),
    ("first Node Ready", "", ""),
];

/// Measures `rounds` bring-ups, after one that does not count, and prints a table of medians: three members, one
/// control-plane node.
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
    print!("{table}");
    bed.stop().await
}

/// One bring-up, and its end, so that the next has the computer to itself.
async fn bring_up(bed: &DockerBed, name: &str) -> Result<Milestones> {
    let client = bed.client();
    Look::make_namespace(&client, name).await?;
    let manifests = Manifests::of(EXAMPLE, name, name)?.without(|document| document["kind"] == "MachineDeployment");
    let look = Look::at(&client, &manifests);
    let begun = Instant::now();
    manifests.apply(&client).await?;
    let (_, milestones) = travel(bed, &look, begun, 1, |_, _| ()).await?;
    look.delete("Cluster", &look.cluster).await?;
    look.until_nothing_is_left(&["Cluster", "Machine"], PATIENCE).await?;
    Ok(milestones)
}
