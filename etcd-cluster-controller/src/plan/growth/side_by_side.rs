//! How many Machines may be on their way at a time (rule 2). Learners that catch up side by side are faster, and safer too:
//! etcd takes another member only when all voters have been connected for 5 s, so a cluster that grows one by one spends that
//! time, and the boot of the next machine, with an even number of voters.

use super::{Machines, Progress, is_late};
use crate::observation::Probe;
use crate::plan::{View, repair};
use crate::quorum::survives;
use crate::roster::Seat;

/// With a larger database, learners come one at a time: the leader sends each of them all of it. A link of 1 Gbit/s carries
/// this much in a second, which is etcd's default election timeout.
const LARGE_DATABASE_BYTES: i64 = 100 << 20;

/// Whether another Machine may be admitted beside those that are on their way.
pub(super) fn takes_another(view: &View<'_>, machines: &Machines<'_, '_>) -> bool {
    let mut coming = machines.0.iter().filter(|(_, _, state)| Progress::COMING.contains(state)).peekable();
    if coming.peek().is_none() {
        return true;
    }
    // Somebody has to look into these first.
    let is_stuck = coming.any(|(_, machine, state)| match state {
        Progress::Missing => true,
        Progress::Learner => is_late(view.observation, machine),
        _ => false,
    });
    let come = machines.0.iter().filter(|(_, _, state)| state.may_vote()).count();
    !is_stuck && come < most(view) && keeps_quorum(view, come + 1)
}

/// How many may be on their way. One that joins in the place of a failed voter comes alone, and so does one beside a voter
/// that no Machine carries: its limit is not known. A database of unknown size is large.
fn most(view: &View<'_>) -> usize {
    let size = |seat: &Seat<'_>| seat.probe.and_then(Probe::report).map(|report| report.database_size);
    let is_small = view.roster.voters().all(|seat| size(seat).is_some_and(|size| size <= LARGE_DATABASE_BYTES));
    let is_odd = |seat: &Seat<'_>| seat.is_unhealthy() || seat.machine.is_none();
    let alone = !is_small || repair::under_way(view).is_some() || view.roster.voters().any(is_odd);
    if alone { 1 } else { view.observation.max_learners() }
}

/// Whether the voters of now that are well and stay are a quorum also when so many new ones vote, and all of these fail at
/// once: what is wrong with one may be wrong with all, and each machine promotes its own learner, whatever we see by then. A
/// single voter is not a quorum beside even one new voter. Two new ones are not worse, and get over that sooner.
fn keeps_quorum(view: &View<'_>, come: usize) -> bool {
    let voters = view.roster.voters().count();
    let stay = view.roster.voters().filter(|seat| seat.is_well() && !seat.is_leaving() && !seat.released).count();
    survives(voters + come, stay) >= 0 || ((voters, stay) == (1, 1) && come <= 2)
}
