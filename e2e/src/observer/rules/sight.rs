//! The observer sees what it has to observe: a record in which a cluster is ready and no member answers proves nothing.

use super::spells::Spells;
use super::{Finding, Moment, Rule};
use k8s_openapi::jiff::SignedDuration;

/// How long a cluster may be ready before a member of it has answered.
const GRACE: SignedDuration = SignedDuration::from_secs(5);

#[derive(Default)]
pub(super) struct Sight {
    /// Ready clusters of which no member has ever answered.
    blind: Spells,
}

impl Rule for Sight {
    fn name(&self) -> &'static str {
        "nothing was observed"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let blind = moment.clusters().filter(|(_, view)| view.object.ready && view.list.is_empty());
        let blind = blind.map(|(name, view)| {
            let seats = &view.seats;
            (name, move || format!("it is ready, and the observer has seen no member list; asked were {seats:?}"))
        });
        self.blind.look(moment.now(), None, GRACE, blind)
    }
}
