//! `machine-start`: called in a machine's new namespaces, while the world can still be reached from them.

use crate::machine::{Layout, MachineSpec, PROCESS, Process, connect, write_in};
use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::FileExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::Command,
};

/// Arguments of `machine-start`.
#[derive(Debug, clap::Args)]
pub struct Start {
    /// The machine's directory.
    #[arg(long)]
    pub directory: PathBuf,
    /// The directory of the faults prepared for the machine.
    #[arg(long)]
    pub faults: PathBuf,
    /// The network namespace of the world, which has the bridge.
    #[arg(long)]
    pub world_network: PathBuf,
}

/// What `machine-start` says once the machine is plugged into the bridge.
pub(crate) const CONNECTED: &str = "connected\n";
/// What the first process answers once it has entered the machine's root.
pub(crate) const ENTERED: &str = "entered\n";
/// What `machine-start` says once the first process is recorded.
pub(crate) const RECORDED: &str = "recorded\n";

/// Starts the machine's first process, plugs the machine into the bridge, waits until the process has entered the
/// machine's root, records the process, and lets it boot.
///
/// The process is recorded only then, because whoever finds it runs commands in its root. Earlier, its root is still
/// that of this computer.
///
/// # Errors
/// If one of these fails. Then no process is left.
pub fn start(arguments: &Start) -> Result<()> {
    let layout = Layout::at(&arguments.directory);
    let spec: MachineSpec = read_spec(&layout)?;
    let world = File::open(&arguments.world_network).context("the world's network namespace")?;
    // Both stay open: when the first process enters the machine's root, so does this process, which shares its mounts.
    // Then no path of this computer is there any more.
    let directory = File::open(layout.directory()).context("the machine's directory")?;
    let console = OpenOptions::new().read(true).append(true).create(true).open(layout.console());
    let console = console.context("the console's log")?;
    let printed = console.metadata()?.len();

    // The first child after `unshare --pid` is process 1 of the new namespace. It waits for lines on its input, and
    // exits if this process ends without writing them.
    let (mut channel, input) = UnixStream::pair().context("a channel to the machine's first process")?;
    let mut init = Command::new("/proc/self/exe")
        .arg("machine-init")
        .arg("--directory")
        .arg(&arguments.directory)
        .arg("--faults")
        .arg(&arguments.faults)
        .env_clear()
        .envs(crate::init::ENVIRONMENT)
        .stdin(OwnedFd::from(input))
        .stdout(console.try_clone()?)
        .stderr(console.try_clone()?)
        .spawn()
        .context("the machine's first process")?;

    // Returns to the network with the bridge. Later children of this process are among the world's processes, where
    // their IDs are known.
    let own_processes = File::open("/proc/self/ns/pid").context("the world's processes")?;
    move_into_link_name_space(own_processes.as_fd(), Some(LinkNameSpaceType::ProcessID))
        .context("the world's processes")?;
    move_into_link_name_space(world.as_fd(), Some(LinkNameSpaceType::Network)).context("the world's network")?;
    let process = i32::try_from(init.id()).ok().and_then(Process::with_id);
    let ready = connect(&spec, init.id()).map_err(anyhow::Error::from).and_then(|()| enter(&mut channel));
    let (Ok(()), Some(process)) = (&ready, process) else {
        // Without an input, the first process ends. It may already have ended, and be the cause of the failure.
        drop(channel);
        init.wait().context("the machine's first process")?;
        let mut said = vec![0; usize::try_from(console.metadata()?.len().saturating_sub(printed))?];
        console.read_exact_at(&mut said, printed).context("the console's log")?;
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        ready.with_context(|| format!("the machine's first process said: {said}"))?;
        bail!("the machine's first process ended: {said}");
    };
    write_in(&directory, PROCESS, &serde_json::to_vec(&process)?).context("recording the machine's first process")?;
    channel.write_all(RECORDED.as_bytes()).context("the machine's first process ended")?;
    Ok(())
}

/// Waits until the first process has entered the machine's root.
fn enter(channel: &mut UnixStream) -> Result<()> {
    channel.write_all(CONNECTED.as_bytes()).context("the machine's first process ended")?;
    let mut answer = String::new();
    BufReader::new(channel).read_line(&mut answer).context("the machine's first process")?;
    if answer != ENTERED {
        bail!("the machine's first process did not enter the machine's root");
    }
    Ok(())
}

/// Reads the spec that a machine is made from.
pub(crate) fn read_spec(layout: &Layout) -> Result<MachineSpec> {
    let path: &Path = &layout.spec();
    let json = fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&json).with_context(|| path.display().to_string())
}
