//! Connects from this computer to the ports of etcd's members, to see whether they are open, and when the certificate
//! that each presents expires. Nothing is sent except for the TLS handshake, without a client certificate. To a client
//! certificate, members report more.

mod metrics;

pub use metrics::{Figures, Fsyncs, MemberMetrics, ask_metrics};

use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use serde_json::Value;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Limit for the connection, and for each answer after that.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The result for one port of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialed {
    /// Name of the member.
    pub member: String,
    /// Host and port, as in a URL.
    pub address: String,
    /// When the presented certificate expires; nothing if the port presents none. `Err`: why the port cannot be
    /// reached.
    pub answer: Result<Option<Timestamp>, String>,
}

impl Dialed {
    /// The port.
    #[must_use]
    pub fn port(&self) -> &str {
        self.address.rsplit_once(':').map_or("", |(_, port)| port)
    }
}

/// Connects to the client port and the peer port of all members in the status of an EtcdCluster.
pub async fn dial(etcd: &Value) -> Vec<Dialed> {
    let asked = addresses(etcd).into_iter().map(|(member, address)| {
        tokio::task::spawn_blocking(move || {
            let answer = ask(&address);
            Dialed { member, address, answer }
        })
    });
    join_all(asked).await.into_iter().filter_map(Result::ok).collect()
}

/// Members and their addresses, client addresses first.
fn addresses(etcd: &Value) -> Vec<(String, String)> {
    [clients(etcd), of_members(etcd, "peerURL")].concat()
}

/// Members and their client addresses.
fn clients(etcd: &Value) -> Vec<(String, String)> {
    of_members(etcd, "clientURL")
}

fn of_members(etcd: &Value, field: &str) -> Vec<(String, String)> {
    let address = |member: &Value| {
        let url = member[field].as_str()?;
        let address = url.split_once("://").map_or(url, |(_, address)| address).trim_end_matches('/');
        Some((member["name"].as_str().unwrap_or_default().to_owned(), address.to_owned()))
    };
    let members = etcd.pointer("/status/members").and_then(Value::as_array);
    members.into_iter().flatten().filter_map(address).collect()
}

fn ask(address: &str) -> Result<Option<Timestamp>, String> {
    connect(address).map(|mut stream| shown(&mut stream, address))
}

/// A connection on which no read or write waits longer than [`TIMEOUT`].
fn connect(address: &str) -> Result<TcpStream, String> {
    let mut why = "its name has no address".to_owned();
    for at in address.to_socket_addrs().map_err(|error| error.to_string())? {
        let connected = TcpStream::connect_timeout(&at, TIMEOUT).and_then(|stream| {
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// The host of an address. A certificate has to be valid for it.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']'])
}

/// When the certificate that the server presents expires.
fn shown(stream: &mut TcpStream, address: &str) -> Option<Timestamp> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let seen = Arc::new(Seen { provider: provider.clone(), expires: Mutex::default() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(seen.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(host(address).to_owned()).ok()?;
    let mut connection = ClientConnection::new(Arc::new(config), name).ok()?;
    // A member rejects a client without a certificate of the CA. By then it has presented its own certificate.
    let _ = connection.complete_io(stream);
    *seen.expires.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts any certificate: nothing is sent over the connection, and only the date of the certificate is reported.
#[derive(Debug)]
struct Seen {
    provider: Arc<CryptoProvider>,
    expires: Mutex<Option<Timestamp>>,
}

impl ServerCertVerifier for Seen {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.expires.lock().unwrap_or_else(PoisonError::into_inner) = expiry(end_entity);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn expiry(certificate: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, ServerConfig, ServerConnection};
    use serde_json::json;
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    /// Serves one connection as a member does: only for clients that present a certificate of its CA.
    fn member(listener: TcpListener) -> JoinHandle<()> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(2030, 1, 2);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate], key)
            .unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
            assert!(connection.complete_io(&mut stream).is_err(), "nobody is let in without a certificate");
        })
    }

    fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    #[tokio::test]
    async fn each_port_is_asked_and_tells_until_when_its_certificate_is_valid() {
        let ((etcd, client), (other, peer)) = (listener(), listener());
        let served = member(etcd);
        std::thread::spawn(move || other.accept().unwrap().0.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap());
        let closed = listener().1;
        let member = |name: &str, client: &str, peer: &str| {
            let [client, peer] = [client, peer].map(|address| format!("https://{address}"));
            json!({"name": name, "clientURL": client, "peerURL": peer})
        };
        let members = json!([member("a", &client, &peer), member("b", &closed, &closed)]);
        let all = dial(&json!({"status": {"members": members}})).await;
        let asked: Vec<(&str, &str)> = all.iter().map(|one| (one.member.as_str(), one.address.as_str())).collect();
        let [client, peer, closed] = [&client, &peer, &closed].map(String::as_str);
        assert_eq!(asked, [("a", client), ("b", closed), ("a", peer), ("b", closed)]);
        assert_eq!(all[0].answer, Ok("2030-01-02T00:00:00Z".parse().ok()));
        assert_eq!(all[2].answer, Ok(None), "whatever listens there, it is not etcd");
        assert!(all[1].answer.is_err() && all[3].answer.is_err(), "{all:?}");
        assert!(client.ends_with(&format!(":{}", all[0].port())));
        served.join().unwrap();
    }

    #[test]
    fn members_without_addresses_are_not_asked() {
        let members = json!([{"name": "a"}, {"name": "b", "peerURL": "https://[fd00::1]:2380"}]);
        let asked = addresses(&json!({"status": {"members": members}}));
        assert_eq!(asked, [("b".to_owned(), "[fd00::1]:2380".to_owned())]);
        assert!(addresses(&json!({})).is_empty());
    }
}
