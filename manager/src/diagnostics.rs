//! `/metrics` over TLS, for callers whom the API server knows and lets read them: as Cluster API's managers serve it.

mod access;
mod certificate;
#[cfg(test)]
mod tests;
mod tls;

use crate::admin;
use access::{Access, Answer};
use axum::Router;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use certificate::Certificate;
use controller_support::{Metrics, Shutdown};
use kube::Client;
use std::path::Path;
use std::sync::Arc;
use tls::TlsListener;
use tokio::net::TcpListener;

pub use tls::{TlsSettings, TlsVersion, unknown_suites};

/// The secure server of metrics.
pub struct Diagnostics {
    access: Access,
    metrics: Arc<Metrics>,
    certificate: Arc<Certificate>,
    tls: Arc<rustls::ServerConfig>,
}

impl Diagnostics {
    /// Serves these metrics, with the certificate in a folder (`tls.crt`, `tls.key`) or one that nobody has signed.
    ///
    /// # Errors
    /// If the certificate or the TLS settings cannot be used.
    pub fn new(
        client: Client,
        metrics: Arc<Metrics>,
        settings: &TlsSettings,
        certificates: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let certificate = Arc::new(match certificates {
            Some(folder) => Certificate::from_folder(folder)?,
            None => Certificate::self_signed()?,
        });
        let tls = Arc::new(tls::server_config(settings, certificate.clone())?);
        Ok(Self { access: Access::new(client), metrics, certificate, tls })
    }

    /// Serves until shutdown.
    ///
    /// # Errors
    /// If the listener fails.
    pub async fn serve(self, listener: TcpListener, shutdown: Shutdown) -> std::io::Result<()> {
        let certificate = self.certificate.clone();
        let listener = TlsListener::new(listener, self.tls.clone());
        let routes = Router::new().route("/metrics", get(metrics)).with_state(Arc::new(self));
        let served = async { axum::serve(listener, routes).with_graceful_shutdown(shutdown.requested()).await };
        tokio::select! {
            result = served => result,
            () = certificate.follow() => Ok(()),
        }
    }
}

async fn metrics(State(server): State<Arc<Diagnostics>>, headers: HeaderMap) -> Response {
    let Some(token) = bearer(&headers) else { return refusal(&Answer::Unknown) };
    match server.access.ask(token).await {
        Answer::Allowed => admin::metrics(&server.metrics),
        answer => refusal(&answer),
    }
}

/// The token of `Authorization: Bearer ...`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

fn refusal(answer: &Answer) -> Response {
    match answer {
        Answer::Denied(user) => (StatusCode::FORBIDDEN, format!("{user} may not get /metrics\n")).into_response(),
        Answer::Failed => {
            (StatusCode::INTERNAL_SERVER_ERROR, "the API server could not be asked who calls\n").into_response()
        }
        Answer::Allowed | Answer::Unknown => {
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], "a token that the API server knows is needed\n")
                .into_response()
        }
    }
}
