//! Machines whose members' certificates expire soon (`spec.rolloutBefore`): new Machines get new certificates.

use crate::observation::{Certificates, Observation};
use api::EtcdCluster;
use controller_support::external::MachineView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long before its certificate expires a member is replaced.
fn window(etcd: &EtcdCluster) -> SignedDuration {
    SignedDuration::from_hours(24 * i64::from(etcd.spec.rollout_before.certificates_expiry_days))
}

/// When the certificate expires that the member of a Machine presented last.
#[must_use]
pub fn certificate_expires(etcd: &EtcdCluster, machine: &str) -> Option<Timestamp> {
    let mut members = etcd.status.iter().flat_map(|status| &status.members);
    let Time(expires) = members.find(|member| member.machine == machine)?.certificate_expires.as_ref()?;
    Some(*expires)
}

/// From when on a Machine counts as outdated because its member's certificate expires. `None`: the expiry is not known.
#[must_use]
pub fn replaced_before_expiry(etcd: &EtcdCluster, machine: &str) -> Option<Timestamp> {
    certificate_expires(etcd, machine)?.checked_sub(window(etcd)).ok()
}

/// Whether the certificate of a Machine's member expires soon, and a new certificate would be valid for longer. No
/// certificate is valid for longer than its CA. So shortly before the CA expires, a new Machine would be due for
/// replacement as soon as it exists.
#[must_use]
pub fn expires_soon(observation: &Observation, machine: &MachineView) -> bool {
    let Certificates::Ca { ca_expires: Some(ca_expires), .. } = observation.certificates else { return false };
    let etcd = observation.etcd.as_ref();
    replaced_before_expiry(etcd, &machine.name).is_some_and(|from| from <= observation.now)
        && ca_expires.duration_since(observation.now) > window(etcd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, certificates_of_ca_until, name};

    /// Whether a Machine is replaced whose member's certificate is valid for `left` days, under a CA that is valid for
    /// `ca_left` days.
    fn is_replaced(left: i64, ca_left: Option<i64>) -> bool {
        let mut story = Story::with_voters(1, 1);
        let now = story.observation.now;
        let in_days = |days: i64| now.checked_add(SignedDuration::from_hours(24 * days)).unwrap();
        story.settle();
        story.etcd().status.as_mut().unwrap().members[0].certificate_expires = Some(Time(in_days(left)));
        story.observation.certificates = certificates_of_ca_until(ca_left.map(in_days));
        expires_soon(&story.observation, &story.observation.machines[&name(0)])
    }

    #[test]
    fn a_certificate_that_expires_within_the_days_is_replaced() {
        assert!(!is_replaced(46, Some(3650)));
        assert!(is_replaced(45, Some(3650)));
        assert!(is_replaced(-1, Some(3650)), "it has expired");
    }

    #[test]
    fn nothing_is_replaced_where_a_new_certificate_would_expire_as_soon() {
        assert!(is_replaced(20, Some(46)));
        assert!(!is_replaced(20, Some(45)), "a new one would be replaced at once, and so on");
        assert!(!is_replaced(20, None), "it is not known when the CA expires");
    }

    #[test]
    fn what_is_not_known_replaces_nobody() {
        let mut story = Story::with_voters(1, 1);
        story.observation.certificates = certificates_of_ca_until(Some(Timestamp::MAX));
        story.settle();
        assert!(!expires_soon(&story.observation, &story.observation.machines[&name(0)]));
    }
}
