//! The evidence that is kept of a bed in which a scenario has failed.

use super::Bed;
use crate::evidence::{Evidence, copy};
use crate::plane::Mark;
use anyhow::Result;

impl Bed {
    /// Keeps, among the logs of a scenario, what would be lost with the bed: every object, the requests since `since`,
    /// and the logs of each machine, also of those that are gone.
    ///
    /// # Errors
    /// With the parts that could not be kept. The other parts are kept.
    pub async fn keep_evidence(&self, scenario: &str, since: Mark) -> Result<()> {
        let world = self.world().with_logs(scenario)?;
        let directory = world.logs();
        let mut evidence = Evidence::default();
        evidence.of_plane(&self.plane, since, directory).await;
        evidence.of_machines(&self.machines, directory).await;
        let removed = async { copy(&self.removed_machines()?, &directory.join("machines")) };
        evidence.part("removed machines", removed).await;
        evidence.end()
    }
}
