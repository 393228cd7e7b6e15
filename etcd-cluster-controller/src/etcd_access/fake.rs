//! A fake member on a real socket with real TLS. It gives the answers that a real etcd gives only when something is
//! wrong with it.

use crate::pki::{CertAndKey, new_ca};
use rcgen::{CertificateParams, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use time::OffsetDateTime;

pub(crate) const STATUS: &str = "/v3/maintenance/status";
pub(crate) const RANGE: &str = "/v3/kv/range";
pub(crate) const LIST: &str = "/v3/cluster/member/list";

/// What to do with a request.
#[derive(Clone)]
pub(crate) enum Reply {
    Json(u16, Value),
    Redirect(String),
    /// A body of this many bytes.
    Long(usize),
    Text(&'static str),
    /// Answers, and closes the connection without announcing it.
    JsonAndClose(Value),
    Never,
    Close,
}

type Script = Arc<Mutex<Box<dyn Fn(&str) -> Reply + Send>>>;

/// A member that answers as a script says.
#[derive(Clone)]
pub(crate) struct FakeMember {
    pub(crate) url: String,
    script: Script,
    /// Connections that were accepted.
    pub(crate) accepted: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<String>>>,
}

pub(crate) fn ca() -> CertAndKey {
    new_ca("demo", OffsetDateTime::UNIX_EPOCH + time::Duration::days(19_000)).unwrap()
}

/// The status of a voter, as etcd 3.6 answers.
pub(crate) fn status(cluster_id: u64, member_id: u64, leader: u64) -> Value {
    json!({"header": {"cluster_id": cluster_id.to_string(), "member_id": member_id.to_string(), "raft_term": "2"},
           "version": "3.6.16", "dbSize": "20480", "leader": leader.to_string(), "raftIndex": "9"})
}

/// A member list of voters.
pub(crate) fn list(cluster_id: u64, members: &[u64]) -> Value {
    let members: Vec<Value> =
        members.iter().map(|id| json!({"ID": id.to_string(), "name": format!("m{id}")})).collect();
    json!({"header": {"cluster_id": cluster_id.to_string(), "member_id": "1"}, "members": members})
}

/// The script of a healthy voter of a cluster with these members. The first member leads.
pub(crate) fn voter(cluster_id: u64, id: u64, members: &'static [u64]) -> impl Fn(&str) -> Reply + Send + 'static {
    move |path| match path {
        STATUS => Reply::Json(200, status(cluster_id, id, members[0])),
        RANGE => Reply::Json(200, json!({"header": {}})),
        LIST => Reply::Json(200, list(cluster_id, members)),
        _ => Reply::Json(404, json!({})),
    }
}

impl FakeMember {
    pub(crate) fn start(ca: &CertAndKey, script: impl Fn(&str) -> Reply + Send + 'static) -> Self {
        Self::start_with(ca, ca, script)
    }

    /// Like `start`, over IPv6. `None`: the kernel has no IPv6.
    pub(crate) fn start_over_ipv6(ca: &CertAndKey, script: impl Fn(&str) -> Reply + Send + 'static) -> Option<Self> {
        let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok()?;
        Some(Self::listening(listener, ca, ca, script))
    }

    /// Starts a member whose certificate is signed by one CA, and that trusts clients of another CA.
    pub(crate) fn start_with(
        ca: &CertAndKey,
        clients: &CertAndKey,
        script: impl Fn(&str) -> Reply + Send + 'static,
    ) -> Self {
        Self::listening(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), ca, clients, script)
    }

    fn listening(
        listener: TcpListener,
        ca: &CertAndKey,
        clients: &CertAndKey,
        script: impl Fn(&str) -> Reply + Send + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let member = Self {
            url: format!("https://{address}"),
            script: Arc::new(Mutex::new(Box::new(script))),
            accepted: Arc::default(),
            asked: Arc::default(),
        };
        let (tls, accepting) = (tls(ca, clients, address.ip()), member.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (tls, member) = (tls.clone(), accepting.clone());
                member.accepted.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || member.serve(tls, stream.unwrap()));
            }
        });
        member
    }

    /// Replaces the script.
    pub(crate) fn becomes(&self, script: impl Fn(&str) -> Reply + Send + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    /// Paths of the requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Waits for `times` more requests.
    pub(crate) async fn is_asked_again(&self, times: usize) {
        let enough = self.asked().len() + times;
        let asked = async {
            while self.asked().len() < enough {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), asked).await.expect("asked again");
    }

    fn serve(&self, tls: Arc<ServerConfig>, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(tls).ok()?, stream));
        loop {
            let (mut line, mut length) = (String::new(), 0);
            stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let path = line.split(' ').nth(1)?.to_owned();
            loop {
                let mut header = String::new();
                stream.read_line(&mut header).ok()?;
                if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().ok()?;
                }
                if header.trim().is_empty() {
                    break;
                }
            }
            stream.read_exact(&mut vec![0; length]).ok()?;
            self.asked.lock().unwrap().push(path.clone());
            let reply = (self.script.lock().unwrap())(&path);
            let closes = matches!(reply, Reply::JsonAndClose(_));
            let (head, body) = match reply {
                Reply::Json(status, value) => (format!("{status} X"), value.to_string()),
                Reply::JsonAndClose(value) => ("200 OK".to_owned(), value.to_string()),
                Reply::Redirect(location) => (format!("307 X\r\nlocation: {location}"), String::new()),
                Reply::Long(bytes) => ("200 OK".to_owned(), format!("\"{}\"", "x".repeat(bytes))),
                Reply::Text(text) => ("200 OK".to_owned(), text.to_owned()),
                Reply::Never => loop {
                    std::thread::park_timeout(Duration::from_secs(60));
                },
                Reply::Close => return None,
            };
            let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.get_mut().write_all(answer.as_bytes()).ok()?;
            stream.get_mut().flush().ok()?;
            if closes {
                return None;
            }
        }
    }
}

fn tls(ca: &CertAndKey, clients: &CertAndKey, address: IpAddr) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(clients.cert.as_bytes()).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let issuer = Issuer::from_ca_cert_pem(&ca.cert, KeyPair::from_pem(&ca.key).unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::IpAddress(address)];
    let cert = params.signed_by(&key, &issuer).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![cert.der().clone()],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        );
    Arc::new(config.unwrap())
}
