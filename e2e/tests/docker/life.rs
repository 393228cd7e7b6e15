//! What happens to a control plane in its life while etcd is managed. Etcd is not affected, except where it should be.

mod whole;

use crate::clusters::{PATIENCE, change, control_plane_machines, gone, is_recorded, servers, writes_of_endpoints};
use crate::writes::Writer;
use anyhow::{Context, Result, ensure};
use e2e::bed::{ClusterHandle, Manifests};
use e2e::docker::{DockerBed, Workload};
use e2e::plane::Mark;
use e2e::until::until;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

pub(crate) use whole::of_one_etcd;

/// How long it may take to replace three Nodes one after the other, on a busy computer.
const ROLLOUT: Duration = Duration::from_secs(420);
/// How long replaced API servers may keep a writer from writing, until the load balancer notices.
const GAP: Duration = Duration::from_secs(30);

/// The control plane is scaled up, is upgraded to the next release of Kubernetes, loses a node that a
/// MachineHealthCheck replaces, and is scaled down. Etcd's members do not change.
pub(crate) async fn of_a_control_plane(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let before = bed.add_previous_nodes().await?;
    let manifests = Manifests::of("examples/docker/three-control-planes.yaml", "life", "life")?;
    let now = manifests.clone().document("KubeadmControlPlane")["spec"]["version"].clone();
    let now = now.as_str().context("the example has no version")?.to_owned();
    let manifests = manifests
        .replicas(1)
        .without(|document| document["kind"] == "MachineDeployment" || is_named(document, "life-md-0"))
        .with("KubeadmControlPlane", |control_plane| {
            control_plane["spec"]["replicas"] = json!(1);
            control_plane["spec"]["version"] = json!(before);
        })
        .with("MachineHealthCheck", |check| {
            for condition in check["spec"]["checks"]["unhealthyNodeConditions"].as_array_mut().into_iter().flatten() {
                condition["timeoutSeconds"] = json!(30);
            }
        });
    // One template is for nodes after the upgrade, and one for nodes before it.
    let template = "life-control-plane";
    let after = manifests.documents().iter().find(|document| is_named(document, template) && is_template(document));
    let mut after = after.context("the example has no template of the control plane")?.clone();
    after["metadata"]["name"] = json!(format!("{template}-next"));
    let mut manifests = manifests;
    for document in manifests.documents_mut().iter_mut().filter(|found| is_named(found, template) && is_template(found))
    {
        let image = &mut document["spec"]["template"]["spec"]["backend"]["docker"]["customImage"];
        *image = json!(image.as_str().unwrap_or_default().replace(&now, &before));
    }

    let client = bed.client();
    ClusterHandle::make_namespace(&client, "life").await?;
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    let workload = Workload::until_ready(bed, &handle, PATIENCE).await?;
    workload.until_nodes(1, PATIENCE).await?;
    let etcd = etcd(bed, &handle).await?;
    let writer = Writer::start(&workload).await?;

    let lap = lap("scaled from 1 to 3");
    scale(&handle, 3).await?;
    workload.until_nodes(3, ROLLOUT).await?;
    lap();

    let lap = self::lap("upgraded to the next release of Kubernetes");
    e2e::apply::apply_object(&client, &after).await?;
    let infrastructure = json!({"infrastructureRef": {"name": format!("{template}-next")}});
    let upgrade = json!({"spec": {"version": now, "machineTemplate": {"spec": infrastructure}}});
    change(&handle, "KubeadmControlPlane", &handle.control_plane, &upgrade).await?;
    until("every Node has the new version", ROLLOUT, async || {
        let versions = workload.versions().await?;
        ensure!(versions == vec![now.clone(); 3], "they have {versions:?}");
        Ok(Some(()))
    })
    .await?;
    workload.until_nodes(3, PATIENCE).await?;
    lap();

    let lap = self::lap("a killed node is replaced");
    // Machines are gone a moment after their Nodes.
    let nodes = until("the upgrade has left three Machines", PATIENCE, async || {
        let (machines, nodes) = (handle.control_plane_machines().await?, workload.ready_nodes().await?);
        ensure!(machines == nodes, "Machines are {machines:?}, Nodes {nodes:?}");
        Ok(Some(nodes))
    })
    .await?;
    let victim = nodes.first().context("the control plane has no Node")?;
    bed.kill(victim).await?;
    until(format!("{victim} is replaced"), ROLLOUT, async || {
        let left = handle.control_plane_machines().await?;
        ensure!(!left.contains(victim), "it is still there: {left:?}");
        Ok(Some(()))
    })
    .await?;
    workload.until_nodes(3, ROLLOUT).await?;
    lap();

    let lap = self::lap("scaled from 3 to 1");
    scale(&handle, 1).await?;
    workload.until_nodes(1, ROLLOUT).await?;
    lap();

    writer.stop(GAP).await?;
    let left = self::etcd(bed, &handle).await?;
    ensure!(etcd == left, "etcd was {etcd:#?}\nand is {left:#?}");
    handle.delete("Cluster", &handle.cluster).await?;
    gone(bed, &handle).await
}

