//! Cluster API's own MachineHealthCheck marks a Machine of etcd, and the member is replaced although it is healthy. A
//! Machine that is marked only for its missing Node is not replaced, because no Machine of etcd has a Node.

use crate::bring_up::PATIENCE;
use crate::departures::{only_theirs, replaced};
use crate::load::LowLoad;
use crate::records::{Record, always_available, warnings};
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use api::names;
use e2e::apply::apply_object;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::plane::users;
use e2e::until::until;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Seconds that a MachineHealthCheck waits for a Node: the minimum that Cluster API accepts.
const NODE_STARTUP: u64 = 30;
/// How long the scenario waits to see that nothing happens.
const STEADY: Duration = Duration::from_secs(8);

/// Marks the leader's Machine. In mode `Report`, the status only says who marks the Machine; in mode `Replace`, the
/// member is replaced. By then the annotation that led to the conditions is gone. The conditions still count, because
/// a MachineHealthCheck never withdraws them from a Machine without a Node.
pub(crate) async fn by_a_health_check(bed: &mut Bed) -> Result<()> {
    let report = json!({"mode": "Report"});
    let manifests = Manifests::new("marked", "demo")?;
    let handle = alone(bed, manifests.with("EtcdCluster", |etcd| etcd["spec"]["remediation"] = report)).await?;
    let before = handle.membership(&bed.machines, &handle.etcd_machines().await?).await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let status = handle.status().await?;
    let doomed = &status.members.iter().find(|member| member.leader).context("nobody leads")?.machine;
    // This MachineHealthCheck does not wait for a Node.
    apply_object(&bed.client(), &health_check(&handle, 0)).await?;
    annotate(&handle, doomed, json!("")).await?;
    until("the MachineHealthCheck leaves it to the owner", PATIENCE, async || {
        let machine = handle.api("Machine").get(doomed).await?;
        Ok(why_not(&machine, "OwnerRemediated").is_some().then_some(()))
    })
    .await?;
    annotate(&handle, doomed, Value::Null).await?;
    until("it is said who marks it", PATIENCE, async || {
        let said = handle.until_condition("Remediating", "True", "WaitingForRemediation", PATIENCE).await?;
        ensure!(said.contains(doomed) && said.contains("MachineHealthCheck: "), "said is: {said}");
        Ok(Some(()))
    })
    .await?;

    let record = Record::of(&bed.client(), &handle.namespace).await?;
    let replace = Patch::Merge(json!({"spec": {"remediation": {"mode": "Replace"}}}));
    handle.etcds().patch(&handle.etcd, &PatchParams::default(), &replace).await?;
    let machines = replaced(bed, &handle, doomed).await?;
    let after = handle.membership(&bed.machines, &machines).await?;
    let stayed = before.stayed(&after);
    ensure!(after.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {after:?}");
    let last = handle.status().await?.last_remediation.context("it is not written down")?;
    ensure!(last.machine == *doomed, "written down is {last:?}");
    handle.until_condition("Remediating", "False", "NotRemediating", PATIENCE).await?;
    only_theirs(bed, &handle, &machines).await?;
    always_available(&record.stop().await?)?;
    load.judged().await?;
    let told = warnings(&bed.client(), &handle.namespace).await?;
    ensure!(told.is_empty(), "the warnings are {told:#?}");
    Ok(())
}

/// A MachineHealthCheck that waits for Nodes marks all Machines of etcd, because none of them ever has a Node. No
/// member is replaced. The MachineHealthCheck does this only if the control plane is initialized and Cluster API can
/// reach the workload cluster. Here the scenario sets the condition, and Cluster API reaches the management plane
/// itself, which has no Nodes.
pub(crate) async fn not_for_a_missing_node(bed: &mut Bed) -> Result<()> {
    let (client, manifests) = (bed.client(), Manifests::new("no-node", "demo")?.without_control_plane());
    ClusterHandle::make_namespace(&client, &manifests.namespace).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    // Applied first: Cluster API connects when the infrastructure is ready, and retries only after half a minute.
    apply_object(&client, &kubeconfig(bed, &handle)?).await?;
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    control_plane_works(&handle).await?;
    let machines = handle.etcd_machines().await?;
    let before = handle.membership(&bed.machines, &machines).await?;
    let load = LowLoad::begin(bed, &handle).await?;
    // Cluster API reconciles a MachineHealthCheck at most every 15 s, so it is created when every Node is already
    // late.
    tokio::time::sleep(Duration::from_secs(NODE_STARTUP + 1)).await;
    let begun = Instant::now();
    apply_object(&client, &health_check(&handle, NODE_STARTUP)).await?;
    until("the MachineHealthCheck misses every Node, and leaves that to the owner", PATIENCE, async || {
        for name in &machines {
            let machine = handle.api("Machine").get(name).await?;
            let why = ["HealthCheckSucceeded", "OwnerRemediated"].map(|type_| why_not(&machine, type_));
            let is_marked = why[0] == Some("NodeStartupTimeout") && why[1].is_some();
            ensure!(is_marked, "{name}: the reasons are {why:?}");
        }
        Ok(Some(()))
    })
    .await?;
    println!("  {}: all Machines were marked after {:.0} s", handle.namespace, begun.elapsed().as_secs_f32());

    tokio::time::sleep(STEADY).await;
    let now = handle.etcd_machines().await?;
    ensure!(now == machines, "the Machines were {machines:?}, and are {now:?}");
    let after = handle.membership(&bed.machines, &machines).await?;
    ensure!(after == before, "etcd was {before:?}, and is {after:?}");
    let last = handle.status().await?.last_remediation;
    ensure!(last.is_none(), "written down is {last:?}");
    handle.until_condition("Remediating", "False", "NotRemediating", STEADY).await?;
    load.judged().await?;
    let told = warnings(&client, &handle.namespace).await?;
    ensure!(told.is_empty(), "the warnings are {told:#?}");
    Ok(())
}

/// The kubeconfig with which Cluster API reaches the workload cluster. It leads to the management plane.
fn kubeconfig(bed: &Bed, handle: &ClusterHandle) -> Result<Value> {
    let file = bed.plane.kubeconfig_for(users::CAPI_CORE)?;
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "type": names::CLUSTER_SECRET_TYPE,
        "metadata": {
            "name": format!("{}-kubeconfig", handle.cluster), "namespace": handle.namespace,
            "labels": {names::CLUSTER_NAME_LABEL: handle.cluster},
        },
        "stringData": {"value": text},
    }))
}

