//! A pause in the middle of a change: nothing more is done until the pause ends, and then the change goes on.

use crate::account::deleted;
use crate::bring_up::PATIENCE;
use crate::departures::{only_theirs, replaced};
use crate::ill::{IMPATIENT, STALL, checked};
use crate::load::LowLoad;
use crate::repair;
use crate::rolls::{FOLLOWERS, ROLLOUT, another_spec, changed, nothing_is_lost, rolled};
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use api::names::PAUSED_ANNOTATION;
use e2e::bed::{Bed, ClusterHandle, Manifests, Membership};
use e2e::history::History;
use e2e::plane::{Mark, Request, users};
use e2e::until::until;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

/// How long nothing may happen in a paused rollout: much longer than its next step would take.
const STILL: Duration = Duration::from_secs(10);
/// How long nothing may be done about a dead member, in multiples of the time until it counts as unhealthy.
const THRESHOLDS: u64 = 3;

/// The EtcdCluster is paused while the first old member of a rollout leaves. During the pause nothing but status and
/// events is written, and no member joins or leaves. Afterwards the rollout goes on, and each Machine is replaced
/// once.
pub(crate) async fn in_a_rollout(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let handle = alone(bed, Manifests::new("pauses-rollout", "demo")?).await?;
    let old = handle.etcd_machines().await?;
    let writers =
        History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
    let begun = bed.plane.mark();
    changed(&handle, &another_spec()).await?;
    let operation =
        until("the first old member leaves", ROLLOUT, async || Ok(handle.status().await?.operation)).await?;
    let set = |value: Value| json!({"metadata": {"annotations": {PAUSED_ANNOTATION: value}}});
    pause(&handle, "EtcdCluster", &handle.etcd, &set(json!(""))).await?;
    handle.until_condition("Paused", "True", "Paused", PATIENCE).await?;
    let machines = handle.etcd_machines().await?;
    println!("  paused at {operation:?}: there are {machines:?}");
    ensure!(machines.iter().any(|name| old.contains(name)), "the rollout is over already: nothing is shown");

    let before = members(bed, &handle, &machines).await?;
    let mark = bed.plane.mark();
    tokio::time::sleep(STILL).await;
    nothing_was_written(bed, &handle, mark)?;
    let after = members(bed, &handle, &machines).await?;
    ensure!(after == before, "etcd was {before:?}, and is {after:?}");
    ensure!(handle.etcd_machines().await? == machines, "the Machines were {machines:?}");

    pause(&handle, "EtcdCluster", &handle.etcd, &set(Value::Null)).await?;
    rolled(bed, &handle, &old, &writers).await?;
    handle.until_condition("Paused", "False", "NotPaused", PATIENCE).await?;
    deleted(bed, &handle, begun, &old)?;
    // No member that is left has the log from its beginning.
    let figures = nothing_is_lost(&handle, writers, &[]).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    Ok(())
}

/// A machine dies while the Cluster is paused. However long the pause lasts, nothing but status and events is
/// written. Afterwards the member is replaced, once.
pub(crate) async fn of_a_repair(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let handle = alone(bed, checked(Manifests::new("pauses-repair", "demo")?, IMPATIENT)).await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let machines = handle.etcd_machines().await?;
    let before = members(bed, &handle, &machines).await?;
    pause(&handle, "Cluster", &handle.cluster, &json!({"spec": {"paused": true}})).await?;
    handle.until_condition("Paused", "True", "Paused", PATIENCE).await?;

    let mark = bed.plane.mark();
    let mut told = handle.status().await?.members.into_iter();
    let dead = told.find(|member| !member.leader).context("there is no follower")?.machine;
    repair::dies(bed, &handle, &dead).await?;
    tokio::time::sleep(Duration::from_secs(THRESHOLDS * IMPATIENT.unsigned_abs())).await;
    nothing_was_written(bed, &handle, mark)?;
    let status = handle.status().await?;
    ensure!(status.last_remediation.is_none() && status.operation.is_none(), "{:?}", status.conditions);
    ensure!(handle.etcd_machines().await? == machines, "the Machines were {machines:?}");

    pause(&handle, "Cluster", &handle.cluster, &json!({"spec": {"paused": false}})).await?;
    let left = replaced(bed, &handle, &dead).await?;
    only_theirs(bed, &handle, &left).await?;
    let etcd = handle.membership(&bed.machines, &left).await?;
    let stayed = before.stayed(&etcd);
    ensure!(etcd.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {etcd:?}");
    deleted(bed, &handle, mark, std::slice::from_ref(&dead))?;
    load.judged().await
}

/// Pauses something, or lifts the pause.
async fn pause(handle: &ClusterHandle, kind: &str, name: &str, patch: &Value) -> Result<()> {
    let patched = handle.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.with_context(|| format!("patch {kind} {name}"))?;
    Ok(())
}

/// Checks by the API server's audit log that we have written nothing in the cluster's namespace but status and
/// events.
fn nothing_was_written(bed: &Bed, handle: &ClusterHandle, mark: Mark) -> Result<()> {
    let here = |request: &Request| request.namespace == handle.namespace && request.resource != "events";
    let ours = bed.plane.requests_since(mark)?.user(users::PROVIDER).writes().filter(here);
    let others = ours.filter(|request| request.subresource.is_empty());
    ensure!(others.is_empty(), "in the pause was written:\n{others}");
    println!("  {}: in the pause a status was written {} times, and nothing else", handle.namespace, ours.len());
    Ok(())
}

/// The member list, from the first of these members that answers: one of them may be leaving.
async fn members(bed: &Bed, handle: &ClusterHandle, names: &[String]) -> Result<Membership> {
    until("a member answers", PATIENCE, async || {
        for name in names {
            if let Ok(list) = Membership::on(bed.machines.get(&handle.namespace, name)?).await {
                return Ok(Some(list));
            }
        }
        Ok(None)
    })
    .await
}
