//! `machine-start`: called in a machine's new namespaces, while the world can still be reached from them.

use crate::machine::{Layout, MachineSpec, Process, connect, write_atomic};
use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
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

/// Starts the machine's first process, plugs the machine into the bridge, records the process, and lets it continue.
///
/// # Errors
/// If one of these fails. Then no process is left.
pub fn start(arguments: &Start) -> Result<()> {
    let layout = Layout::at(&arguments.directory);
    let spec: MachineSpec = read_spec(&layout)?;
    let world = File::open(&arguments.world_network).context("the world's network namespace")?;
    let console = OpenOptions::new().append(true).create(true).open(layout.console()).context("the console's log")?;
    let printed = usize::try_from(console.metadata()?.len())?;

    // The first child after `unshare --pid` is process 1 of the new namespace. It waits for a line on its input, and
    // exits if this process ends without writing one.
    let mut init = Command::new("/proc/self/exe")
        .arg("machine-init")
        .arg("--directory")
        .arg(&arguments.directory)
        .arg("--faults")
        .arg(&arguments.faults)
        .env_clear()
        .envs(crate::init::ENVIRONMENT)
        .stdin(Stdio::piped())
        .stdout(console.try_clone()?)
        .stderr(console)
        .spawn()
        .context("the machine's first process")?;

    // Returns to the network with the bridge. Later children of this process are among the world's processes, where
    // their IDs are known.
    let own_processes = File::open("/proc/self/ns/pid").context("the world's processes")?;
    move_into_link_name_space(own_processes.as_fd(), Some(LinkNameSpaceType::ProcessID))
        .context("the world's processes")?;
    move_into_link_name_space(world.as_fd(), Some(LinkNameSpaceType::Network)).context("the world's network")?;
    let connected = connect(&spec, init.id());
    let process = i32::try_from(init.id()).ok().and_then(Process::with_id);
    let (Ok(()), Some(process)) = (&connected, process) else {
        // Without an input, the first process ends. It may already have ended, and be the cause of the failure.
        drop(init.stdin.take());
        init.wait().context("the machine's first process")?;
        let console = fs::read(layout.console()).context("the console's log")?;
        let said = String::from_utf8_lossy(console.get(printed..).unwrap_or_default()).trim().to_owned();
        connected.with_context(|| format!("the machine's first process said: {said}"))?;
        bail!("the machine's first process ended: {said}");
    };
    write_atomic(&layout.process(), &serde_json::to_vec(&process)?)?;
    let mut go = init.stdin.take().context("the first process's input")?;
    go.write_all(b"connected\n").context("the machine's first process ended")?;
    Ok(())
}

/// Reads the spec that a machine is made from.
pub(crate) fn read_spec(layout: &Layout) -> Result<MachineSpec> {
    let path: &Path = &layout.spec();
    let json = fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&json).with_context(|| path.display().to_string())
}
