//! The logs of machines: the console and `/var/log` of each.

use super::{Evidence, make_directory, write_file};
use crate::process::output;
use anyhow::{Context, Result};
use local_infrastructure::machine::{Machine, Machines};
use std::path::Path;
use std::process::Command;

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
    write_file(&to.join("console.log"), machine.console()?)?;
    // It is beside `/var/lib`, which contains etcd's data.
    let logs = machine.etcd_data().ancestors().nth(2).context("etcd's data is not below /var")?.join("log");
    let mut copy = Command::new("cp");
    copy.args(["--recursive", "--no-target-directory"]).arg(logs).arg(to.join("log"));
    output(&mut copy).map(drop)
}
