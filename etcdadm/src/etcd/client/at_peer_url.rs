//! What a member tells other members at its peer URL, also where it does not serve clients.

use std::time::Duration;

use reqwest::{Certificate, Client, Identity, Response};
use serde::Deserialize;

use crate::endpoint::Endpoint;

/// The answer comes from memory.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long a learner that does not serve clients has to know its own name, twice in a row, before etcd counts as
/// waiting in vain. Usually etcd serves within some milliseconds.
const NAMED: Duration = Duration::from_millis(250);

/// A member, asked at its peer URL as other members ask it. As soon as they can reach it, etcd answers `/members`, its
/// member list, which may be outdated, and `/version` (`newPeerHandler` in `server/etcdserver/api/etcdhttp/peer.go` of
/// etcd 3.5 to 3.7).
pub struct AtPeerUrl {
    pub(super) peer: Endpoint,
    pub(super) ca: String,
    /// Certificate and key, as one text in PEM.
    pub(super) identity: String,
}

/// The header in which etcd names its cluster beside that list.
const CLUSTER_ID: &str = "X-Etcd-Cluster-ID";

/// What etcd answers at `/version`, as far as it matters here.
#[derive(Deserialize)]
struct Versions {
    etcdserver: String,
}

/// A member of that list, as far as it matters here.
#[derive(Deserialize)]
struct Listed {
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "clientURLs")]
    client_urls: Vec<String>,
    #[serde(default, rename = "isLearner")]
    learner: bool,
}

impl AtPeerUrl {
    /// Returns when the learner on this machine has known its own name for a while, and etcd still waits to see it.
    /// Before etcd serves clients, it publishes the name through raft, and waits for that entry. But the leader may send
    /// a new member a snapshot that has the name already. Then etcd never sees the entry, and publishes the name once
    /// more after seven seconds, unless the election timeout is changed (`publish` and `publishV3` in
    /// `server/etcdserver/server.go`, etcd 3.5 to 3.7). After a restart, the name usually comes as an entry.
    pub async fn waits_in_vain(&self, id: u64) {
        let mut looks = 0;
        while looks < 2 {
            tokio::time::sleep(NAMED).await;
            looks = if self.has_named_learner(id).await { looks + 1 } else { 0 };
        }
    }

    /// Whether the member on this machine has applied its own addition as a learner, and what it has published of itself.
    /// The list that etcd is started with has its name too, but neither client URLs nor learners.
    async fn has_named_learner(&self, id: u64) -> bool {
        is_named_learner(id, &self.listed().await.unwrap_or_default())
    }

    async fn listed(&self) -> Result<Vec<Listed>, reqwest::Error> {
        self.get(&self.client()?, "members").await?.json().await
    }

    /// The version of the member's program, if it belongs to this cluster. `None` if it does not answer.
    pub async fn version(&self, cluster_id: u64) -> Option<String> {
        let client = self.client().ok()?;
        let members = self.get(&client, "members").await.ok()?;
        let id = members.headers().get(CLUSTER_ID)?.to_str().ok()?;
        if u64::from_str_radix(id, 16) != Ok(cluster_id) {
            return None;
        }
        let told: Versions = self.get(&client, "version").await.ok()?.json().await.ok()?;
        Some(told.etcdserver)
    }

    async fn get(&self, client: &Client, path: &str) -> Result<Response, reqwest::Error> {
        client.get(format!("{}/{path}", self.peer)).send().await?.error_for_status()
    }

    fn client(&self) -> Result<Client, reqwest::Error> {
        Client::builder()
            .tls_certs_only(Certificate::from_pem_bundle(self.ca.as_bytes())?)
            .identity(Identity::from_pem(self.identity.as_bytes())?)
            // In etcd 3.5, HTTP/2 on that port is for gRPC alone.
            .http1_only()
            .no_proxy()
            .timeout(TIMEOUT)
            .build()
    }
}

fn is_named_learner(id: u64, listed: &[Listed]) -> bool {
    let is_it = |member: &Listed| member.id == id && member.learner;
    listed.iter().any(|member| is_it(member) && !member.name.is_empty() && !member.client_urls.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_learner_is_named_when_its_list_has_what_it_has_published() {
        let with = |changes: Value| {
            let mut member = json!({
                "id": u64::MAX, "peerURLs": ["https://127.0.0.1:2380"], "name": "m2",
                "clientURLs": ["https://127.0.0.1:2379"], "isLearner": true,
            });
            for (key, value) in changes.as_object().unwrap() {
                member[key] = value.clone();
            }
            member.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            let other = json!({"id": 1, "name": "m1", "clientURLs": ["https://127.0.0.2:2379"]});
            serde_json::from_value::<Vec<Listed>>(json!([other, member])).unwrap()
        };
        for (changes, named) in [
            (json!({}), true),
            (json!({"name": ""}), false),
            (json!({"name": null}), false),
            (json!({"clientURLs": null}), false),
            (json!({"clientURLs": []}), false),
            (json!({"isLearner": null}), false),
            (json!({"isLearner": false}), false),
            (json!({"id": 2}), false),
        ] {
            assert_eq!(is_named_learner(u64::MAX, &with(changes.clone())), named, "{changes}");
        }
    }
}
