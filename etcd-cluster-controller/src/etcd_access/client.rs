//! The HTTP client of one cluster.

use super::fault::Resolver;
use crate::pki::{self, CertAndKey, new_client};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;

/// Limit for resolving a name, the TCP connection and the TLS handshake together.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// TLS sessions that are kept for resumption: a few for each member.
const SESSIONS: usize = 16;

/// HTTP client for the members of one cluster. It trusts only the cluster's CA, and presents a certificate that the CA
/// has signed.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) http: reqwest::Client,
}

impl Client {
    /// Makes a client certificate, and the client that uses it. This takes some milliseconds of processor time.
    ///
    /// # Errors
    /// In words, if the CA cannot be used.
    pub(crate) fn new(ca: &CertAndKey, now: OffsetDateTime) -> Result<Self, String> {
        let client = new_client(ca, pki::Client::Controller, now).map_err(text)?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca.cert.as_bytes()) {
            roots.add(certificate.map_err(text)?).map_err(text)?;
        }
        let chain = vec![CertificateDer::from_pem_slice(client.cert.as_bytes()).map_err(text)?];
        let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).map_err(text)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(text)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(text)?;
        tls.resumption = Resumption::in_memory_sessions(SESSIONS);
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            // This gives access to the members' certificates, so that an expiry is reported in time.
            .tls_info(true)
            .https_only(true)
            // etcd never redirects, and a server at a member's address that is not etcd must not send us elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            // Members are reached directly: a proxy for downloads is not meant for them.
            .no_proxy()
            .dns_resolver(Resolver)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(1)
            .build()
            .map_err(text)?;
        Ok(Self { http })
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}
