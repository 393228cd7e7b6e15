//! TLS failures come from real handshakes through the client library, because its texts and types are not ours.

use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener};
use std::sync::Arc;

use rcgen::{CertifiedKey, KeyPair};
use rstest::rstest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use time::{Duration, OffsetDateTime};

use super::*;
use crate::endpoint::Endpoint;
use crate::etcd::Cluster;
use crate::pki::authority::Authority;
use crate::pki::leaf::Leaf;
use crate::san::San;
use crate::settings::tests::example;

pub(in crate::etcd) type Issued = CertifiedKey<KeyPair>;

#[rstest]
#[case(9, "etcdserver: too many learner members in cluster", Failure::TooManyLearners)]
#[case(9, "etcdserver: can only promote a learner member which is in sync with leader", Failure::NotInSync)]
#[case(14, "etcdserver: unhealthy cluster", Failure::Unhealthy("etcdserver: unhealthy cluster".into()))]
#[case(14, "etcdserver: no leader", Failure::Transient("etcdserver: no leader".into()))]
#[case(9, "etcdserver: rpc not supported for learner", Failure::Transient("etcdserver: rpc not supported for learner".into()))]
#[case(3, "etcdserver: given member URLs are invalid", Failure::Refused("etcdserver: given member URLs are invalid".into()))]
fn etcds_words_decide(#[case] code: i32, #[case] message: &str, #[case] expected: Failure) {
    assert_eq!(Failure::classify(code, message, message, None), expected);
}

/// An authority that is older than the lifetime of a leaf.
pub(in crate::etcd) fn authority() -> Authority {
    crate::set_up_tls();
    let root = tempfile::tempdir().unwrap();
    let long_ago = OffsetDateTime::now_utc() - Duration::days(400);
    Authority::create(&example().paths(root.path()), long_ago).unwrap()
}

/// A leaf for loopback addresses, issued this many days from now.
pub(in crate::etcd) fn issued(authority: &Authority, days: i64) -> Issued {
    let sans = vec![San::Ip(IpAddr::from(Ipv4Addr::LOCALHOST))];
    let leaf = Leaf { common_name: "m1".to_owned(), organization: None, sans, server: true };
    leaf.issue(authority, OffsetDateTime::now_utc() + Duration::days(days)).unwrap()
}

/// TLS as etcd does it: both sides show a certificate.
pub(in crate::etcd) fn tls(shown: &Issued, trusted: &Authority) -> Arc<ServerConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.bundle_pem.as_bytes()).unwrap()).unwrap();
    let certificate = CertificateDer::from_pem_slice(shown.cert.pem().as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(shown.signing_key.serialize_pem().as_bytes()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let mut config =
        ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Does the handshake with one client.
fn serve(shown: &Issued, trusted: &Authority) -> Endpoint {
    let config = tls(shown, trusted);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut connection = ServerConnection::new(config).unwrap();
        // The handshake fails on one of the two sides. Closing the connection before everything is read could lose the
        // alert.
        while connection.is_handshaking() && connection.complete_io(&mut stream).is_ok() {}
        let _ = stream.shutdown(Shutdown::Write);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    Endpoint::at(Ipv4Addr::LOCALHOST.into(), port)
}

/// The failure of a request if the server shows one leaf and the client another.
async fn failure(of: &Authority, server: &Issued, client: &Issued, trusted: &Authority) -> Failure {
    let endpoint = serve(server, of);
    let client = (client.cert.pem(), client.signing_key.serialize_pem());
    let mut cluster = Cluster::new(vec![endpoint], trusted.bundle_pem.clone(), client.0, client.1);
    cluster.list().await.unwrap_err()
}

pub(in crate::etcd) const GOOD: i64 = 0;
const EXPIRED: i64 = -390;
const NOT_VALID_YET: i64 = 10;

#[rstest]
#[case::theirs_expired(EXPIRED, GOOD)]
#[case::theirs_is_not_valid_yet(NOT_VALID_YET, GOOD)]
#[case::ours_expired(GOOD, EXPIRED)]
#[case::ours_is_not_valid_yet(GOOD, NOT_VALID_YET)]
#[tokio::test]
async fn a_certificate_of_another_time_is_a_matter_of_clocks(#[case] server: i64, #[case] client: i64) {
    let authority = authority();
    let failure = failure(&authority, &issued(&authority, server), &issued(&authority, client), &authority).await;
    assert!(matches!(failure, Failure::Untrusted { .. }), "{failure:?}");
    let message = failure.to_string();
    assert!(message.contains("compare the clocks") && !message.contains("ca.key"), "{message}");
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_a_matter_of_trust() {
    let (theirs, ours) = (authority(), authority());
    let leaf = issued(&theirs, GOOD);
    for trusted in [&theirs, &ours] {
        let failure = failure(&theirs, &leaf, &issued(&ours, GOOD), trusted).await;
        assert!(matches!(failure, Failure::Untrusted { .. }), "{failure:?}");
        let message = failure.to_string();
        assert!(message.contains("ca.crt and ca.key must be those"), "{message}");
    }
}
