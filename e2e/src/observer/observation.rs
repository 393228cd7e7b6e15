//! The observation of one scenario, whatever its machines are made of: from the beginning to the verdict.

use super::{Insight, Observer, TIMELINE, Verdict, cost, timeline, writes};
use crate::plane::{Mark, Plane, users};
use crate::world::World;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// An observer, and where its scenario began in the audit log.
pub(crate) struct Observation {
    observer: Observer,
    mark: Mark,
    logs: PathBuf,
    scenario: String,
}

impl Observation {
    /// Begins to observe everything that happens on a plane, for the scenario of this name.
    ///
    /// # Errors
    /// When the record cannot be created.
    pub(crate) fn begin(scenario: &str, world: &World, plane: &Plane, insight: Insight) -> Result<Self> {
        let logs = world.with_logs(scenario)?.logs().to_owned();
        let kubeconfig = plane.kubeconfig_for(users::OBSERVER)?;
        let mark = plane.mark();
        let observer = Observer::start(scenario, &logs, kubeconfig, insight)?;
        Ok(Self { observer, mark, logs, scenario: scenario.to_owned() })
    }

    /// The observer, for code that reports something to it.
    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Ends the observation, writes a timeline beside the record, and judges the record.
    ///
    /// # Errors
    /// With the unexpected violations; or when an expected one is missing, or the record is not whole.
    pub(crate) fn end(self, plane: &Plane) -> Result<()> {
        let Self { observer, mark, logs, scenario } = self;
        let (lines, expected) = observer.stop()?;
        if let Some(cost) = cost(&lines) {
            println!("  {cost}");
        }
        let writes = writes(&plane.requests_since(mark)?);
        let verdict = Verdict::of(&lines, &writes, &expected);
        for violation in &verdict.provoked {
            println!("  found as expected: {violation}");
        }
        let path = logs.join(TIMELINE);
        // It is not known yet whether the scenario leaves nothing behind, which is a failure too.
        let violations = [verdict.violations.clone(), verdict.provoked.clone()].concat();
        std::fs::write(&path, timeline(&lines, &writes, &violations)).context("write the timeline")?;
        verdict.into_result().with_context(|| format!("see {} of {scenario}", path.display()))
    }
}
