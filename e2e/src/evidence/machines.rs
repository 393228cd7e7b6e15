//! The logs of machines: the console and `/var/log` of each.

use super::{Evidence, make_directory, write_file};
use crate::process::output;
use anyhow::{Context, Result};
use local_infrastructure::machine::{Machine, Machines};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CONSOLE: &str = "console.log";

impl Evidence {
    /// Collects the logs of each machine that still exists, running or not, below `directory`.
    pub(crate) async fn of_machines(&mut self, machines: &Machines, directory: &Path) {
        let mut found = Vec::new();
        let list = async {
            found = machines.list()?;
            anyhow::Ok(())
        };
        self.part("machines", list).await;
        for machine in &found {
            let name = format!("{}.{}", machine.spec().namespace, machine.spec().name);
            let to = directory.join("machines").join(&name);
            self.part(&name, async { keep(machine, &to) }).await;
        }
    }
}

/// A machine's console, and its `/var/log`: the journal of each unit, etcd's among them, and cloud-init's output.
fn keep(machine: &Machine, to: &Path) -> Result<()> {
    make_directory(to)?;
    write_file(&to.join(CONSOLE), machine.console()?)?;
    copy(&logs(machine)?, &to.join("log"))
}

/// The directory that is `/var/log` in a machine. It is beside `/var/lib`, which contains etcd's data.
fn logs(machine: &Machine) -> Result<PathBuf> {
    Ok(machine.etcd_data().ancestors().nth(2).context("etcd's data is not below /var")?.join("log"))
}

/// Gives the console and the logs of a machine second names in the directory `to`, on the same file system. So they
/// outlast the machine, with everything that is still written into them. A file that has its second name keeps it.
pub(crate) fn link_logs(machine: &Machine, to: &Path) -> Result<()> {
    make_directory(to)?;
    link(&machine.directory().join(CONSOLE), &to.join(CONSOLE))?;
    link(&logs(machine)?, &to.join("log"))
}

fn link(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        make_directory(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            link(&from.join(&name), &to.join(&name))?;
        }
    } else if from.is_file() && !to.exists() {
        fs::hard_link(from, to).with_context(|| format!("link {}", from.display()))?;
    }
    Ok(())
}

/// Copies a directory with everything in it, over the one that is there.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.args(["--recursive", "--no-target-directory"]).arg(from).arg(to);
    output(&mut copy).map(drop)
}
