//! The Secrets of a managed etcd.

use super::{Finding, Installation, Subject};
use crate::gather::secret_names;
use crate::secrets::SecretSummary;
use api::names::{ENDPOINTS_IN_USE_ANNOTATION, ca_secret, control_plane_ca_secret};

pub(super) fn check(subject: &Subject, _: &Installation) -> Vec<Finding> {
    let Some(cluster) = subject.cluster_name() else { return Vec::new() };
    let secrets = match &subject.secrets {
        Err(why) => return super::unread("Secrets", why),
        Ok(secrets) => secrets,
    };
    let secret = |name: &str| secrets.iter().find(|secret| secret.name == name);
    let mut found = brought(cluster, &secret);
    if subject.has_begun() {
        // The last one is published only when the control plane has the endpoints.
        let names = secret_names(cluster);
        let needed = if is_handed_over(subject) { &names[..] } else { &names[..names.len() - 1] };
        found.extend(needed.iter().filter(|name| secret(name).is_none()).map(|name| {
            Finding::fault(
                format!("Secret {name} is missing, and etcd has begun"),
                if *name == ca_secret(cluster) {
                    "restore it from a backup: it has the key of etcd's CA, and a new CA is never made once members run"
                } else {
                    "it is made again from the CA; look at the condition CertificatesAvailable if it is not"
                },
            )
        }));
    }
    if found.is_empty() {
        found.push(Finding::ok(match subject.has_begun() {
            true => "those of etcd's CA and of the clients are there".to_owned(),
            false => "they are made when etcd begins".to_owned(),
        }));
    }
    found
}

/// What is wrong with Secrets that a person has made in advance.
fn brought<'a>(cluster: &str, secret: &impl Fn(&str) -> Option<&'a SecretSummary>) -> Vec<Finding> {
    let mut found = Vec::new();
    let ca = ca_secret(cluster);
    if let Some(secret) = secret(&ca) {
        let lacking: Vec<&str> =
            ["tls.crt", "tls.key"].into_iter().filter(|key| !secret.keys.contains_key(*key)).collect();
        if !lacking.is_empty() {
            found.push(Finding::fault(format!("Secret {ca} has no {}", lacking.join(" and no ")), "a CA has both"));
        }
    }
    let public = control_plane_ca_secret(cluster);
    if secret(&public).is_some_and(|secret| secret.keys.contains_key("tls.key")) {
        found.push(Finding::warning(
            format!("Secret {public} has a tls.key: it becomes a file with an empty path on control-plane machines"),
            format!("keep the key in Secret {ca} alone"),
        ));
    }
    found
}

fn is_handed_over(subject: &Subject) -> bool {
    let annotation = subject.live.as_ref().and_then(|live| live.pointer("/metadata/annotations"));
    let in_use = annotation.and_then(|all| all.get(ENDPOINTS_IN_USE_ANNOTATION)?.as_str());
    in_use.is_some_and(|lists| !lists.is_empty())
}
