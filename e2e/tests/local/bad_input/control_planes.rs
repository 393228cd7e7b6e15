//! Control planes that cannot use an external etcd.

use super::case::{Case, says};
use crate::bring_up::PATIENCE;
use anyhow::{Result, ensure};
use e2e::bed::Bed;
use e2e::until::until;
use serde_json::json;

/// It makes an etcd of its own at once, and cannot be changed: it has to be made again.
pub(super) async fn made_for_local_etcd(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "local-etcd").await?;
    case.apply("KubeadmControlPlane", |control_plane| {
        control_plane["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"] =
            json!({"local": {"dataDir": "/var/lib/etcd"}});
    })
    .await?;
    let message = case.until_cluster_says("ControlPlaneInvalid").await?;
    let field = "spec.kubeadmConfigSpec.clusterConfiguration.etcd.external";
    says(&message, &["KubeadmControlPlane demo-control-plane", field, "https://placeholder.invalid:2379", "again"])?;
    let written: Vec<String> =
        case.writes()?.into_iter().filter(|write| write.contains("kubeadmcontrolplanes")).collect();
    ensure!(written.is_empty(), "{written:?}");

    case.look.delete("KubeadmControlPlane", "demo-control-plane").await?;
    until("the control plane is gone", PATIENCE, async || {
        let there = case.look.api("KubeadmControlPlane").get_opt("demo-control-plane").await?;
        Ok(there.is_none().then_some(()))
    })
    .await?;
    case.apply("KubeadmControlPlane", |_| {}).await?;
    case.comes_up().await
}
