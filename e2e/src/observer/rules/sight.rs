//! The observer sees what it has to observe: a record in which a cluster is ready and no member answers proves nothing,
//! and neither does one that is full of holes.

use super::spells::Spells;
use super::{Finding, Moment, Rule};
use crate::observer::record::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long a cluster may be ready before a member of it has answered.
const GRACE: SignedDuration = SignedDuration::from_secs(5);
/// How much of the time the observer may be held up, as one part of this many. Silences are counted again from each
/// such moment, so with many of them no silence would ever be found.
const HELD_UP: i32 = 4;
/// A record that is shorter than this may be held up for more: one slow moment is much of it.
const SHORT: SignedDuration = SignedDuration::from_secs(40);

#[derive(Default)]
pub(super) struct Sight {
    /// Ready clusters of which no member has ever answered.
    blind: Spells,
    /// When the record began.
    begun: Option<Timestamp>,
    /// For how long the observer was held up.
    held_up: SignedDuration,
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
        let mut findings = self.blind.look(moment.now(), None, GRACE, blind);
        let begun = *self.begun.get_or_insert(moment.now());
        match moment.line.event {
            Event::Late { millis } => {
                self.held_up += SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
            }
            Event::Ended => {
                let (held_up, lasted) = (self.held_up, moment.now().duration_since(begun));
                if lasted >= SHORT && held_up >= lasted / HELD_UP {
                    findings.push(Finding::about(
                        "",
                        "",
                        format!("the observer was held up for {held_up:#} of {lasted:#}"),
                    ));
                }
            }
            _ => {}
        }
        findings
    }
}
