//! A member that joins a cluster with members joins as a learner, and there are never more learners than
//! `max-learners`.

use super::{Finding, Moment, Rule, names};
use crate::observer::record::Listed;

pub(super) struct Additions;

impl Rule for Additions {
    fn name(&self) -> &'static str {
        "wrong addition"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let Some((member, before, after)) = moment.new_list() else { return Vec::new() };
        let mut findings = Vec::new();
        let is_new = |listed: &&Listed| !before.list.iter().any(|known| known.id == listed.id);
        let came: Vec<&Listed> = after.voters().filter(is_new).collect();
        // A learner takes longer than a round from its addition to its promotion.
        if moment.new_list_of_this_round().is_some() && !came.is_empty() {
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
