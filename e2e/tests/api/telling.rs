//! The programs `kubectl etcdcluster watch` and `why`: what they print about a real API server's objects.

use crate::etcd_cases::cluster;
use crate::plugin::{cluster_api, run};
use crate::served::accepted;
use crate::server::Server;
use anyhow::{Context, Result, ensure};
use api::names::ETCD_CLUSTER_LABEL;
use e2e::apply::{api_for, apply_object};
use e2e::bed::plugin;
use e2e::process::{Command, Process, Signal};
use e2e::until::until;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// How long a change may take to be printed.
const SOON: Duration = Duration::from_secs(20);

/// It prints the present state, then each change once, then that the EtcdCluster is gone. It ends when it is
/// interrupted, as by Ctrl-C.
pub(crate) async fn watch_prints_what_is_new(server: &Server) -> Result<()> {
    cluster_api(server).await?;
    let etcd = cluster("watched", &json!({}));
    accepted(server.create(&etcd).await?)?;
    let logs = server.kubeconfig.parent().unwrap_or(Path::new("."));
    let mut watch = Command::new("kubectl-etcdcluster-watch", plugin()?, logs)
        .args(["watch", "watched", "--kubeconfig"])
        .arg(&server.kubeconfig)
        .spawn()?;
    until_printed(&mut watch, "EtcdCluster default/watched  Unknown").await?;
    until_printed(&mut watch, "0/3 healthy").await?;
    accepted(server.patch(&etcd, "", &json!({"spec": {"replicas": 5}})).await?)?;
    until_printed(&mut watch, "0/5 healthy").await?;
    let waits = waiting("Machine watched-0 is not a member yet");
    accepted(server.patch(&etcd, "/status", &waits).await?)?;
    until_printed(&mut watch, "EtcdCluster default/watched  Starting").await?;
    until_printed(&mut watch, "Waits: WaitingForMember (Ready is False").await?;
    let machine = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "spec": {},
        "metadata": {"name": "watched-0", "labels": {ETCD_CLUSTER_LABEL: "watched"}}});
    apply_object(&server.client, &machine).await?;
    until_printed(&mut watch, "└── … watched-0").await?;
    for object in [&etcd, &machine] {
        let (objects, name) = api_for(&server.client, object).await?;
        objects.delete(&name, &DeleteParams::default()).await?;
    }
    until_printed(&mut watch, "It is gone.").await?;
    let printed = printed(&watch)?;
    let told = printed.matches("Waits: WaitingForMember (Ready is False").count();
    ensure!(told == 1, "what had not changed was printed {told} times:\n{printed}");
    watch.signal(Signal::INT)?;
    let ended = tokio::time::timeout(SOON, watch.wait()).await.context("it goes on")??;
    ensure!(ended.success(), "it ended with {ended}:\n{printed}");
    Ok(())
}

async fn until_printed(watch: &mut Process, text: &str) -> Result<()> {
    until(format!("{text:?} is printed"), SOON, async || {
        let printed = printed(watch)?;
        ensure!(watch.is_running()?, "it has ended:\n{printed}");
        ensure!(printed.contains(text), "printed is:\n{printed}");
        Ok(Some(()))
    })
    .await
}

fn printed(watch: &Process) -> Result<String> {
    std::fs::read_to_string(watch.log()).with_context(|| format!("read {}", watch.log().display()))
}

/// It prints the decision and its rule, the next deadline, what a person can do, and what has happened.
pub(crate) async fn why_explains_what_holds_it_up(server: &Server) -> Result<()> {
    cluster_api(server).await?;
    let etcd = cluster("explained", &json!({}));
    let made = accepted(server.create(&etcd).await?)?;
    let message = "Machine explained-1 is not a member yet; if this is still so at 2099-01-01T00:00:00Z, the \
                   reason becomes MachineNotBooting";
    accepted(server.patch(&etcd, "/status", &waiting(message)).await?)?;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "explained.1"}, "type": "Warning",
        "reason": "MemberUnhealthy", "message": "member explained-0 has failed its checks",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"apiVersion": etcd["apiVersion"], "kind": "EtcdCluster", "name": "explained",
            "namespace": "default", "uid": made["metadata"]["uid"]}});
    apply_object(&server.client, &event).await?;
    let why = run(server, &["why", "explained"], &Value::Null)?;
    ensure!(why.success, "{}{}", why.out, why.error);
    let mut rest = why.out.as_str();
    for says in [
        "EtcdCluster default/explained: Starting",
        "Decision\n  WaitingForMember (Ready is False",
        message,
        "Rule\n  growth: ",
        "Next deadline\n  at 2099-01-01T00:00:00Z",
        "What you can do\n  Look at the Machine",
        "-n default",
        "Recent events\n",
        "MemberUnhealthy",
        "member explained-0 has failed its checks",
    ] {
        let (_, after) =
            rest.split_once(says).with_context(|| format!("{says:?} is not in its place:\n{}", why.out))?;
        rest = after;
    }
    let missing = run(server, &["why", "missing"], &Value::Null)?;
    let says = "EtcdCluster default/missing does not exist";
    ensure!(!missing.success && missing.error.contains(says), "{}{}", missing.out, missing.error);
    Ok(())
}

/// The status of an EtcdCluster that waits for a member.
fn waiting(message: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "WaitingForMember",
        "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}
