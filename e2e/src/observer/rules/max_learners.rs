//! All members of a cluster have the same `max-learners`, that of the EtcdCluster's annotation: members with different
//! values drop each other's learners.

use super::{Finding, Moment, Rule};
use crate::observer::record::Event;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct MaxLearners {
    /// By client URL.
    values: BTreeMap<String, u32>,
    found: BTreeSet<(String, String, u32)>,
}

impl Rule for MaxLearners {
    fn name(&self) -> &'static str {
        "different max-learners"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        if let Event::Process(process) = &moment.line.event {
            self.values.insert(process.url.clone(), process.max_learners);
        }
        let mut findings = Vec::new();
        for (name, view) in moment.clusters() {
            let Some(recorded) = view.object.max_learners else { continue };
            for listed in &view.list {
                let found = listed.urls.iter().find_map(|url| self.values.get(url));
                let Some(found) = found.filter(|found| **found != recorded) else { continue };
                if self.found.insert((name.clone(), listed.id.clone(), *found)) {
                    let what = format!("{} runs with max-learners {found}, recorded are {recorded}", listed.name);
                    findings.push(Finding::about(name, &view.machine_of(listed), what));
                }
            }
        }
        findings
    }
}
