//! A deletion finishes at any moment and in any state of etcd, and leaves nothing behind.

use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result, bail, ensure};
use api::names;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::observer::Silence;
use e2e::until::until;
use futures::{StreamExt, TryStreamExt, try_join};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

/// How long a deletion may take when several happen side by side on a busy computer.
const GONE: Duration = Duration::from_secs(90);
/// Value of a pause that a user sets.
const USERS: &str = "by-a-user";

/// Side by side: the Cluster, and the EtcdCluster alone, each deleted when the first member has just got its bootstrap
/// data, and when the second member has. Also the Cluster, while its user has paused the control plane. An EtcdCluster
/// that is applied again afterwards is a new one.
pub(crate) async fn in_the_middle(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let cluster = async |name, members| {
        let handle = begun(bed, name, members).await?;
        handle.delete("Cluster", &handle.cluster).await?;
        all_is_gone(bed, &handle).await
    };
    let etcd_alone = async |name, members| {
        let handle = begun(bed, name, members).await?;
        handle.delete_etcd().await?;
        etcd_is_gone(bed, &handle).await?;
        held_back(&handle).await?;
        anyhow::Ok(handle)
    };
    let paused = async || {
        let handle = begun(bed, "middle-paused", 1).await?;
        pause(&handle, Some(USERS)).await?;
        handle.delete("Cluster", &handle.cluster).await?;
        gone_once_the_user_allows(bed, &handle).await
    };
    let (_, _, again, _, _) = try_join!(
        cluster("middle-cluster-1", 1),
        cluster("middle-cluster-2", 2),
        etcd_alone("middle-etcd-1", 1),
        etcd_alone("middle-etcd-2", 2),
        paused(),
    )?;
    Manifests::new(&again.namespace, &again.cluster)?.apply(&bed.client()).await?;
    again.until_ready(PATIENCE).await?;
    released(&again).await?;
    bed.exactly(&[(&again, 3)]).await
}

/// Side by side, after the clusters have come up: the Cluster is deleted, also in the foreground, and the EtcdCluster
/// alone. Each of these is also deleted with every machine of etcd dead, and the Cluster also while its user has paused
/// the control plane.
pub(crate) async fn when_up(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let cluster = async |name, killed: bool| {
        let handle = up(bed, name, if killed { 3 } else { 1 }).await?;
        if killed {
            kill_all(bed, &handle).await?;
        }
        handle.delete("Cluster", &handle.cluster).await?;
        all_is_gone(bed, &handle).await
    };
    let etcd_alone = async |name, killed: bool| {
        let handle = up(bed, name, 1).await?;
        if killed {
            kill_all(bed, &handle).await?;
        }
        handle.delete_etcd().await?;
        etcd_is_gone(bed, &handle).await
    };
    let paused = async || {
        let handle = up(bed, "up-paused", 1).await?;
        pause(&handle, Some(USERS)).await?;
        handle.delete("Cluster", &handle.cluster).await?;
        gone_once_the_user_allows(bed, &handle).await
    };
    // In the foreground, the garbage collector deletes etcd and its Machines with the Cluster, not in their usual
    // order.
    let foreground = async || {
        let handle = up(bed, "up-foreground", 3).await?;
        handle.api("Cluster").delete(&handle.cluster, &DeleteParams::foreground()).await?;
        all_is_gone(bed, &handle).await
    };
    try_join!(
        cluster("up-cluster", false),
        foreground(),
        cluster("up-cluster-dead", true),
        etcd_alone("up-etcd", false),
        etcd_alone("up-etcd-dead", true),
        paused(),
    )?;
    Ok(())
}

/// Waits until this many members of a cluster that comes up have bootstrap data, the last of them just now. It watches
/// instead of polling, because the second and the third get theirs within milliseconds.
async fn begun(bed: &Bed, name: &str, members: usize) -> Result<ClusterHandle> {
    let handle = apply(bed, name, 3).await?;
    let names = handle.member_names(3);
    let mut secrets = handle.secrets().watch_metadata(&WatchParams::default(), "0").await?.boxed();
    let mut admitted = 0;
    let all = async {
        while admitted < members {
            match secrets.try_next().await?.context("the API server has ended the watch")? {
                WatchEvent::Added(secret) => admitted += usize::from(names.contains(&secret.name_any())),
                WatchEvent::Error(error) => bail!("{error}"),
                _ => {}
            }
        }
        Ok(())
    };
    let in_time = timeout(PATIENCE, all).await;
    in_time.with_context(|| format!("{admitted} of the members of {name} have bootstrap data, not {members}"))??;
    Ok(handle)
}

/// Brings up a cluster, and waits until its control plane is released.
async fn up(bed: &Bed, name: &str, replicas: i64) -> Result<ClusterHandle> {
    let handle = apply(bed, name, replicas).await?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    Ok(handle)
}

async fn apply(bed: &Bed, name: &str, replicas: i64) -> Result<ClusterHandle> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, name).await?;
    let manifests = Manifests::new(name, "demo")?.replicas(replicas);
    manifests.apply(&client).await?;
    Ok(ClusterHandle::new(&client, &manifests))
}

