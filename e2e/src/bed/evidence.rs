//! The evidence that is kept of a bed in which a scenario has failed.

use super::Bed;
use crate::evidence::Evidence;
use crate::plane::Mark;
use anyhow::Result;

impl Bed {
    /// Keeps, among the logs of a scenario, what would be lost with the bed: every object, the requests since `since`,
    /// and the output of each machine that still exists.
    ///
    /// # Errors
    /// With the parts that could not be kept. The other parts are kept.
    pub async fn keep_evidence(&self, scenario: &str, since: Mark) -> Result<()> {
        let world = self.world().with_logs(scenario)?;
        let directory = world.logs();
        let mut evidence = Evidence::default();
        evidence.of_plane(&self.plane, since, directory).await;
        evidence.of_machines(&self.machines, directory).await;
        evidence.end()
    }
}
