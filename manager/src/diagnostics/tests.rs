//! The server runs on a real socket with real TLS. The API server behind it is a stub.

use super::*;
use axum::http::StatusCode;
use axum::routing::post;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A stub of the API server.
#[derive(Default)]
struct ApiServer {
    down: AtomicBool,
    asked: AtomicUsize,
    access_reviews: Mutex<Vec<Value>>,
}

impl ApiServer {
    /// A client of the stub, which knows the tokens `prometheus`, `admin` and `visitor`. It lets the first read the
    /// metrics, and the second set what is logged.
    fn client(self: &Arc<Self>) -> Client {
        let (tokens, access) = (self.clone(), self.clone());
        let tokens = move |body: String| {
            let answer = tokens.review_token(&body);
            async move { answer }
        };
        let access = move |body: String| {
            let answer = access.review_access(&body);
            async move { answer }
        };
        let routes: Router = Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(tokens))
            .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(access));
        Client::new(routes, "default")
    }

    fn review_token(&self, body: &str) -> (StatusCode, String) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.down.load(Ordering::SeqCst) {
            return (StatusCode::FORBIDDEN, "{}".to_owned());
        }
        let review: Value = serde_json::from_str(body).unwrap();
        let token = review["spec"]["token"].as_str().unwrap();
        let groups = json!(["system:authenticated"]);
        let user = json!({"username": token, "uid": "7", "groups": groups, "extra": {"scopes": ["a"]}});
        let status = match token {
            "prometheus" | "admin" | "visitor" => json!({"authenticated": true, "user": user}),
            _ => json!({"error": "invalid bearer token"}),
        };
        (StatusCode::CREATED, json!({"spec": {}, "status": status}).to_string())
    }

    fn review_access(&self, body: &str) -> (StatusCode, String) {
        let review: Value = serde_json::from_str(body).unwrap();
        let asked = &review["spec"]["nonResourceAttributes"];
        let allowed = match review["spec"]["user"].as_str() {
            Some("prometheus") => *asked == json!({"path": "/metrics", "verb": "get"}),
            Some("admin") => *asked == json!({"path": "/debug/flags/v", "verb": "put"}),
            _ => false,
        };
        self.access_reviews.lock().unwrap().push(review["spec"].clone());
        (StatusCode::CREATED, json!({"spec": {}, "status": {"allowed": allowed}}).to_string())
    }
}

/// A server, and what is needed to call it.
struct World {
    api_server: Arc<ApiServer>,
    address: std::net::SocketAddr,
    certificate: rustls::pki_types::CertificateDer<'static>,
    /// The log filters that were set.
    set: Arc<Mutex<Vec<String>>>,
    _stop: tokio::sync::watch::Sender<bool>,
}

