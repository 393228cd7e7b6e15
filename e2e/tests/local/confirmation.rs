//! The deletion of an EtcdCluster alone requires a confirmation. The deletion of its Cluster or its namespace does not.

use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result, bail, ensure};
use api::names;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::observer::Silence;
use e2e::until::until;
use futures::try_join;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long a prompt deletion may take, with several clusters side by side on a busy computer.
const PROMPT: Duration = Duration::from_secs(60);
/// How long the deletion of a namespace may take. Kubernetes' own controller does not begin immediately.
const NAMESPACE_GONE: Duration = Duration::from_secs(180);
/// How long the API server may take to learn of a policy.
const IN_FORCE: Duration = Duration::from_secs(20);
/// How long the scenario waits for reports that the manager must not make.
const SETTLES: Duration = Duration::from_secs(5);

/// Side by side: an EtcdCluster is deleted by mistake and then on purpose; a Cluster is deleted while two of its three
/// etcd Machines are being deleted; a Cluster is deleted whose quorum is dead and whose last etcd Machine waits for its
/// deletion; and a namespace is deleted.
pub(crate) async fn is_asked_for(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    try_join!(
        async { etcd_alone(bed).await.context("the EtcdCluster alone") },
        async { cluster_with_waiting_machines(bed).await.context("the Cluster with two Machines that wait") },
        async { dead_cluster(bed).await.context("the Cluster with its quorum dead") },
        async { whole_namespace(bed).await.context("the namespace") },
    )?;
    Ok(())
}

/// The deletion is refused, with a message about what would be lost, as long as the annotation is missing or names
/// another EtcdCluster, and with clusterctl's mark alone. Once confirmed, the EtcdCluster is gone promptly.
async fn etcd_alone(bed: &Bed) -> Result<()> {
    let handle = up(bed, "confirm-etcd", 3).await?;
    let answer = until("the deletion is refused", IN_FORCE, async || refusal(&handle).await.map(Some)).await?;
    println!("  answer to a deletion without confirmation: {answer}");
    let way_out = format!("{}={}", names::CONFIRM_DELETION_ANNOTATION, handle.etcd);
    for part in [names::CONFIRM_DELETION_ANNOTATION, handle.etcd.as_str(), "data"] {
        ensure!(answer.contains(part), "the answer does not say {part:?} ({way_out} would do it): {answer}");
    }
    handle.confirm_deletion("another-etcd").await?;
    ensure!(
        handle.delete("EtcdCluster", &handle.etcd).await.is_err(),
        "it is deleted with the confirmation of another one"
    );
    let etcd = handle.etcds().get(&handle.etcd).await?;
    ensure!(etcd.metadata.deletion_timestamp.is_none(), "it is being deleted");
    ensure!(handle.status().await?.ready, "a refused deletion changes nothing");
    marked_alone(&handle).await?;

    let begun = Instant::now();
    handle.delete_etcd().await?;
    handle.until_etcd_is_gone(PROMPT).await?;
    println!("  a confirmed deletion took {:.1} s", begun.elapsed().as_secs_f32());
    Ok(())
}

/// The message with which a deletion of the EtcdCluster is refused.
async fn refusal(handle: &ClusterHandle) -> Result<String> {
    // A dry run, so that nothing is lost if it is not refused.
    let parameters = DeleteParams { dry_run: true, ..DeleteParams::default() };
    match handle.api("EtcdCluster").delete(&handle.etcd, &parameters).await {
        Err(kube::Error::Api(status)) => Ok(status.message),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("it would be deleted, without a word"),
    }
}

