//! Which EtcdCluster belongs to which Cluster.

use super::case::{Case, says};
use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result, ensure};
use api::names::{CLUSTER_NAME_LABEL, MANAGED_ETCD_ANNOTATION};
use e2e::apply::apply_object;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::until::until;
use kube::ResourceExt;
use serde_json::{Value, json};

pub(super) async fn cluster_that_does_not_exist(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "no-cluster").await?;
    let labelled = |etcd: &mut Value| etcd["metadata"]["labels"] = json!({CLUSTER_NAME_LABEL: "demo"});
    case.apply_only(|document| document["kind"] != "Cluster", "EtcdCluster", labelled).await?;
    says(&case.until_etcd_says("WaitingForCluster").await?, &["Cluster demo, which the label", "does not exist"])?;
    case.nothing_was_made().await?;
    // Now the Cluster exists, but does not name its etcd yet.
    let silent = |cluster: &mut Value| cluster["metadata"]["annotations"] = json!({});
    case.apply_only(|document| document["kind"] == "Cluster", "Cluster", silent).await?;
    until("the annotation is asked for", PATIENCE, async || {
        let message = case.until_etcd_says("WaitingForCluster").await?;
        says(&message, &["Cluster demo does not name this EtcdCluster", MANAGED_ETCD_ANNOTATION, "demo-etcd"])?;
        Ok(Some(()))
    })
    .await?;
    case.nothing_was_made().await?;
    case.apply("Cluster", |_| {}).await?;
    case.comes_up().await
}

/// The labels of both EtcdClusters name the Cluster. The Cluster names one of them.
pub(super) async fn two_etcds_for_one_cluster(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "two-etcds").await?;
    let mut spare = case.manifests.clone().document("EtcdCluster").clone();
    spare["metadata"]["name"] = json!("spare");
    spare["metadata"]["labels"] = json!({CLUSTER_NAME_LABEL: "demo"});
    apply_object(&bed.client(), &spare).await?;
    case.apply("EtcdCluster", |etcd| etcd["metadata"]["labels"] = json!({CLUSTER_NAME_LABEL: "demo"})).await?;
    let other = case.handle.clone().with_etcd("spare");
    let message = other.until_condition("Ready", "False", "ClusterUsesAnotherEtcd", PATIENCE).await?;
    says(&message, &["Cluster demo uses EtcdCluster demo-etcd", MANAGED_ETCD_ANNOTATION, "spare"])?;
    case.comes_up().await?;
    // The EtcdCluster that the Cluster names is up with all its objects, and the other one has none.
    bed.exactly(&[(&case.handle, 1)]).await?;
    other.until_condition("Ready", "False", "ClusterUsesAnotherEtcd", PATIENCE).await?;
    let written = case.writes()?.into_iter().filter(|write| write.contains("spare")).collect::<Vec<_>>();
    ensure!(written.is_empty(), "{written:?}");
    Ok(())
}

/// One of the Clusters gets the EtcdCluster. The other one reports this in a condition until it names another
/// EtcdCluster.
pub(super) async fn two_clusters_for_one_etcd(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "two-clusters").await?;
    let client = bed.client();
    let annotation = json!({MANAGED_ETCD_ANNOTATION: "demo-etcd"});
    let second = Manifests::new(&case.handle.namespace, "second")?.replicas(1);
    let rival = second.clone().with("Cluster", |cluster| cluster["metadata"]["annotations"] = annotation);
    rival.without(|document| document["kind"] == "EtcdCluster").apply(&client).await?;
    case.apply("EtcdCluster", |_| {}).await?;

    let handle = ClusterHandle::new(&client, &second).with_etcd("demo-etcd");
    let winner = until("the EtcdCluster is for one of them", PATIENCE, async || {
        let etcd = case.handle.etcds().get("demo-etcd").await?;
        Ok(etcd.labels().get(CLUSTER_NAME_LABEL).cloned())
    })
    .await?;
    let (winner, loser) = if winner == "demo" { (&case.handle, &handle) } else { (&handle, &case.handle) };
    let condition = "ManagedExternalEtcdReady";
    let told = loser.until_cluster_condition(condition, "False", "EtcdBelongsToAnotherCluster", PATIENCE).await?;
    says(
        &told,
        &[&format!("EtcdCluster demo-etcd belongs to Cluster {}", winner.cluster), "change or remove the annotation"],
    )?;
    winner.until_ready(PATIENCE).await?;
    released(winner).await?;
    ensure!(loser.control_plane_machines().await?.is_empty(), "{} has Machines", loser.control_plane);
    ensure!(!loser.secret_names().await?.contains(&format!("{}-etcd", loser.cluster)));

    // The other Cluster gets an EtcdCluster of its own.
    let own = loser.clone().with_etcd("own");
    let mut etcd = case.manifests.clone().document("EtcdCluster").clone();
    etcd["metadata"]["name"] = json!("own");
    apply_object(&client, &etcd).await?;
    let named = json!({"metadata": {"annotations": {MANAGED_ETCD_ANNOTATION: "own"}}});
    case.patch("Cluster", &loser.cluster, &named).await?;
    own.until_ready(PATIENCE).await?;
    released(&own).await
}

/// The Cluster names something that is not an etcd object, in every way that we can think of.
pub(super) async fn kinds_that_are_no_etcd(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "no-etcd").await?;
    let name = |etcd: &str| json!({"metadata": {"annotations": {MANAGED_ETCD_ANNOTATION: etcd}}});
    case.apply("Cluster", |cluster| {
        cluster["metadata"]["annotations"] = name("none")["metadata"]["annotations"].clone()
    })
    .await?;
    let message = case.until_cluster_says("EtcdNotFound").await?;
    says(&message, &["EtcdCluster.etcdcluster.cluster.x-k8s.io none does not exist"])?;
    for (etcd, parts) in [
        ("Etcd.nowhere.example/demo-etcd", ["kind Etcd.nowhere.example does not exist", "correct the reference"]),
        (
            "LocalMachineTemplate.infrastructure.cluster.x-k8s.io/demo-etcd",
            [
                "LocalMachineTemplate.infrastructure.cluster.x-k8s.io has no label",
                api::names::ETCD_PROVIDER_CONTRACT_LABEL,
            ],
        ),
        ("EtcdCluster/demo-etcd", [MANAGED_ETCD_ANNOTATION, "<kind>.<group>/<name>"]),
        ("", [MANAGED_ETCD_ANNOTATION, "neither the name of an EtcdCluster"]),
    ] {
        case.patch("Cluster", "demo", &name(etcd)).await?;
        until(format!("the Cluster says what is wrong with {etcd:?}"), PATIENCE, async || {
            says(&case.until_cluster_says("EtcdKindInvalid").await?, &parts)?;
            Ok(Some(()))
        })
        .await?;
    }
    case.nothing_was_made().await?;
    case.control_plane_waits().await?;
    case.patch("Cluster", "demo", &name("demo-etcd")).await.context("name the right one")?;
    case.comes_up().await
}