impl World {
    async fn new(least: TlsVersion) -> Self {
        let api_server = Arc::<ApiServer>::default();
        let settings = TlsSettings { least, suites: Vec::new(), groups: Vec::new() };
        let set: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = set.clone();
        let level = LogLevel::seen_by(move |filter| seen.lock().unwrap().push(filter));
        let server = Diagnostics::new(api_server.client(), (Arc::default(), level), &settings, None).unwrap();
        let certificate = server.certificate.shown();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, shutdown) = Shutdown::new();
        tokio::spawn(server.serve(listener, shutdown));
        Self { api_server, address, certificate, set, _stop: stop }
    }

    /// The answer to a request for the metrics with this `Authorization`, or why there is no connection.
    async fn get(
        &self,
        authorization: &str,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Result<String, String> {
        self.send("GET /metrics", authorization, versions, "").await
    }

    async fn send(
        &self,
        what: &str,
        authorization: &str,
        versions: &[&'static rustls::SupportedProtocolVersion],
        body: &str,
    ) -> Result<String, String> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|e| e.to_string())?;
        let header =
            if authorization.is_empty() { String::new() } else { format!("Authorization: {authorization}\r\n") };
        let length = body.len();
        let request = format!(
            "{what} HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.map_err(|error| error.to_string())?;
        Ok(String::from_utf8(answer).unwrap())
    }

    /// The status and the body of the answer to a request that sets what is logged.
    async fn set(&self, authorization: &str, wanted: &str) -> (u16, String) {
        let answer = self.send("PUT /debug/flags/v", authorization, rustls::ALL_VERSIONS, wanted).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    async fn status(&self, authorization: &str) -> u16 {
        let answer = self.get(authorization, rustls::ALL_VERSIONS).await.unwrap();
        let is_shown = answer.contains("# EOF");
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(is_shown, status == 200, "{answer}");
        status
    }
}

#[tokio::test]
async fn only_whom_the_api_server_lets_reads_the_metrics() {
    let world = World::new(TlsVersion::V1_2).await;
    assert_eq!(world.status("").await, 401);
    assert_eq!(world.status("Basic cHJvbWV0aGV1cw==").await, 401);
    assert_eq!(world.api_server.asked.load(Ordering::SeqCst), 0, "there is no token to ask about");
    assert_eq!(world.status("Bearer nobody").await, 401);
    assert_eq!(world.status("Bearer visitor").await, 403);
    assert_eq!(world.status("bearer prometheus").await, 200);
    let reviews = world.api_server.access_reviews.lock().unwrap();
    let expected = json!({"user": "prometheus", "uid": "7", "groups": ["system:authenticated"], "extra": {"scopes": ["a"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
    assert_eq!(reviews.last(), Some(&expected));
}

#[tokio::test]
async fn only_whom_the_api_server_lets_sets_what_is_logged() {
    let world = World::new(TlsVersion::V1_2).await;
    assert_eq!(world.set("", "4").await.0, 401);
    assert_eq!(world.set("Bearer visitor", "4").await, (403, "visitor may not put /debug/flags/v\n".to_owned()));
    assert_eq!(world.status("Bearer prometheus").await, 200);
    assert_eq!(world.set("Bearer prometheus", "4").await.0, 403, "what it may read says nothing of what it may set");
    assert_eq!(world.set("Bearer admin", "debgu").await.0, 400);
    assert_eq!(world.set("Bearer admin", &"x".repeat(2_000)).await.0, 413);
    assert!(world.set.lock().unwrap().is_empty());
    assert_eq!(world.set("Bearer admin", "info,kube=debug\n").await, (200, "info,kube=debug\n".to_owned()));
    assert_eq!(world.set("Bearer admin", "6").await, (200, "debug\n".to_owned()));
    assert_eq!(world.set.lock().unwrap().len(), 2);
    assert_eq!(world.status("Bearer admin").await, 403, "and the other way round");
}

#[tokio::test]
async fn a_known_token_is_asked_about_once_a_minute_and_an_unknown_one_each_time() {
    let world = World::new(TlsVersion::V1_2).await;
    for _ in 0..3 {
        assert_eq!(world.status("Bearer prometheus").await, 200);
    }
    assert_eq!(world.api_server.asked.load(Ordering::SeqCst), 1);
    for _ in 0..3 {
        assert_eq!(world.status("Bearer nobody").await, 401);
    }
    assert_eq!(world.api_server.asked.load(Ordering::SeqCst), 4, "none of those is kept");
}

#[tokio::test]
async fn nobody_gets_in_while_the_api_server_does_not_answer() {
    let world = World::new(TlsVersion::V1_2).await;
    world.api_server.down.store(true, Ordering::SeqCst);
    assert_eq!(world.status("Bearer prometheus").await, 500);
    world.api_server.down.store(false, Ordering::SeqCst);
    assert_eq!(world.status("Bearer prometheus").await, 200, "a failure is not kept");
}

#[tokio::test]
async fn the_least_version_of_tls_is_kept() {
    let world = World::new(TlsVersion::V1_3).await;
    assert!(world.get("", &[&rustls::version::TLS12]).await.is_err());
    assert!(world.get("", &[&rustls::version::TLS13]).await.is_ok());
}

#[tokio::test]
async fn a_caller_that_says_nothing_delays_no_other() {
    let world = World::new(TlsVersion::V1_2).await;
    let _silent = [TcpStream::connect(world.address).await.unwrap(), TcpStream::connect(world.address).await.unwrap()];
    assert_eq!(world.status("Bearer prometheus").await, 200);
}
