//! What is not held against a member: what it has failed while there was no quorum. Without one no member serves, also
//! one that is well. When it is back, one of them may take longer than the others: TCP sends again what was lost at
//! intervals that double, so a connection between two members may be silent for as long again as the network was
//! interrupted.

use super::Seat;
use super::strangers::patience;
use crate::observation::Observation;
use crate::observation::probe::Run;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// Whether checks have failed for this long, and for less since there is a quorum. As long as there is none nobody is
/// excused: nobody is removed either, and people are told who fails.
pub(super) fn is_excused(observation: &Observation, run: Run, long: Duration) -> bool {
    let Some(since) = observation.quorum_since() else { return false };
    let has_failed = |run: Run| run.has_failed_for(long, observation.now, observation.interval());
    has_failed(run) && !has_failed(run.counted_from(since))
}

impl Seat<'_> {
    /// Until when it is not held against a member that its checks have failed for long enough, as there was no quorum for
    /// some of that time. Then a check has to fail once more. `None`: they have not failed for so long, or it is held
    /// against it.
    #[must_use]
    pub fn excused_until(&self, observation: &Observation) -> Option<Timestamp> {
        let id = self.id()?;
        // One that is heard does not become unhealthy by failing once more, nor one of which nobody can say it.
        if observation.is_heard(id) || observation.is_hearing_unknown() {
            return None;
        }
        let long = match self.machine {
            Some(_) => observation.etcd.spec.health_check.unhealthy_after(),
            None => patience(observation, id),
        };
        let is_excused = is_excused(observation, self.probe?.run, long);
        observation.quorum_since().filter(|_| is_excused)?.checked_add(long).ok()
    }
}
