//! Cluster API's own MachineHealthCheck marks a Machine of etcd, and its member is replaced although it is healthy.

use crate::bring_up::PATIENCE;
use crate::departures::{only_theirs, replaced};
use crate::load::LowLoad;
use crate::records::{Record, always_available, warnings};
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use api::names;
use e2e::apply::apply_object;
use e2e::bed::{Bed, Look, Manifests};
use e2e::until::until;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// The leader's Machine. At first it is only said that it is marked. A MachineHealthCheck never takes its conditions back from a
/// Machine without a Node, so they count although the annotation that has led to them is gone.
pub(crate) async fn by_a_health_check(bed: &mut Bed) -> Result<()> {
    let report = json!({"mode": "Report"});
    let manifests = Manifests::new("marked", "demo")?;
    let look = alone(bed, manifests.with("EtcdCluster", |etcd| etcd["spec"]["remediation"] = report)).await?;
    let before = look.membership(&bed.machines, &look.etcd_machines().await?).await?;
    let load = LowLoad::begin(bed, &look).await?;
    let status = look.status().await?;
    let doomed = &status.members.iter().find(|member| member.leader).context("nobody leads")?.machine;
    apply_object(&bed.client(), &health_check(&look)).await?;
    annotate(&look, doomed, json!("")).await?;
    until("the MachineHealthCheck leaves it to the owner", PATIENCE, async || {
        let machine = look.api("Machine").get(doomed).await?;
        let conditions = machine.data.pointer("/status/conditions").and_then(Value::as_array).context("none")?;
        let asks = conditions.iter().any(|found| found["type"] == "OwnerRemediated" && found["status"] == "False");
        Ok(asks.then_some(()))
    })
    .await?;
    annotate(&look, doomed, Value::Null).await?;
    until("it is said who marks it", PATIENCE, async || {
        let said = look.until_condition("Remediating", "True", "WaitingForRemediation", PATIENCE).await?;
        ensure!(said.contains(doomed) && said.contains("MachineHealthCheck: "), "said is: {said}");
        Ok(Some(()))
    })
    .await?;

    let record = Record::of(&bed.client(), &look.namespace).await?;
    let replace = Patch::Merge(json!({"spec": {"remediation": {"mode": "Replace"}}}));
    look.etcds().patch(&look.etcd, &PatchParams::default(), &replace).await?;
    let machines = replaced(bed, &look, doomed).await?;
    let after = look.membership(&bed.machines, &machines).await?;
    let stayed = before.stayed(&after);
    ensure!(after.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {after:?}");
    let last = look.status().await?.last_remediation.context("it is not written down")?;
    ensure!(last.machine == *doomed, "written down is {last:?}");
    look.until_condition("Remediating", "False", "NotRemediating", PATIENCE).await?;
    only_theirs(bed, &look, &machines).await?;
    always_available(&record.stop().await?)?;
    load.judged().await?;
    let told = warnings(&bed.client(), &look.namespace).await?;
    ensure!(told.is_empty(), "the warnings are {told:#?}");
    Ok(())
}

/// Of etcd's Machines alone, which never have a Node.
fn health_check(look: &Look) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
        "metadata": {"name": look.etcd, "namespace": look.namespace},
        "spec": {
            "clusterName": look.cluster,
            "selector": {"matchLabels": {names::ETCD_CLUSTER_LABEL: look.etcd}},
            "checks": {"nodeStartupTimeoutSeconds": 0},
        },
    })
}

async fn annotate(look: &Look, machine: &str, value: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {names::REMEDIATE_MACHINE_ANNOTATION: value}}}));
    look.api("Machine").patch(machine, &PatchParams::default(), &patch).await?;
    Ok(())
}
