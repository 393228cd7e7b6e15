//! What the metrics of members say about their machines: the clock, and the latency of the disk. Members return their
//! metrics to the client certificate that is made for Prometheus. This module requests nothing but the metrics.

use super::{clients, connect, host};
use crate::reader::now;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

/// Limit for the size of an answer. etcd's answers are a hundredth of it.
const LONGEST: u64 = 16 * 1024 * 1024;

/// A histogram of etcd: how long it takes until data that is written to its log is on disk.
const WAL_FSYNCS: &str = "etcd_disk_wal_fsync_duration_seconds";

/// The result of the request to one member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberMetrics {
    /// Name of the member.
    pub member: String,
    /// `Err`: why it does not return its metrics.
    pub answer: Result<Figures, String>,
}

/// What a member says about its machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// By how many seconds its clock is ahead of this computer's, at least. Negative if it is behind.
    pub ahead: i64,
    /// How fast its disk is; nothing if the metrics do not say.
    pub fsyncs: Option<Fsyncs>,
}

/// Writes to the log of a member, since its etcd has started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fsyncs {
    /// The number of writes.
    pub count: f64,
    /// 99 of 100 writes were on disk within this number of seconds. It is the upper bound of a bucket of etcd, or
    /// infinity.
    pub within: f64,
}

/// Reads the metrics of all members in the status of an EtcdCluster, with the client certificate of a Secret.
///
/// # Errors
/// When the Secret has no usable certificate.
pub async fn ask_metrics(etcd: &Value, secret: &Secret) -> Result<Vec<MemberMetrics>, String> {
    let config = Arc::new(config(secret)?);
    let asked = clients(etcd).into_iter().map(|(member, address)| {
        let config = config.clone();
        tokio::task::spawn_blocking(move || {
            let answer = ask(&address, config);
            MemberMetrics { member, answer }
        })
    });
    Ok(join_all(asked).await.into_iter().filter_map(Result::ok).collect())
}

/// TLS with this client certificate, which trusts only members of its CA.
fn config(secret: &Secret) -> Result<ClientConfig, String> {
    let value = |key: &str| {
        let value = secret.data.as_ref().and_then(|data| data.get(key));
        value.map(|value| value.0.as_slice()).ok_or_else(|| format!("it has no {key}"))
    };
    let certificates = |key: &str| -> Result<Vec<CertificateDer<'static>>, String> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(value(key)?).collect();
        read.map_err(|error| format!("{key}: {error}"))
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates("ca.crt")? {
        roots.add(authority).map_err(|error| format!("ca.crt: {error}"))?;
    }
    let key = PrivateKeyDer::from_pem_slice(value("tls.key")?).map_err(|error| format!("tls.key: {error}"))?;
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates("tls.crt")?, key)
        .map_err(|error| format!("tls.crt and tls.key: {error}"))
}

fn ask(address: &str, config: Arc<ClientConfig>) -> Result<Figures, String> {
    let mut tcp = connect(address)?;
    let name = ServerName::try_from(host(address).to_owned()).map_err(|error| error.to_string())?;
    let mut connection = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
    connection.complete_io(&mut tcp).map_err(|error| error.to_string())?;
    let mut stream = Stream::new(&mut connection, &mut tcp);
    let sent = now();
    // With this old version, the answer is not chunked, and the server closes the connection after it.
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).map_err(|error| error.to_string())?;
    figures(&String::from_utf8_lossy(&answer), (sent, now()))
}

/// The figures in an answer to a request. The two times are those of this computer when it sent the request and
/// received the answer.
fn figures(answer: &str, (sent, received): (Timestamp, Timestamp)) -> Result<Figures, String> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("its answer has no end")?;
    let mut head = head.lines();
    let status = head.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("it answers {status}"));
    }
    let date = head.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("date").then(|| value.trim())
    });
    let date = rfc2822::parse(date.ok_or("its answer has no header Date")?);
    let date = date.map_err(|error| format!("header Date: {error}"))?.timestamp();
    Ok(Figures { ahead: ahead(date.as_second(), (sent.as_second(), received.as_second())), fsyncs: fsyncs(body) })
}

/// How far a time is outside of two others: positive if it is later than both, negative if it is earlier. All of them
/// are in whole seconds.
fn ahead(told: i64, (sent, received): (i64, i64)) -> i64 {
    if told > received { told - received } else { (told - sent).min(0) }
}

