//! The deletion of a Cluster finishes whatever the state of its etcd is, reports what it waits for, and leaves nothing.
//! Etcd is deleted after the workers and before the control plane.

use crate::clusters::{
    PATIENCE, annotate, applied, container, documents, gone, look_closely, released, up, waiting_in_their_boot,
};
use crate::departure::{etcd_went_between, told};
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::MemberRole;
use api::names;
use e2e::apply::apply_object;
use e2e::bed::{ClusterHandle, Manifests};
use e2e::docker::DockerBed;
use e2e::process::Signal;
use e2e::until::until;
use futures::try_join;
use kube::ResourceExt;
use serde_json::json;
use std::time::{Duration, Instant};

/// The example with workers.
const WITH_WORKERS: &str = "examples/docker/cluster.yaml";
/// The image of machines without anything of Kubernetes.
const IMAGE: &str = "cluster-api-provider-etcdadm/etcd-machine:dev";
/// The value of a user's pause.
const USERS: &str = "by-a-user";
/// Keeps a Machine after we have released it, as another project's pre-terminate hook does.
const THEIR_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/of-somebody-else";
/// How long the docker infrastructure's manager is away.
const AWAY: Duration = Duration::from_secs(60);

/// Side by side, during a bring-up, while we have paused the control plane: before there is any member, while the first
/// machine boots, and while a member is still a learner.
pub(crate) async fn on_the_way_up(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let namespace = "deletion-early";
    ClusterHandle::make_namespace(&bed.client(), namespace).await?;
    let at_once = async || {
        let handle = applied(bed, namespace, "early-none", 1).await?;
        // An EtcdCluster that its controller has not seen is gone immediately, with nothing to wait for and to report.
        until("etcd's controller has seen it", PATIENCE, async || {
            Ok((!handle.etcds().get(&handle.etcd).await?.finalizers().is_empty()).then_some(()))
        })
        .await?;
        deleted(bed, &handle, "no member yet").await
    };
    let booting = async || {
        let manifests = waiting_in_their_boot(documents(namespace, "early-booting", 1)?);
        manifests.apply(&bed.client()).await?;
        let handle = ClusterHandle::new(&bed.client(), &manifests);
        container(bed, &handle.member_names(1)[0]).await?;
        ensure!(!handle.status().await?.initialized, "the member is up already: nothing is shown");
        ensure!(handle.control_plane_is_paused().await?, "the control plane is not paused by us");
        deleted(bed, &handle, "the first machine boots").await
    };
    let learner = async || {
        let handle = applied(bed, namespace, "early-learner", 3).await?;
        until("a member is a learner", PATIENCE, async || {
            let members = handle.status().await?.members;
            ensure!(members.iter().any(|member| member.role == MemberRole::Learner), "{members:?}");
            Ok(Some(()))
        })
        .await?;
        deleted(bed, &handle, "a learner joins").await
    };
    try_join!(at_once(), booting(), learner())?;
    Ok(())
}

/// Side by side, after a bring-up: with the only member frozen, with the quorum lost for good, with one of three
/// Machines just deleted by hand, with the control plane paused by its user, and with workers.
pub(crate) async fn when_broken(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let namespace = "deletion-broken";
    ClusterHandle::make_namespace(&bed.client(), namespace).await?;
    let frozen = async || {
        let handle = up(bed, namespace, "broken-frozen", 1).await?;
        look_closely(&handle).await?;
        bed.pause(&handle.member_names(1)[0]).await?;
        handle.until_condition("Available", "False", "QuorumLost", PATIENCE).await?;
        deleted(bed, &handle, "the only member frozen").await
    };
    let quorum_lost = async || {
        let handle = up(bed, namespace, "broken-quorum", 3).await?;
        look_closely(&handle).await?;
        for name in &handle.member_names(3)[..2] {
            bed.kill(name).await?;
        }
        handle.until_condition("Available", "False", "QuorumLost", PATIENCE).await?;
        deleted(bed, &handle, "quorum lost").await
    };
    let halved = async || {
        let handle = up(bed, namespace, "broken-halved", 3).await?;
        handle.delete("Machine", &handle.member_names(3)[1]).await?;
        deleted(bed, &handle, "a Machine deleted by hand").await
    };
    try_join!(frozen(), quorum_lost(), halved(), paused_by_its_user(bed, namespace), with_workers(bed, namespace))?;
    Ok(())
}

