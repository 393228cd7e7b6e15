//! Health, readiness and metrics over HTTP.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use controller_support::{Metrics, Shutdown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;

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
    pub async fn serve(self, listener: TcpListener, shutdown: Shutdown) -> std::io::Result<()> {
        let routes = Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(self);
        axum::serve(listener, routes).with_graceful_shutdown(shutdown.requested()).await
    }
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    if admin.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the API server has not answered yet")
    }
}

async fn metrics(State(admin): State<Admin>) -> (StatusCode, String) {
    match admin.metrics.text() {
        Ok(text) => (StatusCode::OK, text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
