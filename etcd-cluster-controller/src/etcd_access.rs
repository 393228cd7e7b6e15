//! Talking to the members over TLS: health, status, member list.
//!
//! Everything goes through etcd's HTTP side, its JSON gateway included, rather than gRPC: it shares the health checks'
//! connections, and it lets us ask for a linearizable member list, which etcd-client's `member_list` does not.

use crate::observation::{Member, Report};
use crate::pki::{CertAndKey, Client, new_client};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use time::OffsetDateTime;

/// A member that takes longer to accept a connection is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A member that takes longer to answer is not healthy.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Age at which our own client certificate is replaced; it is valid for a year.
const CERTIFICATE_AGE: time::Duration = time::Duration::days(30);

/// The connections to every cluster's members.
#[derive(Default)]
pub(crate) struct Accesses(Mutex<HashMap<String, Entry>>);

struct Entry {
    ca: [u8; 32],
    made: OffsetDateTime,
    access: Arc<Access>,
}

impl Accesses {
    /// Access to the members of the EtcdCluster `uid`, which trust `ca`. Made anew when the CA has changed.
    pub(crate) fn get(&self, uid: &str, ca: &CertAndKey, now: OffsetDateTime) -> Result<Arc<Access>, String> {
        let fingerprint: [u8; 32] = Sha256::new().chain_update(&ca.cert).chain_update(&ca.key).finalize().into();
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(uid)
            && entry.ca == fingerprint
            && now - entry.made < CERTIFICATE_AGE
        {
            return Ok(entry.access.clone());
        }
        let access = Arc::new(Access::new(ca, now)?);
        entries.insert(uid.to_owned(), Entry { ca: fingerprint, made: now, access: access.clone() });
        Ok(access)
    }

    /// Closes the connections to a cluster that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

/// Access to the members of one cluster.
pub(crate) struct Access {
    http: reqwest::Client,
}

impl Access {
    fn new(ca: &CertAndKey, now: OffsetDateTime) -> Result<Self, String> {
        let client = new_client(ca, Client::Controller, now).map_err(|error| error.to_string())?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca.cert.as_bytes()) {
            roots.add(certificate.map_err(|error| format!("{error:?}"))?).map_err(|error| error.to_string())?;
        }
        let chain = vec![CertificateDer::from_pem_slice(client.cert.as_bytes()).map_err(|error| format!("{error:?}"))?];
        let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).map_err(|error| format!("{error:?}"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| error.to_string())?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(true)
            // Members are reached directly: a proxy for downloads is not meant for them.
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(1)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { http })
    }

    /// Asks a member for its health, and what it says of itself. Anything but 200 and `true` is not healthy.
    pub(crate) async fn check(&self, client_url: &str) -> Result<Report, String> {
        let answer = self.http.get(format!("{client_url}/health")).send().await.map_err(in_words)?;
        let status = answer.status();
        let body = answer.text().await.map_err(in_words)?;
        let health: Health = serde_json::from_str(&body).unwrap_or_default();
        if !status.is_success() || health.health != "true" {
            let reason = if health.reason.is_empty() { body.trim() } else { health.reason.as_str() };
            return Err(format!(
                "/health answers {}: {}",
                status.as_u16(),
                reason.chars().take(200).collect::<String>()
            ));
        }
        let status: Status = self.call(client_url, "/v3/maintenance/status", &json!({})).await?;
        Ok(Report {
            member_id: number(&status.header.member_id)?,
            cluster_id: number(&status.header.cluster_id)?,
            leader: number(&status.leader)?,
            version: status.version,
            database_size: i64::try_from(number(&status.db_size)?).unwrap_or(i64::MAX),
        })
    }

    /// The member list by a linearizable read: cluster ID, and members by ID. A learner refuses.
    pub(crate) async fn members(&self, client_url: &str) -> Result<(u64, BTreeMap<u64, Member>), String> {
        let list: MemberList = self.call(client_url, "/v3/cluster/member/list", &json!({"linearizable": true})).await?;
        let members = list.members.into_iter().map(|member| {
            let entry = Member {
                name: member.name,
                peer_urls: member.peer_urls,
                client_urls: member.client_urls,
                learner: member.is_learner,
            };
            Ok((number(&member.id)?, entry))
        });
        Ok((number(&list.header.cluster_id)?, members.collect::<Result<_, String>>()?))
    }

    async fn call<T: DeserializeOwned>(&self, client_url: &str, path: &str, request: &Value) -> Result<T, String> {
        let answer = self.http.post(format!("{client_url}{path}")).json(request).send().await.map_err(in_words)?;
        let status = answer.status();
        let body = answer.text().await.map_err(in_words)?;
        if !status.is_success() {
            return Err(format!("{path} answers {}: {}", status.as_u16(), body.chars().take(200).collect::<String>()));
        }
        serde_json::from_str(&body).map_err(|error| format!("{path} answers what cannot be read: {error}"))
    }
}

/// The innermost cause, as the outer ones only repeat the URL.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn in_words(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Numbers of 64 bits are strings in etcd's JSON, and left out when they are zero.
fn number(text: &str) -> Result<u64, String> {
    if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| format!("{text:?} is no number")) }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Health {
    health: String,
    reason: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Header {
    cluster_id: String,
    member_id: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    header: Header,
    version: String,
    #[serde(rename = "dbSize")]
    db_size: String,
    leader: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MemberList {
    header: Header,
    members: Vec<JsonMember>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonMember {
    #[serde(rename = "ID")]
    id: String,
    name: String,
    #[serde(rename = "peerURLs")]
    peer_urls: Vec<String>,
    #[serde(rename = "clientURLs")]
    client_urls: Vec<String>,
    is_learner: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_etcd_are_read() {
        // As etcd 3.6 answers.
        let list: MemberList = serde_json::from_value(json!({
            "header": {"cluster_id": "14841639068965178418", "member_id": "10276657743932975437", "raft_term": "2"},
            "members": [{"ID": "10276657743932975437", "name": "a", "peerURLs": ["https://10.0.0.1:2380"],
                         "clientURLs": ["https://10.0.0.1:2379"]},
                        {"ID": "1", "peerURLs": ["https://10.0.0.2:2380"], "isLearner": true}]
        }))
        .unwrap();
        assert_eq!(number(&list.header.cluster_id).unwrap(), 14_841_639_068_965_178_418);
        assert!(!list.members[0].is_learner && list.members[1].is_learner);
        assert_eq!(list.members[1].name, "");
        assert_eq!(number("").unwrap(), 0);
        assert!(number("x").is_err());
    }
}
