//! How many Machines may be on their way at a time (rule 2). Learners that catch up side by side are faster and safer:
//! etcd accepts another member only when all voters have been connected for 5 s, so a cluster that grows one by one has
//! an even number of voters for that time, and while the next machine boots.

use super::{Machines, Progress, is_late};
use crate::observation::Probe;
use crate::plan::{View, repair};
use crate::quorum::survives;
use crate::roster::Seat;

/// With a larger database, learners come one at a time, because the leader sends the whole database to each of them. A
/// link of 1 Gbit/s carries this much in one second, which is etcd's default election timeout.
const LARGE_DATABASE_BYTES: i64 = 100 << 20;

/// Whether another Machine may be admitted beside those that are on their way.
pub(super) fn takes_another(view: &View<'_>, machines: &Machines<'_, '_>) -> bool {
    let mut coming = machines.0.iter().filter(|(_, _, state)| Progress::COMING.contains(state)).peekable();
    if coming.peek().is_none() {
        return true;
    }
    // A person has to look into these first.
    let is_stuck = coming.any(|(_, machine, state)| match state {
        Progress::Missing => true,
        Progress::Learner => is_late(view.observation, machine),
        _ => false,
    });
    let come = machines.0.iter().filter(|(_, _, state)| state.may_vote()).count();
    !is_stuck && come < most(view) && keeps_quorum(view, come + 1)
}

/// How many Machines may be on their way. A Machine that takes the place of a failed voter comes alone. So does a
/// Machine beside a voter that no Machine carries, because the learner limit of that voter is not known. A database of
/// unknown size counts as large.
fn most(view: &View<'_>) -> usize {
    let size = |seat: &Seat<'_>| seat.probe.and_then(Probe::report).map(|report| report.database_size);
    let is_small = view.roster.voters().all(|seat| size(seat).is_some_and(|size| size <= LARGE_DATABASE_BYTES));
    let is_odd = |seat: &Seat<'_>| seat.is_unhealthy() || seat.machine.is_none();
    let alone = !is_small || repair::under_way(view).is_some() || view.roster.voters().any(is_odd);
    if alone { 1 } else { view.observation.max_learners() }
}

/// Whether the present voters that are well and stay are still a quorum if `come` new members vote, and all of these
/// fail at the same time. What is wrong with one of them may be wrong with all, and each machine promotes its own
/// learner, whatever this controller knows by then. A single voter is not a quorum beside even one new voter. Two new
/// voters are not worse, and get past that state sooner.
fn keeps_quorum(view: &View<'_>, come: usize) -> bool {
    let voters = view.roster.voters().count();
    let stay = view.roster.voters().filter(|seat| seat.is_well() && !seat.is_leaving() && !seat.released).count();
    survives(voters + come, stay) >= 0 || ((voters, stay) == (1, 1) && come <= 2)
}
