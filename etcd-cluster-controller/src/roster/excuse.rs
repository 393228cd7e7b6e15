//! What is not held against a member: what it has failed while there was no quorum. Without one no member serves, also
//! one that is well. When it is back, one of them may take longer than the others: TCP sends again what was lost at
//! intervals that double, so a connection between two members may be silent for as long again as the network was
//! interrupted.

use super::strangers::patience;
use super::{Roster, Seat};
use crate::observation::Observation;
use crate::observation::probe::Run;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// Since when a quorum of the voters has been well. `voters`: since when each of them has; `None` of one that is not, or
/// of which nothing is known.
pub(super) fn quorum_since(voters: impl Iterator<Item = Option<Timestamp>>) -> Option<Timestamp> {
    let voters: Vec<Option<Timestamp>> = voters.collect();
    let quorum = voters.len() / 2 + 1;
    let mut well: Vec<Timestamp> = voters.into_iter().flatten().collect();
    well.sort_unstable();
    well.get(quorum - 1).copied()
}

/// Whether checks have failed for this long, and for less since a quorum has been well. As long as there is no quorum
/// nobody is excused: nobody is removed either, and people are told who fails.
pub(super) fn is_excused(observation: &Observation, run: Run, long: Duration, quorum_since: Option<Timestamp>) -> bool {
    let Some(since) = quorum_since else { return false };
    let has_failed = |run: Run| run.has_failed_for(long, observation.now, observation.interval());
    has_failed(run) && !has_failed(run.counted_from(since))
}

impl Roster<'_> {
    /// Until when it is not held against a member that its checks have failed for long enough, as there was no quorum for
    /// some of that time. Then a check has to fail once more. `None`: they have not failed for so long, or it is held
    /// against it.
    #[must_use]
    pub fn excused_until(&self, observation: &Observation, seat: &Seat<'_>) -> Option<Timestamp> {
        let id = seat.id()?;
        let long = match seat.machine {
            Some(_) => observation.etcd.spec.health_check.unhealthy_after(),
            None => patience(observation, id),
        };
        let is_excused = is_excused(observation, seat.probe?.run, long, self.quorum_since);
        self.quorum_since.filter(|_| is_excused)?.checked_add(long).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_quorum_is_well_from_when_more_than_half_of_the_voters_are(
            voters in prop::collection::vec(prop::option::of(0..100_i64), 0..8),
        ) {
            let at = |second: i64| Timestamp::from_second(second).unwrap();
            let well_at = |second: i64| voters.iter().flatten().filter(|since| **since <= second).count();
            let expected = (0..100).find(|second| 2 * well_at(*second) > voters.len());
            let since = quorum_since(voters.iter().map(|since| since.map(at)));
            prop_assert_eq!(since, expected.map(at));
        }
    }
}
