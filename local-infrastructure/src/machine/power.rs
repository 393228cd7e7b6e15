//! Starts and ends a machine.

use super::{
    Error, Layout, MachineSpec, Result, check, exclusive, files, if_there, network, on,
    processes::{self, Process},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open},
};
use std::{
    fs,
    os::fd::OwnedFd,
    process::Command,
    time::{Duration, Instant},
};

/// How long a machine may take to shut down before its plug is pulled.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// The first process of a machine, if it is running.
pub(super) fn running(layout: &Layout) -> Option<Process> {
    let process: Process = serde_json::from_slice(&fs::read(layout.process()).ok()?).ok()?;
    process.is_alive().then_some(process)
}

pub(super) fn start(layout: &Layout, spec: &MachineSpec) -> Result<()> {
    let lock = exclusive(layout)?;
    layout.set_power(true)?;
    if running(layout).is_some() {
        // The process that started it may have died before it counted the start.
        return if layout.boots() == 0 { layout.count_boot() } else { Ok(()) };
    }
    if layout.boots() > 0 {
        network::disconnect(spec)?;
    }
    // `unshare` makes the namespaces: to make them here would require unsafe code or a process with a single thread.
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--uts", "--ipc", "--pid", "--"])
        .arg(&spec.program)
        .arg("machine-start")
        .arg("--directory")
        .arg(layout.directory())
        .arg("--faults")
        .arg(layout.faults())
        .arg("--world-network")
        .arg(format!("/proc/{}/ns/net", std::process::id()))
        // The lock lasts until this process and `machine-start` have ended. If only this process is killed, nobody starts
        // the machine a second time beside it.
        .stdin(lock.try_clone().map_err(|error| super::failed("the machine's lock", &error.to_string()))?)
        .output()
        .map_err(|error| super::failed("unshare", &error.to_string()))?;
    if output.status.success() {
        return layout.count_boot();
    }
    // Removes what the attempt left, because it would prevent the next one. If that fails, it is not the error to
    // report.
    let _ = network::disconnect(spec);
    check(&format!("starting machine {}", layout.label()), Ok(output))
}

pub(super) fn kill(layout: &Layout) -> Result<()> {
    let _lock = exclusive(layout)?;
    layout.set_power(false)?;
    end(layout)
}

pub(super) fn shut_down(layout: &Layout) -> Result<()> {
    let _lock = exclusive(layout)?;
    layout.set_power(false)?;
    if let Some(first) = running(layout)
        && let Some(handle) = handle(layout, first)?
    {
        let failed = |error: Errno| failed(layout, format!("SIGTERM: {error}"));
        processes::send(first.pid, Signal::TERM).map_err(failed)?;
        wait(layout, &handle, SHUTDOWN)?;
    }
    end(layout)
}

pub(super) fn destroy(layout: &Layout) -> Result<()> {
    let lock = exclusive(layout)?;
    end(layout)?;
    if let Ok(Some(spec)) = files::read_json(&layout.spec()) {
        network::disconnect(&spec)?;
    }
    layout.remove()?;
    drop(lock);
    Ok(())
}

/// Kills the first process. Then the kernel kills all others, before the first one counts as ended.
fn end(layout: &Layout) -> Result<()> {
    if let Some(first) = running(layout)
        && let Some(handle) = handle(layout, first)?
    {
        processes::send(first.pid, Signal::KILL).map_err(|error| failed(layout, format!("SIGKILL: {error}")))?;
        if !wait(layout, &handle, Duration::from_secs(30))? {
            return Err(failed(layout, format!("process {} survives SIGKILL", first.pid)));
        }
    }
    if_there(fs::remove_file(layout.process())).map(drop).map_err(on(&layout.process()))
}

/// A handle to the process, unless the process has ended.
fn handle(layout: &Layout, process: Process) -> Result<Option<OwnedFd>> {
    let Some(pid) = Pid::from_raw(process.pid) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        // Checks again: now that there is a handle, the ID cannot be reused for another process.
        Ok(handle) => Ok(process.is_alive().then_some(handle)),
        Err(Errno::SRCH) => Ok(None),
        Err(error) => Err(failed(layout, format!("process {}: {error}", process.pid))),
    }
}

/// Whether the process ended in time.
fn wait(layout: &Layout, handle: &OwnedFd, time: Duration) -> Result<bool> {
    let deadline = Instant::now() + time;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed(layout, format!("waiting for its end: {error}"))),
        }
    }
}

fn failed(layout: &Layout, what: String) -> Error {
    Error::Process { machine: layout.label().to_owned(), what }
}
