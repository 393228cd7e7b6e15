//! Until when certificates are valid.

use super::{Finding, Installation, Subject};
use crate::gather::secret_names;
use crate::text::span;
use api::names::{ca_secret, control_plane_ca_secret};

/// Long enough to do something about a CA.
const SOON: i64 = 30 * 86_400;

pub(super) fn check(subject: &Subject, installation: &Installation) -> Vec<Finding> {
    let (Some(cluster), Ok(secrets)) = (subject.cluster_name(), &subject.secrets) else { return Vec::new() };
    let ours = secret_names(cluster);
    let mut found = Vec::new();
    let mut first: Option<i64> = None;
    for secret in secrets.iter().filter(|secret| ours.contains(&secret.name)) {
        for certificate in secret.certificates("tls.crt") {
            let left = certificate.not_after.as_second() - installation.now.as_second();
            let is_ca = [ca_secret(cluster), control_plane_ca_secret(cluster)].contains(&secret.name);
            let remedy = match (is_ca, left <= 0) {
                (true, _) => "plan a new etcd cluster: a CA cannot be replaced while members run",
                (false, true) => "clear what Ready of the EtcdCluster names, such as a pause: a new one is made then",
                (false, false) => "nothing, as long as Ready is True: a new one is made in time",
            };
            first = Some(first.map_or(left, |first| first.min(left)));
            let name = &secret.name;
            if left <= 0 {
                let at = format!("{:.0}", certificate.not_after);
                found.push(Finding::fault(format!("the certificate in Secret {name} expired at {at}"), remedy));
            } else if left <= SOON {
                let left = span(left);
                found.push(Finding::warning(
                    format!("the certificate in Secret {name} is valid for {left} more"),
                    remedy,
                ));
            }
        }
    }
    if let Some(left) = first.filter(|_| found.is_empty()) {
        found.push(Finding::ok(format!("valid for {} at least", span(left))));
    }
    found
}
