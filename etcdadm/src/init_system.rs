//! What runs etcd on this machine.

use std::future::Future;
use std::path::PathBuf;
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
    /// It runs, is about to, or is started again and again. Its data must not be touched.
    Up,
    /// Nothing will start it unless somebody asks.
    Down,
}

/// Runs etcd as a service.
pub trait InitSystem: Send + Sync {
    /// What etcd's service is doing.
    fn state(&self) -> Boxed<Result<UnitState>>;

    /// Has etcd started, now and at every boot. Completes when the init system calls it up, which may take as long as
    /// etcd needs to find the other members; fails when it says that etcd did not start.
    fn start(&self) -> Boxed<Result<()>>;

    /// Has etcd stopped until somebody starts it. Completes when it has ended.
    fn stop(&self) -> Boxed<Result<()>>;
}

/// systemd, or whatever else answers to `systemctl`.
#[derive(Clone, Debug)]
pub struct Systemd {
    unit_file: PathBuf,
}

impl Systemd {
    /// For the unit that this file describes.
    pub fn new(unit_file: PathBuf) -> Self {
        Self { unit_file }
    }
}

impl InitSystem for Systemd {
    fn state(&self) -> Boxed<Result<UnitState>> {
        let unit_file = self.unit_file.clone();
        Box::pin(async move {
            // The first run on a machine needs no process to learn that there is nothing yet.
            if !unit_file.exists() {
                return Ok(UnitState::Down);
            }
            let output = Command::new("systemctl").args(["is-active", UNIT]).stdin(Stdio::null()).output().await;
            let output = output.context("cannot run systemctl; etcd is run by systemd, so this machine needs it")?;
            // The exit code is useless here: it says no while the unit is starting, too.
            Ok(state_of(String::from_utf8_lossy(&output.stdout).trim()))
        })
    }

    fn start(&self) -> Boxed<Result<()>> {
        Box::pin(async move {
            // `enable` makes systemd read its units anew, so one call does it all.
            systemctl(&["enable", "--now", UNIT]).await
        })
    }

    fn stop(&self) -> Boxed<Result<()>> {
        Box::pin(systemctl(&["stop", UNIT]))
    }
}

/// The messages go to standard error as they come, and not through a pipe of ours: systemctl may outlive this program.
async fn systemctl(arguments: &'static [&'static str]) -> Result<()> {
    let status =
        Command::new("systemctl").args(arguments).stdin(Stdio::null()).stdout(std::io::stderr()).status().await;
    let status = status.context("cannot run systemctl; etcd is run by systemd, so this machine needs it")?;
    ensure!(status.success(), "`systemctl {}` failed ({status}); see `journalctl -u {UNIT}`", arguments.join(" "));
    Ok(())
}

/// The meaning of a word of `systemctl is-active`.
fn state_of(word: &str) -> UnitState {
    match word {
        "active" | "activating" | "reloading" | "refreshing" => UnitState::Up,
        _ => UnitState::Down,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_is_starting_counts_as_up() {
        for (word, state) in [
            ("active", UnitState::Up),
            ("activating", UnitState::Up),
            ("inactive", UnitState::Down),
            ("failed", UnitState::Down),
            ("unknown", UnitState::Down),
            ("", UnitState::Down),
        ] {
            assert_eq!(state_of(word), state, "{word}");
        }
    }

    #[tokio::test]
    async fn without_a_unit_file_nothing_is_asked() {
        assert_eq!(Systemd::new("/nonexistent/etcd.service".into()).state().await.unwrap(), UnitState::Down);
    }
}
