//! Requests over HTTP.

use anyhow::{Context, Result, bail, ensure};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Method, path and body: the provider's requests, and wrong ones.
pub(super) const QUESTIONS: [(&str, &str, &str); 10] = [
    ("POST", "/v3/maintenance/status", "{}"),
    ("POST", "/v3/kv/range", r#"{"key":"aGVhbHRo","limit":"1","count_only":true}"#),
    ("POST", "/v3/cluster/member/list", r#"{"linearizable":true}"#),
    ("POST", "/v3/cluster/member/list", "{}"),
    ("GET", "/health", ""),
    ("GET", "/metrics", ""),
    ("GET", "/version", ""),
    ("GET", "/v3/maintenance/status", ""),
    ("POST", "/v3/nothing", "{}"),
    ("GET", "/nothing", ""),
];

/// A member's answer.
pub(super) struct Answer {
    status: u16,
    content_type: String,
    body: String,
}

/// Sends a request to the member at an address.
pub(super) async fn ask(
    address: Ipv4Addr,
    tls: &TlsConnector,
    method: &str,
    path: &str,
    body: &'static str,
) -> Result<Answer> {
    let stream = connect(address, tls).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", address.to_string());
    let answer = sender.send_request(request.body(Full::new(Bytes::from_static(body.as_bytes())))?).await?;
    let content_type = answer.headers().get("content-type").context("no content type")?.to_str()?.to_owned();
    let status = answer.status().as_u16();
    let body = String::from_utf8(answer.into_body().collect().await?.to_bytes().to_vec())?;
    connection.abort();
    Ok(Answer { status, content_type, body })
}

/// The TLS error with which a member refuses a client.
pub(super) async fn refusal(address: Ipv4Addr, tls: &TlsConnector) -> Result<rustls::Error> {
    // With TLS 1.3, a client gets the error only when it reads.
    let refused = async {
        let mut stream = connect(address, tls).await?;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: member\r\n\r\n").await?;
        stream.read(&mut [0; 64]).await
    };
    match refused.await {
        Ok(bytes) => bail!("{address} answers with {bytes} bytes"),
        Err(error) => {
            let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
            tls.cloned().with_context(|| format!("{address} ends the connection otherwise: {error}"))
        }
    }
}

async fn connect(address: Ipv4Addr, tls: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect((address, 2379)).await?;
    tls.connect(ServerName::from(IpAddr::from(address)), stream).await
}

/// Status and content type have to be equal, and so does the shape of JSON. A simulated member has some of etcd's
/// metrics.
pub(super) fn compare(real: &Answer, simulated: &Answer) -> Result<()> {
    let of = |answer: &Answer| (answer.status, answer.content_type.clone());
    ensure!(of(real) == of(simulated), "etcd answers {:?}, and the simulation {:?}", of(real), of(simulated));
    match (serde_json::from_str(&real.body), serde_json::from_str(&simulated.body)) {
        (Ok(real), Ok(simulated)) => {
            ensure!(shape(&real) == shape(&simulated), "etcd answers {real}, and the simulation {simulated}");
        }
        _ if real.content_type.contains("version=0.0.4") => {
            let (real, simulated) = (metrics(&real.body), metrics(&simulated.body));
            ensure!(!simulated.is_empty(), "the simulation has no metrics");
            ensure!(simulated.is_subset(&real), "etcd has not all of {simulated:?}");
        }
        _ => ensure!(real.body == simulated.body, "etcd answers {}, and the simulation {}", real.body, simulated.body),
    }
    Ok(())
}

/// A value with numbers in strings, URLs and names replaced by what they are. Everything else has to be equal.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| (name.clone(), shape(value));
            Value::Object(fields.iter().map(field).collect::<Map<_, _>>())
        }
        // Members are sorted by their IDs, which are random.
        Value::Array(values) => {
            let mut shapes: Vec<Value> = values.iter().map(shape).collect();
            shapes.sort_by_key(Value::to_string);
            Value::Array(shapes)
        }
        Value::String(text) if text.parse::<u64>().is_ok() => json!("a number"),
        Value::String(text) if text.starts_with("https://") => json!("a URL"),
        Value::String(text) if text.starts_with("real-") || text.starts_with("demo-etcd-") => json!("a name"),
        other => other.clone(),
    }
}

/// The names and label names of metrics, and the values of gauges. All of these have to be equal; counters only have to
/// exist.
fn metrics(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let number = |line: &str| {
        let words = line.split('"').enumerate().filter(|(index, _)| index % 2 == 0);
        let line = words.map(|(_, word)| word).collect::<Vec<_>>().join("\"");
        match line.rsplit_once(' ') {
            Some((name, _)) if name.contains("_total") => name.to_owned(),
            _ => line,
        }
    };
    lines.map(number).collect()
}