/// Our manager is away when one deletion begins, and is killed in the middle of another. The docker infrastructure's
/// manager hangs for half a minute, is killed, and comes back after another half minute.
pub(crate) async fn managers_away(bed: &mut DockerBed) -> Result<()> {
    let namespace = "deletion-away";
    ClusterHandle::make_namespace(&bed.client(), namespace).await?;
    let (before, middle, infrastructure) = {
        let bed = &*bed;
        try_join!(
            up(bed, namespace, "away-before", 1),
            up(bed, namespace, "away-middle", 1),
            up(bed, namespace, "away-capd", 1),
        )?
    };

    // The hook keeps this deletion in the middle, however late the test checks.
    let machine = &middle.member_names(1)[0];
    annotate(&middle, "Machine", machine, THEIR_HOOK, Some("")).await?;
    bed.kill_manager().await?;
    before.delete("Cluster", &before.cluster).await?;
    middle.delete("Cluster", &middle.cluster).await?;
    bed.restart_manager_with(&[]).await?;
    until("we have begun to delete etcd", PATIENCE, async || {
        Ok(middle.etcds().get(&middle.etcd).await?.metadata.deletion_timestamp.is_some().then_some(()))
    })
    .await?;
    bed.kill_manager().await?;
    middle.api("Machine").get(machine).await.context("etcd's Machine was gone before the manager died")?;
    annotate(&middle, "Machine", machine, THEIR_HOOK, None).await?;
    bed.restart_manager_with(&[]).await?;
    gone(bed, &before).await?;
    gone(bed, &middle).await?;

    bed.note("the docker infrastructure's manager hangs");
    bed.capd().signal(Signal::STOP)?;
    infrastructure.delete("Cluster", &infrastructure.cluster).await?;
    let begun = Instant::now();
    let machine = &infrastructure.member_names(1)[0];
    let (told, ()) = try_join!(told(&infrastructure), async {
        // These times are what the scenario is about.
        tokio::time::sleep(AWAY / 2).await;
        infrastructure.api("Machine").get(machine).await.context("a machine can't go without its infrastructure")?;
        bed.note("the docker infrastructure's manager is killed, and stays away");
        bed.capd().kill().await?;
        tokio::time::sleep(AWAY.saturating_sub(begun.elapsed())).await;
        bed.capd().restart().await
    })?;
    print(&told, "the infrastructure away for a minute", begun);
    let waits = format!("EtcdCluster Deleting=True Deleting: Machine {machine} was deleted at ");
    ensure!(told.iter().any(|said| said.starts_with(&waits)), "{waits:?} was not said");
    gone(bed, &infrastructure).await
}

