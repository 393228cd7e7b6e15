//! Control planes that cannot use an external etcd.

use super::case::{Case, says};
use crate::bring_up::PATIENCE;
use anyhow::{Result, ensure};
use e2e::bed::Bed;
use e2e::until::until;
use serde_json::json;

/// A control plane that was made for local etcd makes a Machine with an etcd of its own immediately, and it cannot be
/// changed to external etcd. It has to be made again, in the way that the message of the condition describes.
pub(super) async fn made_for_local_etcd(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "local-etcd").await?;
    case.apply("KubeadmControlPlane", |control_plane| {
        control_plane["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"] =
            json!({"local": {"dataDir": "/var/lib/etcd"}});
    })
    .await?;
    let message = case.until_cluster_says("ControlPlaneInvalid").await?;
    let field = "spec.kubeadmConfigSpec.clusterConfiguration.etcd.external";
    says(
        &message,
        &[
            "KubeadmControlPlane demo-control-plane",
            field,
            "https://placeholder.invalid:2379",
            "again",
            "delete EtcdCluster demo-etcd first",
        ],
    )?;
    let written: Vec<String> =
        case.writes()?.into_iter().filter(|write| write.contains("kubeadmcontrolplanes")).collect();
    ensure!(written.is_empty(), "{written:?}");

    until("the control plane and etcd have Machines", PATIENCE, async || {
        let (control_plane, etcd) = (case.handle.control_plane_machines().await?, case.handle.etcd_machines().await?);
        Ok((!control_plane.is_empty() && !etcd.is_empty()).then_some(()))
    })
    .await?;
    case.handle.delete_etcd().await?;
    case.handle.delete("KubeadmControlPlane", "demo-control-plane").await?;
    until("both and their Machines are gone", PATIENCE, async || {
        let mut left = Vec::new();
        for kind in ["EtcdCluster", "KubeadmControlPlane", "Machine"] {
            left.extend(case.handle.names(kind, "").await?);
        }
        ensure!(left.is_empty(), "left are {left:?}");
        Ok(Some(()))
    })
    .await?;
    case.apply("KubeadmControlPlane", |_| {}).await?;
    case.comes_up().await
}