/// Kills every machine of etcd, and waits until the quorum is reported as lost. The machines die one after the other,
/// so remediation only reports: no member may be replaced meanwhile.
async fn kill_all(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    let check = json!({"intervalSeconds": 1, "unhealthyAfterSeconds": 2});
    let patch = json!({"spec": {"healthCheck": check, "remediation": {"mode": "Report"}}});
    crate::boots::look_again(handle, &patch).await?;
    for name in handle.etcd_machines().await? {
        let machine = bed.machines.get(&handle.namespace, &name)?;
        bed.fault(&format!("{name} is killed"), &[&machine], Silence::Lasting);
        tokio::task::spawn_blocking(move || machine.kill()).await??;
    }
    handle.until_condition("Available", "False", "QuorumLost", PATIENCE).await?;
    Ok(())
}

/// Sets the annotation that pauses the control plane, or removes it.
async fn pause(handle: &ClusterHandle, value: Option<&str>) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {names::PAUSED_ANNOTATION: value}}});
    let patch = Patch::Merge(&patch);
    handle.api("KubeadmControlPlane").patch(&handle.control_plane, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until nothing of the Cluster is left, not even a Secret, a machine, or the template of etcd's machines.
pub(crate) async fn all_is_gone(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    let kinds =
        ["Cluster", "KubeadmControlPlane", "Machine", "EtcdCluster", "EtcdadmConfig", "LocalCluster", "LocalMachine"];
    handle.until_nothing_is_left(&kinds, GONE).await?;
    until(format!("etcd's template of {} is gone", handle.namespace), GONE, async || {
        let templates = handle.names("LocalMachineTemplate", "").await?;
        ensure!(!templates.contains(&handle.etcd), "there are {templates:?}");
        Ok(Some(()))
    })
    .await?;
    no_machine(bed, handle, |_| true).await
}

/// Checks a deletion while the user has paused the control plane. Cluster API leaves a paused control plane alone, and
/// so do we: etcd goes, and the rest goes once the pause is removed.
async fn gone_once_the_user_allows(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    etcd_is_gone(bed, handle).await?;
    let control_plane = handle.control_plane().await.context("a paused control plane is not deleted")?;
    let paused = control_plane.annotations().get(names::PAUSED_ANNOTATION).map(String::as_str);
    ensure!(paused == Some(USERS), "the user's pause is not touched, it is {paused:?}");
    pause(handle, None).await?;
    all_is_gone(bed, handle).await
}

/// Waits until nothing that was made for etcd is left. The user's own documents and the control plane's objects stay.
async fn etcd_is_gone(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    let members = handle.etcd.clone();
    until(format!("nothing of {}/{members} is left", handle.namespace), GONE, async || {
        let is_members = |name: &String| name.starts_with(&format!("{members}-"));
        let mut left = Vec::new();
        for kind in ["EtcdCluster", "EtcdadmConfig", "Machine", "LocalMachine"] {
            let found = handle.names(kind, "").await?;
            let found = found.into_iter().filter(|name| *name == members || is_members(name));
            left.extend(found.map(|name| format!("{kind} {name}")));
        }
        let ours = [
            names::ca_secret(&handle.cluster),
            names::control_plane_ca_secret(&handle.cluster),
            names::apiserver_client_secret(&handle.cluster),
            names::staged_apiserver_client_secret(&handle.cluster),
            names::init_secret(&handle.cluster),
        ];
        let is_ours = |name: &String| ours.contains(name) || is_members(name);
        let secrets = handle.secret_names().await?;
        left.extend(secrets.iter().filter(|name| is_ours(name)).map(|name| format!("Secret {name}")));
        let lock = names::init_lock(&handle.cluster);
        left.extend(handle.config_map_names().await?.into_iter().filter(|name| *name == lock));
        ensure!(left.is_empty(), "left are {}", left.join(", "));
        Ok(Some(()))
    })
    .await?;
    no_machine(bed, handle, |name| name.starts_with(&format!("{}-", handle.etcd))).await?;
    let templates = handle.names("LocalMachineTemplate", "").await?;
    ensure!(templates.contains(&handle.etcd), "the user's template of etcd is gone too, there are {templates:?}");
    Ok(())
}

/// Checks that the Cluster reports its missing EtcdCluster, and that its control plane is held back as before.
async fn held_back(handle: &ClusterHandle) -> Result<()> {
    let message = handle.until_cluster_condition("ManagedExternalEtcdReady", "False", "EtcdNotFound", PATIENCE).await?;
    ensure!(message.contains(&handle.etcd), "what is missing is named: {message}");
    ensure!(handle.control_plane_is_paused().await?, "the control plane is not held back");
    let endpoints = handle.control_plane_endpoints().await?;
    ensure!(endpoints == [names::PLACEHOLDER_ENDPOINT], "the control plane has {endpoints:?}");
    Ok(())
}

async fn no_machine(bed: &Bed, handle: &ClusterHandle, ours: impl Fn(&str) -> bool) -> Result<()> {
    let machines = bed.machines.list()?;
    let specs = machines.iter().map(|machine| machine.spec());
    let left: Vec<&str> = specs
        .filter(|spec| spec.namespace == handle.namespace && ours(&spec.name))
        .map(|spec| spec.name.as_str())
        .collect();
    ensure!(left.is_empty(), "machines {left:?} are left");
    Ok(())
}