/// Sets the Cluster's condition that the control plane is initialized, since the Cluster was created. Once set, the
/// condition stays.
async fn control_plane_works(handle: &ClusterHandle) -> Result<()> {
    let clusters = handle.api("Cluster");
    let since = clusters.get(&handle.cluster).await?.metadata.creation_timestamp;
    let works = json!({
        "type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "",
        "lastTransitionTime": since,
    });
    let said = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": handle.cluster},
        "status": {"conditions": [works]},
    });
    let parameters = PatchParams::apply("control-plane").force();
    clusters
        .patch_status(&handle.cluster, &parameters, &Patch::Apply(&said))
        .await
        .context("the Cluster's condition")?;
    Ok(())
}

/// The reason why a condition of a Machine is False.
fn why_not<'m>(machine: &'m DynamicObject, type_: &str) -> Option<&'m str> {
    let conditions = machine.data.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|found| found["type"] == type_ && found["status"] == "False")?;
    found["reason"].as_str()
}

/// A MachineHealthCheck for etcd's Machines alone, which never have a Node. `node_startup`: how many seconds it waits
/// for one; with 0 it does not wait.
fn health_check(handle: &ClusterHandle, node_startup: u64) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
        "metadata": {"name": handle.etcd, "namespace": handle.namespace},
        "spec": {
            "clusterName": handle.cluster,
            "selector": {"matchLabels": {names::ETCD_CLUSTER_LABEL: handle.etcd}},
            "checks": {"nodeStartupTimeoutSeconds": node_startup},
        },
    })
}

async fn annotate(handle: &ClusterHandle, machine: &str, value: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {names::REMEDIATE_MACHINE_ANNOTATION: value}}}));
    handle.api("Machine").patch(machine, &PatchParams::default(), &patch).await?;
    Ok(())
}
