//! Promotions and removals happen one at a time, each seen in the member list before the next. Learners that catch up
//! side by side are promoted so quickly one after the other that two promotions may come between two answers: raft
//! itself makes one change after the other, and the promotion of a member that has caught up costs no fault tolerance.
//! A removal may also follow within a tenth of a second, but only if we have seen who votes. The status that announces
//! the removal shows that.

use super::fence::{announced, is_known};
use super::{Finding, Moment, Rule, names};
use crate::observer::record::Listed;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Cluster and member of an announced removal.
type Removal = (String, String);

#[derive(Default)]
pub(super) struct OneAtATime {
    /// Who votes, according to each status that announced the removal while that member still voted.
    seen: BTreeMap<Removal, BTreeSet<String>>,
    /// Removals that were seen together with promotions: when, which removal, who was promoted, and the finding.
    suspected: Vec<(Timestamp, Removal, Vec<String>, Finding)>,
}

impl Rule for OneAtATime {
    fn name(&self) -> &'static str {
        "two changes at once"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        if let Some((etcd, member)) = announced(moment)
            && etcd.voters.contains(member)
        {
            let seen = self.seen.entry((etcd.name.clone(), member.clone())).or_default();
            seen.extend(etcd.voters.iter().cloned());
        }
        let mut found: Vec<_> = self.list(moment).into_iter().collect();
        let seen = |removal: &Removal, id: &String| self.seen.get(removal).is_some_and(|voters| voters.contains(id));
        self.suspected.retain(|(_, removal, promoted, _)| !promoted.iter().all(|id| seen(removal, id)));
        let due = self.suspected.extract_if(.., |(at, ..)| is_known(moment, *at));
        found.extend(due.map(|(at, .., finding)| finding.since(at)));
        found
    }
}

impl OneAtATime {
    /// What is wrong with a new member list. If that depends on what the status said before, the finding is only
    /// suspected until the status is known.
    fn list(&mut self, moment: &Moment<'_>) -> Option<Finding> {
        // Otherwise it is not known how much time has passed between the two lists.
        let (member, before, after) = moment.new_list_of_this_round()?;
        let by_hand = |voter: &&Listed| moment.after.is_removed_by_hand(&before.machine_of(voter));
        let left: Vec<&Listed> = before
            .voters()
            .filter(|voter| !after.list.iter().any(|listed| listed.id == voter.id))
            .filter(|voter| !by_hand(voter))
            .collect();
        let promoted: Vec<&Listed> = after.voters().filter(|voter| !before.votes(&voter.id)).collect();
        let caught_up = |voter: &&Listed| before.list.iter().any(|listed| listed.id == voter.id && listed.learner);
        let all_caught_up = promoted.iter().all(caught_up);
        if left.len() + promoted.len() < 2 || left.is_empty() && all_caught_up {
            return None;
        }
        let what = format!(
            "between two looks [{}] became voters and [{}] left",
            names(promoted.iter().copied()),
            names(left.iter().copied())
        );
        let finding = Finding::about(&member.etcd, "", what);
        let [voter] = left.as_slice() else { return Some(finding) };
        if !all_caught_up {
            return Some(finding);
        }
        let promoted = promoted.iter().map(|voter| voter.id.clone()).collect();
        self.suspected.push((moment.now(), (member.etcd.clone(), voter.id.clone()), promoted, finding));
        None
    }
}
