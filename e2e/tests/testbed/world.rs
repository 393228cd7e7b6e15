//! What a world promises.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::process::{Command, Process};
use e2e::until::until;
use e2e::world::{ADDRESS, BRIDGE, World, block_on};
use tokio::net::TcpListener;

/// Set in the environment, it makes this program sleep in its world instead of running tests.
pub(crate) const SLEEPER: &str = "TESTBED_SLEEPER";
/// Long enough to be told from any other `sleep` on the computer.
const SLEEP: &str = "86413";

pub(crate) async fn is_apart(world: World) -> Result<()> {
    let interfaces = fs::read_dir("/proc/sys/net/ipv4/conf")?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    ensure!(interfaces.iter().any(|name| name == BRIDGE), "interfaces: {interfaces:?}");
    ensure!(!interfaces.iter().any(|name| name.starts_with("eth")), "interfaces: {interfaces:?}");
    // etcd's port, on the addresses that matter: nobody of the host's can be in the way.
    TcpListener::bind((ADDRESS, 2379)).await.context("listen on the bridge")?;
    TcpListener::bind("127.0.0.1:2379").await.context("listen on loopback")?;

    let first = fs::read_link("/proc/1/exe")?;
    ensure!(first == std::env::current_exe()?, "the first process is {}", first.display());
    let mounts = fs::read_to_string("/proc/mounts")?;
    ensure!(mounts.lines().any(|line| line.starts_with("tmpfs /run tmpfs ")), "mounts: {mounts}");
    ensure!(rustix::process::geteuid().is_root());
    ensure!(world.state("something")?.starts_with("/run"));
    let status = tokio::process::Command::new("ip").args(["netns", "add", "machine"]).status().await?;
    ensure!(status.success(), "ip netns add: {status}");
    Ok(())
}

pub(crate) async fn collects_orphans(_: World) -> Result<()> {
    // The inner shell is an orphan as soon as the outer one has printed its process id.
    let output = tokio::process::Command::new("sh").args(["-c", "sh -c 'sleep 0.1' & echo $!"]).output().await?;
    let orphan = String::from_utf8(output.stdout)?.trim().to_owned();
    ensure!(!orphan.is_empty());
    until(format!("process {orphan} is collected"), Duration::from_secs(5), async || {
        Ok((!Path::new("/proc").join(&orphan).exists()).then_some(()))
    })
    .await
}

pub(crate) async fn ends_with_the_process_outside(world: World) -> Result<()> {
    let mut outside = another_world(&world).await?;
    outside.kill().await?;
    sleeper_ends().await
}

pub(crate) async fn is_asked_to_end_and_its_logs_stay(world: World) -> Result<()> {
    let mut outside = another_world(&world).await?;
    let ended = outside.terminate(Duration::from_secs(10)).await?;
    ensure!(ended.code() == Some(128 + 15), "ended with {ended}");
    sleeper_ends().await?;
    let output = fs::read_to_string(outside.log())?;
    let logs =
        output.lines().find_map(|line| Some(line.split_once("logs: ")?.1)).context("the logs' directory is printed")?;
    let kept = fs::read_to_string(Path::new(logs).join("said.log"))?;
    ensure!(kept == "something\n", "kept: {kept:?}");
    Ok(())
}

/// What runs in the other world: a process of its own, for ever.
pub(crate) fn sleep(world: &World) -> ExitCode {
    let script = format!("echo something; exec sleep {SLEEP}");
    let sleep = async || {
        Command::new("said", "sh", world.logs()).args(["-c", &script]).spawn()?.wait().await?;
        Ok(())
    };
    if block_on(sleep()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts this program in a world in this world, and waits until its sleeper sleeps.
async fn another_world(world: &World) -> Result<Process> {
    let process = Command::new("another-world", std::env::current_exe()?, world.logs())
        .env(SLEEPER, "1")
        .env_remove("CAPE_WORLD_STAGE")
        .env("E2E_LOGS", world.logs())
        .spawn()?;
    until("the sleeper runs", Duration::from_secs(20), async || Ok(sleepers()?.then_some(()))).await?;
    Ok(process)
}

async fn sleeper_ends() -> Result<()> {
    until("the sleeper is gone", Duration::from_secs(5), async || Ok((!sleepers()?).then_some(()))).await
}

/// Whether a sleeper runs, in this world or one within it.
fn sleepers() -> Result<bool> {
    let wanted = format!("sleep\0{SLEEP}\0");
    for entry in fs::read_dir("/proc")? {
        // A process may end while it is looked at.
        if fs::read_to_string(entry?.path().join("cmdline")).is_ok_and(|cmdline| cmdline == wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}
