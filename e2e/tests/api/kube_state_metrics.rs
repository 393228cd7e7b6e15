//! What kube-state-metrics itself makes of `config/kube-state-metrics`, with the permissions that docs/metrics.md gives
//! it.

use crate::etcd_cases::cluster;
use crate::served::accepted;
use crate::server::{Server, merged, object};
use anyhow::{Context, Result, ensure};
use api::names::CLUSTER_NAME_LABEL;
use e2e::apply::{apply, apply_object, documents};
use e2e::bed::reader;
use e2e::process::{Command, output_of};
use e2e::tools::KubeStateMetrics;
use e2e::until::until;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/kube-state-metrics/custom-resource-state.yaml");
const PAGE: &str = include_str!("../../../docs/metrics.md");
const VIEW: &str = include_str!("../../../config/rbac/people/view_role.yaml");
/// Name of the objects and of their Cluster.
const NAME: &str = "counted";
const PORT: u16 = 9730;
const TELEMETRY_PORT: u16 = 9731;
/// It looks for kinds every three seconds, and may get its permissions late.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every metric of the file is served, and values and labels are those of the objects.
pub(crate) async fn shows_an_object_of_each_kind(server: &Server) -> Result<()> {
    let kubeconfig = permitted(server).await?;
    let condition = |type_: &str, status: &str| {
        json!({"type": type_, "status": status, "reason": "Other", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let status = json!({"replicas": 4, "readyReplicas": 3, "updatedReplicas": 2, "version": "3.6.16",
        "clusterID": "cdf818194e3a8c32", "conditions": [condition("Ready", "False"), condition("Paused", "Unknown")]});
    let etcd = made(server, &cluster(NAME, &json!({"replicas": 5})), &status).await?;
    // The EtcdCluster owns the config in place of a Machine, whose kind may not be installed.
    let owner = json!([{"apiVersion": etcd["apiVersion"], "kind": etcd["kind"], "name": NAME,
        "uid": etcd["metadata"]["uid"]}]);
    let config = merged(&object("EtcdadmConfig", NAME, &json!({})), &json!({"metadata": {"ownerReferences": owner}}));
    let status = json!({"conditions": [condition("DataSecretAvailable", "True")]});
    let config = made(server, &config, &status).await?;

    let owner_uid = etcd["metadata"]["uid"].as_str().context("no uid")?;
    let owner = [("owner_kind", "EtcdCluster"), ("owner_name", NAME), ("owner_uid", owner_uid)];
    let version = [("version", "3.6.16"), ("etcd_cluster_id", "cdf818194e3a8c32")];
    let is = |type_: &'static str, status: &'static str| [("type", type_), ("status", status)];
    let expected = [
        series("capi_etcdcluster_created", &etcd, &[], &created(&etcd)?),
        series("capi_etcdcluster_info", &etcd, &version, "1"),
        series("capi_etcdcluster_spec_replicas", &etcd, &[], "5"),
        series("capi_etcdcluster_status_replicas", &etcd, &[], "4"),
        series("capi_etcdcluster_status_ready_replicas", &etcd, &[], "3"),
        series("capi_etcdcluster_status_available_replicas", &etcd, &[], "0"),
        series("capi_etcdcluster_status_updated_replicas", &etcd, &[], "2"),
        series("capi_etcdcluster_status_condition", &etcd, &is("Ready", "False"), "1"),
        series("capi_etcdcluster_status_condition", &etcd, &is("Ready", "True"), "0"),
        series("capi_etcdcluster_status_condition", &etcd, &is("Paused", "Unknown"), "1"),
        series("capi_etcdadmconfig_created", &config, &[], &created(&config)?),
        series("capi_etcdadmconfig_owner", &config, &owner, "1"),
        series("capi_etcdadmconfig_status_condition", &config, &is("DataSecretAvailable", "True"), "1"),
    ];
    let names = names()?;
    let logs = server.kubeconfig.parent().unwrap_or(Path::new("."));
    let mut program = Command::new("kube-state-metrics", KubeStateMetrics::ensure()?.program(), logs)
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .arg("--custom-resource-state-only")
        .arg(format!("--custom-resource-state-config-file={FILE}"))
        .args(["--host=127.0.0.1", "--telemetry-host=127.0.0.1"])
        .arg(format!("--port={PORT}"))
        .arg(format!("--telemetry-port={TELEMETRY_PORT}"))
        .spawn()?;
    until(format!("every series is there (log: {})", program.log().display()), PATIENCE, async || {
        ensure!(program.is_running()?, "it has ended");
        let text = scraped().await?;
        for line in &expected {
            ensure!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        for name in &names {
            ensure!(text.lines().any(|shown| shown.starts_with(&format!("{name}{{"))), "{name} is not in\n{text}");
        }
        Ok(Some(()))
    })
    .await?;
    program.kill().await
}

/// A kubeconfig of the program's service account, after the commands of the page have been run.
async fn permitted(server: &Server) -> Result<PathBuf> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitoring"}});
    apply_object(&server.client, &namespace).await?;
    apply(&server.client, VIEW).await?;
    let begins = "kubectl create clusterrole";
    let commands = PAGE.lines().filter(|line| line.starts_with(begins) && line.contains("kube-state-metrics"));
    let mut typed = 0;
    for command in commands {
        let mut kubectl = std::process::Command::new(&server.kubectl);
        kubectl.arg("--kubeconfig").arg(&server.kubeconfig).args(command.split(' ').skip(1));
        output_of(kubectl).await?;
        typed += 1;
    }
    ensure!(typed == 3, "the page has {typed} commands");
    let token = reader(&server.client, "monitoring", "kube-state-metrics", None).await?;
    server.kubeconfig_with(&token, "kube-state-metrics.kubeconfig")
}

/// Creates an object of the Cluster, and sets its status.
async fn made(server: &Server, object: &Value, status: &Value) -> Result<Value> {
    let object = merged(object, &json!({"metadata": {"labels": {CLUSTER_NAME_LABEL: NAME}}}));
    accepted(server.create(&object).await?)?;
    accepted(server.patch(&object, "/status", &json!({"status": status})).await?)
}

/// When an object was created, in the form in which the program writes so large a number.
fn created(of: &Value) -> Result<String> {
    let time: Time = serde_json::from_value(of["metadata"]["creationTimestamp"].clone())?;
    Ok(format!("{:e}", time.0.as_second() as f64).replace('e', "e+0"))
}

/// The line of a series. It has these labels, those that the file gives to all series, and those that the program adds.
fn series(metric: &str, of: &Value, further: &[(&str, &str)], figure: &str) -> String {
    let field = |pointer: &str| of.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = field("/apiVersion").split_once('/').unwrap_or_default();
    let mut labels = BTreeMap::from([
        ("cluster_name", NAME),
        ("customresource_group", group),
        ("customresource_kind", field("/kind")),
        ("customresource_version", version),
        ("name", field("/metadata/name")),
        ("namespace", field("/metadata/namespace")),
        ("uid", field("/metadata/uid")),
    ]);
    labels.extend(further.iter().copied());
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    format!("{metric}{{{}}} {figure}", labels.join(","))
}

/// The names of the file's metrics.
fn names() -> Result<Vec<String>> {
    let file = documents(&std::fs::read_to_string(FILE)?)?.pop().context("the file is empty")?;
    let mut names = Vec::new();
    for resource in file["spec"]["resources"].as_array().into_iter().flatten() {
        for metric in resource["metrics"].as_array().into_iter().flatten() {
            let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
            names.push(format!("{}_{}", text(&resource["metricNamePrefix"]), text(&metric["name"])));
        }
    }
    ensure!(names.len() > 8, "only {names:?}");
    Ok(names)
}

/// What the program serves.
async fn scraped() -> Result<String> {
    let client = Client::try_from(Config::new(format!("http://127.0.0.1:{PORT}").parse()?))?;
    Ok(client.request_text(Request::get("/metrics").body(Vec::new())?).await?)
}
