//! A user corrects the spec, or damages an object by accident, while a cluster comes up.

use crate::bring_up::{PATIENCE, released};
use crate::load::LowLoad;
use anyhow::{Context, Result, ensure};
use api::names;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::plane::users;
use e2e::until::until;
use futures::try_join;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::time::Duration;

/// The correction. It has to be in the bootstrap data of every Machine that is made from it.
const CORRECTED: &str = "echo corrected";

/// Side by side: a spec that is corrected while nothing boots, and an init Secret without its label.
pub(crate) async fn reach_everything(bed: &mut Bed) -> Result<()> {
    ClusterHandle::make_namespace(&bed.client(), "corrections").await?;
    try_join!(spec(bed), label(bed))?;
    Ok(())
}

/// The first Machine never boots, and the others are held back. When the spec is corrected, the Machines that are held
/// back are replaced immediately, and the first one stays until its user deletes it.
async fn spec(bed: &Bed) -> Result<()> {
    let first = "spec-etcd-0";
    bed.machines.fault_no_boot("corrections", first)?;
    let manifests = Manifests::new("corrections", "spec")?;
    manifests.apply(&bed.client()).await?;
    let handle = ClusterHandle::new(&bed.client(), &manifests);
    let all = handle.member_names(3);
    until("all three Machines are made, and the first has its data", PATIENCE, async || {
        handle.secret(first, "value").await?;
        ensure!(handle.etcd_machines().await? == all, "the Machines are not all there");
        Ok(Some(()))
    })
    .await?;
    let uid = async |name: &str| handle.api("Machine").get(name).await?.uid().context("a Machine has a UID");
    let before = uid(first).await?;

    let spec = json!({"spec": {"etcdadmConfigSpec": {"preEtcdadmCommands": [CORRECTED]}}});
    handle.etcds().patch(&handle.etcd, &PatchParams::default(), &Patch::Merge(&spec)).await?;
    until("those that were held back are made again, under other names", PATIENCE, async || {
        let now = handle.etcd_machines().await?;
        ensure!(now.len() == 3 && all[1..].iter().all(|old| !now.contains(old)), "the Machines are {now:?}");
        Ok(Some(()))
    })
    .await?;
    ensure!(uid(first).await? == before, "the Machine that has its data is the user's to delete");

    bed.machines.clear_faults("corrections", first)?;
    handle.delete("Machine", first).await?;
    let load = LowLoad::begin_early_if_full(bed, &handle).await?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    if let Some(load) = load {
        load.judged().await?;
    }
    for name in handle.etcd_machines().await? {
        let data = handle.secret(&name, "value").await?;
        ensure!(data.contains(CORRECTED), "{name} has been made from the earlier spec:\n{data}");
    }
    Ok(())
}

/// The init Secret loses the label by which it is watched. The controller restores the label, and members can still be
/// added.
async fn label(bed: &Bed) -> Result<()> {
    let manifests = Manifests::new("corrections", "label")?.replicas(1);
    manifests.apply(&bed.client()).await?;
    let handle = ClusterHandle::new(&bed.client(), &manifests);
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    let load = LowLoad::begin_early_if_full(bed, &handle).await?;
    let secrets: Api<Secret> = Api::namespaced(bed.client(), "corrections");
    let name = names::init_secret(&handle.cluster);
    let mark = bed.plane.mark();
    let without = json!({"metadata": {"labels": {names::ETCD_CLUSTER_LABEL: null}}});
    secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&without)).await?;
    until(format!("Secret {name} has its label again"), PATIENCE, async || {
        let labels = secrets.get_metadata(&name).await?.labels().get(names::ETCD_CLUSTER_LABEL).cloned();
        ensure!(labels.as_ref() == Some(&handle.etcd), "the label is {labels:?}");
        Ok(Some(()))
    })
    .await?;
    // Long enough to see a request that is repeated every second.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let ours = bed.plane.requests_since(mark)?.user(users::PROVIDER).resource("secrets");
    let ours = ours.filter(|request| request.name == name && request.verb != "watch");
    ensure!(ours.len() <= 6, "it is looked for again and again:\n{ours}");
    let replicas = json!({"spec": {"replicas": 3}});
    handle.etcds().patch(&handle.etcd, &PatchParams::default(), &Patch::Merge(&replicas)).await?;
    until("the cluster has three members", PATIENCE, async || {
        let status = handle.status().await?;
        ensure!(status.ready && status.members.len() == 3, "{:?}", status.conditions);
        Ok(Some(()))
    })
    .await?;
    match load {
        Some(load) => load.judged().await,
        None => Ok(()),
    }
}
