//! How long certificates are valid.

use super::{Finding, Installation, Subject, text};
use crate::gather::secret_names;
use crate::text::span;
use api::names::{ca_secret, control_plane_ca_secret, metrics_client_secret};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Long enough to do something about a CA.
const SOON: i64 = 30 * 86_400;

pub(super) fn check(subject: &Subject, installation: &Installation) -> Vec<Finding> {
    let seen: Vec<Expiring> = in_secrets(subject).chain(of_members(subject)).chain(dialed(subject)).collect();
    let left = |seen: &Expiring| seen.expires.as_second() - installation.now.as_second();
    let said = |seen: &Expiring| match left(seen) {
        ..=0 => {
            let text = format!("the certificate {} expired at {:.0}", seen.place, seen.expires);
            Some(Finding::fault(text, seen.remedy_once_expired))
        }
        left @ ..=SOON => Some(Finding::warning(
            format!("the certificate {} is valid for {} more", seen.place, span(left)),
            seen.remedy,
        )),
        _ => None,
    };
    let found: Vec<Finding> = seen.iter().filter_map(said).collect();
    match seen.iter().map(left).min().filter(|_| found.is_empty()) {
        Some(left) => vec![Finding::ok(format!("valid for {} at least", span(left)))],
        None => found,
    }
}

/// A certificate.
struct Expiring {
    place: String,
    expires: Timestamp,
    /// What to do when it soon expires.
    remedy: &'static str,
    remedy_once_expired: &'static str,
}

fn in_secrets(subject: &Subject) -> impl Iterator<Item = Expiring> {
    let secrets = subject.cluster_name().zip(subject.secrets.as_ref().ok());
    // Its expiry is not a problem if the spec no longer requests it.
    let for_prometheus = subject.etcd.pointer("/spec/metricsClientSecret") == Some(&Value::Bool(true));
    secrets.into_iter().flat_map(move |(cluster, secrets)| {
        let (ours, cas) = (secret_names(cluster), [ca_secret(cluster), control_plane_ca_secret(cluster)]);
        let metrics = for_prometheus.then(|| metrics_client_secret(cluster));
        let is_ours = move |name: &String| ours.contains(name) || metrics.as_ref() == Some(name);
        let ours = secrets.iter().filter(move |secret| is_ours(&secret.name));
        ours.flat_map(move |secret| {
            let [remedy, remedy_once_expired] =
                if cas.contains(&secret.name) { [NEW_CA; 2] } else { [BY_ITSELF, HELD_UP] };
            let place = format!("in Secret {}", secret.name);
            secret.certificates("tls.crt").iter().map(move |certificate| Expiring {
                place: place.clone(),
                expires: certificate.not_after,
                remedy,
                remedy_once_expired,
            })
        })
    })
}

fn of_members(subject: &Subject) -> impl Iterator<Item = Expiring> {
    let members = subject.live.as_ref().and_then(|live| live.pointer("/status/members")?.as_array());
    members.into_iter().flatten().filter_map(|member| {
        let place = format!("of member {}", text(member, "/name"));
        let expires = text(member, "/certificateExpires").parse().ok()?;
        Some(Expiring { place, expires, remedy: NEW_MACHINE, remedy_once_expired: NEW_MACHINE })
    })
}

/// The certificates that members presented to this computer, if it connected to them. The peer certificate is not found
/// anywhere else.
fn dialed(subject: &Subject) -> impl Iterator<Item = Expiring> {
    subject.dialed.iter().flatten().filter_map(|dialed| {
        let expires = dialed.answer.clone().ok().flatten()?;
        let place = format!("that member {} shows at {}", dialed.member, dialed.address);
        Some(Expiring { place, expires, remedy: NEW_MACHINE, remedy_once_expired: NEW_MACHINE })
    })
}

const NEW_CA: &str = "plan a new etcd cluster: a CA cannot be replaced while members run";
const HELD_UP: &str = "clear what Ready of the EtcdCluster names, such as a pause: a new one is made then";
const BY_ITSELF: &str = "nothing, as long as Ready is True: a new one is made in time";
const NEW_MACHINE: &str =
    "see to it that its Machine is replaced: MachinesUpToDate of the EtcdCluster says what keeps it from that";
