//! `move`: `clusterctl move`, with what it takes to have etcd moved too. The same command again goes on where one was
//! cut.

mod place;

use super::print;
use crate::connection::Options;
use crate::moving::{Stand, not_found_again, obstacles, says_paused, stand};
use anyhow::{Context, Result, bail, ensure};
use place::Place;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::process::Command;

/// How long the controllers of the source have to say that they are paused.
const PAUSES: u32 = 120;
/// How long those of the target have to find all members again: machines, addresses, certificates, answers.
const FINDS: u32 = 600;
/// Between two looks.
const LOOKS: Duration = Duration::from_secs(1);

/// Arguments of `move`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "All Clusters of the namespace are moved. If it fails or is cut, nothing acts on etcd from either side: the same command again goes on."
)]
pub struct Arguments {
    /// Kubeconfig file of the management cluster to move to
    #[arg(long, value_name = "FILE")]
    pub to_kubeconfig: PathBuf,
    /// Context of that kubeconfig to use
    #[arg(long, value_name = "NAME")]
    pub to_context: Option<String>,
    /// The program clusterctl, if it is not in the PATH
    #[arg(long, value_name = "FILE", default_value = "clusterctl")]
    pub clusterctl: PathBuf,
    /// Tell whether it could be moved, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Give up a move that has deleted nothing yet: what is in the target goes, and the source goes on
    #[arg(long, conflicts_with = "dry_run")]
    pub undo: bool,
}

/// Moves, or goes on with it.
///
/// # Errors
/// When something keeps it from beginning, or it stops on the way: the error says how to go on.
pub async fn run(arguments: Arguments, options: &Options) -> Result<ExitCode> {
    let source = Place::connect(options).await.context("the management cluster to move from")?;
    let there = Options {
        kubeconfig: Some(arguments.to_kubeconfig.clone()),
        context: arguments.to_context.clone(),
        namespace: Some(source.namespace.clone()),
    };
    let target = Place::connect(&there).await.context("the management cluster to move to")?;
    let (here, there) = (source.identity().await?, target.identity().await?);
    ensure!(here.is_none() || here != there, "both kubeconfigs lead to the same management cluster");
    let how_far = stand_of(&source, &target).await?;
    if arguments.dry_run {
        return tell(&source, &target, how_far).await;
    }
    if arguments.undo {
        return give_up(&source, &target, how_far).await;
    }
    match how_far {
        Stand::Nothing => bail!("there is no Cluster in namespace {}", source.namespace),
        Stand::Unclear => bail!("{UNCLEAR}"),
        Stand::NotBegun | Stand::Created => make(&source, &target, how_far, (&arguments, options)).await?,
        Stand::Leaving => {
            say("Everything is in the target: what is left in the source is taken away.")?;
            source.take_away(&target.side().await?).await.context(GO_ON)?;
        }
        Stand::Arrived => {}
    }
    let left = source.side().await?.left();
    ensure!(stand_of(&source, &target).await? == Stand::Arrived, "left in the source: {left}. {GO_ON}");
    finish(&target).await.context(GO_ON)?;
    say("Moved. The target looks after etcd now.")?;
    Ok(ExitCode::SUCCESS)
}

const GO_ON: &str = "the move is not finished, and both sides are paused: run the same command again to go on";
const UNCLEAR: &str = "both management clusters have Clusters in this namespace, and this is not a move under way: the source is not paused, or the target has them from elsewhere. docs/move.md says what to do";

async fn stand_of(source: &Place, target: &Place) -> Result<Stand> {
    Ok(stand(&source.side().await?, &target.side().await?))
}

