//! A child process with a log file of its own.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, kill_process};
use tokio::process::Child;

pub use rustix::process::Signal;

/// Runs a short program, and returns its standard output.
///
/// # Errors
/// When it cannot be run or fails. The error has its standard error.
pub fn output(command: &mut std::process::Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The same for a program that takes some time. Other tasks go on meanwhile.
///
/// # Errors
/// As [`output`].
pub async fn output_of(mut command: std::process::Command) -> Result<String> {
    tokio::task::spawn_blocking(move || output(&mut command)).await?
}

/// What to run, and where its output goes.
#[derive(Debug, Clone)]
pub struct Command {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    unset: Vec<OsString>,
    log: PathBuf,
}

/// A running (or ended) process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    command: Command,
    child: Child,
}

impl Command {
    /// `program`, called `name` in messages, with standard output and error appended to `<logs>/<name>.log`.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, logs: &Path) -> Self {
        let name = name.into();
        let log = logs.join(format!("{name}.log"));
        Self { name, program: program.into(), arguments: Vec::new(), environment: Vec::new(), unset: Vec::new(), log }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable, in addition to those of this process.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Leaves out an environment variable that this process has.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.unset.push(name.as_ref().to_owned());
        self
    }

    /// Starts it. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the log cannot be opened or the program cannot be run.
    pub fn spawn(self) -> Result<Process> {
        let child = self.start()?;
        Ok(Process { command: self, child })
    }

    fn start(&self) -> Result<Child> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("open {}", self.log.display()))?;
        let mut command = tokio::process::Command::new(&self.program);
        for name in &self.unset {
            command.env_remove(name);
        }
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the log")?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("run {} ({})", self.name, self.program.display()))
    }
}

impl Process {
    /// Its name in messages and of its log file.
    pub fn name(&self) -> &str {
        &self.command.name
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.command.log
    }

    /// Its process ID; `None` once this process has noticed that it ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Whether it runs. A stopped process (`SIGSTOP`) counts as running.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().with_context(|| format!("look after {}", self.command.name))?.is_none())
    }

    /// Sends it a signal: `Signal::STOP` freezes it, `Signal::CONT` lets it go on.
    ///
    /// # Errors
    /// When it is not running any more.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("{} is not running", self.command.name))?;
        kill_process(pid, signal).with_context(|| format!("signal {}", self.command.name))
    }

    /// Kills it with `SIGKILL` and waits until it is gone. Does nothing if it has ended already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("kill {}", self.command.name))
    }

    /// Asks it to end with `SIGTERM`, waits, and returns how it ended.
    ///
    /// # Errors
    /// When it is still there after `timeout` (it is left running), or was not running.
    pub async fn terminate(&mut self, timeout: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        match tokio::time::timeout(timeout, self.wait()).await {
            Ok(status) => status,
            Err(_) => bail!("{} still runs {} s after SIGTERM", self.command.name, timeout.as_secs()),
        }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().await.with_context(|| format!("wait for {}", self.command.name))
    }

    /// Kills it if it runs, and starts it again with the same arguments and log.
    ///
    /// # Errors
    /// As for [`Process::kill`] and [`Command::spawn`].
    pub async fn restart(&mut self) -> Result<()> {
        self.kill().await?;
        self.child = self.command.start()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_frozen_restarted_and_asked_to_end() {
        let logs = tempfile::tempdir().unwrap();
        let mut process =
            Command::new("sleeper", "sh", logs.path()).args(["-c", "echo started; exec sleep 60"]).spawn().unwrap();
        let first = process.pid().unwrap();
        process.signal(Signal::STOP).unwrap();
        assert!(process.is_running().unwrap());
        process.restart().await.unwrap();
        assert_ne!(process.pid().unwrap(), first);
        process.terminate(Duration::from_secs(5)).await.unwrap();
        assert!(!process.is_running().unwrap());
        assert!(process.signal(Signal::TERM).is_err());
    }
}
