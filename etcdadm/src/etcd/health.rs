//! The member's own word on its health.

use std::time::Duration;

use anyhow::{Context, Result};
use reqwest::{Certificate, Client, Identity};
use serde::Deserialize;

use crate::endpoint::Endpoint;

/// The check behind `/health` goes through the leader; without one it would hang until etcd's own limit.
const LIMIT: Duration = Duration::from_secs(2);

/// Asks `/health`, which is linearizable: only a member that reaches a quorum is healthy.
#[derive(Clone, Debug)]
pub struct HealthProbe {
    client: Client,
    url: String,
}

#[derive(Deserialize)]
struct Answer {
    health: String,
    #[serde(default)]
    reason: String,
}

impl HealthProbe {
    /// For the member at `endpoint`; the certificates are PEM.
    ///
    /// # Errors
    /// When a certificate is none.
    pub fn new(endpoint: &Endpoint, ca: &str, certificate: &str, key: &str) -> Result<Self> {
        let authorities = Certificate::from_pem_bundle(ca.as_bytes()).context("ca.crt is no PEM file")?;
        let identity = Identity::from_pem(format!("{certificate}{key}").as_bytes()).context("no client certificate")?;
        let client = Client::builder()
            .tls_certs_only(authorities)
            .identity(identity)
            // It is this machine that is asked: no proxy stands in between.
            .no_proxy()
            .timeout(LIMIT)
            .build()
            .context("cannot set up health checks")?;
        Ok(Self { client, url: format!("{endpoint}/health") })
    }

    /// Whether the member is healthy now.
    ///
    /// # Errors
    /// Why not.
    pub async fn check(&self) -> Result<(), String> {
        let response = self.client.get(&self.url).send().await.map_err(|error| innermost(&error))?;
        let status = response.status();
        let text = response.text().await.map_err(|error| innermost(&error))?;
        match serde_json::from_str::<Answer>(&text) {
            Ok(answer) if status.is_success() && answer.health == "true" => Ok(()),
            Ok(answer) if !answer.reason.is_empty() => Err(format!("{status}, {}", answer.reason)),
            _ => Err(format!("{status}, {}", text.trim())),
        }
    }
}

/// reqwest's own words repeat the URL; what lies at the bottom says what happened.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut below = error;
    while let Some(source) = below.source() {
        below = source;
    }
    below.to_string()
}
