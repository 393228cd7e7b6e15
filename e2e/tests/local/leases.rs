//! Two managers, of which only the holder of the lease works. The lease is lost in the middle of its work.

use crate::account::{deleted, made};
use crate::bring_up::PATIENCE;
use crate::departures::{only_theirs, replaced};
use crate::ill::{IMPATIENT, STALL, checked};
use crate::repair;
use crate::rolls::{FOLLOWERS, changed, nothing_is_lost, rolled};
use crate::scale::{LOAD, data_of};
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::faults::{ApiCall, Fate, Fault, FaultyManager, Rule, Verb};
use e2e::history::History;
use e2e::process::Signal;
use e2e::until::until;
use futures::try_join;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use std::time::Duration;

/// How long it may take until another manager holds the lease, or one that has lost it ends.
const CHANGES: Duration = Duration::from_secs(30);

/// The holder is stopped for longer than its lease lasts, while a dead member is replaced in one cluster and another
/// spec rolls out in a second one. The other manager takes over. The first one goes on, and ends. Then, in another
/// rollout, the lease cannot be renewed: its holder ends before the other manager takes over. Nothing is done twice.
pub(crate) async fn are_lost(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let first = FaultyManager::start_with_lease(bed, "lease-first").await?;
    let holder = held_by_other_than(bed, "").await?;
    let second = FaultyManager::start_with_lease(bed, "lease-second").await?;
    let (dies, rolls) = try_join!(up(bed, "lease-dies"), up(bed, "lease-rolls")).context("two clusters")?;
    ensure!(second.writes().is_empty(), "without the lease was written:\n{}", second.writes());

    let old = rolls.etcd_machines().await?;
    let kept = History::begin(bed.world(), &dies.namespace, &dies.staged_etcd_access().await?, LOAD).await?;
    let access = rolls.staged_etcd_access().await?;
    let rolled_under = History::begin(bed.world(), &rolls.namespace, &access, FOLLOWERS).await?;
    let mark = bed.plane.mark();
    let mut members = dies.status().await?.members.into_iter();
    let dead = members.find(|member| !member.leader).context("no such member")?.machine;
    repair::dies(bed, &dies, &dead).await?;
    until("a replacement is made", PATIENCE, async || Ok((dies.etcd_machines().await?.len() == 4).then_some(())))
        .await?;
    roll(&rolls, &["true"]).await?;

    first.signal(Signal::STOP)?;
    let next = held_by_other_than(bed, &holder).await?;
    until("the other manager goes on", CHANGES, async || Ok((second.writes().len() > 2).then_some(()))).await?;
    let written = first.writes().len();
    first.signal(Signal::CONT)?;
    until("the manager that was stopped ends", CHANGES, async || Ok((first.ends() == 1).then_some(()))).await?;
    let machines = replaced(bed, &dies, &dead).await?;
    only_theirs(bed, &dies, &machines).await?;
    let middle = rolled(bed, &rolls, &old, &rolled_under).await?;
    let late = first.writes();
    let late: Vec<_> = late.iter().skip(written).collect();
    println!("  after it was stopped, the first one has written {late:?}");
    // A patch of a Machine itself may take its hook away, which lets the Machine go.
    let lets_go =
        |call: &ApiCall| call.resource == "machines" && call.subresource.is_empty() && call.verb == Verb::Patch;
    let disrupts =
        |call: &ApiCall| matches!(call.verb, Verb::Create | Verb::Delete | Verb::DeleteCollection) || lets_go(call);
    let disruptive = late.iter().find(|write| disrupts(&write.call) && matches!(write.fate, Fate::Answered(200..300)));
    ensure!(disruptive.is_none(), "{disruptive:?}");
    ensure!(second.ends() == 0, "the second one has ended");

    roll(&rolls, &["true", "true"]).await?;
    let renews = |call: &ApiCall| call.resource == "leases" && matches!(call.verb, Verb::Update | Verb::Patch);
    second.add(Rule::at_call(renews, Fault::Answer(500)).times(usize::MAX));
    until("the manager that cannot renew the lease ends", CHANGES, async || Ok((second.ends() > 0).then_some(())))
        .await?;
    held_by_other_than(bed, &next).await?;
    rolled(bed, &rolls, &middle, &rolled_under).await?;
    let (ours, theirs) = (first.writes(), second.writes());
    ensure!(ours.iter().any(|write| write.life == 2), "the first one has not gone on:\n{ours}");
    ensure!(theirs.iter().all(|write| write.life == 1), "without the lease was written:\n{theirs}");

    let mut gone = [old, middle].concat();
    gone.sort();
    deleted(bed, &rolls, mark, &gone)?;
    deleted(bed, &dies, mark, std::slice::from_ref(&dead))?;
    made(bed, &rolls, mark, gone.len())?;
    made(bed, &dies, mark, 1)?;
    let figures = nothing_is_lost(&dies, kept, &data_of(bed, &dies, &machines)?).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    // No member is left that has the log from its beginning.
    let figures = nothing_is_lost(&rolls, rolled_under, &[]).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    first.stop().await?;
    second.stop().await?;
    bed.start_manager(0).await
}

/// Changes the spec, and waits until the first new Machine is there.
async fn roll(handle: &ClusterHandle, commands: &[&str]) -> Result<()> {
    changed(handle, &json!({"etcdadmConfigSpec": {"preEtcdadmCommands": commands}})).await?;
    until("a rollout is under way", PATIENCE, async || Ok((handle.etcd_machines().await?.len() > 3).then_some(())))
        .await
}

/// Waits until another manager holds the lease, and returns its name.
async fn held_by_other_than(bed: &Bed, before: &str) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(bed.client(), "default");
    until("another manager holds the lease", CHANGES, async || {
        let lease = leases.get("cluster-api-provider-etcdadm").await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        Ok(Some(holder).filter(|holder| !holder.is_empty() && holder != before))
    })
    .await
}

async fn up(bed: &Bed, namespace: &str) -> Result<ClusterHandle> {
    alone(bed, checked(Manifests::new(namespace, "demo")?, IMPATIENT)).await
}
