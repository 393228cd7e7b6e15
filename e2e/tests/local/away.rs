//! Faults while our manager is down.

use crate::account::deleted;
use crate::bring_up::PATIENCE;
use crate::departures::{only_theirs, replaced};
use crate::ill::{IMPATIENT, STALL, checked};
use crate::repair;
use crate::rolls::{FOLLOWERS, another_spec, changed, nothing_is_lost, rolled};
use crate::scale::{LOAD, data_of};
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use e2e::bed::data::on;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::history::{History, Load};
use e2e::observer::Silence;
use e2e::plane::users;
use e2e::until::until;
use futures::try_join;
use local_infrastructure::machine::Machine;
use std::time::Duration;
use tokio::time::Instant;

/// How long no manager runs: a hundred times as long as it takes until a member counts as unhealthy, and about as long
/// as a person may take to notice.
const AWAY: Duration = Duration::from_secs(600);
/// How long clients rest after an answer. The judge has to check all requests of ten minutes.
const REST: Duration = Duration::from_millis(300);
/// How long a machine hangs in this time.
const HANGS: Duration = Duration::from_secs(20);

/// Three clusters, while the manager is down. In one, a machine dies. In another, a Machine is deleted, and the machine
/// of another member hangs for a while. In the third, the spec changes. Nothing is done before the manager is back.
/// Then the dead member counts as unhealthy only after its time, each Machine that has to be replaced is replaced once,
/// and no acknowledged write is lost.
pub(crate) async fn while_members_fail(bed: &mut Bed) -> Result<()> {
    let (dies, leaves, rolls) =
        try_join!(up(bed, "away-dies"), up(bed, "away-leaves"), up(bed, "away-rolls")).context("three clusters")?;
    let old = dies.etcd_machines().await?;
    let before = dies.membership(&bed.machines, &old).await?;
    let (calm, followers) = (Load { rest: REST, ..LOAD }, Load { rest: REST, ..FOLLOWERS });
    let kept = History::begin(bed.world(), &dies.namespace, &dies.staged_etcd_access().await?, calm).await?;
    // One client leaves few requests unknown while a member hangs. The member that leaves takes its log with it.
    let one = Load { clients: 1, ..calm };
    let left_under = History::begin(bed.world(), &leaves.namespace, &leaves.staged_etcd_access().await?, one).await?;
    let rolled_under = rolls.staged_etcd_access().await?;
    let rolled_under = History::begin(bed.world(), &rolls.namespace, &rolled_under, followers).await?;

    bed.kill_manager(0).await?;
    let (mark, begun) = (bed.plane.mark(), Instant::now());
    let mut members = dies.status().await?.members.into_iter();
    let dead = members.find(|member| !member.leader).context("no such member")?.machine;
    repair::dies(bed, &dies, &dead).await?;
    changed(&rolls, &another_spec()).await?;
    leaves.delete("Machine", &old[2]).await?;
    let hangs = bed.machines.get(&leaves.namespace, &old[0])?;
    bed.fault(&format!("{}: its machine hangs", old[0]), &[&hangs], Silence::Lasting);
    on(&hangs, Machine::freeze).await?;
    tokio::time::sleep(HANGS).await;
    bed.fault_is_over(&format!("{}: its machine goes on", old[0]), &[&hangs]);
    on(&hangs, Machine::thaw).await?;
    tokio::time::sleep_until(begun + AWAY).await;
    let ours = bed.plane.requests_since(mark)?.user(users::PROVIDER);
    ensure!(ours.is_empty(), "somebody was there:\n{ours}");
    for handle in [&dies, &leaves, &rolls] {
        ensure!(handle.etcd_machines().await? == old, "{}: {:?}", handle.namespace, handle.etcd_machines().await?);
    }

    let back = Instant::now();
    bed.start_manager(0).await?;
    until("the dead one is to be replaced", PATIENCE, async || {
        Ok(dies.status().await?.last_remediation.filter(|last| last.machine == dead))
    })
    .await?;
    let after = back.elapsed();
    println!("  {}: replaced {:.1} s after the manager was back", dies.namespace, after.as_secs_f32());
    ensure!(
        after >= Duration::from_secs(IMPATIENT.unsigned_abs()),
        "it was replaced before the manager had watched it for long enough"
    );

    let machines = replaced(bed, &dies, &dead).await?;
    only_theirs(bed, &dies, &machines).await?;
    let etcd = dies.membership(&bed.machines, &machines).await?;
    let stayed = before.stayed(&etcd);
    ensure!(etcd.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {etcd:?}");
    let others = replaced(bed, &leaves, &old[2]).await?;
    ensure!(old[..2].iter().all(|name| others.contains(name)), "the Machines are {others:?}");
    only_theirs(bed, &leaves, &others).await?;
    rolled(bed, &rolls, &old, &rolled_under).await?;
    deleted(bed, &dies, mark, std::slice::from_ref(&dead))?;
    deleted(bed, &leaves, mark, &[])?;
    deleted(bed, &rolls, mark, &old)?;

    let figures = nothing_is_lost(&dies, kept, &data_of(bed, &dies, &machines)?).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    let figures = nothing_is_lost(&leaves, left_under, &[]).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    // No member is left that has the log from its beginning.
    let figures = nothing_is_lost(&rolls, rolled_under, &[]).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    Ok(())
}

async fn up(bed: &Bed, namespace: &str) -> Result<ClusterHandle> {
    alone(bed, checked(Manifests::new(namespace, "demo")?, IMPATIENT)).await
}
