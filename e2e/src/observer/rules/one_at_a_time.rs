//! Promotions and removals go one at a time, each seen in the member list before the next.

use super::{Finding, Moment, Rule, names};
use crate::observer::record::{Event, Listed};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// For so long after the observer was held up it may have missed a list.
const CATCHES_UP: SignedDuration = SignedDuration::from_secs(2);

#[derive(Default)]
pub(super) struct OneAtATime {
    late: Option<Timestamp>,
}

impl Rule for OneAtATime {
    fn name(&self) -> &'static str {
        "two changes at once"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        if matches!(moment.line.event, Event::Late { .. }) {
            self.late = Some(moment.now());
        }
        let Some((member, before, after)) = moment.new_list() else { return Vec::new() };
        // Without a member that was asked all the time, nobody knows how much time has passed between the two lists.
        let was_watched = before.seats.values().any(|seat| seat.status().is_some_and(|it| it.list == before.list));
        let was_late = self.late.is_some_and(|late| moment.now().duration_since(late) < CATCHES_UP);
        if !was_watched || was_late || before.list.is_empty() {
            return Vec::new();
        }
        let excused = |voter: &&Listed| moment.after.is_excused(&before.machine_of(voter), moment.now());
        let left: Vec<&Listed> = before
            .voters()
            .filter(|voter| !after.list.iter().any(|listed| listed.id == voter.id))
            .filter(|voter| !excused(voter))
            .collect();
        let promoted: Vec<&Listed> = after.voters().filter(|voter| !before.votes(&voter.id)).collect();
        if left.len() + promoted.len() < 2 {
            return Vec::new();
        }
        let (left, promoted) = (names(left), names(promoted));
        let what = format!("between two looks [{promoted}] became voters and [{left}] left");
        vec![Finding::about(&member.etcd, "", what)]
    }
}
