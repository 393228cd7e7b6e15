//! Whoever joins a cluster that has members joins as a learner, and there are never more learners than `max-learners`.

use super::{Finding, Moment, Rule, names};
use crate::observer::record::{Event, Listed};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A learner takes longer than this until it may be promoted, unless the observer was held up.
const CATCHES_UP: SignedDuration = SignedDuration::from_secs(2);

#[derive(Default)]
pub(super) struct Additions {
    late: Option<Timestamp>,
}

impl Rule for Additions {
    fn name(&self) -> &'static str {
        "wrong addition"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        if matches!(moment.line.event, Event::Late { .. }) {
            self.late = Some(moment.now());
        }
        let Some((member, before, after)) = moment.new_list() else { return Vec::new() };
        let mut findings = Vec::new();
        let was_watched = before.seats.values().any(|seat| seat.status().is_some_and(|it| it.list == before.list));
        let was_late = self.late.is_some_and(|late| moment.now().duration_since(late) < CATCHES_UP);
        let is_new = |listed: &&Listed| !before.list.iter().any(|known| known.id == listed.id);
        let came: Vec<&Listed> = after.voters().filter(is_new).collect();
        if was_watched && !was_late && !before.list.is_empty() && !came.is_empty() {
            let what = format!("[{}] joined as voters, not as learners", names(came));
            findings.push(Finding::about(&member.etcd, "", what));
        }
        let learners: Vec<&Listed> = after.list.iter().filter(|listed| listed.learner).collect();
        let limit = after.object.max_learners.unwrap_or(1);
        let before = before.list.iter().filter(|listed| listed.learner).count();
        if learners.len() > limit as usize && learners.len() > before {
            let what = format!("[{}] are learners, at most {limit} may be", names(learners));
            findings.push(Finding::about(&member.etcd, "", what));
        }
        findings
    }
}
