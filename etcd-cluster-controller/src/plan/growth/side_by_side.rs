//! How many Machines may be on their way at a time (rule 2). Learners that catch up side by side are faster, and safer too:
//! etcd takes another member only when all voters have been connected for 5 s, so a cluster that grows one by one spends that
//! time with an even number of voters.

use super::{Machines, Progress, is_late};
use crate::plan::{View, repair};

/// With a larger database, learners come one at a time: the leader sends each of them all of it. A link of 1 Gbit/s carries
/// this much in a second, which is etcd's default election timeout.
const LARGE_DATABASE_BYTES: i64 = 100 << 20;

/// Whether another Machine may be admitted beside those that are on their way.
pub(super) fn takes_another(view: &View<'_>, machines: &Machines<'_, '_>) -> bool {
    let coming: Vec<_> = machines.0.iter().filter(|(_, _, state)| Progress::COMING.contains(state)).collect();
    // Somebody has to look into these first.
    let is_stuck = coming.iter().any(|(_, machine, state)| match state {
        Progress::Missing => true,
        Progress::Learner => is_late(view.observation, machine),
        _ => false,
    });
    coming.is_empty() || (!is_stuck && coming.len() < most(view))
}

/// How many may be on their way. One that joins in the place of a failed voter comes alone.
fn most(view: &View<'_>) -> usize {
    let mut reports = view.roster.voters().filter_map(|seat| seat.probe?.report());
    let is_large = reports.any(|report| report.database_size > LARGE_DATABASE_BYTES);
    if is_large || repair::under_way(view).is_some() { 1 } else { view.observation.max_learners() }
}