/// With clusterctl's mark alone, the controller leaves the EtcdCluster alone, and does not report it as paused: the
/// mark and the pause together permit a deletion.
async fn marked_alone(handle: &ClusterHandle) -> Result<()> {
    let mark = async |value: Value| {
        let patch = json!({"metadata": {"annotations": {names::DELETE_FOR_MOVE_ANNOTATION: value}}});
        handle.etcds().patch_metadata(&handle.etcd, &PatchParams::default(), &Patch::Merge(&patch)).await
    };
    mark(json!("")).await?;
    handle.until_condition("Ready", "False", "MovedAway", PATIENCE).await?;
    tokio::time::sleep(SETTLES).await;
    let answer = refusal(handle).await.context("with the mark of a move alone")?;
    ensure!(answer.contains(names::CONFIRM_DELETION_ANNOTATION), "{answer}");
    mark(Value::Null).await?;
    handle.until_ready(PATIENCE).await?;
    Ok(())
}

/// Machines that wait for a quorum do not keep a Cluster from being deleted.
async fn cluster_with_waiting_machines(bed: &Bed) -> Result<()> {
    let handle = up(bed, "confirm-waiting", 3).await?;
    let machines = handle.etcd_machines().await?;
    try_join!(handle.delete("Machine", &machines[0]), handle.delete("Machine", &machines[1]))?;
    waits(&handle, &machines[..2]).await?;
    gone_promptly(&handle, "two Machines waiting").await
}

/// Without a quorum, nothing can say whether a Machine may go. The deletion of the Cluster does not ask.
async fn dead_cluster(bed: &Bed) -> Result<()> {
    let handle = up(bed, "confirm-dead", 3).await?;
    let machines = handle.etcd_machines().await?;
    for name in &machines[..2] {
        let machine = bed.machines.get(&handle.namespace, name)?;
        bed.fault(&format!("{name} is killed"), &[&machine], Silence::Lasting);
        tokio::task::spawn_blocking(move || machine.kill()).await??;
    }
    handle.delete("Machine", &machines[2]).await?;
    waits(&handle, &machines[2..]).await?;
    gone_promptly(&handle, "quorum dead").await
}

/// A namespace takes everything with it.
async fn whole_namespace(bed: &Bed) -> Result<()> {
    let handle = up(bed, "confirm-namespace", 1).await?;
    let namespaces: Api<Namespace> = Api::all(bed.client());
    // The namespace's infrastructure goes too, maybe long before the Cluster does: nothing orders these deletions.
    for name in handle.etcd_machines().await? {
        let machine = bed.machines.get(&handle.namespace, &name)?;
        bed.fault(&format!("{name}: its namespace is deleted"), &[&machine], Silence::Lasting);
    }
    let begun = Instant::now();
    namespaces.delete(&handle.namespace, &DeleteParams::default()).await.context("delete the namespace")?;
    until("the namespace is gone", NAMESPACE_GONE, async || match namespaces.get_opt(&handle.namespace).await? {
        None => Ok(Some(())),
        Some(namespace) => bail!("{:?}", namespace.status.and_then(|status| status.conditions)),
    })
    .await?;
    println!("  a namespace's deletion took {:.1} s", begun.elapsed().as_secs_f32());
    Ok(())
}

/// Checks that, after a while, at least one of these deleted Machines is still there.
async fn waits(handle: &ClusterHandle, machines: &[String]) -> Result<()> {
    tokio::time::sleep(Duration::from_secs(3)).await;
    let left = handle.etcd_machines().await?;
    ensure!(machines.iter().any(|name| left.contains(name)), "none of {machines:?} has waited; left are {left:?}");
    Ok(())
}

async fn gone_promptly(handle: &ClusterHandle, what: &str) -> Result<()> {
    let begun = Instant::now();
    handle.delete("Cluster", &handle.cluster).await?;
    let kinds = ["Cluster", "KubeadmControlPlane", "Machine", "EtcdCluster", "EtcdadmConfig", "LocalMachine"];
    handle.until_nothing_is_left(&kinds, PROMPT).await?;
    println!("  deletion of a Cluster, {what}, took {:.1} s", begun.elapsed().as_secs_f32());
    Ok(())
}

async fn up(bed: &Bed, namespace: &str, replicas: i64) -> Result<ClusterHandle> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manifests = Manifests::new(namespace, "demo")?.replicas(replicas);
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    Ok(handle)
}
