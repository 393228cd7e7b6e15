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

/// Since when there is known to have been a quorum. `well`: since when each voter has been well; `None` of one that is not,
/// or of which nothing is known. A check of a voter is a linearizable read, which takes a quorum: so one that has been well
/// throughout shows it for all. `listed_at`: when the member list was read, if it could be, which takes one as well.
pub(super) fn quorum_since(
    well: impl Iterator<Item = Option<Timestamp>>,
    listed_at: Option<Timestamp>,
) -> Option<Timestamp> {
    well.flatten().min().or(listed_at)
}

/// Whether checks have failed for this long, and for less since there is a quorum. As long as there is none nobody is
/// excused: nobody is removed either, and people are told who fails.
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
        // One that is heard does not become unhealthy by failing once more, nor one of which nobody can say it.
        if observation.is_heard(id) || (observation.heard.is_none() && observation.members().is_some()) {
            return None;
        }
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

    #[test]
    fn one_voter_that_is_well_throughout_shows_a_quorum() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let since = |voters: &[Option<i64>], listed: Option<i64>| {
            quorum_since(voters.iter().map(|since| since.map(at)), listed.map(at)).map(Timestamp::as_second)
        };
        assert_eq!(since(&[Some(70), None, Some(20)], Some(90)), Some(20));
        assert_eq!(since(&[None, None, None], Some(90)), Some(90), "nobody has been checked since it came back");
        assert_eq!(since(&[None, None, None], None), None);
    }
}
