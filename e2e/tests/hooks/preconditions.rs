//! What kubeadm requires of a control plane. The hook reports it before the first machine, and a person corrects it.

use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::stage::{SOON, Stage, without_endpoint};

const ONE: &str = "https://10.0.0.1:2379";
const EXTERNAL: &str = "spec.kubeadmConfigSpec.clusterConfiguration.etcd.external";

pub(crate) async fn hold(stage: &mut Stage) -> Result<()> {
    paths(stage).await?;
    endpoint(stage).await?;
    certificates(stage).await?;
    endpoints_of_etcd(stage).await
}

/// Certificate paths that cannot work are reported immediately, and not only when etcd is ready.
async fn paths(stage: &Stage) -> Result<()> {
    let certificates = |path: &str| {
        let external = json!({"certFile": path});
        json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": external}}}}})
    };
    stage
        .apply_cluster("paths", |document| {
            if document["kind"] == "KubeadmControlPlane" {
                document["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"]["external"]["certFile"] =
                    json!("client.crt");
            }
        })
        .await?;
    let problem = format!("False ControlPlaneInvalid KubeadmControlPlane paths-cp: {EXTERNAL}.certFile must");
    stage.until_says("paths", &format!("{problem} be an absolute path")).await?;
    stage.provide_etcd("paths", ONE).await?;
    stage.change("KubeadmControlPlane", "paths-cp", certificates("/etc/kubernetes/pki/ca.crt")).await?;
    stage.until_says("paths", &format!("{problem} not be /etc/kubernetes/pki/ca.crt")).await?;
    closed(stage, "paths").await?;
    // Any other directory works: Cluster API puts the files there, and kubeadm mounts it.
    stage.change("KubeadmControlPlane", "paths-cp", certificates("/etc/etcd-client/client.crt")).await?;
    stage.until_says("paths", "True Ready").await
}

/// Without a control plane endpoint, no machine is made. The hook reports this once there is no point in waiting for
/// the infrastructure.
async fn endpoint(stage: &Stage) -> Result<()> {
    stage.provide_etcd("endpoint", ONE).await?;
    let endpoint = json!({"host": "10.99.0.1", "port": 6443});
    stage.apply_cluster("endpoint", without_endpoint).await?;
    stage
        .until_says(
            "endpoint",
            "False WaitingForControlPlaneEndpoint the Cluster has no spec.controlPlaneEndpoint, and its infrastructure",
        )
        .await?;
    closed(stage, "endpoint").await?;
    stage.change("LocalCluster", "endpoint", json!({"spec": {"controlPlaneEndpoint": endpoint}})).await?;
    stage.until_says("endpoint", "True Ready").await
}

/// A person provides certificates that machines share, and forgets half of one.
async fn certificates(stage: &Stage) -> Result<()> {
    let secret = |data: Value| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "certificates-sa"},
            "stringData": data})
    };
    stage.apply(secret(json!({"tls.crt": "public"}))).await?;
    stage
        .apply_cluster("certificates", |document| {
            if document["kind"] == "KubeadmControlPlane" {
                document["spec"]["replicas"] = json!(3);
            }
        })
        .await?;
    stage.provide_etcd("certificates", ONE).await?;
    stage
        .until_says(
            "certificates",
            "False SharedCertificatesInvalid Secret certificates-sa has no tls.key: only the first",
        )
        .await?;
    closed(stage, "certificates").await?;
    stage.api("Secret").delete("certificates-sa", &DeleteParams::default()).await?;
    stage.until_says("certificates", "True Ready").await?;
    e2e::until::until("Cluster API has made it", SOON, async || {
        Ok(stage.secret("certificates-sa", "tls.key").await?.map(|_| ()))
    })
    .await
}

/// An etcd provider publishes endpoints that kubeadm would refuse.
async fn endpoints_of_etcd(stage: &Stage) -> Result<()> {
    stage.apply_cluster("scheme", |_| ()).await?;
    stage.provide_etcd("scheme", "http://10.0.0.1:2379").await?;
    stage
        .until_says("scheme", "False EtcdEndpointsInvalid OtherEtcd scheme-etcd has endpoint \"http://10.0.0.1")
        .await?;
    closed(stage, "scheme").await?;
    stage.report("scheme", true, ONE, "").await?;
    stage.until_says("scheme", "True Ready").await
}

/// The control plane is held back, and the gate is closed.
async fn closed(stage: &Stage, cluster: &str) -> Result<()> {
    ensure!(stage.control_plane(cluster).await?.paused, "it is not held back");
    ensure!(stage.secret(&format!("{cluster}-apiserver-etcd-client"), "tls.crt").await?.is_none(), "the gate is open");
    ensure!(stage.control_plane_machines(cluster).await? == 0, "there is a Machine");
    Ok(())
}
