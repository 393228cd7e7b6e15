//! `/metrics` over TLS, and `/debug/flags/v`, which sets what is logged. As in Cluster API's managers, both are for
//! callers whom the API server authenticates and authorizes.

mod access;
mod certificate;
#[cfg(test)]
mod tests;
mod tls;

use crate::admin;
use crate::logs::LogLevel;
use access::{Access, Answer, Asked};
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use certificate::Certificate;
use controller_support::{Metrics, Shutdown};
use kube::Client;
use std::path::Path;
use std::sync::Arc;
use tls::TlsListener;
use tokio::net::TcpListener;

pub use tls::{TlsSettings, TlsVersion, unknown_groups, unknown_suites};

const METRICS: Asked = Asked { verb: "get", path: "/metrics" };
const LOG_LEVEL: Asked = Asked { verb: "put", path: "/debug/flags/v" };

/// The longest log filter that is accepted, in bytes.
const LONGEST: usize = 1_024;

/// The secure server of metrics.
pub struct Diagnostics {
    access: Access,
    metrics: Arc<Metrics>,
    log_level: LogLevel,
    certificate: Arc<Certificate>,
    tls: Arc<rustls::ServerConfig>,
}

impl Diagnostics {
    /// Serves these metrics, and lets callers set what is logged. The certificate is that in a folder (`tls.crt`,
    /// `tls.key`), or a self-signed one.
    ///
    /// # Errors
    /// If the certificate or the TLS settings cannot be used.
    pub fn new(
        client: Client,
        (metrics, log_level): (Arc<Metrics>, LogLevel),
        settings: &TlsSettings,
        certificates: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let certificate = Arc::new(match certificates {
            Some(folder) => Certificate::from_folder(folder)?,
            None => Certificate::self_signed()?,
        });
        let tls = Arc::new(tls::server_config(settings, certificate.clone())?);
        Ok(Self { access: Access::new(client), metrics, log_level, certificate, tls })
    }

    /// Serves until shutdown.
    ///
    /// # Errors
    /// If the listener fails.
    pub async fn serve(self, listener: TcpListener, shutdown: Shutdown) -> std::io::Result<()> {
        let certificate = self.certificate.clone();
        let listener = TlsListener::new(listener, self.tls.clone());
        let routes = Router::new().route(METRICS.path, get(metrics)).route(LOG_LEVEL.path, put(set_log_level));
        let routes = routes.layer(DefaultBodyLimit::max(LONGEST)).with_state(Arc::new(self));
        let served = async { axum::serve(listener, routes).with_graceful_shutdown(shutdown.requested()).await };
        tokio::select! {
            result = served => result,
            () = certificate.follow() => Ok(()),
        }
    }

    async fn ask(&self, headers: &HeaderMap, asked: Asked) -> Answer {
        match bearer(headers) {
            Some(token) => self.access.ask(token, asked).await,
            None => Answer::Unknown,
        }
    }
}

async fn metrics(State(server): State<Arc<Diagnostics>>, headers: HeaderMap) -> Response {
    match server.ask(&headers, METRICS).await {
        Answer::Allowed => admin::metrics(&server.metrics),
        answer => refusal(&answer, METRICS),
    }
}

async fn set_log_level(State(server): State<Arc<Diagnostics>>, headers: HeaderMap, wanted: String) -> Response {
    match server.ask(&headers, LOG_LEVEL).await {
        Answer::Allowed => match server.log_level.set(wanted.trim()) {
            Ok(filter) => {
                tracing::info!(filter, "what is logged has been set");
                format!("{filter}\n").into_response()
            }
            Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
        },
        answer => refusal(&answer, LOG_LEVEL),
    }
}

/// The token of `Authorization: Bearer ...`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

fn refusal(answer: &Answer, Asked { verb, path }: Asked) -> Response {
    match answer {
        Answer::Denied(user) => (StatusCode::FORBIDDEN, format!("{user} may not {verb} {path}\n")).into_response(),
        Answer::Failed => {
            (StatusCode::INTERNAL_SERVER_ERROR, "the API server could not be asked who calls\n").into_response()
        }
        Answer::Allowed | Answer::Unknown => {
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], "a token that the API server knows is needed\n")
                .into_response()
        }
    }
}
