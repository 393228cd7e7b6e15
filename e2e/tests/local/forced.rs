//! A Machine goes past its hook: somebody has taken that away, and every finalizer. Its member is left in etcd without
//! a machine; that is told, and a person decides.

use crate::bring_up::PATIENCE;
use crate::departures::{only_theirs, replaced};
use crate::ill::{IMPATIENT, STALL, up};
use crate::rolls::nothing_is_lost;
use crate::scale::{LOAD, data_of};
use anyhow::{Context, Result, ensure};
use e2e::bed::data::said;
use e2e::bed::{Bed, Look, Membership};
use e2e::history::History;
use e2e::observer::Silence;
use e2e::until::until;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// How long is waited for what must not happen: longer than it takes until a member counts as unhealthy.
const STEADY: Duration = Duration::from_secs(10);

/// While we are away, a follower's infrastructure is deleted, and its Machine by force. What is told names the member,
/// and how to remove it; until somebody does, nobody joins and nobody leaves. Then another one takes its place.
pub(crate) async fn past_its_hook(bed: &mut Bed) -> Result<()> {
    let look = up(bed, "forced", IMPATIENT).await?;
    let old = look.etcd_machines().await?;
    let before = look.membership(&bed.machines, &old).await?;
    let writers = History::begin(bed.world(), &look.namespace, &look.etcd_access().await?, LOAD).await?;
    let status = look.status().await?;
    let doomed = status.members.into_iter().find(|member| !member.leader).context("no such member")?;
    let machine = bed.machines.get(&look.namespace, &doomed.machine)?;
    bed.fault(&format!("{}: its Machine is deleted by force", doomed.machine), &[&machine], Silence::Lasting);
    bed.kill_manager(0).await?;
    deleted_by_force(bed, &look, &doomed.machine).await?;
    bed.start_manager(0).await?;

    let left: Vec<String> = old.iter().filter(|name| **name != doomed.machine).cloned().collect();
    let (gone, remove) = (format!("its Machine {} is gone", doomed.machine), format!("member remove {}", doomed.id));
    told(&look, "MembersHealthy", "Unknown", &[&gone]).await?;
    told(&look, "Ready", "False", &[&gone, &remove, "Nothing is added beside it"]).await?;
    tokio::time::sleep(STEADY).await;
    ensure!(look.etcd_machines().await? == left, "the Machines are {:?}", look.etcd_machines().await?);
    let now = look.membership(&bed.machines, &left).await?;
    ensure!(now == before, "etcd was {before:?}, and is {now:?}");

    let witness = bed.machines.get(&look.namespace, &left[0])?;
    said(&witness, &["/opt/bin/etcdctl.sh", "member", "remove", &doomed.id]).await?;
    let machines = replaced(bed, &look, &doomed.machine).await?;
    ensure!(left.iter().all(|name| machines.contains(name)), "{left:?} were to stay, the Machines are {machines:?}");
    let after = Membership::on(witness).await?;
    ensure!(after.cluster_id == before.cluster_id, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &look, &machines).await?;
    let figures = nothing_is_lost(&look, writers, &data_of(bed, &look, &machines)?).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    Ok(())
}

/// Waits until a condition has this status and says all of this.
async fn told(look: &Look, type_: &str, status: &str, what: &[&str]) -> Result<()> {
    until(format!("{type_} of {} is {status} and says {what:?}", look.etcd), PATIENCE, async || {
        let conditions = look.status().await?.conditions;
        let found = conditions.iter().find(|condition| condition.type_ == type_);
        let found = found.with_context(|| format!("no condition {type_}"))?;
        ensure!(found.status == status && what.iter().all(|what| found.message.contains(what)), "{found:?}");
        Ok(Some(()))
    })
    .await
}

/// The infrastructure of a Machine is deleted, then the Machine, whose hook and finalizers are taken away. Waits until
/// both are gone, and the machine with them.
async fn deleted_by_force(bed: &Bed, look: &Look, name: &str) -> Result<()> {
    look.delete("LocalMachine", name).await?;
    look.delete("Machine", name).await?;
    let nothing = json!({
        "metadata": {"annotations": {api::names::PRE_TERMINATE_HOOK_ANNOTATION: null}, "finalizers": null},
    });
    let patch = Patch::Merge(&nothing);
    look.api("Machine").patch(name, &PatchParams::default(), &patch).await.context("take the finalizers away")?;
    until(format!("nothing of {name} is left"), PATIENCE, async || {
        for kind in ["Machine", "LocalMachine"] {
            let found = look.names(kind, "").await?;
            ensure!(!found.iter().any(|found| found == name), "{kind} {name} is there");
        }
        ensure!(bed.machines.get(&look.namespace, name).is_err(), "the machine {name} is there");
        Ok(Some(()))
    })
    .await
}
