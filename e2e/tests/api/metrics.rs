//! The manager's metrics over TLS: who may read them is what a real API server says.

use crate::server::Server;
use anyhow::{Context, Result, ensure};
use e2e::apply::{apply, documents};
use e2e::bed::{get, metrics, programs, reader};
use e2e::process::Command;
use e2e::until::until;
use std::path::Path;
use std::time::Duration;

const ROLE: &str = include_str!("../../../config/rbac/metrics_reader_role.yaml");
const PATIENCE: Duration = Duration::from_secs(30);
const HEALTH_PORT: u16 = 9720;
const METRICS_PORT: u16 = 9721;

/// A caller whose token has the role gets them, one without the role is forbidden, and one without a token is not known.
pub(crate) async fn are_for_those_who_may_read_them(server: &Server) -> Result<()> {
    apply(&server.client, ROLE).await?;
    let role = documents(ROLE)?.first().and_then(|role| role.pointer("/metadata/name")?.as_str().map(str::to_owned));
    let role = role.context("a ClusterRole")?;
    let prometheus = reader(&server.client, "default", "prometheus", Some(&role)).await?;
    let visitor = reader(&server.client, "default", "visitor", None).await?;
    let logs = server.kubeconfig.parent().unwrap_or(Path::new("."));
    let mut manager = Command::new("manager-with-metrics", programs()?.join("manager"), logs)
        .arg("--kubeconfig")
        .arg(&server.kubeconfig)
        .args(["--controllers=etcdadm-bootstrap", "--leader-election-namespace=default", "--log-format=text"])
        .arg(format!("--health-addr=127.0.0.1:{HEALTH_PORT}"))
        .arg(format!("--diagnostics-address=127.0.0.1:{METRICS_PORT}"))
        .arg("--tls-min-version=VersionTLS13")
        .spawn()?;
    until(format!("the manager is ready (log: {})", manager.log().display()), PATIENCE, async || {
        ensure!(manager.is_running()?, "it has ended");
        Ok(get(HEALTH_PORT, "/readyz").await.is_ok().then_some(()))
    })
    .await?;
    ensure!(metrics(METRICS_PORT, None).await? == Err(401), "without a token");
    ensure!(metrics(METRICS_PORT, Some("nobody")).await? == Err(401), "with a token that is nobody's");
    ensure!(metrics(METRICS_PORT, Some(&visitor)).await? == Err(403), "without the role");
    let text = metrics(METRICS_PORT, Some(&prometheus)).await?;
    let text = text.map_err(|status| anyhow::anyhow!("{status} with the role"))?;
    let asked = "etcdadm_provider_api_requests_total{verb=\"create\",code=\"201\"}";
    ensure!(text.contains(asked), "{asked} is not in {text}");
    ensure!(get(HEALTH_PORT, "/metrics").await.is_err(), "the metrics are there for everybody");
    manager.terminate(PATIENCE).await?;
    Ok(())
}
