//! A Cluster is removed by force, and another one is made under its name.

use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::faults::FaultyManager;
use e2e::observer::Silence;
use e2e::process::Signal;
use e2e::until::until;
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;
use std::time::Duration;

/// How long a watch takes at most to show an event.
const SHOWN: Duration = Duration::from_secs(3);
/// How long the manager has for what it must not do.
const SETTLES: Duration = Duration::from_secs(8);
const GONE: Duration = Duration::from_secs(120);
/// The pre-terminate hook of KubeadmControlPlanes.
const CONTROL_PLANE_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup";

/// The garbage collector deletes the EtcdCluster of the first Cluster. Our manager's watch shows that this Cluster is
/// gone, and does not show the second one yet, which may need the data. No Machine goes, and a person is asked.
pub(crate) async fn keep_the_data(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let (client, namespace) = (bed.client(), "namesake");
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manager = FaultyManager::start(bed, namespace, Some(namespace), Vec::new()).await?;
    let manifests = Manifests::new(namespace, "demo")?;
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    let machines = handle.etcd_machines().await?;
    // The garbage collector also deletes the Cluster's infrastructure, and its network with it.
    for name in &machines {
        let machine = bed.machines.get(namespace, name)?;
        bed.fault(&format!("{name}: its Cluster is removed by force"), &[&machine], Silence::Lasting);
    }

    manager.signal(Signal::STOP)?;
    let first = removed_by_force(&handle).await?;
    tokio::time::sleep(SHOWN).await;
    manager.hold_watch("clusters");
    let ObjectMeta { name, namespace: of, labels, annotations, .. } = first.metadata;
    let metadata = ObjectMeta { name, namespace: of, labels, annotations, ..ObjectMeta::default() };
    let second = DynamicObject { metadata, types: first.types, data: json!({"spec": first.data["spec"]}) };
    handle.api("Cluster").create(&PostParams::default(), &second).await.context("make the Cluster again")?;
    until("the garbage collector has deleted the EtcdCluster", PATIENCE, async || {
        let etcd = handle.etcds().get(&handle.etcd).await?;
        Ok(etcd.metadata.deletion_timestamp.map(drop))
    })
    .await?;
    manager.signal(Signal::CONT)?;

    tokio::time::sleep(SETTLES).await;
    ensure!(manager.kept("clusters") > 0, "the watch has shown everything: nothing is shown");
    all_are_there(&handle, &machines).await?;
    manager.release_watch("clusters");
    handle.until_condition("Ready", "False", "DeletionNotConfirmed", PATIENCE).await?;
    all_are_there(&handle, &machines).await?;

    handle.confirm_deletion(&handle.etcd).await?;
    // Its control-plane Machine waits for a KubeadmControlPlane that is gone. A person has to let it go.
    let no_hook = json!({"metadata": {"annotations": {CONTROL_PLANE_HOOK: null}}});
    for name in handle.names("Machine", "cluster.x-k8s.io/control-plane").await? {
        handle.api("Machine").patch(&name, &PatchParams::default(), &Patch::Merge(&no_hook)).await?;
    }
    handle.until_etcd_is_gone(GONE).await?;
    manager.stop().await?;
    bed.start_manager(0).await
}

/// Takes the Cluster's finalizers away, and deletes it before Cluster API puts them back.
async fn removed_by_force(handle: &ClusterHandle) -> Result<DynamicObject> {
    let api = handle.api("Cluster");
    until("the Cluster is gone", PATIENCE, async || {
        let nothing = json!({"metadata": {"finalizers": null}});
        let cluster = api.patch(&handle.cluster, &PatchParams::default(), &Patch::Merge(&nothing)).await?;
        let just_this = Preconditions { uid: cluster.uid(), resource_version: cluster.resource_version() };
        let parameters = DeleteParams { preconditions: Some(just_this), ..DeleteParams::background() };
        api.delete(&handle.cluster, &parameters).await?;
        Ok(Some(cluster))
    })
    .await
}

/// No Machine of etcd is gone or is being deleted.
async fn all_are_there(handle: &ClusterHandle, machines: &[String]) -> Result<()> {
    for name in machines {
        let machine = handle.api("Machine").get(name).await.with_context(|| format!("{name} is to stay"))?;
        ensure!(machine.metadata.deletion_timestamp.is_none(), "{name} is being deleted");
    }
    Ok(())
}