/// A control plane that its user has paused is not deleted before they lift the pause. Etcd is deleted, and the status
/// says that it is the user's turn.
async fn paused_by_its_user(bed: &DockerBed, namespace: &str) -> Result<()> {
    let handle = up(bed, namespace, "broken-paused", 1).await?;
    annotate(&handle, "KubeadmControlPlane", &handle.control_plane, names::PAUSED_ANNOTATION, Some(USERS)).await?;
    let before = bed.plane.mark();
    let begun = Instant::now();
    handle.delete("Cluster", &handle.cluster).await?;
    let lift = async {
        let reason = "ControlPlanePaused";
        let message = handle.until_cluster_condition("ManagedExternalEtcdReady", "False", reason, PATIENCE).await?;
        ensure!(message.contains(&handle.control_plane) && message.contains(names::PAUSED_ANNOTATION), "{message}");
        ensure!(handle.etcd_machines().await?.is_empty(), "etcd's Machines are still there");
        let control_plane = handle.control_plane().await.context("a paused control plane is not deleted")?;
        let paused = control_plane.annotations().get(names::PAUSED_ANNOTATION).map(String::as_str);
        ensure!(paused == Some(USERS), "the user's pause is not touched, it is {paused:?}");
        annotate(&handle, "KubeadmControlPlane", &handle.control_plane, names::PAUSED_ANNOTATION, None).await
    };
    let (told, ()) = try_join!(told(&handle), lift)?;
    gone(bed, &handle).await?;
    print(&told, "the control plane paused by its user", begun);
    etcd_went_between(&bed.plane.requests_since(before)?, &handle)
}

/// Workers are deleted first. These workers are machines without anything of Kubernetes: it only matters that they
/// exist.
async fn with_workers(bed: &DockerBed, namespace: &str) -> Result<()> {
    let name = "broken-workers";
    let data = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "user-data-of-workers", "namespace": namespace},
        "stringData": {"format": "cloud-config", "value": "#cloud-config\nruncmd:\n- \"true\"\n"},
    });
    apply_object(&bed.client(), &data).await?;
    let manifests = documents(namespace, name, 1)?;
    manifests.apply(&bed.client()).await?;
    let handle = ClusterHandle::new(&bed.client(), &manifests);
    let workers = format!("{name}-md-0");
    let mut with_workers = Manifests::of(WITH_WORKERS, namespace, name)?;
    let deployment = with_workers.document("MachineDeployment");
    deployment["spec"]["replicas"] = json!(2);
    deployment["spec"]["template"]["spec"]["bootstrap"] = json!({"dataSecretName": "user-data-of-workers"});
    with_workers = with_workers.without(|document| document["metadata"]["name"] != workers.as_str());
    with_workers = with_workers.without(|document| document["kind"] == "KubeadmConfigTemplate");
    with_workers.document("DevMachineTemplate")["spec"]["template"]["spec"]["backend"]["docker"] =
        json!({"customImage": IMAGE});
    with_workers.apply(&bed.client()).await?;
    released(&handle).await?;
    until("two workers have their containers", PATIENCE, async || {
        let containers = bed.containers().await?;
        Ok((containers.iter().filter(|name| name.starts_with(&workers)).count() == 2).then_some(()))
    })
    .await?;
    let told = deleted(bed, &handle, "with workers").await?;
    let waits = "Cluster ManagedExternalEtcdReady=False WaitingForWorkersDeletion: etcd is deleted after the workers; left are Machine";
    ensure!(told.iter().any(|line| line.starts_with(waits)), "{waits:?} was not said");
    Ok(())
}

/// Deletes the Cluster, waits until nothing of it is left, and checks the order of the deletions and what was reported.
pub(crate) async fn deleted(bed: &DockerBed, handle: &ClusterHandle, what: &str) -> Result<Vec<String>> {
    let before = bed.plane.mark();
    let begun = Instant::now();
    handle.delete("Cluster", &handle.cluster).await?;
    let told = told(handle).await.with_context(|| what.to_owned())?;
    gone(bed, handle).await.with_context(|| what.to_owned())?;
    print(&told, what, begun);
    etcd_went_between(&bed.plane.requests_since(before)?, handle).with_context(|| what.to_owned())?;
    let waits = format!("WaitingForEtcdDeletion: EtcdCluster {} is being deleted", handle.etcd);
    ensure!(told.iter().any(|line| line.contains(&waits)), "{what}: {waits:?} was not said");
    Ok(told)
}

fn print(told: &[String], what: &str, begun: Instant) {
    println!("  {what:<40} gone after {:>5.1} s", begun.elapsed().as_secs_f32());
    for line in told {
        println!("    {line}");
    }
}
