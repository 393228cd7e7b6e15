//! The manager's metrics over TLS. A real API server decides who may read them.

use crate::server::Server;
use anyhow::{Context, Result, ensure};
use e2e::apply::{apply, documents};
use e2e::bed::{get, metrics, programs, reader, set_log_level};
use e2e::process::Command;
use e2e::until::until;
use std::path::Path;
use std::time::Duration;

const ROLE: &str = include_str!("../../../config/rbac/metrics_reader_role.yaml");
const LOG_LEVEL_ROLE: &str = include_str!("../../../config/rbac/log_level_role.yaml");
const PATIENCE: Duration = Duration::from_secs(30);
const HEALTH_PORT: u16 = 9720;
const METRICS_PORT: u16 = 9721;

/// A caller whose token has the role reads them. Without the role, a caller is forbidden, and without a token,
/// unauthorized.
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
    let asked = "etcdadm_provider_api_requests_total{controller=\"shared\",verb=\"create\",code=\"201\"}";
    ensure!(text.contains(asked), "{asked} is not in {text}");
    until("it says that it holds the lease", PATIENCE, async || {
        let text = metrics(METRICS_PORT, Some(&prometheus)).await?;
        Ok(text.is_ok_and(|text| text.contains("\netcdadm_provider_lease_held 1\n")).then_some(()))
    })
    .await?;
    ensure!(get(HEALTH_PORT, "/metrics").await.is_err(), "the metrics are there for everybody");
    what_is_logged_can_be_set(server, &prometheus, manager.log()).await?;
    manager.terminate(PATIENCE).await?;
    Ok(())
}

/// Only a caller whose token has the other role sets the log level.
async fn what_is_logged_can_be_set(server: &Server, prometheus: &str, log: &Path) -> Result<()> {
    apply(&server.client, LOG_LEVEL_ROLE).await?;
    let admin = reader(&server.client, "default", "admin", Some("capi-etcdadm-log-level")).await?;
    ensure!(set_log_level(METRICS_PORT, None, "4").await? == Err(401), "without a token");
    ensure!(set_log_level(METRICS_PORT, Some(prometheus), "4").await? == Err(403), "with the role for metrics");
    ensure!(set_log_level(METRICS_PORT, Some(&admin), "debgu").await? == Err(400), "what is not a level");
    ensure!(!tokio::fs::read_to_string(log).await?.contains("DEBUG"), "debug logs before they are asked for");
    ensure!(set_log_level(METRICS_PORT, Some(&admin), "debug").await? == Ok("debug\n".to_owned()), "with the role");
    until("debug logs come", PATIENCE, async || {
        ensure!(metrics(METRICS_PORT, Some(prometheus)).await?.is_ok(), "the metrics are not shown any more");
        Ok(tokio::fs::read_to_string(log).await?.contains("DEBUG").then_some(()))
    })
    .await
}
