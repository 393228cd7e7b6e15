//! The promises of a world.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::process::{Command, Process};
use e2e::until::until;
use e2e::world::{ADDRESS, BRIDGE, World, block_on};
use tokio::net::TcpListener;

/// If this variable is set, the program sleeps in its world instead of running tests. If its value is [`FROZEN`], it
/// also freezes the sleeping process.
pub(crate) const SLEEPER: &str = "TESTBED_SLEEPER";
const FROZEN: &str = "frozen";
/// A time that no other `sleep` on the computer uses.
const SLEEP: &str = "86413";

pub(crate) async fn is_apart(world: World) -> Result<()> {
    let interfaces = fs::read_dir("/proc/sys/net/ipv4/conf")?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    ensure!(interfaces.iter().any(|name| name == BRIDGE), "interfaces: {interfaces:?}");
    ensure!(!interfaces.iter().any(|name| name.starts_with("eth")), "interfaces: {interfaces:?}");
    // etcd's port on both addresses is free: the host's programs cannot block it.
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
    let mut outside = another_world(&world, "").await?;
    outside.kill().await?;
    sleeper_ends().await
}

pub(crate) async fn is_asked_to_end_and_its_logs_stay(world: World) -> Result<()> {
    let mut outside = another_world(&world, "").await?;
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

/// A process that is frozen as docker freezes containers cannot be killed in cgroups of version 1, and its group
/// outlasts the world.
pub(crate) async fn ends_with_frozen_processes_and_leaves_no_group(world: World) -> Result<()> {
    if hierarchy().is_none() {
        println!("not shown: nobody may make control groups here");
        return Ok(());
    }
    let mut outside = another_world(&world, FROZEN).await?;
    let group = until("the sleeper is frozen", Duration::from_secs(5), async || {
        let group = fs::read_to_string(world.logs().join(FROZEN)).context("where the sleeper says its group")?;
        let state = fs::read_to_string(Path::new(&group).join("freezer.state"));
        let state = state.or_else(|_| fs::read_to_string(Path::new(&group).join("cgroup.events")))?;
        ensure!(state.contains("FROZEN") || state.contains("frozen 1"), "it is {state}");
        Ok(Some(group))
    })
    .await?;
    outside.terminate(Duration::from_secs(15)).await?;
    sleeper_ends().await?;
    ensure!(!Path::new(&group).exists(), "{group} is left");
    Ok(())
}

/// Where groups whose processes can be frozen are made: in version 1 if it exists, or else in version 2.
fn hierarchy() -> Option<&'static Path> {
    let version1 = Path::new("/sys/fs/cgroup/freezer");
    let version2 = Path::new("/sys/fs/cgroup");
    let hierarchy = if version1.is_dir() { version1 } else { version2 };
    let probe = hierarchy.join(format!("etcdadm-probe-{}", std::process::id()));
    fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).is_ok().then_some(hierarchy)
}

/// What runs in the other world: a process that never ends.
pub(crate) fn sleep(world: &World) -> ExitCode {
    let script = format!("echo something; exec sleep {SLEEP}");
    let sleep = async || {
        let mut sleeper = Command::new("said", "sh", world.logs()).args(["-c", &script]).spawn()?;
        if std::env::var_os(SLEEPER).is_some_and(|wanted| wanted == FROZEN) {
            until("the sleeper runs", Duration::from_secs(5), async || Ok(sleepers()?.then_some(()))).await?;
            freeze(&sleeper, world)?;
        }
        sleeper.wait().await?;
        Ok(())
    };
    if block_on(sleep()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Moves a process into a group in the world's own group, freezes it there, and writes the group's path to a file.
fn freeze(process: &Process, world: &World) -> Result<()> {
    let group = hierarchy().context("groups can be made")?.join(world.cgroup()).join("frozen");
    fs::create_dir_all(&group)?;
    fs::write(group.join("cgroup.procs"), process.pid().context("it runs")?.to_string())?;
    let version1 = fs::write(group.join("freezer.state"), FROZEN.to_uppercase());
    version1.or_else(|_| fs::write(group.join("cgroup.freeze"), "1"))?;
    let logs = world.logs().parent().context("logs have a place")?;
    Ok(fs::write(logs.join(FROZEN), group.to_string_lossy().as_bytes())?)
}

/// Starts this program in a world inside this world, and waits until its sleeper runs.
async fn another_world(world: &World, sleeper: &str) -> Result<Process> {
    let process = Command::new("another-world", std::env::current_exe()?, world.logs())
        .env(SLEEPER, sleeper)
        .env_remove("CAPE_WORLD_STAGE")
        .env("E2E_LOGS", world.logs())
        .spawn()?;
    until("the sleeper runs", Duration::from_secs(20), async || Ok(sleepers()?.then_some(()))).await?;
    Ok(process)
}

async fn sleeper_ends() -> Result<()> {
    until("the sleeper is gone", Duration::from_secs(5), async || Ok((!sleepers()?).then_some(()))).await
}

/// Whether a sleeper runs, in this world or in one inside it.
fn sleepers() -> Result<bool> {
    let wanted = format!("sleep\0{SLEEP}\0");
    for entry in fs::read_dir("/proc")? {
        // A process may end while this reads it.
        if fs::read_to_string(entry?.path().join("cmdline")).is_ok_and(|cmdline| cmdline == wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}
