//! The first process of a world.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

use super::{CGROUP, INSIDE, STAGE, cgroups, setup};

/// Makes the world, runs the program in it, and gives its exit code.
pub(super) fn run() -> Result<ExitCode> {
    setup::mounts()?;
    setup::network()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start tokio")?;
    // Listen before there is a program to pass signals to: the first process of a PID namespace ignores all other
    // signals.
    let streams = {
        let _inside = runtime.enter();
        [Signal::INT, Signal::TERM, Signal::HUP].map(|asked| (asked, signal(SignalKind::from_raw(asked.as_raw()))))
    };
    let child = Command::new(std::env::current_exe().context("find this program")?)
        .args(std::env::args_os().skip(1))
        .env(STAGE, INSIDE)
        .spawn()
        .context("start the program in its world")?;
    let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process id")?;
    for (asked, stream) in streams {
        let mut stream = stream.with_context(|| format!("listen for {asked:?}"))?;
        runtime.spawn(async move {
            while stream.recv().await.is_some() {
                // The program may be gone already. Then this process is about to end as well.
                let _ = kill_process(child, asked);
            }
        });
    }
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));

    // Every orphan of the world becomes a child of this process, which has to reap it.
    loop {
        let Some((pid, status)) = wait(WaitOptions::empty()).context("wait for the program")? else {
            continue;
        };
        if pid == child {
            // The kernel kills what is left when this process ends, and waits until all of it has gone.
            cgroups::thaw(&std::env::var(CGROUP).with_context(|| format!("read {CGROUP}"))?);
            let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
            return Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)));
        }
    }
}
