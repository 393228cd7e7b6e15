//! The evidence of a failed scenario: every object of the bed, the requests to the API server during the scenario, and
//! the logs of its machines. It is kept beside the logs of the bed's processes. Of a plane without a bed, only objects
//! and requests are kept. Everything else goes with the world.

mod machines;
mod objects;

use crate::plane::{Mark, Plane};
use crate::world::World;
use anyhow::{Context, Result, ensure};
use local_infrastructure::machine::Machines;
use std::fs;
use std::path::Path;
use std::time::Duration;

pub(crate) use machines::{copy, link_logs};

/// How long each part may take: what a scenario has frozen or cut off must not delay its end.
const PART: Duration = Duration::from_secs(30);

/// Evidence that is being collected. A part that fails does not keep the others from being collected.
#[derive(Default)]
pub(crate) struct Evidence {
    missing: Vec<String>,
}

impl Evidence {
    /// Collects a part of the evidence.
    pub(crate) async fn part(&mut self, what: &str, part: impl Future<Output = Result<()>>) {
        match tokio::time::timeout(PART, part).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.missing.push(format!("{what}: {error:#}")),
            Err(_) => self.missing.push(format!("{what}: not within {} s", PART.as_secs())),
        }
    }

    /// Collects the evidence of the management plane: its objects as they are now, and the requests since `since`.
    pub(crate) async fn of_plane(&mut self, plane: &Plane, since: Mark, directory: &Path) {
        self.of_objects(plane, directory).await;
        self.part("requests", async { plane.keep_requests_since(since, &directory.join("audit.log")) }).await;
    }

    /// Collects only the objects: the requests are among the logs already.
    pub(crate) async fn of_objects(&mut self, plane: &Plane, directory: &Path) {
        let (client, objects) = (plane.client(), directory.join("objects"));
        self.part("objects", objects::write(&client, &objects)).await;
    }

    /// Ends the collection.
    ///
    /// # Errors
    /// With everything that could not be collected.
    pub(crate) fn end(self) -> Result<()> {
        ensure!(self.missing.is_empty(), "{}", self.missing.join("; "));
        Ok(())
    }
}

/// Keeps, among the logs of a world, what a scenario without a bed has left: the objects of its plane, if it has one,
/// and the logs of the machines that still exist. All requests are among the logs already.
///
/// # Errors
/// With everything that could not be kept. The rest is kept.
pub(crate) async fn keep_left(world: &World, plane: Option<&Plane>) -> Result<()> {
    let mut evidence = Evidence::default();
    if let Some(plane) = plane {
        evidence.of_objects(plane, world.logs()).await;
    }
    evidence.of_machines(&Machines::open(world.state("machines")?), world.logs()).await;
    evidence.end()
}

/// Makes a directory and its parents.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("create {}", path.display()))
}

/// Writes a file.
pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, content).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[tokio::test]
    async fn what_cannot_be_had_is_told_at_the_end_and_keeps_nothing_else_back() {
        let mut evidence = Evidence::default();
        let mut had = false;
        evidence.part("a console", async { Err(anyhow!("it is gone")) }).await;
        evidence
            .part("the rest", async {
                had = true;
                anyhow::Ok(())
            })
            .await;
        assert_eq!(evidence.end().unwrap_err().to_string(), "a console: it is gone");
        assert!(had);
        Evidence::default().end().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_hangs_is_given_up() {
        let mut evidence = Evidence::default();
        evidence.part("objects", std::future::pending()).await;
        assert_eq!(evidence.end().unwrap_err().to_string(), "objects: not within 30 s");
    }
}
