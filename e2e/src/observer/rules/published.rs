//! The published endpoints follow the voters: they are sorted, without duplicates, never a learner's, and never empty
//! once there were some.
//!
//! The endpoint of a member that is gone, or of no member, is allowed, and so is a list without one of the voters. As
//! long as a control plane rolls out, or there are surplus Machines, the list that the control plane was told stays if
//! more than half of it is served.

use super::{Finding, Moment, Rule};
use crate::observer::record::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// How much later than the controller the observer may see a promotion, which is published as soon as the controller
/// sees it.
const SEEN: SignedDuration = SignedDuration::from_secs(1);

#[derive(Default)]
pub(super) struct Published {
    /// Published endpoints of learners: since when, by cluster and URL.
    strange: BTreeMap<(String, String), Timestamp>,
}

impl Rule for Published {
    fn name(&self) -> &'static str {
        "wrong endpoints"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Event::Etcd(etcd) = &moment.line.event
            && !etcd.deleting
        {
            if !etcd.endpoints.is_sorted_by(|a, b| a < b) {
                let what = format!("the endpoints are not sorted, or one is there twice: {:?}", etcd.endpoints);
                findings.push(Finding::about(&etcd.name, "", what));
            }
            let before = moment.before.etcds.get(&etcd.name).filter(|view| view.object.uid == etcd.uid);
            if etcd.endpoints.is_empty()
                && let Some(before) = before.filter(|view| !view.object.endpoints.is_empty())
            {
                let what = format!("no endpoint is published any more; it were {:?}", before.object.endpoints);
                findings.push(Finding::about(&etcd.name, "", what));
            }
        }
        let mut learners = BTreeMap::new();
        for (name, view) in moment.answered_clusters() {
            for learner in view.list.iter().filter(|listed| listed.learner) {
                for url in learner.urls.iter().filter(|url| view.object.endpoints.contains(url)) {
                    let key = (name.clone(), url.clone());
                    let since = self.strange.get(&key).copied().unwrap_or(moment.now());
                    if moment.now().duration_since(since) >= SEEN {
                        let what = format!("the endpoint {url} of learner {} is published", learner.name);
                        findings.push(Finding::about(name, &view.machine_of(learner), what).since(since));
                        // Report it only once.
                        learners.insert(key, Timestamp::MAX);
                    } else {
                        learners.insert(key, since);
                    }
                }
            }
        }
        self.strange = learners;
        findings
    }
}
