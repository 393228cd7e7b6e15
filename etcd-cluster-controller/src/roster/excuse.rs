//! Failed checks that are not held against a member: those from a time without a quorum. Without a quorum no member
//! serves, however healthy it is. After the quorum is back, some members may take longer than others: TCP sends lost
//! data again at intervals that double, so a connection between two members may stay silent for as long again as the
//! network was interrupted.

use super::Seat;
use super::strangers::patience;
use crate::observation::Observation;
use crate::observation::probe::Run;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// Whether checks have failed for `long`, but for less than that since there has been a quorum. While there is no
/// quorum, nothing is excused: no member is removed either, and the status reports which members fail.
pub(super) fn is_excused(observation: &Observation, run: Run, long: Duration) -> bool {
    let Some(since) = observation.quorum_since() else { return false };
    let has_failed = |run: Run| run.has_failed_for(long, observation.now, observation.interval());
    has_failed(run) && !has_failed(run.counted_from(since))
}

impl Seat<'_> {
    /// The end of the time in which failed checks are excused, because there was no quorum for a part of it. The member
    /// becomes unhealthy if one more check fails after that. `None`: the checks have not failed for long enough, or
    /// they are not excused.
    #[must_use]
    pub fn excused_until(&self, observation: &Observation) -> Option<Timestamp> {
        let id = self.id()?;
        // One more failed check does not make a member unhealthy if the other members hear it, or if it is not known
        // whether they do.
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
