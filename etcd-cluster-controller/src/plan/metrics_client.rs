//! When the client certificate for Prometheus is made, if the spec asks for one. It is not a step of the plan, because
//! nothing waits for it.

use super::is_left_alone;
use crate::observation::{Certificates, Observation};
use crate::put_off::PUT_OFF;
use k8s_openapi::jiff::SignedDuration;
use std::time::Duration;

/// A certificate that expires within this time is renewed: it has reached half of its life.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 45);

/// Whether the certificate is to be made now.
pub(crate) fn is_due(observation: &Observation) -> bool {
    left(observation).is_some_and(|left| left.is_zero())
}

/// How long until the certificate is to be made. If it is due now and could not be made, it is tried again much later.
pub(super) fn due(observation: &Observation) -> Option<Duration> {
    left(observation).map(|left| if left.is_zero() { PUT_OFF } else { left })
}

/// How long until the certificate is to be made. `None`: never, by all that is known.
fn left(observation: &Observation) -> Option<Duration> {
    let is_there = observation.cluster.one().is_some_and(|cluster| !cluster.deleting)
        && observation.etcd.metadata.deletion_timestamp.is_none();
    let can_sign = matches!(observation.certificates, Certificates::Ca { .. });
    if !observation.etcd.spec.metrics_client_secret || !is_there || !can_sign || is_left_alone(observation) {
        return None;
    }
    let Some(expires) = observation.metrics_client_expires else { return Some(Duration::ZERO) };
    let left = expires.duration_since(observation.now) - RENEW_BEFORE;
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;
    use api::names;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn asks() -> Story {
        let mut story = Story::with_voters(3, 3);
        story.etcd().spec.metrics_client_secret = true;
        story
    }

    #[test]
    fn it_is_made_where_it_is_asked_for_and_nowhere_else() {
        assert!(!is_due(&Story::with_voters(3, 3).observation));
        assert!(is_due(&asks().observation));
        let not = |change: fn(&mut Story)| {
            let mut story = asks();
            change(&mut story);
            assert!(!is_due(&story.observation) && due(&story.observation).is_none());
        };
        not(|story| story.observation.certificates = Certificates::NoCa);
        not(|story| story.observation.certificates = Certificates::Replaced);
        not(|story| story.annotate(names::PAUSED_ANNOTATION, ""));
        not(|story| story.cluster().paused_by = Some("spec.paused".to_owned()));
        not(|story| story.cluster().deleting = true);
        not(|story| story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now)));
    }

    #[test]
    fn it_is_made_again_after_half_of_its_life() {
        let mut story = asks();
        let after = |story: &Story, days: i64| {
            story.observation.now.checked_add(SignedDuration::from_hours(24 * days)).unwrap()
        };
        story.observation.metrics_client_expires = Some(after(&story, 90));
        assert!(!is_due(&story.observation));
        assert_eq!(due(&story.observation), Some(Duration::from_secs(45 * 86_400)));
        story.observation.now = after(&story, 45);
        assert!(is_due(&story.observation));
        assert_eq!(due(&story.observation), Some(PUT_OFF), "where it cannot be made");
        story.observation.now = after(&story, 90);
        assert!(is_due(&story.observation), "it has expired");
    }

    #[test]
    fn nothing_waits_for_it() {
        let (story, plain) = (asks(), Story::with_voters(3, 3));
        assert_eq!(story.plan(), plain.plan());
    }
}
