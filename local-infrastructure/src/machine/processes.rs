//! A machine's processes, seen from outside.

use super::{Error, Layout, Result, on};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsStr,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// A process that cannot be confused with a later one that has the same ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Process {
    /// Its ID in the world.
    pub(crate) pid: i32,
    /// Its start time, in the kernel's ticks since this computer booted.
    pub(crate) started: u64,
}

impl Process {
    /// The process that currently has this ID.
    pub(crate) fn with_id(pid: i32) -> Option<Self> {
        let Stat { state, started, .. } = stat(pid)?;
        (!matches!(state, b'Z' | b'X')).then_some(Self { pid, started })
    }

    pub(crate) fn is_alive(self) -> bool {
        Self::with_id(self.pid) == Some(self)
    }
}

/// The kernel's data about a process.
struct Stat {
    /// A letter.
    state: u8,
    /// Its parent process.
    parent: i32,
    /// When it started, in the kernel's ticks.
    started: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name that may contain any character, including blanks and brackets.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Stat { state, parent, started: fields.nth(17)?.parse().ok()? })
}

/// The first process of a machine that is running.
pub(super) fn first(layout: &Layout) -> Result<Process> {
    super::power::running(layout).ok_or_else(|| Error::NotRunning(layout.label().to_owned()))
}

/// The IDs of all processes of a machine, in the world.
fn all(first: Process) -> Result<Vec<i32>> {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let Some(wanted) = namespace(first.pid) else { return Ok(Vec::new()) };
    let proc = Path::new("/proc");
    let mut found = Vec::new();
    for entry in fs::read_dir(proc).map_err(on(proc))? {
        let name = entry.map_err(on(proc))?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok())
            && namespace(pid).as_ref() == Some(&wanted)
        {
            found.push(pid);
        }
    }
    Ok(found)
}

/// How long processes may take to react. A process that waits for a disk reacts only after the disk has answered, and a
/// busy disk takes seconds.
const REACTION: Duration = Duration::from_secs(30);

/// Stops all processes. A process that is created while its parent is being stopped is found in a later round.
pub(super) fn stop_all(layout: &Layout) -> Result<()> {
    let first = first(layout)?;
    signal_until(layout, first, Signal::STOP, |state| matches!(state, b'T' | b't' | b'Z' | b'X'))
}

/// Continues every process.
pub(super) fn continue_all(layout: &Layout) -> Result<()> {
    let first = first(layout)?;
    signal_until(layout, first, Signal::CONT, |state| state != b'T')
}

fn signal_until(layout: &Layout, first: Process, signal: Signal, done: fn(u8) -> bool) -> Result<()> {
    let failed = |what: String| Error::Process { machine: layout.label().to_owned(), what };
    let deadline = Instant::now() + REACTION;
    loop {
        let mut waiting = Vec::new();
        let pids = all(first)?;
        for &pid in &pids {
            if stat(pid).is_some_and(|stat| !done(stat.state)) {
                send(pid, signal).map_err(|error| failed(format!("process {pid}: {error}")))?;
                waiting.push(pid);
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(failed(format!("processes {waiting:?} do not react to signal {}", signal.as_raw())));
        }
        let spawns = signal == Signal::STOP && let_spawn(&pids);
        pause(Duration::from_millis(if spawns { 10 } else { 1 }));
    }
}

/// Continues stopped processes whose parent waits for them in `vfork`: the parent waits in the kernel until its child
/// runs its own program, and it cannot stop before. Returns whether there are such processes.
fn let_spawn(pids: &[i32]) -> bool {
    let is_spawned = |pid: &i32| {
        let parent = stat(*pid).filter(|stat| stat.state == b'T').map(|stat| stat.parent);
        parent.is_some_and(|parent| pids.contains(&parent) && stat(parent).is_some_and(|stat| stat.state == b'D'))
    };
    let stopped: Vec<i32> = pids.iter().copied().filter(is_spawned).collect();
    for pid in &stopped {
        // A process that is gone, or that may not receive the signal, is found again in the next round.
        let _ = send(*pid, Signal::CONT);
    }
    !stopped.is_empty()
}

/// Sends a signal. It is not an error if the process is gone.
pub(super) fn send(pid: i32, signal: Signal) -> rustix::io::Result<()> {
    match Pid::from_raw(pid).map(|pid| kill_process(pid, signal)) {
        None | Some(Ok(()) | Err(Errno::SRCH)) => Ok(()),
        Some(Err(error)) => Err(error),
    }
}

/// A command that runs in some of a machine's namespaces. The caller adds the program and its arguments.
pub(super) fn enter(layout: &Layout, namespaces: &[&str]) -> Result<Command> {
    let mut command = Command::new("nsenter");
    command.arg("--target").arg(first(layout)?.pid.to_string()).args(namespaces).arg("--");
    Ok(command)
}

/// A command that runs inside a machine, with the environment of root's login.
pub(super) fn exec<S: AsRef<OsStr>>(layout: &Layout, program: &[S]) -> Result<Command> {
    let mut command = enter(layout, &["--net", "--mount", "--uts", "--ipc", "--pid", "--root", "--wd"])?;
    // Like the machine's own processes, it must not reach this computer's clock and kernel.
    command.args(["setpriv", "--bounding-set=-sys_time,-sys_module", "--"]);
    command.args(program).env_clear().envs(crate::init::ENVIRONMENT);
    Ok(command)
}

/// The kernel has no event for when a process stops that is not our child, so it is checked again a moment later.
#[expect(clippy::disallowed_methods, reason = "these calls block by contract, and nothing can be waited for")]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}
