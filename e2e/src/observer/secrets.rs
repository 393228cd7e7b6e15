//! Client certificates for the observed members, from the clusters' own Secrets.

use super::soon::Soon;
use etcd_client::{Certificate, Identity, TlsOptions};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

/// Suffix of the name of the Secret with a cluster's CA. The rest is the name of the Cluster.
const CA: &str = "-managed-etcd";
/// Suffix of the name of the Secret with the API servers' client certificate.
const CLIENT: &str = "-managed-etcd-apiserver-client";
/// How many credentials of a cluster are kept. Scenarios replace and delete Secrets while members keep running.
const KEPT: usize = 4;

/// What a client needs to connect to the members of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Credentials {
    ca: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Credentials {
    /// The TLS options for a connection to this host.
    pub(super) fn tls(&self, host: &str) -> TlsOptions {
        TlsOptions::new()
            .domain_name(host)
            .ca_certificate(Certificate::from_pem(&self.ca))
            .identity(Identity::from_pem(&self.certificate, &self.key))
    }

    fn is_whole(&self) -> bool {
        !self.ca.is_empty() && !self.certificate.is_empty() && !self.key.is_empty()
    }
}

/// The credentials of all clusters. Clones share their state.
#[derive(Clone, Default)]
pub(super) struct Secrets(Arc<Mutex<BTreeMap<String, Known>>>);

#[derive(Default)]
struct Known {
    /// What the Secrets contain now.
    now: Credentials,
    /// Complete credentials, newest last.
    all: Vec<Credentials>,
}

impl Secrets {
    /// Watches the Secrets, forever.
    pub(super) async fn follow(&self, client: Client) {
        let events = watcher(Api::<Secret>::all(client), watcher::Config::default()).backoff(Soon);
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            if let Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret)) = event {
                self.add(&secret);
            }
        }
    }

    fn add(&self, secret: &Secret) {
        let name = secret.name_any();
        let (cluster, is_ca) = match (name.strip_suffix(CA), name.strip_suffix(CLIENT)) {
            (Some(cluster), _) => (cluster, true),
            (None, Some(cluster)) => (cluster, false),
            (None, None) => return,
        };
        let of = |key: &str| secret.data.as_ref()?.get(key).map(|value| value.0.clone());
        let of = |key: &str| of(key).unwrap_or_default();
        let mut clusters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = clusters.entry(format!("{}/{cluster}", secret.namespace().unwrap_or_default())).or_default();
        if is_ca {
            known.now.ca = of("tls.crt");
        } else {
            (known.now.certificate, known.now.key) = (of("tls.crt"), of("tls.key"));
        }
        if known.now.is_whole() && !known.all.contains(&known.now) {
            known.all.push(known.now.clone());
            let too_many = known.all.len().saturating_sub(KEPT);
            known.all.drain(..too_many);
        }
    }

    /// The credentials for the `attempt`-th attempt to connect to the members of a Cluster: first the newest, then
    /// older ones, and so on in turn. `None` as long as there are none.
    pub(super) fn of(&self, cluster: &str, attempt: usize) -> Option<Credentials> {
        let clusters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = &clusters.get(cluster)?.all;
        all.iter().rev().cycle().nth(attempt % all.len().max(1)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use kube::api::ObjectMeta;

    fn secret(name: &str, text: &str) -> Secret {
        let metadata =
            ObjectMeta { name: Some(name.to_owned()), namespace: Some("a".to_owned()), ..ObjectMeta::default() };
        let value = || ByteString(text.as_bytes().to_vec());
        let data = [("tls.crt".to_owned(), value()), ("tls.key".to_owned(), value())].into();
        Secret { metadata, data: Some(data), ..Secret::default() }
    }

    #[test]
    fn credentials_are_kept_when_a_secret_is_replaced() {
        let secrets = Secrets::default();
        secrets.add(&secret("c-managed-etcd", "ca"));
        secrets.add(&secret("other", "x"));
        assert_eq!(secrets.of("a/c", 0), None);
        secrets.add(&secret("c-managed-etcd-apiserver-client", "client"));
        let first = secrets.of("a/c", 0).unwrap();
        assert_eq!((first.ca.as_slice(), first.key.as_slice()), (&b"ca"[..], &b"client"[..]));
        secrets.add(&secret("c-managed-etcd", "wrong"));
        assert_eq!(secrets.of("a/c", 0).unwrap().ca, b"wrong");
        assert_eq!(secrets.of("a/c", 1).unwrap(), first);
        assert_eq!(secrets.of("a/c", 2).unwrap().ca, b"wrong");
    }
}
