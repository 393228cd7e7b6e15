//! What the status reports about the API servers' client certificate.

use super::{condition, shows};
use crate::fixture::Story;
use crate::observation::Certificates;
use crate::plan::{Plan, Step, due};
use api::conditions::{self as c, reasons};
use k8s_openapi::jiff::Timestamp;

#[test]
fn an_expired_client_certificate_is_told_with_its_secret() {
    let mut story = Story::with_voters(3, 3);
    let expires = Some(story.observation.now);
    story.observation.certificates =
        Certificates::Ca { control_plane_ca: true, staged_client: false, expires, ca_expires: None };
    let status = story.settle();
    let expired = condition(&status, c::CERTIFICATES_AVAILABLE);
    assert_eq!((expired.status.as_str(), expired.reason.as_str()), ("False", reasons::SECRET_INVALID));
    let secret = "Secret demo-managed-etcd-apiserver-client expired at 1970-";
    assert!(expired.message.contains(secret), "{}", expired.message);
}

#[test]
fn a_client_certificate_that_is_renewed_in_time_changes_nothing() {
    let mut story = Story::with_voters(3, 3);
    story.pass(601);
    let days = |days: i64| Timestamp::from_second(story.observation.now.as_second() + days * 86_400).ok();
    let certificates =
        |staged_client, expires| Certificates::Ca { control_plane_ca: true, staged_client, expires, ca_expires: None };
    let (fresh, old) = (certificates(true, days(370)), certificates(false, days(364)));
    story.observation.certificates = fresh;
    let before = story.settle();
    assert_eq!(due(&story.observation, &story.plan()), Some(std::time::Duration::from_secs(5 * 86_400)));
    story.observation.certificates = old;
    assert!(matches!(story.plan(), Plan::Do(Step::EnsureCertificates)));
    let meanwhile = story.settle();
    assert!(meanwhile.ready && before.ready);
    assert_eq!(shows(&meanwhile, c::CERTIFICATES_AVAILABLE).0, "True");
}
