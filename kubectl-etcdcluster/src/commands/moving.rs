//! `move`: `clusterctl move`, with all that is needed to move etcd too. If a move was interrupted, the same command
//! continues it.

mod place;
mod turn;

use super::print;
use crate::connection::Options;
use crate::moving::{
    Progress, not_found_again, of_clusters, of_etcd_cluster, of_secrets, of_staying, of_target, progress, says_paused,
};
use anyhow::{Context, Result, bail, ensure};
use place::Place;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;
use turn::Turn;

/// How long the controllers of the source may take to report that they are paused.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the controllers of the target may take to find all members again: machines, addresses, certificates,
/// answers.
const FIND_TIMEOUT: Duration = Duration::from_secs(600);
/// Pause between two checks.
const POLL: Duration = Duration::from_secs(1);

/// Arguments of `move`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "All Clusters of the namespace are moved. If it fails or is interrupted, nothing acts on etcd from either side: run the same command again to continue."
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

/// Begins or continues a move.
///
/// # Errors
/// When something prevents the move from beginning, or the move stops on the way: then the error says how to continue.
pub async fn run(arguments: Arguments, options: &Options) -> Result<ExitCode> {
    let source = Place::connect(options).await.context("the management cluster to move from")?;
    let there = Options {
        kubeconfig: Some(arguments.to_kubeconfig.clone()),
        context: arguments.to_context.clone(),
        namespace: Some(source.namespace.clone()),
    };
    let target = Place::connect(&there).await.context("the management cluster to move to")?.with_kinds_of(&source);
    let (here, there) = (source.identity().await?, target.identity().await?);
    ensure!(here.is_none() || here != there, "both kubeconfigs lead to the same management cluster");
    let progress = progress_of(&source, &target).await?;
    if arguments.dry_run {
        return dry_run(&source, &target, progress).await;
    }
    ensure!(progress != Progress::Nothing, "{}", nothing(&source));
    let mut turn = Turn::take(&source).await?;
    let done = tokio::select! {
        done = act(&source, &target, (&arguments, options)) => done,
        // clusterctl is killed when the command that started it stops.
        lost = turn.keep() => Err(lost.context("this command has stopped; the same again goes on")),
    };
    turn.end().await;
    done
}

const GO_ON: &str = "the move is not finished, and both sides are paused: run the same command again to go on";
const UNCLEAR: &str = "both management clusters have Clusters in this namespace, but this is not a move that is under way: on one side they are not paused, or the target has them from elsewhere. docs/move.md says what to do";
const GIVING_UP: &str =
    "what was made in the target is being taken away there: --undo goes on with that, and then lets the source go on";

/// Does what is left to do. It reads the progress again, because the previous holder of the Lease may have changed it.
async fn act(source: &Place, target: &Place, how: (&Arguments, &Options)) -> Result<ExitCode> {
    let progress = progress_of(source, target).await?;
    if how.0.undo {
        return give_up(source, target, progress).await;
    }
    match progress {
        Progress::Nothing => bail!("{}", nothing(source)),
        Progress::Unclear => bail!("{UNCLEAR}"),
        Progress::GivingUp => bail!("{GIVING_UP}"),
        Progress::NotBegun => make(source, target, how).await?,
        Progress::Created => {
            // clusterctl would let the source run while it overwrites existing objects in the target.
            say("Taking away what an earlier attempt has made in the target.")?;
            clear(source, target).await.context(GIVING_UP)?;
            make(source, target, how).await?;
        }
        Progress::Leaving => {
            say("Everything is in the target: what is left in the source is taken away.")?;
            source.take_away(&target.side().await?).await.context(GO_ON)?;
        }
        Progress::Arrived => {}
    }
    let left = source.side().await?.left();
    ensure!(progress_of(source, target).await? == Progress::Arrived, "left in the source: {left}. {GO_ON}");
    if !left.is_empty() {
        say(&format!("Left in the source, where nothing needs it any more: {left}."))?;
    }
    finish(target).await.context(GO_ON)?;
    say("Moved. The target looks after etcd now.")?;
    Ok(ExitCode::SUCCESS)
}

async fn progress_of(source: &Place, target: &Place) -> Result<Progress> {
    Ok(progress(&source.side().await?, &target.side().await?))
}

/// Why there is nothing to move.
fn nothing(source: &Place) -> String {
    format!(
        "clusterctl would move no Cluster of namespace {}: none is there, or each has an owner that stays",
        source.namespace
    )
}

