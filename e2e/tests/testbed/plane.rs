//! The promises of a management plane.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::apply::{api_for, apply};
use e2e::plane::{Plane, PlaneOptions, users};
use e2e::until::until;
use e2e::world::World;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

pub(crate) async fn is_ready(world: World) -> Result<()> {
    let started = Instant::now();
    let mut plane = Plane::start(&world, PlaneOptions::default()).await?;
    let took = started.elapsed();
    for (step, duration) in plane.timings() {
        println!("{step}: {:.1} s", duration.as_secs_f32());
    }
    println!("ready after {:.1} s", took.as_secs_f32());
    for name in
        ["etcd", "kube-apiserver", "kube-controller-manager", "capi-core", "capi-bootstrap", "capi-control-plane"]
    {
        ensure!(plane.process(name)?.is_running()?, "{name} has ended");
    }
    plane.stop().await
}

pub(crate) async fn converts_and_validates_clusters(world: World) -> Result<()> {
    let plane = Plane::start(&world, PlaneOptions::default()).await?;
    let client = plane.client();
    let cluster = |version: &str, network: &str, control_plane: &Value| {
        json!({
            "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Cluster",
            "metadata": {"name": "converted", "namespace": "default"},
            "spec": {
                "clusterNetwork": {"services": {"cidrBlocks": [network]}},
                "controlPlaneRef": control_plane,
            },
        })
    };
    // The two versions refer to a kind differently.
    let of_v1beta2 = json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "cp"});
    let new = cluster("v1beta2", "10.128.0.0/12", &of_v1beta2);
    apply(&client, &new.to_string()).await?;
    let of_v1beta1 = json!({"apiVersion": "", "kind": "KubeadmControlPlane", "name": "cp"});
    let old = cluster("v1beta1", "10.144.0.0/12", &of_v1beta1);
    let (old_api, name) = api_for(&client, &old).await?;
    // Cluster API's manager sometimes changes it between our read and our write.
    until("the Cluster is changed as v1beta1", SOON, async || {
        let mut seen = old_api.get(&name).await?;
        let reference = &seen.data["spec"]["controlPlaneRef"];
        ensure!(
            reference["apiVersion"] == "controlplane.cluster.x-k8s.io/v1beta2" && reference["apiGroup"].is_null(),
            "as v1beta1: {}",
            seen.data
        );
        seen.data["spec"]["clusterNetwork"] = old["spec"]["clusterNetwork"].clone();
        Ok(Some(old_api.replace(&name, &Default::default(), &seen).await?))
    })
    .await?;
    let (new_api, _) = api_for(&client, &new).await?;
    let seen = new_api.get(&name).await?;
    ensure!(seen.data["spec"]["controlPlaneRef"] == of_v1beta2, "as v1beta2: {}", seen.data);
    ensure!(seen.data["spec"]["clusterNetwork"] == old["spec"]["clusterNetwork"], "as v1beta2: {}", seen.data);

    let refused = apply(&client, &cluster("v1beta2", "no network", &of_v1beta2).to_string()).await;
    let error = format!("{:#}", refused.err().context("a Cluster with a bad network is accepted")?);
    ensure!(error.contains("spec.clusterNetwork.services.cidrBlocks"), "{error}");
    plane.stop().await
}

pub(crate) async fn collects_garbage(world: World) -> Result<()> {
    let mut plane = Plane::start(&world, PlaneOptions { cluster_api: false, ..PlaneOptions::default() }).await?;
    let client = plane.client();
    plane.apply_crds(&[widget_crd()]).await?;
    let widget = json!({"apiVersion": "test.example/v1", "kind": "Widget", "metadata": {"name": "owner"}});
    let owner = apply(&client, &widget.to_string()).await?.pop().context("one object is applied")?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "owned", "ownerReferences": [{
            "apiVersion": "test.example/v1", "kind": "Widget", "name": "owner", "uid": owner.uid(),
        }]},
    });
    apply(&client, &secret.to_string()).await?;
    let (widgets, name) = api_for(&client, &widget).await?;
    widgets.delete(&name, &DeleteParams::background()).await?;
    let secrets: Api<Secret> = Api::default_namespaced(client);
    until("the owned Secret is gone", SOON, async || Ok(secrets.get_opt("owned").await?.is_none().then_some(())))
        .await?;
    plane.stop().await
}

