//! All members of a cluster have the same `max-learners`, that of the EtcdCluster's annotation, or where it has none that
//! of the first member: members with different values drop each other's learners.

use super::{Finding, Moment, Rule};
use crate::observer::record::{Event, Listed};
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
            let value = |listed: &Listed| listed.urls.iter().find_map(|url| self.values.get(url).copied());
            let (wanted, whose) = match view.object.max_learners {
                Some(recorded) => (Some(recorded), "recorded are"),
                None => (view.list.iter().find_map(value), "another member has"),
            };
            let Some(wanted) = wanted else { continue };
            for listed in &view.list {
                let Some(found) = value(listed).filter(|found| *found != wanted) else { continue };
                if self.found.insert((name.clone(), listed.id.clone(), found)) {
                    let what = format!("{} runs with max-learners {found}, {whose} {wanted}", listed.name);
                    findings.push(Finding::about(name, &view.machine_of(listed), what));
                }
            }
        }
        findings
    }
}