/// Says whether it could be moved.
async fn tell(source: &Place, target: &Place, how_far: Stand) -> Result<ExitCode> {
    let found = match how_far {
        Stand::Nothing => vec!["there is no Cluster in the namespace".to_owned()],
        Stand::Unclear => vec![UNCLEAR.to_owned()],
        Stand::NotBegun => hindrances(source, target).await?,
        Stand::Created | Stand::Leaving | Stand::Arrived => {
            say("A move is under way: the same command without --dry-run goes on.")?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    if found.is_empty() {
        say("It could be moved now, as far as etcd is concerned.")?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&found)?;
    Ok(ExitCode::FAILURE)
}

/// Takes away what has been made in the target, and lets the source go on.
async fn give_up(source: &Place, target: &Place, how_far: Stand) -> Result<ExitCode> {
    let side = source.side().await?;
    ensure!(how_far != Stand::Unclear, "{UNCLEAR}");
    ensure!(!matches!(how_far, Stand::Leaving | Stand::Arrived), "something has left the source already; {GO_ON}");
    ensure!(side.moving, "no move is under way in namespace {}", source.namespace);
    target.take_away(&side).await.context("the same command again goes on with giving up")?;
    undo(source).await?;
    say("The move is given up: the source looks after etcd, as before.")?;
    Ok(ExitCode::SUCCESS)
}

/// What keeps a move from beginning.
async fn hindrances(source: &Place, target: &Place) -> Result<Vec<String>> {
    let movable: BTreeSet<String> = source.movable().intersection(&target.movable()).cloned().collect();
    let snapshots = source.snapshots().await?;
    if snapshots.is_empty() {
        return Ok(vec!["there is no EtcdCluster in the namespace: clusterctl move does it".to_owned()]);
    }
    let mut found: Vec<String> = snapshots.iter().flat_map(|snapshot| obstacles(snapshot, &movable)).collect();
    // What was paused by clusterctl in an earlier attempt goes with that.
    if !source.side().await?.moving {
        let paused = source.paused_clusters().await?;
        found.extend(paused.iter().map(|name| format!("Cluster {name} is paused: end that first")));
    }
    Ok(found)
}

/// Has clusterctl make everything in the target, and delete it in the source.
async fn make(source: &Place, target: &Place, before: Stand, how: (&Arguments, &Options)) -> Result<()> {
    let found = hindrances(source, target).await?;
    if !found.is_empty() {
        let and = if before == Stand::Created { GO_ON } else { "nothing has been changed" };
        bail!("it cannot be moved now, and {and}:\n- {}", found.join("\n- "));
    }
    let moved = match prepare(source, target).await {
        Ok(()) => clusterctl(&source.namespace, how).await,
        Err(error) => Err(error),
    };
    let Err(error) = moved else { return Ok(()) };
    if stand_of(source, target).await? == Stand::NotBegun {
        undo(source).await.context("taking the pauses of the source away again")?;
        return Err(error.context("nothing was moved, and the source is as it was"));
    }
    Err(error.context(GO_ON))
}

/// Pauses etcd, and has clusterctl take its Machines for ones that work. What was begun in between is not moved.
async fn prepare(source: &Place, target: &Place) -> Result<()> {
    say("Pausing etcd in the source.")?;
    source.pause_etcds(true).await?;
    until(PAUSES, async || {
        let snapshots = source.snapshots().await?;
        let busy = snapshots.iter().find(|snapshot| !says_paused(snapshot));
        Ok(busy.map(|_| "the provider's manager has not said that etcd is paused".to_owned()))
    })
    .await?;
    let found = hindrances(source, target).await?;
    ensure!(found.is_empty(), "something has begun meanwhile: {}", found.join("; "));
    source.pause_machines(true).await?;
    until(PAUSES, async || {
        let busy = source.machine_at_work().await?;
        Ok(busy.map(|machine| format!("Cluster API has not said that Machine {machine} is paused")))
    })
    .await?;
    source.set_nodes(true).await?;
    // clusterctl moves no Cluster that is paused: it has paused those of an earlier attempt itself.
    source.resume_clusters().await
}

async fn clusterctl(namespace: &str, (arguments, options): (&Arguments, &Options)) -> Result<()> {
    let mut command = Command::new(&arguments.clusterctl);
    command.args(["move", "--namespace", namespace, "--to-kubeconfig"]).arg(&arguments.to_kubeconfig);
    if let Some(context) = &arguments.to_context {
        command.arg("--to-kubeconfig-context").arg(context);
    }
    if let Some(kubeconfig) = &options.kubeconfig {
        command.arg("--kubeconfig").arg(kubeconfig);
    }
    if let Some(context) = &options.context {
        command.arg("--kubeconfig-context").arg(context);
    }
    let status = command.status().await.with_context(|| format!("run {}", arguments.clusterctl.display()))?;
    ensure!(status.success(), "clusterctl move has ended with {status}");
    Ok(())
}

/// Ends what was prepared.
async fn undo(source: &Place) -> Result<()> {
    source.set_nodes(false).await?;
    source.pause_machines(false).await?;
    source.resume_clusters().await?;
    source.pause_etcds(false).await
}

/// Lets the target go on: Cluster API first, so that it tells where the machines are, and etcd's controller when that has
/// found all members again.
async fn finish(target: &Place) -> Result<()> {
    say("Everything is in the target. Waiting until its manager has found all members again.")?;
    target.resume_clusters().await?;
    target.pause_machines(false).await?;
    until(FINDS, async || {
        let snapshots = target.snapshots().await?;
        Ok(snapshots.iter().find_map(not_found_again))
    })
    .await?;
    target.pause_etcds(false).await
}

/// Looks until there is no reason to wait any more.
async fn until(looks: u32, mut look: impl AsyncFnMut() -> Result<Option<String>>) -> Result<()> {
    let mut last = String::new();
    for _ in 0..looks {
        match look().await? {
            None => return Ok(()),
            Some(why) => last = why,
        }
        tokio::time::sleep(LOOKS).await;
    }
    bail!("after {looks} looks: {last}")
}

fn say(line: &str) -> Result<()> {
    print(&[line.to_owned()])
}