pub(crate) async fn deletes_namespaces(world: World) -> Result<()> {
    let plane = Plane::start(&world, PlaneOptions { cluster_api: false, ..PlaneOptions::default() }).await?;
    let client = plane.client();
    apply(
        &client,
        "{apiVersion: v1, kind: Namespace, metadata: {name: short-lived}}\n---\n\
         {apiVersion: v1, kind: ConfigMap, metadata: {name: content, namespace: short-lived}}",
    )
    .await?;
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete("short-lived", &DeleteParams::default()).await?;
    until("the namespace is gone", SOON, async || Ok(namespaces.get_opt("short-lived").await?.is_none().then_some(())))
        .await?;
    plane.stop().await
}

pub(crate) async fn counts_requests(world: World) -> Result<()> {
    let options = PlaneOptions { cluster_api: false, users: vec!["somebody".to_owned()], ..PlaneOptions::default() };
    let plane = Plane::start(&world, options).await?;
    let ask = async |client: Client| {
        let config_maps: Api<ConfigMap> = Api::default_namespaced(client);
        for _ in 0..3 {
            config_maps.list(&ListParams::default()).await?;
        }
        let mut watch = config_maps.watch(&WatchParams::default(), "0").await?.boxed();
        config_maps.create(&Default::default(), &named("seen")).await?;
        while !matches!(watch.try_next().await?, Some(WatchEvent::Added(seen)) if seen.name_any() == "seen") {}
        config_maps.delete("seen", &DeleteParams::default()).await?;
        anyhow::Ok(())
    };
    ask(plane.client_for(users::PROVIDER).await?).await?;
    let mark = plane.mark();
    ask(plane.client_for("somebody").await?).await?;
    let requests = until("the last request is in the log", SOON, async || {
        let requests = plane.requests_since(mark)?.resource("configmaps");
        Ok((!requests.user("somebody").verb("delete").is_empty()).then_some(requests))
    })
    .await?;
    let theirs = requests.user("somebody");
    let count = |verb: &str| theirs.verb(verb).len();
    ensure!((count("list"), count("watch"), count("create")) == (3, 1, 1), "counted:\n{theirs}");
    ensure!(theirs.len() == 6 && theirs.writes().len() == 2, "counted:\n{theirs}");
    ensure!(requests.user(users::PROVIDER).is_empty(), "counted before the mark:\n{requests}");
    plane.stop().await
}

pub(crate) async fn survives_an_outage(world: World) -> Result<()> {
    let mut plane = Plane::start(&world, PlaneOptions::default()).await?;
    let config_maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
    config_maps.create(&Default::default(), &named("kept")).await?;
    plane.stop_apiserver().await?;
    ensure!(config_maps.get("kept").await.is_err(), "a stopped API server answers");
    plane.start_apiserver().await?;
    config_maps.get("kept").await?;
    // The managers recover by themselves: they finish the deletion of a Cluster.
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "after"},
        "spec": {"controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "no"}},
    });
    let (clusters, name) = api_for(&plane.client(), &cluster).await?;
    until("Clusters can be applied again", SOON, async || {
        Ok(Some(apply(&plane.client(), &cluster.to_string()).await?))
    })
    .await?;
    let finalized = |cluster: DynamicObject| (!cluster.finalizers().is_empty()).then_some(());
    until("the Cluster has its finalizer", SOON, async || Ok(finalized(clusters.get(&name).await?))).await?;
    clusters.delete(&name, &DeleteParams::default()).await?;
    until("the Cluster is gone", SOON, async || Ok(clusters.get_opt(&name).await?.is_none().then_some(()))).await?;
    plane.stop().await
}

fn named(name: &str) -> ConfigMap {
    let mut config_map = ConfigMap::default();
    config_map.metadata.name = Some(name.to_owned());
    config_map
}

fn widget_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.test.example"},
        "spec": {
            "group": "test.example", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}