/// etcd grows from one member to three below a running cluster. The control plane rolls out once, and writes go on.
pub(crate) async fn of_an_etcd_that_grows(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let Below { handle, workload, writer, mark } = below(bed, "grow", 1).await?;
    let first = handle.control_plane_endpoints().await?;

    let lap = lap("etcd grew from 1 to 3, and the control plane rolled");
    change(&handle, "EtcdCluster", &handle.etcd, &json!({"spec": {"replicas": 3}})).await?;
    let endpoints = until("the control plane has three endpoints", ROLLOUT, async || {
        let endpoints = handle.control_plane_endpoints().await?;
        Ok((endpoints.len() == 3).then_some(endpoints))
    })
    .await?;
    ensure!(first.iter().all(|endpoint| endpoints.contains(endpoint)), "{first:?} is not in {endpoints:?}");
    until("its only API server has all of them", ROLLOUT, async || {
        only_server_has(bed, &handle, &endpoints).await.map(Some)
    })
    .await?;
    workload.until_nodes(1, PATIENCE).await?;
    would_join_with(&workload, &endpoints).await?;
    lap();
    rolled_once(bed, &handle, writer, mark).await
}

/// Every member of etcd is replaced below a running cluster. The control plane rolls out once, the old members leave
/// when it has, and writes go on.
pub(crate) async fn of_an_etcd_that_rolls(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let Below { handle, workload, writer, mark } = below(bed, "roll", 3).await?;
    let (old, first) = (handle.etcd_machines().await?, handle.control_plane_endpoints().await?);

    let lap = lap("etcd and the control plane rolled");
    let commands = json!({"spec": {"etcdadmConfigSpec": {"preEtcdadmCommands": ["true"]}}});
    change(&handle, "EtcdCluster", &handle.etcd, &commands).await?;
    let endpoints = until("the old members have left", ROLLOUT, async || {
        let (machines, status) = (handle.etcd_machines().await?, handle.status().await?);
        ensure!(machines.len() == 3, "the Machines are {machines:?}: {:?}", status.conditions);
        ensure!(!machines.iter().any(|name| old.contains(name)), "the Machines are {machines:?}");
        ensure!(status.ready && status.members.len() == 3, "{:?}", status.conditions);
        Ok(Some(handle.control_plane_endpoints().await?))
    })
    .await?;
    ensure!(!endpoints.iter().any(|endpoint| first.contains(endpoint)), "{endpoints:?} has some of {first:?}");
    only_server_has(bed, &handle, &endpoints).await?;
    // So no old member has left before that.
    would_join_with(&workload, &endpoints).await?;
    workload.until_nodes(1, PATIENCE).await?;
    lap();
    rolled_once(bed, &handle, writer, mark).await
}

/// A running cluster with one control-plane node, which is written to.
struct Below {
    handle: ClusterHandle,
    workload: Workload,
    writer: Writer,
    /// Before the cluster was applied.
    mark: Mark,
}

