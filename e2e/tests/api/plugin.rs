//! The program `kubectl etcdcluster`: what it requests from a real API server, and what it changes there.

use crate::etcd_cases::cluster;
use crate::served::accepted;
use crate::server::{Server, merged};
use anyhow::{Context, Result, ensure};
use e2e::apply::apply_object;
use e2e::bed::plugin;
use e2e::process::output_of;
use e2e::until::until;
use serde_json::{Value, json};
use std::env;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A kind is served a moment after its CRD is written.
const SOON: Duration = Duration::from_secs(20);

/// What the program printed, and whether it succeeded.
pub(crate) struct Run {
    pub(crate) out: String,
    pub(crate) error: String,
    pub(crate) success: bool,
}

/// Runs the program with these arguments, and this document on its standard input.
pub(crate) fn run(server: &Server, arguments: &[&str], input: &Value) -> Result<Run> {
    let mut child = Command::new(plugin()?)
        .args(arguments)
        .arg("--kubeconfig")
        .arg(&server.kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start kubectl-etcdcluster")?;
    child.stdin.take().context("no standard input")?.write_all(input.to_string().as_bytes())?;
    let output = child.wait_with_output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Run { out: text(output.stdout), error: text(output.stderr), success: output.status.success() })
}

/// The program reads Machines and Clusters. Their own schemas do not matter here.
pub(crate) async fn cluster_api(server: &Server) -> Result<()> {
    for (kind, plural) in [("Cluster", "clusters"), ("Machine", "machines")] {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}});
        let names = json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase()});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.cluster.x-k8s.io"),
                // For an API group of Kubernetes, the API server requires the address of a proposal.
                "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/cluster-api"}},
            "spec": {"group": "cluster.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [
                {"name": "v1beta2", "served": true, "storage": true, "schema": schema}]}});
        apply_object(&server.client, &definition).await?;
    }
    until("the program finds Cluster API", SOON, async || {
        let status = run(server, &["status"], &Value::Null)?;
        ensure!(status.success, "{}", status.error);
        Ok(Some(()))
    })
    .await
}

pub(crate) async fn plan_tells_what_the_api_server_refuses(server: &Server) -> Result<()> {
    cluster_api(server).await?;
    let etcd = cluster("planned", &json!({"etcdadmConfigSpec": {"version": "3.6.16"}}));
    let plan = |document: &Value| run(server, &["plan", "-f", "-"], document);
    let new = plan(&etcd)?;
    ensure!(new.success && new.out.contains("default/planned would be created"), "{}{}", new.out, new.error);
    let before = accepted(server.create(&etcd).await?)?;
    for (change, says) in [
        (json!({"spec": {"replicas": 4}}), "replicas must be 1, 3, 5 or 7"),
        (json!({"spec": {"replcas": 5}}), "spec.replcas"),
        (json!({"spec": {"etcdadmConfigSpec": {"version": "latest"}}}), "spec.etcdadmConfigSpec.version"),
    ] {
        let refused = plan(&merged(&etcd, &change))?;
        ensure!(!refused.success && refused.out.contains("the API server refuses it"), "{change}: {}", refused.out);
        ensure!(refused.out.contains(says), "{change}: {}", refused.out);
    }
    let edited = plan(&merged(&etcd, &json!({"spec": {"replicas": 5, "healthCheck": {"intervalSeconds": 5}}})))?;
    ensure!(edited.success, "{}{}", edited.out, edited.error);
    for says in ["2 fields would change", "spec.replicas: 3 → 5", "spec.healthCheck.intervalSeconds: 10 → 5"] {
        ensure!(edited.out.contains(says), "{says}: {}", edited.out);
    }
    let after = server.get(&etcd, "").await?;
    ensure!(after == before, "a plan has changed something: {after}\n{before}");
    Ok(())
}

pub(crate) async fn rollout_does_what_it_says(server: &Server) -> Result<()> {
    cluster_api(server).await?;
    let etcd = cluster("rolled", &json!({}));
    accepted(server.create(&etcd).await?)?;
    for (words, candidate) in [(["roll"].as_slice(), "rollout"), (&["status", "rol"], "rolled")] {
        let completed = completed(server, words).await?;
        ensure!(completed.lines().any(|line| line == candidate), "after {words:?} kubectl offers {completed}");
    }
    let rollout = |what: &str| -> Result<String> {
        let run = run(server, &["rollout", what, "rolled"], &Value::Null)?;
        ensure!(run.success, "{}", run.error);
        Ok(run.out)
    };
    let pause = "/metadata/annotations/cluster.x-k8s.io~1paused";
    ensure!(rollout("pause")?.contains("is paused"));
    ensure!(server.get(&etcd, "").await?.pointer(pause).is_some());
    ensure!(rollout("pause")?.contains("is paused already"));
    ensure!(rollout("resume")?.contains("is no longer paused"));
    ensure!(server.get(&etcd, "").await?.pointer(pause).is_none());
    let told = rollout("restart")?;
    let after = server.get(&etcd, "").await?["spec"]["rolloutAfter"].as_str().context("no rolloutAfter")?.to_owned();
    ensure!(told.contains(&format!("spec.rolloutAfter is {after}")), "{told}");

    let json = run(server, &["status", "rolled", "-o", "json"], &Value::Null)?;
    let report: Value = serde_json::from_str(&json.out).context("read the status")?;
    ensure!(report["name"] == "rolled" && report["replicas"]["wanted"] == 3, "{report}");
    let missing = run(server, &["status", "missing"], &Value::Null)?;
    ensure!(
        !missing.success && missing.error.contains("EtcdCluster default/missing does not exist"),
        "{}",
        missing.error
    );
    ensure!(missing.error.contains("this namespace has: ") && missing.error.contains("rolled"), "{}", missing.error);
    Ok(())
}

/// What kubectl offers when somebody has typed `kubectl etcdcluster` and these words, and presses Tab. kubectl asks the
/// plugin by the program in `config/krew`.
async fn completed(server: &Server, words: &[&str]) -> Result<String> {
    let asks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/krew");
    let plugin = plugin()?.parent().context("the plugin lies nowhere")?.to_owned();
    let others = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([asks, plugin].into_iter().chain(env::split_paths(&others)))?;
    let mut kubectl = Command::new(&server.kubectl);
    kubectl.args(["__complete", "etcdcluster"]).args(words).env("PATH", path).env("KUBECONFIG", &server.kubeconfig);
    output_of(kubectl).await
}
