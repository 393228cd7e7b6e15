//! The init system that runs etcd on this machine.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// Name of etcd's unit.
pub const UNIT: &str = "etcd.service";

/// A boxed future, so that init systems can be exchanged at run time.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Whether the init system keeps etcd running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// etcd runs, is about to run, is restarted again and again, or has not stopped yet. Its data must not be touched.
    Up,
    /// etcd does not start by itself.
    Down,
}

/// Runs etcd as a service.
pub trait InitSystem: Send + Sync {
    /// What etcd's service is doing.
    fn state(&self) -> Boxed<Result<UnitState>>;

    /// Starts etcd now and at every boot. Completes when the init system reports etcd as up, which takes as long as
    /// etcd needs to find the other members. Fails when the init system reports that etcd did not start.
    fn start(&self) -> Boxed<Result<()>>;

    /// Stops etcd until it is started again. Completes when etcd has stopped.
    fn stop(&self) -> Boxed<Result<()>>;

    /// Stops etcd, which runs or is starting, and starts it. It is one order, which the init system carries out even if
    /// this program ends meanwhile. Completes and fails like a start.
    fn restart(&self) -> Boxed<Result<()>>;
}

/// systemd, or whatever else answers to `systemctl`.
#[derive(Clone, Debug)]
pub struct Systemd {
    unit_file: PathBuf,
}

impl Systemd {
    /// For the unit in this file.
    pub fn new(unit_file: PathBuf) -> Self {
        Self { unit_file }
    }
}

impl InitSystem for Systemd {
    fn state(&self) -> Boxed<Result<UnitState>> {
        let unit_file = self.unit_file.clone();
        Box::pin(async move {
            let output = Command::new("systemctl").args(["is-active", UNIT]).stdin(Stdio::null()).output().await;
            let output = output.context("cannot run systemctl; etcd is run by systemd, so this machine needs it")?;
            // The exit code does not help: while the unit is starting, it says that the unit is not active.
            state_of(String::from_utf8_lossy(&output.stdout).trim(), &unit_file)
        })
    }

    fn start(&self) -> Boxed<Result<()>> {
        // `enable` makes systemd reload its units, so one call does it all.
        Box::pin(systemctl(&["enable", "--now", UNIT]))
    }

    fn stop(&self) -> Boxed<Result<()>> {
        Box::pin(systemctl(&["stop", UNIT]))
    }

    fn restart(&self) -> Boxed<Result<()>> {
        Box::pin(systemctl(&["restart", UNIT]))
    }
}

/// The messages go directly to standard error. A pipe of ours would not do, because systemctl may outlive this program.
async fn systemctl(arguments: &'static [&'static str]) -> Result<()> {
    let status =
        Command::new("systemctl").args(arguments).stdin(Stdio::null()).stdout(std::io::stderr()).status().await;
    let status = status.context("cannot run systemctl; etcd is run by systemd, so this machine needs it")?;
    ensure!(status.success(), "`systemctl {}` failed ({status}); see `journalctl -u {UNIT}`", arguments.join(" "));
    Ok(())
}

/// The state that a word of `systemctl is-active` means, for the unit in `unit_file`.
///
/// # Errors
/// When another file defines the unit: etcd may belong to the distribution, and it is not ours to stop.
fn state_of(word: &str, unit_file: &Path) -> Result<UnitState> {
    match word {
        "active" | "activating" | "deactivating" | "reloading" | "refreshing" => {
            ensure!(
                unit_file.exists(),
                "{UNIT} runs already, and it is not the one that etcdadm sets up: there is no {}. If nobody needs it, \
                 stop it with `systemctl stop {UNIT}` and run this again",
                unit_file.display()
            );
            Ok(UnitState::Up)
        }
        _ => Ok(UnitState::Down),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_is_starting_or_still_stopping_counts_as_up() {
        let unit_file = tempfile::NamedTempFile::new().unwrap();
        for (word, state) in [
            ("active", UnitState::Up),
            ("activating", UnitState::Up),
            ("deactivating", UnitState::Up),
            ("inactive", UnitState::Down),
            ("failed", UnitState::Down),
            ("unknown", UnitState::Down),
            ("", UnitState::Down),
        ] {
            assert_eq!(state_of(word, unit_file.path()).unwrap(), state, "{word}");
        }
    }

    /// If it counted as down, its files would be overwritten; if it counted as up, it would be stopped.
    #[test]
    fn an_etcd_of_the_distribution_that_runs_is_left_alone() {
        let nowhere = Path::new("/nonexistent/etcd.service");
        for word in ["active", "activating"] {
            let message = state_of(word, nowhere).unwrap_err().to_string();
            for named in ["etcd.service runs already", "/nonexistent/etcd.service", "systemctl stop etcd.service"] {
                assert!(message.contains(named), "{message}");
            }
        }
        assert_eq!(state_of("inactive", nowhere).unwrap(), UnitState::Down);
    }
}
