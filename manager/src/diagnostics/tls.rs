//! TLS settings as Cluster API names them, and a listener for TLS.

use axum::serve::Listener;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::ResolvesServerCert;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedCipherSuite};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How many handshakes may be under way. Further callers wait in the kernel's queue.
const HANDSHAKES: usize = 64;

/// The minimum version of TLS. rustls supports no version before 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// The TLS that callers have to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The minimum version.
    pub least: TlsVersion,
    /// Names of the cipher suites of TLS 1.2. Empty: all available ones. As in Go, the suites of TLS 1.3 cannot be
    /// chosen.
    pub suites: Vec<String>,
    /// Numbers of the groups for the key exchange, as in Go and in TLS itself. Empty: all available ones.
    pub groups: Vec<u16>,
}

/// The names of cipher suites that this program does not have.
#[must_use]
pub fn unknown_suites(names: &[String]) -> Vec<&str> {
    let known = ring::default_provider().cipher_suites;
    let is_known = |name: &&str| known.iter().any(|suite| is_called(suite, name));
    names.iter().map(String::as_str).filter(|name| !is_known(name)).collect()
}

/// The numbers of groups for the key exchange that this program does not have.
#[must_use]
pub fn unknown_groups(numbers: &[u16]) -> Vec<u16> {
    let known = ring::default_provider().kx_groups;
    let is_known = |number: &u16| known.iter().any(|group| u16::from(group.name()) == *number);
    numbers.iter().copied().filter(|number| !is_known(number)).collect()
}

/// Whether a suite has this name. Go has a second name for some suites, without the hash. rustls calls those of TLS 1.3
/// `TLS13_...`.
fn is_called(suite: &SupportedCipherSuite, name: &str) -> bool {
    let own = suite.suite().as_str().unwrap_or_default().replacen("TLS13_", "TLS_", 1);
    own == name || own.strip_suffix("_SHA256") == Some(name)
}

/// The TLS configuration of the server, with a certificate.
pub(super) fn server_config(
    settings: &TlsSettings,
    certificate: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, rustls::Error> {
    let mut provider: CryptoProvider = ring::default_provider();
    let chosen = |suite: &SupportedCipherSuite| settings.suites.iter().any(|name| is_called(suite, name));
    provider.cipher_suites.retain(|suite| settings.suites.is_empty() || suite.tls13().is_some() || chosen(suite));
    let is_chosen = |group: u16| settings.groups.is_empty() || settings.groups.contains(&group);
    provider.kx_groups.retain(|group| is_chosen(group.name().into()));
    let versions = match settings.least {
        TlsVersion::V1_2 => &[&TLS13, &TLS12][..],
        TlsVersion::V1_3 => &[&TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions)?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

type Handshake = BoxFuture<'static, Option<(TlsStream<TcpStream>, SocketAddr)>>;

/// Accepts connections, and returns those whose handshake has succeeded. A caller that sends nothing delays no other.
pub(super) struct TlsListener {
    tcp: TcpListener,
    tls: TlsAcceptor,
    handshakes: FuturesUnordered<Handshake>,
}

impl TlsListener {
    pub(super) fn new(tcp: TcpListener, config: Arc<ServerConfig>) -> Self {
        Self { tcp, tls: TlsAcceptor::from(config), handshakes: FuturesUnordered::new() }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                (stream, address) = Listener::accept(&mut self.tcp), if self.handshakes.len() < HANDSHAKES => {
                    let handshake = timeout(HANDSHAKE, self.tls.accept(stream));
                    self.handshakes.push(async move { Some((handshake.await.ok()?.ok()?, address)) }.boxed());
                }
                Some(ended) = self.handshakes.next() => {
                    if let Some(connection) = ended {
                        return connection;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO: [&str; 6] = [
        "TLS_AES_128_GCM_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    ];

    fn provider(settings: &TlsSettings) -> Arc<CryptoProvider> {
        let certificate = super::super::certificate::Certificate::self_signed().unwrap();
        server_config(settings, Arc::new(certificate)).unwrap().crypto_provider().clone()
    }

    fn suites(least: TlsVersion, names: &[&str]) -> Vec<String> {
        let suites = names.iter().map(|name| (*name).to_owned()).collect();
        let config = provider(&TlsSettings { least, suites, groups: Vec::new() });
        let suites = config.cipher_suites.iter().filter(|suite| suite.tls13().is_none());
        suites.filter_map(|suite| suite.suite().as_str()).map(str::to_owned).collect()
    }

    #[test]
    fn cipher_suites_are_chosen_by_gos_names() {
        assert!(unknown_suites(&GO.map(str::to_owned)).is_empty());
        assert!(suites(TlsVersion::V1_2, &[]).len() > 3, "all of them");
        let (chosen, old) = ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA");
        assert_eq!(suites(TlsVersion::V1_2, &[chosen, old]), [chosen]);
        assert_eq!(unknown_suites(&[chosen.to_owned(), old.to_owned()]), [old]);
        assert!(suites(TlsVersion::V1_2, &[old]).is_empty(), "TLS 1.3 is left");
    }

    #[test]
    fn groups_are_chosen_by_number() {
        let groups = |groups: &[u16]| {
            let settings = TlsSettings { least: TlsVersion::V1_2, suites: Vec::new(), groups: groups.to_vec() };
            let mut left: Vec<u16> = provider(&settings).kx_groups.iter().map(|group| group.name().into()).collect();
            left.sort_unstable();
            left
        };
        assert_eq!(groups(&[]), [23, 24, 29], "all of them");
        assert_eq!(groups(&[29, 23]), [23, 29]);
        assert_eq!(unknown_groups(&[29, 25, 4588]), [25, 4588]);
    }
}
