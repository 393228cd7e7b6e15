//! All members of a cluster have the same `max-learners`: that of the EtcdCluster's annotation or, without an
//! annotation, that of the first member. Members with different values drop each other's learners.

use super::{Finding, Moment, Rule};
use crate::observer::record::{Event, Listed};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct MaxLearners {
    /// The value of each etcd process, by client URL.
    values: BTreeMap<String, u32>,
    /// What has been found: cluster, Machine and value.
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
            // A joining member has not published a client URL yet, and never does if its etcd ends immediately.
            let joining =
                view.seats.iter().filter_map(|(url, seat)| Some((seat.machine.clone(), *self.values.get(url)?)));
            let listed = view.list.iter().filter_map(|listed| Some((view.machine_of(listed), value(listed)?)));
            for (machine, found) in listed.chain(joining).filter(|(_, found)| *found != wanted) {
                if self.found.insert((name.clone(), machine.clone(), found)) {
                    let what = format!("{machine} runs etcd with max-learners {found}, {whose} {wanted}");
                    findings.push(Finding::about(name, &machine, what));
                }
            }
        }
        findings
    }
}
