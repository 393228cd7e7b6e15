//! Other providers are upgraded while the hook runs: a version of one of their kinds is no longer served.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::bed::programs;
use e2e::process::{Command, Process};
use e2e::until::until;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::stage::{HOOKS, SOON, Stage, crd};

const ONE: &str = "https://10.0.0.1:2379";
const TWO: &str = "https://10.0.0.2:2379";

pub(crate) async fn followed(stage: &mut Stage) -> Result<()> {
    listed(stage).await?;
    watched(stage).await
}

/// We do not watch MachinePools, so only the answer to a list shows this.
async fn listed(stage: &Stage) -> Result<()> {
    for cluster in ["before", "after"] {
        stage.apply_cluster(cluster, |_| ()).await?;
        stage.apply_etcd(cluster).await?;
        stage.until_says(cluster, "False WaitingForEtcd").await?;
    }
    stage.delete("Cluster", "before").await?;
    stage.until_gone("before").await?;
    serve_older_machine_pools(stage).await?;
    let mark = stage.plane.mark();
    stage.delete("Cluster", "after").await?;
    stage.until_gone("after").await?;
    let asked = stage.plane.requests_since(mark)?.user(HOOKS[0]).resource("machinepools");
    for code in [404, 200] {
        ensure!(asked.iter().any(|request| request.code == code), "no answer was {code}:\n{asked}");
    }
    Ok(())
}

/// Serves only v1beta1. The contract's label on the CRD says so. Usually Cluster API's own kinds have no such label,
/// because their group has one version.
async fn serve_older_machine_pools(stage: &Stage) -> Result<()> {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let crds: Api<DynamicObject> = Api::all_with(stage.plane.client(), &resource);
    let name = "machinepools.cluster.x-k8s.io";
    let mut versions = crds.get(name).await?.data["spec"]["versions"].clone();
    for version in versions.as_array_mut().into_iter().flatten() {
        version["served"] = json!(version["name"] == "v1beta1");
    }
    let labels = json!({"cluster.x-k8s.io/v1beta1": "v1beta1"});
    let body = json!({"metadata": {"labels": labels}, "spec": {"versions": versions}});
    crds.patch(name, &PatchParams::default(), &Patch::Merge(&body)).await?;

    let gone = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "MachinePool"));
    let gone: Api<DynamicObject> = Api::namespaced_with(stage.plane.client(), &stage.namespace, &gone);
    until("MachinePools are no longer served as v1beta2", SOON, async || {
        match gone.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Some(())),
            _ => Ok(None),
        }
    })
    .await
}

/// For a watched kind, the controllers of the manager end and start again with the version that is served now.
async fn watched(stage: &mut Stage) -> Result<()> {
    stage.kill_hook(0);
    let mut manager = manager(stage)?;
    stage.apply_cluster("watched", |_| ()).await?;
    stage.provide_etcd("watched", ONE).await?;
    stage.until_says("watched", "True Ready").await?;
    stage.until_control_plane("watched", false, &[ONE]).await?;

    stage.plane.apply_crds(&[second_version()]).await?;
    let second = ApiResource::from_gvk(&GroupVersionKind::gvk("example.org", "v2", "OtherEtcd"));
    let etcds: Api<DynamicObject> = Api::namespaced_with(stage.plane.client(), &stage.namespace, &second);
    let body = json!({"status": {"endpoints": TWO}});
    etcds.patch_status("watched-etcd", &PatchParams::default(), &Patch::Merge(&body)).await?;
    stage.until_control_plane("watched", false, &[TWO]).await?;
    ensure!(manager.is_running()?, "the manager has ended");
    let log = fs::read_to_string(manager.log())?;
    for line in ["this version is no longer served", "starting again"] {
        ensure!(log.contains(line), "{} does not say {line:?}", manager.log().display());
    }
    // A watch is retried after 4 s at the latest.
    let mark = stage.plane.mark();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let asked = stage.plane.requests_since(mark)?.user(HOOKS[0]).resource("otheretcds");
    ensure!(asked.is_empty(), "the version of before is still asked for:\n{asked}");
    manager.terminate(Duration::from_secs(20)).await?;
    Ok(())
}

/// The manager itself, because it starts controllers again.
fn manager(stage: &Stage) -> Result<Process> {
    Command::new("manager-with-hooks", programs()?.join("manager"), stage.world.logs())
        .arg("--kubeconfig")
        .arg(stage.plane.kubeconfig_for(HOOKS[0])?)
        .args(["--controllers", "cluster-hooks", "--leader-elect=false", "--admin-address", "127.0.0.1:0"])
        .spawn()
}

/// The CRD of OtherEtcd after an upgrade.
fn second_version() -> Value {
    let mut crd = crd("OtherEtcd");
    crd["metadata"]["labels"] = json!({"etcdcluster.cluster.x-k8s.io/provider-contract-v1": "v2"});
    let mut first = crd["spec"]["versions"][0].clone();
    let mut second = first.clone();
    first["served"] = json!(false);
    first["storage"] = json!(false);
    second["name"] = json!("v2");
    crd["spec"]["versions"] = json!([first, second]);
    crd
}
