//! Pauses that users set.

use super::case::{Case, says};
use crate::bring_up::{PATIENCE, released};
use anyhow::{Result, ensure};
use api::names::PAUSED_ANNOTATION;
use e2e::bed::Bed;
use e2e::until::until;
use kube::ResourceExt;
use serde_json::{Value, json};

pub(super) async fn of_the_cluster(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "paused-cluster").await?;
    case.apply("Cluster", |cluster| cluster["spec"]["paused"] = json!(true)).await?;
    let message = case.handle.until_condition("Paused", "True", "Paused", PATIENCE).await?;
    says(&message, &["Cluster demo is paused by spec.paused"])?;
    says(&case.until_etcd_says("Paused").await?, &["Cluster demo is paused by spec.paused"])?;
    let written = case.writes()?;
    ensure!(written.is_empty(), "{written:?}");
    case.nothing_was_made().await?;
    case.patch("Cluster", "demo", &json!({"spec": {"paused": false}})).await?;
    case.comes_up().await?;
    case.handle.until_condition("Paused", "False", "NotPaused", PATIENCE).await?;
    Ok(())
}

pub(super) async fn of_etcd(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "paused-etcd").await?;
    let paused = |etcd: &mut Value| etcd["metadata"]["annotations"] = json!({PAUSED_ANNOTATION: ""});
    case.apply("EtcdCluster", paused).await?;
    says(&case.until_etcd_says("Paused").await?, &["EtcdCluster demo-etcd is paused by annotation"])?;
    until("the Cluster says what it waits for", PATIENCE, async || {
        says(&case.until_cluster_says("WaitingForEtcd").await?, &["EtcdCluster demo-etcd is paused by annotation"])?;
        Ok(Some(()))
    })
    .await?;
    case.nothing_was_made().await?;
    case.control_plane_waits().await?;
    case.patch("EtcdCluster", "demo-etcd", &json!({"metadata": {"annotations": {PAUSED_ANNOTATION: null}}})).await?;
    case.comes_up().await
}

/// A pause that the user has set is never touched: everything is handed over, but the control plane is not released
/// until the user removes the pause.
pub(super) async fn of_the_control_plane(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "paused-control-plane").await?;
    let paused = |control_plane: &mut Value| {
        control_plane["metadata"]["annotations"] = json!({PAUSED_ANNOTATION: "by me"});
    };
    case.apply("KubeadmControlPlane", paused).await?;
    let status = case.handle.until_ready(PATIENCE).await?;
    let message = case.handle.until_cluster_condition("ManagedExternalEtcdReady", "True", "Ready", PATIENCE).await?;
    says(&message, &["the control plane is paused by its user"])?;
    let control_plane = case.handle.control_plane().await?;
    let annotations = control_plane.annotations();
    ensure!(annotations.get(PAUSED_ANNOTATION).is_some_and(|value| value == "by me"), "{annotations:?}");
    ensure!(case.handle.control_plane_endpoints().await?.join(",") == status.endpoints);
    ensure!(case.handle.control_plane_machines().await?.is_empty(), "a paused control plane makes Machines");
    let unpaused = json!({"metadata": {"annotations": {PAUSED_ANNOTATION: null}}});
    case.patch("KubeadmControlPlane", "demo-control-plane", &unpaused).await?;
    released(&case.handle).await
}