fn fsyncs(metrics: &str) -> Option<Fsyncs> {
    let (all, bucket) = (format!("{WAL_FSYNCS}_count "), format!("{WAL_FSYNCS}_bucket{{le=\""));
    let count = metrics.lines().find_map(|line| line.strip_prefix(all.as_str())?.trim().parse::<f64>().ok())?;
    let buckets = metrics.lines().filter_map(|line| {
        let (bound, seen) = line.strip_prefix(bucket.as_str())?.split_once("\"} ")?;
        Some((bound.parse::<f64>().ok()?, seen.trim().parse::<f64>().ok()?))
    });
    let within = buckets.filter(|(_, seen)| *seen >= count * 0.99).map(|(bound, _)| bound).reduce(f64::min)?;
    Some(Fsyncs { count, within })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::server::WebPkiClientVerifier;
    use rustls::{ServerConfig, ServerConnection};
    use serde_json::json;
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    const METRICS: &str = "# TYPE etcd_disk_wal_fsync_duration_seconds histogram\n\
        etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.001\"} 700\n\
        etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.002\"} 989\n\
        etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.004\"} 990\n\
        etcd_disk_wal_fsync_duration_seconds_bucket{le=\"+Inf\"} 1000\n\
        etcd_disk_wal_fsync_duration_seconds_sum 1.2\n\
        etcd_disk_wal_fsync_duration_seconds_count 1000\n";

    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        certificate: CertificateDer<'static>,
        pem: String,
    }

    impl Authority {
        fn new() -> Self {
            let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let made = params.self_signed(&key).unwrap();
            Self { certificate: made.der().clone(), pem: made.pem(), issuer: Issuer::new(params, key) }
        }

        /// The Secret with a client certificate that this CA has signed.
        fn secret(&self) -> Secret {
            let key = KeyPair::generate().unwrap();
            let made = CertificateParams::default().signed_by(&key, &self.issuer).unwrap();
            let values = [("ca.crt", self.pem.clone()), ("tls.crt", made.pem()), ("tls.key", key.serialize_pem())];
            let data = values.map(|(name, value)| (name.to_owned(), ByteString(value.into_bytes())));
            Secret { data: Some(data.into()), ..Secret::default() }
        }

        /// A member that accepts clients with a certificate of this CA, and serves one connection.
        fn member(&self, answer: String) -> (JoinHandle<()>, String) {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut roots = RootCertStore::empty();
            roots.add(self.certificate.clone()).unwrap();
            let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_client_cert_verifier(clients.build().unwrap())
                .with_single_cert(vec![certificate], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
                .unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let served = std::thread::spawn(move || {
                let (mut tcp, _) = listener.accept().unwrap();
                let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
                let mut stream = Stream::new(&mut connection, &mut tcp);
                let mut request = [0; 1024];
                // A client that does not trust the member sends no request.
                let Ok(read) = stream.read(&mut request) else { return };
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                assert!(request.starts_with("GET /metrics HTTP/1.0\r\n"), "{request}");
                stream.write_all(answer.as_bytes()).unwrap();
                connection.send_close_notify();
                connection.complete_io(&mut tcp).unwrap();
            });
            (served, address)
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[tokio::test]
    async fn members_tell_who_has_the_certificate_and_are_believed_if_they_are_of_its_ca() {
        let (ours, other) = (Authority::new(), Authority::new());
        let date = rfc2822::to_string(&at(now().as_second() + 3_600).to_zoned(k8s_openapi::jiff::tz::TimeZone::UTC));
        let answer = format!("HTTP/1.0 200 OK\r\nDate: {}\r\n\r\n{METRICS}", date.unwrap());
        let ((one, a), (stranger, b)) = (ours.member(answer.clone()), other.member(answer));
        let member = |name: &str, address: &str| json!({"name": name, "clientURL": format!("https://{address}")});
        let etcd = json!({"status": {"members": [member("a", &a), member("b", &b)]}});
        let answers = ask_metrics(&etcd, &ours.secret()).await.unwrap();
        assert_eq!(answers.iter().map(|answer| answer.member.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let figures = answers[0].answer.as_ref().unwrap();
        assert!((3_590..=3_600).contains(&figures.ahead), "{figures:?}");
        assert_eq!(figures.fsyncs, Some(Fsyncs { count: 1000.0, within: 0.004 }));
        assert!(answers[1].answer.is_err(), "{answers:?}");
        one.join().unwrap();
        stranger.join().unwrap();
        assert_eq!(ask_metrics(&etcd, &Secret::default()).await, Err("it has no ca.crt".to_owned()));
    }

    #[test]
    fn a_clock_is_as_far_off_as_the_answer_shows_for_certain() {
        let (sent, received) = (1_000, 1_002);
        let cases = [(1_000, 0), (1_002, 0), (1_003, 1), (999, -1), (5_000, 3_998), (900, -100)];
        for (told, expected) in cases {
            assert_eq!(ahead(told, (sent, received)), expected, "{told}");
        }
    }

    #[test]
    fn what_an_answer_does_not_have_is_said() {
        let asked = |answer: &str| figures(answer, (at(0), at(1)));
        let date = "Date: Thu, 01 Jan 1970 00:00:01 GMT\r\n";
        assert_eq!(asked(&format!("HTTP/1.0 200 OK\r\n{date}\r\n")), Ok(Figures { ahead: 0, fsyncs: None }));
        assert_eq!(asked("HTTP/1.0 200 OK\r\n\r\n"), Err("its answer has no header Date".to_owned()));
        let refused = format!("HTTP/1.0 404 Not Found\r\n{date}\r\n");
        assert_eq!(asked(&refused), Err("it answers HTTP/1.0 404 Not Found".to_owned()));
        assert_eq!(asked("HTTP/1.0 200"), Err("its answer has no end".to_owned()));
    }

    #[test]
    fn a_disk_that_is_slower_than_etcd_counts_is_slower_than_any_bound() {
        let slow = METRICS.replace("0.002\"} 989", "0.002\"} 700").replace("0.004\"} 990", "0.004\"} 989");
        assert_eq!(fsyncs(&slow), Some(Fsyncs { count: 1000.0, within: f64::INFINITY }));
        assert_eq!(fsyncs("etcd_server_has_leader 1\n"), None);
    }
}
