//! Certificates of a member: the authority they come from, and the leaves this program issues.

pub mod authority;
pub mod key;
pub mod leaf;

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, anyhow};
use time::OffsetDateTime;

use crate::files;
use crate::paths::Paths;
use crate::san::San;
use crate::settings::Settings;
use authority::Authority;
use leaf::Leaf;

/// File name of etcd's server certificate.
pub const SERVER: &str = "server";
/// File name of the certificate for talking to other members.
pub const PEER: &str = "peer";
/// File name of the client certificate for etcdctl and for this program.
pub const ETCDCTL: &str = "etcdctl-etcd-client";
/// File name of the client certificate for an API server.
pub const API_SERVER: &str = "apiserver-etcd-client";

/// Makes sure that every leaf exists and is good, and issues those that are not. Returns the names of the issued
/// leaves.
///
/// # Errors
/// When a file cannot be read or written.
pub fn ensure_leaves(
    paths: &Paths,
    settings: &Settings,
    authority: &Authority,
    now: OffsetDateTime,
) -> Result<Vec<&'static str>> {
    let mut issued = Vec::new();
    for (file, mut leaf) in leaves(settings) {
        let (certificate, key) = (paths.certificate(file), paths.key(file));
        let old = files::read(&certificate)?.zip(files::read(&key)?);
        let kept = match old {
            None => Err("not there yet".to_owned()),
            Some((certificate, key)) => leaf.fits(&certificate, &key, authority, now),
        };
        let Err(reason) = kept else { continue };
        if file == PEER || file == SERVER && settings.extra_sans.is_empty() {
            // Keeps the names that an earlier run was given. The other members know this member by the names in its
            // peer certificate until its peer URL is changed.
            leaf.sans.extend(leaf::names(&files::read(&certificate)?.unwrap_or_default()));
            dedup(&mut leaf.sans);
        }
        tracing::debug!("issuing {file}: {reason}");
        let fresh = leaf.issue(authority, now).with_context(|| format!("cannot issue {}", certificate.display()))?;
        let (fresh_key, fresh_certificate) = (fresh.signing_key.serialize_pem(), fresh.cert.pem());
        let fits = leaf.fits(fresh_certificate.as_bytes(), fresh_key.as_bytes(), authority, now);
        fits.map_err(|why| {
            anyhow!(
                "cannot issue {}: {why}; the subject of the authority must not have an attribute twice",
                certificate.display()
            )
        })?;
        // The key comes first, so that a certificate never exists without a key. If this is interrupted between the two
        // writes, they do not match, and the next run issues both again.
        files::write(&key, fresh_key.as_bytes(), 0o600)?;
        files::write(&certificate, fresh_certificate.as_bytes(), 0o644)?;
        issued.push(file);
    }
    Ok(issued)
}

/// The leaves of a member, by file name.
pub fn leaves(settings: &Settings) -> [(&'static str, Leaf); 4] {
    let mut sans = vec![
        San::Dns(settings.name.clone()),
        San::Ip(settings.address),
        San::Ip(Ipv4Addr::LOCALHOST.into()),
        San::Ip(Ipv6Addr::LOCALHOST.into()),
        San::Dns("localhost".to_owned()),
    ];
    dedup(&mut sans);
    let mut server_sans = sans.clone();
    server_sans.extend(settings.extra_sans.iter().cloned());
    dedup(&mut server_sans);
    let member = |sans| Leaf { common_name: settings.name.clone(), organization: None, sans, server: true };
    let client = |name: &str| Leaf {
        common_name: name.to_owned(),
        organization: Some("system:masters"),
        sans: Vec::new(),
        server: false,
    };
    [
        (SERVER, member(server_sans)),
        (PEER, member(sans)),
        (ETCDCTL, client("etcdctl")),
        (API_SERVER, client("kube-apiserver-etcd-client")),
    ]
}

fn dedup(sans: &mut Vec<San>) {
    let mut seen = std::collections::HashSet::new();
    sans.retain(|san| seen.insert(san.clone()));
}

#[cfg(test)]
mod tests;