/// Prints whether a move is possible.
async fn dry_run(source: &Place, target: &Place, progress: Progress) -> Result<ExitCode> {
    let found = match progress {
        Progress::Nothing => vec![nothing(source)],
        Progress::Unclear => vec![UNCLEAR.to_owned()],
        Progress::GivingUp => vec![GIVING_UP.to_owned()],
        Progress::NotBegun => obstacles(source, target).await?,
        Progress::Created | Progress::Leaving | Progress::Arrived => {
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

/// Deletes the objects that the move has made in the target, and resumes the source.
async fn give_up(source: &Place, target: &Place, progress: Progress) -> Result<ExitCode> {
    ensure!(progress != Progress::Unclear, "{UNCLEAR}");
    ensure!(
        !matches!(progress, Progress::Leaving | Progress::Arrived),
        "something has left the source already; {GO_ON}"
    );
    // Objects with the same names in the target do not belong to a move that has never begun.
    let is_begun = matches!(progress, Progress::Created | Progress::GivingUp) || source.side().await?.moving;
    ensure!(is_begun, "no move is under way in namespace {}", source.namespace);
    let again = "the same command again goes on with giving up";
    clear(source, target).await.context(again)?;
    release(source).await.context(again)?;
    say("The move is given up: the source looks after etcd, as before.")?;
    Ok(ExitCode::SUCCESS)
}

/// All that prevents a move from beginning.
async fn obstacles(source: &Place, target: &Place) -> Result<Vec<String>> {
    let (resources, known) = (source.movable(), target.movable());
    let movable: BTreeSet<String> = resources.keys().filter(|kind| known.contains_key(*kind)).cloned().collect();
    let snapshots = source.snapshots().await?;
    if snapshots.is_empty() {
        return Ok(vec!["there is no EtcdCluster in the namespace: clusterctl move does it".to_owned()]);
    }
    let (here, there) = (source.side().await?, target.side().await?);
    let mut found: Vec<String> = snapshots.iter().flat_map(|snapshot| of_etcd_cluster(snapshot, &movable)).collect();
    found.extend(of_clusters(&source.namespace, &here));
    found.extend(snapshots.iter().flat_map(|snapshot| of_staying(snapshot, &resources, &here)));
    found.extend(snapshots.iter().flat_map(|snapshot| of_secrets(snapshot, &here)));
    found.extend(of_target(&here, &there));
    found.extend(source.shared_classes().await?);
    let paused = source.paused(here.moving).await?;
    found.extend(paused.iter().map(|what| format!("{what} is paused: end that first")));
    Ok(found)
}

/// Lets clusterctl make all objects in the target and delete them in the source. The target has none of them yet.
async fn make(source: &Place, target: &Place, how: (&Arguments, &Options)) -> Result<()> {
    let found = obstacles(source, target).await?;
    if !found.is_empty() {
        let prepared = "the source stays paused, as an earlier attempt has left it: --undo lets it go on";
        let and = if source.side().await?.moving { prepared } else { "nothing has been changed" };
        bail!("it cannot be moved now, and {and}:\n- {}", found.join("\n- "));
    }
    let (moved, has_run) = match prepare(source, target).await {
        Ok(()) => (clusterctl(&source.namespace, how).await, true),
        Err(error) => (Err(error), false),
    };
    let Err(error) = moved else { return Ok(()) };
    let unknown = "the source may not be paused: run the same command again";
    if progress_of(source, target).await.with_context(|| format!("{error:#}; {unknown}"))? == Progress::NotBegun {
        let back = "taking back what was done: --undo goes on with that";
        if has_run {
            // The first objects that clusterctl makes, such as a ClusterClass, may not count as progress.
            clear(source, target).await.context(back)?;
        }
        release(source).await.context(back)?;
        return Err(error.context("nothing was moved, and the source is as it was"));
    }
    // clusterctl may have failed before it paused the Clusters again.
    source.pause_clusters().await.with_context(|| format!("{error:#}; {unknown}"))?;
    Err(error.context(GO_ON))
}

/// Pauses etcd, and sets on its Machines the Node that clusterctl requires. Fails if something has begun meanwhile.
async fn prepare(source: &Place, target: &Place) -> Result<()> {
    say("Pausing etcd in the source.")?;
    source.pause_etcds(true).await?;
    until_etcd_is_paused(source).await?;
    let found = obstacles(source, target).await?;
    ensure!(found.is_empty(), "something has begun meanwhile: {}", found.join("; "));
    source.pause_machines(true).await?;
    until(PAUSE_TIMEOUT, async || {
        let busy = source.machine_at_work().await?;
        Ok(busy.map(|machine| format!("Cluster API has not said that Machine {machine} is paused")))
    })
    .await?;
    source.set_nodes(true).await?;
    // clusterctl moves no paused Cluster, and an earlier run of clusterctl leaves its Clusters paused.
    source.resume_clusters().await?;
    // Another clusterctl may have begun, from another computer or without this command.
    ensure!(progress_of(source, target).await? == Progress::NotBegun, "somebody else has made something in the target");
    Ok(())
}

/// Waits until the provider's manager reports that it does nothing to etcd.
async fn until_etcd_is_paused(place: &Place) -> Result<()> {
    until(PAUSE_TIMEOUT, async || {
        let snapshots = place.snapshots().await?;
        let busy = snapshots.iter().find(|snapshot| !says_paused(snapshot));
        Ok(busy.map(|_| "the provider's manager has not said that etcd is paused".to_owned()))
    })
    .await
}

/// Runs clusterctl, which has to end with this command: otherwise another run would start a second one beside it. If
/// this command stops by itself, it kills clusterctl. If this command is killed, clusterctl dies when it writes its
/// next line, because nobody reads its output. Therefore it has to log each object (`-v 1`).
async fn clusterctl(namespace: &str, (arguments, options): (&Arguments, &Options)) -> Result<()> {
    let mut command = Command::new(&arguments.clusterctl);
    command.args(["move", "-v", "1", "--namespace", namespace, "--to-kubeconfig"]).arg(&arguments.to_kubeconfig);
    if let Some(context) = &arguments.to_context {
        command.arg("--to-kubeconfig-context").arg(context);
    }
    if let Some(kubeconfig) = &options.kubeconfig {
        command.arg("--kubeconfig").arg(kubeconfig);
    }
    if let Some(context) = &options.context {
        command.arg("--kubeconfig-context").arg(context);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("run {}", arguments.clusterctl.display()))?;
    let (said, complained) = (child.stdout.take(), child.stderr.take());
    tokio::try_join!(show(said), show(complained)).context("read what clusterctl says")?;
    let status = child.wait().await.context("wait for clusterctl")?;
    ensure!(status.success(), "clusterctl move has ended with {status}");
    Ok(())
}

/// Prints the output of a program, line by line.
async fn show(output: Option<impl AsyncRead + Unpin>) -> Result<()> {
    let Some(output) = output else { return Ok(()) };
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        say(&line)?;
    }
    Ok(())
}

/// Deletes all objects in the target that the source has too, because the move has made them there. Both sides are
/// paused, and the admission policy in the target requires that its controller has reported the pause.
async fn clear(source: &Place, target: &Place) -> Result<()> {
    // In a target without the provider, no controller could report it.
    if !target.side().await?.left().is_empty() {
        until_etcd_is_paused(target).await.context("in the target")?;
    }
    target.take_away(&source.side().await?).await?;
    let left = target.side().await?.left();
    ensure!(left.is_empty(), "left in the target: {left}");
    Ok(())
}

/// Reverts the preparations in the source, and resumes it.
async fn release(source: &Place) -> Result<()> {
    source.set_nodes(false).await?;
    source.pause_machines(false).await?;
    source.resume_clusters().await?;
    source.pause_etcds(false).await
}

/// Resumes the target: first Cluster API, so that it reports the addresses of the machines, and etcd's controller when
/// it has found all members again.
async fn finish(target: &Place) -> Result<()> {
    say("Everything is in the target. Waiting until its manager has found all members again.")?;
    target.resume_clusters().await?;
    target.pause_machines(false).await?;
    until(FIND_TIMEOUT, async || {
        let snapshots = target.snapshots().await?;
        Ok(snapshots.iter().find_map(not_found_again))
    })
    .await?;
    target.pause_etcds(false).await
}

/// Checks until there is no more reason to wait.
async fn until(limit: Duration, mut look: impl AsyncFnMut() -> Result<Option<String>>) -> Result<()> {
    let begun = Instant::now();
    while let Some(why) = look().await? {
        ensure!(begun.elapsed() < limit, "after {} s: {why}", limit.as_secs());
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn say(line: &str) -> Result<()> {
    print(&[line.to_owned()])
}
