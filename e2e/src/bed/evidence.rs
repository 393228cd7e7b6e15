//! What is kept of a bed in which a scenario has failed.

use super::Bed;
use crate::evidence::{Evidence, make_directory, write_file};
use crate::plane::Mark;
use crate::process::output;
use anyhow::{Context, Result};
use local_infrastructure::machine::Machine;
use std::path::Path;
use std::process::Command;

impl Bed {
    /// Keeps, among the logs of a scenario, what would go with the bed: every object, the requests since `since`, and
    /// what each machine that is still there has said.
    ///
    /// # Errors
    /// With what could not be kept; the rest is.
    pub async fn keep_evidence(&self, scenario: &str, since: Mark) -> Result<()> {
        let world = self.world().with_logs(scenario)?;
        let directory = world.logs();
        let mut evidence = Evidence::default();
        evidence.of_plane(&self.plane, since, directory).await;
        let mut machines = Vec::new();
        let list = async {
            machines = self.machines.list()?;
            anyhow::Ok(())
        };
        evidence.part("machines", list).await;
        for machine in &machines {
            let name = format!("{}.{}", machine.spec().namespace, machine.spec().name);
            let to = directory.join("machines").join(&name);
            evidence.part(&name, async { keep(machine, &to) }).await;
        }
        evidence.end()
    }
}

/// A machine's console, and its `/var/log`: the journal of each unit, etcd's among them, and cloud-init's output.
fn keep(machine: &Machine, to: &Path) -> Result<()> {
    make_directory(to)?;
    write_file(&to.join("console.log"), machine.console()?)?;
    // It lies beside `/var/lib`, in which etcd's data is.
    let logs = machine.etcd_data().ancestors().nth(2).context("etcd's data is not below /var")?.join("log");
    let mut copy = Command::new("cp");
    copy.args(["--recursive", "--no-target-directory"]).arg(logs).arg(to.join("log"));
    output(&mut copy).map(drop)
}