/// Such a cluster, with this many members of etcd.
async fn below(bed: &DockerBed, name: &str, members: i64) -> Result<Below> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, name).await?;
    let manifests = Manifests::of("examples/docker/cluster.yaml", name, name)?.replicas(members);
    let manifests = manifests.without(|document| document["kind"] == "MachineDeployment");
    let handle = ClusterHandle::new(&client, &manifests);
    let mark = bed.plane.mark();
    manifests.apply(&client).await?;
    let workload = Workload::until_ready(bed, &handle, PATIENCE).await?;
    workload.until_nodes(1, PATIENCE).await?;
    let writer = Writer::start(&workload).await?;
    Ok(Below { handle, workload, writer, mark })
}

/// There is exactly one API server. It was started with these endpoints, which are recorded as in use.
async fn only_server_has(bed: &DockerBed, handle: &ClusterHandle, endpoints: &[String]) -> Result<()> {
    let machines = handle.control_plane_machines().await?;
    let [machine] = machines.as_slice() else { anyhow::bail!("its Machines are {machines:?}") };
    ensure!(servers(bed, machine).await? == endpoints, "{machine} has others");
    ensure!(is_recorded(handle, endpoints).await?, "{endpoints:?} are not on record as in use");
    Ok(())
}

/// A machine that joins the control plane now would start with these endpoints: kubeadm stores them.
async fn would_join_with(workload: &Workload, endpoints: &[String]) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(workload.client(), "kube-system");
    let map = maps.get("kubeadm-config").await.context("read kubeadm-config")?;
    let text = map.data.unwrap_or_default().remove("ClusterConfiguration").context("kubeadm keeps nothing")?;
    let configuration: Value = serde_yaml::from_str(&text).context("what kubeadm keeps")?;
    let kept = &configuration["etcd"]["external"]["endpoints"];
    let wanted: BTreeSet<&str> = endpoints.iter().map(String::as_str).collect();
    let found: BTreeSet<&str> = kept.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    ensure!(found == wanted, "a machine would join with {kept}, and not with {endpoints:?}");
    Ok(())
}

/// Endpoints were written to the control plane twice, and it made two Machines. Deletes the cluster.
async fn rolled_once(bed: &DockerBed, handle: &ClusterHandle, writer: Writer, mark: Mark) -> Result<()> {
    writer.stop(GAP).await?;
    let requests = bed.plane.requests_since(mark)?;
    let written = writes_of_endpoints(&requests, handle).iter().count();
    ensure!(written == 2, "endpoints were written {written} times: the first ones, and every change");
    let made = control_plane_machines(&requests, handle).iter().count();
    ensure!(made == 2, "the control plane made {made} Machines: the first, and one for every rollout");
    handle.delete("Cluster", &handle.cluster).await?;
    gone(bed, handle).await
}

/// What a rollout of the control plane must not change: who is a member, on which Machine, and since when its process
/// runs.
async fn etcd(bed: &DockerBed, handle: &ClusterHandle) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    for member in handle.status().await?.members {
        let started = ["systemctl", "show", "etcd", "--property=ExecMainStartTimestampMonotonic", "--value"];
        let started = bed.exec(&member.machine, &started).await?;
        seen.push(format!("{} {} on {} since {}", member.name, member.id, member.machine, started.trim()));
    }
    Ok(seen)
}

async fn scale(handle: &ClusterHandle, replicas: u32) -> Result<()> {
    change(handle, "KubeadmControlPlane", &handle.control_plane, &json!({"spec": {"replicas": replicas}})).await
}

fn is_named(document: &Value, name: &str) -> bool {
    document["metadata"]["name"] == name
}

fn is_template(document: &Value) -> bool {
    document["kind"] == "DevMachineTemplate"
}

/// When the returned function is called, it prints how long something took.
fn lap(what: &'static str) -> impl FnOnce() {
    let begun = Instant::now();
    move || println!("  {what:<52} {:>5.1} s", begun.elapsed().as_secs_f32())
}
