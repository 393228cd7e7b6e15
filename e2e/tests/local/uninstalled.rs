//! The manager is uninstalled before its clusters are: the documented commands clean up.

use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result, ensure};
use api::names;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::observer::Silence;
use e2e::until::until;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// The page that says what to do.
const PAGE: &str = include_str!("../../../docs/troubleshooting.md");
/// How long a Machine without a hook may take to go.
const GONE: Duration = Duration::from_secs(60);

/// Without the manager, a deleted Machine of etcd waits for its pre-terminate hook. The documented commands, word by
/// word, release all Machines, and then the Cluster goes.
pub(crate) async fn manager_first(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "uninstalled").await?;
    let manifests = Manifests::new("uninstalled", "demo")?;
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    bed.kill_manager(0).await?;
    let result = without_manager(bed, &handle).await;
    bed.start_manager(0).await?;
    result
}

async fn without_manager(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    let machines = handle.etcd_machines().await?;
    handle.delete("Machine", &machines[1]).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let held = handle.api("Machine").get(&machines[1]).await.context("a deleted Machine did not wait")?;
    let hook = held.annotations().get(names::PRE_TERMINATE_HOOK_ANNOTATION);
    ensure!(hook.is_some(), "Machine {} has no pre-terminate hook: {:?}", machines[1], held.annotations());

    // As the page says, a Machine without its hook goes while its member is still a voter.
    let doomed = bed.machines.get(&handle.namespace, &machines[1])?;
    bed.fault(&format!("nobody holds {} any more", machines[1]), &[&doomed], Silence::Lasting);
    run(bed, handle, "annotate machines").await?;
    until(format!("Machine {} is gone", machines[1]), GONE, async || {
        let left = handle.etcd_machines().await?;
        ensure!(!left.contains(&machines[1]), "there are {left:?}");
        Ok(Some(()))
    })
    .await?;
    // As if the manager had been uninstalled in the middle of a handover.
    let paused = json!({"metadata": {"annotations": {names::PAUSED_ANNOTATION: names::PAUSED_BY_HOOK_VALUE}}});
    let control_planes = handle.api("KubeadmControlPlane");
    control_planes.patch(&handle.control_plane, &PatchParams::default(), &Patch::Merge(&paused)).await?;
    for command in ["delete clusters", "annotate kubeadmcontrolplanes", "delete machines", "patch etcdclusters"] {
        run(bed, handle, command).await?;
    }
    let kinds = ["Cluster", "KubeadmControlPlane", "Machine", "EtcdCluster", "EtcdadmConfig", "LocalMachine"];
    until("everything is gone", GONE, async || {
        let mut left = Vec::new();
        for kind in kinds {
            left.extend(handle.names(kind, "").await?.into_iter().map(|name| format!("{kind} {name}")));
        }
        ensure!(left.is_empty(), "left are {left:?}");
        Ok(Some(()))
    })
    .await
}

/// Runs the page's command that begins like this, unchanged, as a person would in a shell.
async fn run(bed: &Bed, handle: &ClusterHandle, what: &str) -> Result<()> {
    let beginning = format!("kubectl -n \"$NAMESPACE\" {what}.");
    let command = PAGE.lines().find(|line| line.starts_with(&beginning));
    let command = command.with_context(|| format!("the page has no command that begins with {beginning:?}"))?;
    let kubectl = bed.world().tools().kubectl.parent().context("kubectl lies nowhere")?;
    let mut path = kubectl.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", command]).env("PATH", path).env("KUBECONFIG", bed.plane.kubeconfig()?);
    shell.env("NAMESPACE", &handle.namespace).env("CLUSTER", &handle.cluster).env("ETCD", &handle.etcd);
    let output = shell.output().await.context("run a shell")?;
    ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
