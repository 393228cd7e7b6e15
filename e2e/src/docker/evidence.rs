//! The evidence that is kept of a bed in which a scenario has failed.

use super::DockerBed;
use crate::evidence::{Evidence, make_directory, write_file};
use crate::plane::Mark;
use anyhow::Result;
use std::path::Path;

impl DockerBed {
    /// Keeps, among the logs of a scenario, what would be lost when the bed is cleared: every object, the requests
    /// since `since`, and the output of each container. That is its console, its journal, which includes etcd's and the
    /// kubelet's part, and `/var/log`.
    ///
    /// # Errors
    /// With the parts that could not be kept. The other parts are kept.
    pub async fn keep_evidence(&self, scenario: &str, since: Mark) -> Result<()> {
        let world = self.world().with_logs(scenario)?;
        let directory = world.logs();
        let mut evidence = Evidence::default();
        evidence.of_plane(&self.plane, since, directory).await;
        let mut containers = Vec::new();
        let list = async {
            containers = self.containers().await?;
            anyhow::Ok(())
        };
        evidence.part("containers", list).await;
        for container in &containers {
            let to = directory.join("containers").join(container);
            evidence.part(container, async { make_directory(&to) }).await;
            let container = container.as_str();
            let (from, into) = (format!("{container}:/var/log"), to.join("log").display().to_string());
            let asked: [(&str, &[&str]); 3] = [
                ("console", &["logs", "--timestamps", container]),
                ("journal", &["exec", container, "journalctl", "--no-pager", "--output=short-iso-precise"]),
                ("copying", &["cp", from.as_str(), into.as_str()]),
            ];
            for (what, arguments) in asked {
                let answer = self.keep_answer(&to, what, arguments);
                evidence.part(&format!("{what} of {container}"), answer).await;
            }
        }
        evidence.end()
    }

    /// Keeps docker's answer, even if it is an error: not every container runs, and not every container has what is
    /// asked for.
    async fn keep_answer(&self, directory: &Path, what: &str, arguments: &[&str]) -> Result<()> {
        let said = self.daemon.answer(arguments).await?;
        write_file(&directory.join(format!("{what}.log")), [said.stdout, said.stderr].concat())
    }
}
