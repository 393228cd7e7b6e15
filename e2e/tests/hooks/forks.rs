//! Forks of Cluster API have `spec.managedExternalEtcdRef`. Providers that do not follow our contract use it too.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::until::until;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::stage::{HOOKS, PLACEHOLDER, SOON, Stage, crd};

pub(crate) async fn served(stage: &mut Stage) -> Result<()> {
    add_the_field(stage).await?;
    of_our_contract(stage).await?;
    of_another(stage).await
}

/// The field works like the annotation, and the hook maintains the status fields of the proposal.
async fn of_our_contract(stage: &Stage) -> Result<()> {
    until("the API server keeps the field", SOON, async || {
        stage.apply_cluster("fork", naming("OtherEtcd", "fork-etcd")).await?;
        let cluster = stage.api("Cluster").get("fork").await?;
        Ok(cluster.data.pointer("/spec/managedExternalEtcdRef").map(|_| ()))
    })
    .await?;
    stage.until_says("fork", "False EtcdNotFound").await?;
    stage.provide_etcd("fork", "https://10.0.0.1:2379").await?;
    stage.until_says("fork", "True Ready").await?;
    until("the fields of the proposal are true", SOON, async || {
        let status = stage.api("Cluster").get("fork").await?.data["status"].clone();
        let fields = ["managedExternalEtcdReady", "managedExternalEtcdInitialized"];
        ensure!(fields.iter().all(|field| status[*field] == true), "the status is {status}");
        Ok(Some(()))
    })
    .await?;
    stage.delete("Cluster", "fork").await?;
    stage.until_gone("fork").await
}

/// A kind that is served and whose CRD does not follow our contract. Its own provider handles it.
async fn of_another(stage: &mut Stage) -> Result<()> {
    let mut foreign = crd("ForeignEtcd");
    foreign["metadata"]["labels"] = json!({});
    stage.plane.apply_crds(&[foreign]).await?;
    let mark = stage.plane.mark();
    stage.apply_cluster("foreign", naming("ForeignEtcd", "foreign-etcd")).await?;
    until("the hook has looked the kind up", SOON, async || {
        let ours = stage.plane.requests_since(mark)?.user(HOOKS[0]);
        Ok(ours.iter().any(|request| request.name == "foreignetcds.example.org").then_some(()))
    })
    .await?;
    // The first condition may be two seconds late.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let says = stage.says("foreign").await?;
    ensure!(says.is_none(), "the Cluster says {says:?}");
    let control_plane = stage.control_plane("foreign").await?;
    ensure!(!control_plane.paused && control_plane.endpoints == [PLACEHOLDER], "it is {control_plane:?}");
    let writes = stage.plane.requests_since(mark)?.user(HOOKS[0]).writes();
    ensure!(writes.is_empty(), "the hook has written:\n{writes}");

    // Only we use the annotation.
    let annotation =
        json!({"etcdcluster.cluster.x-k8s.io/managed-external-etcd": "ForeignEtcd.example.org/foreign-etcd"});
    stage.change("Cluster", "foreign", json!({"metadata": {"annotations": annotation}})).await?;
    stage.until_says("foreign", "False EtcdKindInvalid the CRD of ForeignEtcd.example.org has no label").await
}

/// Changes the documents of a Cluster so that it names its etcd by the field.
fn naming(kind: &str, name: &str) -> impl Fn(&mut Value) {
    let reference = json!({"apiVersion": "example.org/v1", "kind": kind, "name": name});
    move |document| {
        if document["kind"] == "Cluster" {
            document["metadata"]["annotations"] = json!({});
            document["spec"]["managedExternalEtcdRef"] = reference.clone();
        }
    }
}

/// Adds the fields that the CRD of a fork has.
async fn add_the_field(stage: &Stage) -> Result<()> {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let crds: Api<DynamicObject> = Api::all_with(stage.plane.client(), &resource);
    let name = "clusters.cluster.x-k8s.io";
    let mut versions = crds.get(name).await?.data["spec"]["versions"].clone();
    for version in versions.as_array_mut().into_iter().flatten() {
        let schema = &mut version["schema"]["openAPIV3Schema"]["properties"];
        schema["spec"]["properties"]["managedExternalEtcdRef"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        for field in ["managedExternalEtcdReady", "managedExternalEtcdInitialized"] {
            schema["status"]["properties"][field] = json!({"type": "boolean"});
        }
    }
    let body = json!({"spec": {"versions": versions}});
    crds.patch(name, &PatchParams::default(), &Patch::Merge(&body)).await?;
    Ok(())
}
