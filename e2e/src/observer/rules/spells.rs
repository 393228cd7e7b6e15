//! Problems that count only once they have lasted for a while.

use super::Finding;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// Current problems, by cluster: since when, and whether the problem was found.
#[derive(Default)]
pub(super) struct Spells(BTreeMap<String, (Timestamp, bool)>);

impl Spells {
    /// Keeps the problems that exist at this time, and drops all others. Returns each problem once, when it has
    /// lasted as long as `limit`. The time before `known` does not count.
    pub(super) fn look<'a, W: FnOnce() -> String>(
        &mut self,
        now: Timestamp,
        known: Option<Timestamp>,
        limit: SignedDuration,
        going_on: impl Iterator<Item = (&'a String, W)>,
    ) -> Vec<Finding> {
        let (mut findings, mut spells) = (Vec::new(), BTreeMap::new());
        for (name, what) in going_on {
            let (since, found) = self.0.get(name).copied().unwrap_or((now, false));
            let due = !found && now.duration_since(known.map_or(since, |known| known.max(since))) >= limit;
            if due {
                findings.push(Finding::about(name, "", what()).since(since));
            }
            spells.insert(name.clone(), (since, found || due));
        }
        self.0 = spells;
        findings
    }
}
