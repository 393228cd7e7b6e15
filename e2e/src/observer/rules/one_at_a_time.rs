//! Promotions and removals go one at a time, each seen in the member list before the next.

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
        if left.len() + promoted.len() < 2 {
            return Vec::new();
        }
        let (left, promoted) = (names(left), names(promoted));
        let what = format!("between two looks [{promoted}] became voters and [{left}] left");
        vec![Finding::about(&member.etcd, "", what)]
    }
}
