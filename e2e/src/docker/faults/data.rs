//! Containers whose etcd loses its data.

use super::DockerBed;
use crate::bed::data::Host;
use crate::process::output;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// etcd's data directory.
const DATA: &str = "/var/lib/etcd";

/// The container of an etcd Machine.
pub struct Container<'a> {
    bed: &'a DockerBed,
    name: String,
    /// A script that does again what its bootstrap data did: write files and run commands.
    bootstrap: String,
}

#[derive(Deserialize)]
struct CloudConfig {
    write_files: Vec<WriteFile>,
    runcmd: Vec<String>,
}

#[derive(Deserialize)]
struct WriteFile {
    path: String,
    content: String,
}

impl DockerBed {
    /// A container, with the bootstrap data that its machine was made from.
    ///
    /// # Errors
    /// When the data is not a cloud-config.
    pub fn container(&self, name: &str, user_data: &str) -> Result<Container<'_>> {
        let config: CloudConfig = serde_yaml::from_str(user_data).context("bootstrap data")?;
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let write = |file: &WriteFile| {
            let path = quoted(&file.path);
            format!("mkdir -p \"$(dirname {path})\" && printf %s {} >{path}", quoted(&file.content))
        };
        // Removes the success marker of the first run, so that only this run can leave one.
        let mut script = vec!["rm -f /run/cluster-api/bootstrap-success.complete".to_owned()];
        script.extend(config.write_files.iter().map(write));
        script.extend(config.runcmd);
        Ok(Container { bed: self, name: name.to_owned(), bootstrap: script.join("\n") })
    }
}

impl Container<'_> {
    async fn docker(&self, arguments: &[&str]) -> Result<String> {
        self.bed.daemon.docker(arguments).await
    }

    /// Records a fault without an end: a member that has lost its data never votes again, whatever
    /// happens to its machine.
    fn loses_its_data(&self, how: &str) {
        self.bed.fault_for_good(&format!("{}: {how}", self.name), &[self.name.as_str()]);
    }

    /// Empties the data directory of a container that is off.
    fn empty(&self) -> Result<()> {
        let data = self.bed.etcd_data(&self.name)?;
        fs::remove_dir_all(&data).and_then(|()| fs::create_dir(&data)).with_context(|| data.display().to_string())?;
        output(Command::new("chmod").arg("0700").arg(&data)).map(drop)
    }
}

impl Host for Container<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    async fn run(&self, command: &[&str]) -> Result<Output> {
        self.bed.daemon.exec(&self.name, command).await
    }

    async fn reboot(&self) -> Result<()> {
        self.bed.reboot(&self.name).await
    }

    async fn power_off(&self) -> Result<()> {
        self.bed.fault(&format!("{} is switched off", self.name), &[self.name.as_str()]);
        self.docker(&["stop", "--time", "30", &self.name]).await.map(drop)
    }

    async fn power_on(&self) -> Result<()> {
        self.bed.fault_is_over(&format!("{} is switched on", self.name), &[self.name.as_str()]);
        self.docker(&["start", &self.name]).await.map(drop)
    }

    async fn rob_disk(&self) -> Result<()> {
        self.loses_its_data("its disk is lost");
        self.bed.kill(&self.name).await?;
        self.empty()?;
        self.power_on().await
    }

    async fn delete_data(&self) -> Result<()> {
        self.loses_its_data("its data directory is deleted");
        let running = self.docker(&["inspect", "--format", "{{.State.Running}}", &self.name]).await?;
        match running.trim() {
            "true" => self.docker(&["exec", &self.name, "rm", "-rf", DATA]).await.map(drop),
            _ => self.empty(),
        }
    }

    async fn save_data(&self) -> Result<()> {
        let (data, saved) = (self.bed.etcd_data(&self.name)?, self.saved_data());
        output(Command::new("rm").arg("-rf").arg(&saved))?;
        fs::create_dir_all(saved.parent().context("it has a directory")?)?;
        self.bed.pause(&self.name).await?;
        let copied = output(Command::new("cp").args(["--archive", "--sparse=always"]).arg(&data).arg(&saved));
        self.bed.unpause(&self.name).await?;
        copied.map(drop)
    }

    fn saved_data(&self) -> PathBuf {
        Path::new(crate::world::STATE).join("saved-data").join(&self.name)
    }

    async fn put_back_data(&self) -> Result<()> {
        self.loses_its_data("an older copy of its data directory is put back");
        self.bed.kill(&self.name).await?;
        let data = self.bed.etcd_data(&self.name)?;
        output(Command::new("rm").arg("-rf").arg(&data))?;
        output(Command::new("cp").args(["--archive", "--sparse=always"]).arg(self.saved_data()).arg(&data))?;
        self.power_on().await
    }

    async fn rerun_bootstrap(&self, time: Duration) -> Result<Output> {
        self.run(&["timeout", &time.as_secs().to_string(), "sh", "-c", &self.bootstrap]).await
    }
}
