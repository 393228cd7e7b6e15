//! The observer sees what it is to observe: a record in which a cluster is ready and no member answers shows nothing.

use super::{Finding, Moment, Rule};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// How long a cluster may be ready until a member of it has answered.
const GRACE: SignedDuration = SignedDuration::from_secs(5);

#[derive(Default)]
pub(super) struct Sight {
    /// Ready clusters of which no member has ever answered: since when, and whether that was found.
    blind: BTreeMap<String, (Timestamp, bool)>,
}

impl Rule for Sight {
    fn name(&self) -> &'static str {
        "nothing was observed"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut blind = BTreeMap::new();
        for (name, view) in moment.clusters().filter(|(_, view)| view.object.ready && view.list.is_empty()) {
            let (since, found) = self.blind.get(name).copied().unwrap_or((moment.now(), false));
            let due = !found && moment.now().duration_since(since) >= GRACE;
            if due {
                let what =
                    format!("it is ready, and the observer has seen no member list; asked were {:?}", view.seats);
                findings.push(Finding::about(name, "", what).since(since));
            }
            blind.insert(name.clone(), (since, found || due));
        }
        self.blind = blind;
        findings
    }
}
