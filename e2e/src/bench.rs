//! Measurements, as a program (`make bench`) and never as tests. Each figure stands beside its goal and the closest
//! peer's figure.

mod bare;
mod clusters;
mod cost;
mod crowd;
mod deaths;
pub mod docker;
mod linear;
mod process;
mod rollout;
mod table;

use crate::bed::{Bed, ClusterHandle, Manifests};
use crate::world::World;
use anyhow::Result;
use bare::Pace;
use std::time::{Duration, Instant};
use table::Table;

pub use clusters::clusters;

/// How long a bring-up may take before the measurement gives up.
const PATIENCE: Duration = Duration::from_secs(180);

/// Measures everything and prints a table. `rounds` is the number of bring-ups of each kind; the median counts.
///
/// # Errors
/// If a cluster or a machine that is to be measured does not come up.
pub async fn run(world: &World, rounds: usize) -> Result<()> {
    let mut table = Table::default();
    let mut bed = Bed::start(world).await?;
    eprintln!("management plane ready after {:.1} s", bed.started_in.as_secs_f32());
    // The first bring-up of a plane takes longer: it does some things that later ones find done.
    bring_up(&bed, "warm-up").await?;
    bring_ups(&bed, rounds, &mut table).await?;
    rollout::measure(&bed, rounds, &mut table).await?;
    cost::requests(&bed, &mut table).await?;
    process::measure(&mut bed, &mut table).await?;
    crowd::measure(&mut bed, &mut table).await?;
    print!("{table}");
    Ok(())
}

/// Measures only what one reconcile costs beside 10, 100 and 1,000 clusters, and prints a table.
///
/// # Errors
/// If the measured cluster does not come up, or a reconcile costs more because of the other clusters.
pub async fn reconciles(world: &World) -> Result<()> {
    let mut table = Table::default();
    let mut bed = Bed::start(world).await?;
    let growth = crowd::measure(&mut bed, &mut table).await?;
    print!("{table}");
    growth.check()
}

/// Our bring-up, and the same three machines by scripts. They take turns, so that all run under the same conditions.
async fn bring_ups(bed: &Bed, rounds: usize, table: &mut Table) -> Result<()> {
    let (mut ours, mut by_hand, mut machines, mut together) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        ours.push(bring_up(bed, &format!("ours-{round}")).await?);
        by_hand.push(bare::through_cluster_api(bed, &format!("hand-{round}")).await?);
        machines.push(bare::machines_alone(bed, &format!("bare-{round}"), Pace::OneByOne).await?);
        together.push(bare::machines_alone(bed, &format!("beside-{round}"), Pace::SideBySide).await?);
        eprintln!(
            "round {}: ours {:.1} s, by hand through Cluster API {:.1} s, machines alone {:.1} s, side by side {:.1} s",
            round + 1,
            ours[round].as_secs_f64(),
            by_hand[round].as_secs_f64(),
            machines[round].as_secs_f64(),
            together[round].as_secs_f64()
        );
    }
    let [ours, by_hand, machines, together] =
        [ours, by_hand, machines, together].map(|times| median(times).as_secs_f64());
    table.row("apply → Ready, three members", format!("{ours:.1} s"), "≤ 6.5 s", "48–50 s on docker");
    table.row("same etcdadm steps, by hand through Cluster API", format!("{by_hand:.1} s"), "", "");
    table.row("  ratio", format!("{:.2}", ours / by_hand), "≤ 1.25", "");
    table.row("same etcdadm steps, no Kubernetes at all", format!("{machines:.1} s"), "", "22–26 s on docker");
    table.row("  ratio", format!("{:.2}", ours / machines), "≤ 1.0", "≈ 2");
    table.row("the same, learners side by side as ours", format!("{together:.1} s"), "", "");
    table.row("  ratio", format!("{:.2}", ours / together), "", "");
    Ok(())
}

/// Brings up one cluster in a namespace of its own, and leaves it there.
async fn bring_up(bed: &Bed, namespace: &str) -> Result<Duration> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manifests = Manifests::new(namespace, "demo")?;
    let begun = Instant::now();
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    handle.until_ready(PATIENCE).await?;
    let took = begun.elapsed();
    remove(bed, &handle).await?;
    Ok(took)
}

/// Deletes a cluster, so that the next measurement has the computer to itself.
async fn remove(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    handle.delete("Cluster", &handle.cluster).await?;
    crate::until::until(format!("the machines of {} are gone", handle.namespace), PATIENCE, async || {
        let machines = bed.machines.list()?;
        Ok(machines.iter().all(|machine| machine.spec().namespace != handle.namespace).then_some(()))
    })
    .await
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort();
    durations.get(durations.len() / 2).copied().unwrap_or_default()
}
