//! Health, readiness and metrics over plain HTTP.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use controller_support::{Metrics, Shutdown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;

/// The content type of OpenMetrics' text form. Prometheus refuses an answer without a content type.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Which paths an address serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// `/healthz` and `/readyz`.
    pub health: bool,
    /// `/metrics`.
    pub metrics: bool,
}

/// What the admin server reports.
#[derive(Clone, Default)]
pub struct Admin {
    ready: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
}

impl Admin {
    /// Reports these metrics; not ready yet.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { ready: Arc::default(), metrics }
    }

    /// The API server has answered: this process can work, or wait for the lease.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Serves until shutdown.
    ///
    /// # Errors
    /// If the listener fails.
    pub async fn serve(self, listener: TcpListener, paths: Paths, shutdown: Shutdown) -> std::io::Result<()> {
        axum::serve(listener, self.routes(paths)).with_graceful_shutdown(shutdown.requested()).await
    }

    fn routes(self, paths: Paths) -> Router {
        let mut routes = Router::new();
        if paths.health {
            routes = routes.route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready));
        }
        if paths.metrics {
            routes = routes.route("/metrics", get(shown));
        }
        routes.with_state(self)
    }
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    if admin.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the API server has not answered yet")
    }
}

async fn shown(State(admin): State<Admin>) -> Response {
    metrics(&admin.metrics)
}

/// All metrics, as a response.
pub(crate) fn metrics(metrics: &Metrics) -> Response {
    match metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn answer(paths: Paths, path: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, shutdown) = Shutdown::new();
        let server = tokio::spawn(Admin::default().serve(listener, paths, shutdown));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        stop.send(true).unwrap();
        server.await.unwrap().unwrap();
        answer
    }

    #[tokio::test]
    async fn an_address_serves_what_it_is_for_and_nothing_else() {
        let (health, metrics) = (Paths { health: true, metrics: false }, Paths { health: false, metrics: true });
        let found = |answer: &str| !answer.starts_with("HTTP/1.1 404");
        assert!(answer(health, "/healthz").await.starts_with("HTTP/1.1 200"));
        assert!(answer(health, "/readyz").await.starts_with("HTTP/1.1 503"), "the API server has not answered");
        assert!(!found(&answer(health, "/metrics").await));
        assert!(!found(&answer(metrics, "/healthz").await));
        let text = answer(metrics, "/metrics").await;
        assert!(text.contains("content-type: application/openmetrics-text; version=1.0.0"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
