//! Promotions and removals go one at a time, each seen in the member list before the next. Learners that catch up side by side
//! are promoted so fast one after the other that two may come between two looks: raft itself takes one change after the other,
//! and the promotion of a member that has caught up costs no tolerance. Never together with a removal, though.

use super::{Finding, Moment, Rule, names};
use crate::observer::record::Listed;

pub(super) struct OneAtATime;

impl Rule for OneAtATime {
    fn name(&self) -> &'static str {
        "two changes at once"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        // Otherwise nobody knows how much time has passed between the two lists.
        let Some((member, before, after)) = moment.new_list_of_this_round() else { return Vec::new() };
        let excused = |voter: &&Listed| moment.after.is_excused(&before.machine_of(voter), moment.now());
        let left: Vec<&Listed> = before
            .voters()
            .filter(|voter| !after.list.iter().any(|listed| listed.id == voter.id))
            .filter(|voter| !excused(voter))
            .collect();
        let promoted: Vec<&Listed> = after.voters().filter(|voter| !before.votes(&voter.id)).collect();
        let caught_up = |voter: &&Listed| before.list.iter().any(|listed| listed.id == voter.id && listed.learner);
        let side_by_side = left.is_empty() && promoted.iter().all(caught_up);
        if left.len() + promoted.len() < 2 || side_by_side {
            return Vec::new();
        }
        let (left, promoted) = (names(left), names(promoted));
        let what = format!("between two looks [{promoted}] became voters and [{left}] left");
        vec![Finding::about(&member.etcd, "", what)]
    }
}
