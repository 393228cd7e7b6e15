//! Machines of members are killed at random moments, one or two of three at a time, and switched on again, while the
//! cluster is in use. Twice a machine stays dead, and its member is replaced.

use crate::departures::{only_theirs, replaced};
use crate::ill::{PATIENT, all_are_well, checked};
use crate::rolls::{FOLLOWERS, follow, nothing_is_lost};
use crate::scale::data_of;
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use e2e::bed::data::on;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::history::History;
use e2e::observer::Silence;
use e2e::scenarios::seed;
use futures::future::try_join_all;
use local_infrastructure::machine::Machine;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::ops::Range;
use std::time::Duration;

/// Kills in all.
const KILLS: usize = 20;
/// After so many kills, the machine that is killed next stays dead. One of the first members has to remain to the
/// end: the judge needs a log from its beginning.
const FOR_GOOD: [usize; 2] = [6, 13];
/// In so many of ten cases two machines are killed at once, and the quorum is lost.
const PAIRS: u32 = 3;
/// Milliseconds that machines stay off, and milliseconds between the recovery and the next kill. Every machine is on
/// again before its member counts as unhealthy.
const OFF: Range<u64> = 100..6_000;
const WELL: Range<u64> = 0..2_000;
/// Fewer acknowledged writes show little.
const WRITES: usize = 100;

/// Twenty kills. A member that comes back is the same member, a member that stays dead is replaced, and nothing that
/// was acknowledged is lost.
pub(crate) async fn of_members(bed: &mut Bed) -> Result<()> {
    let seed = seed()?;
    println!("random_kills::of_members: E2E_SEED={seed} repeats these kills");
    killed_at_random(bed, &mut StdRng::seed_from_u64(seed)).await.with_context(|| format!("E2E_SEED={seed}"))
}

async fn killed_at_random(bed: &Bed, random: &mut StdRng) -> Result<()> {
    let handle = alone(bed, checked(Manifests::new("random-kills", "demo")?, PATIENT)).await?;
    let first = handle.etcd_machines().await?;
    let before = handle.membership(&bed.machines, &first).await?;
    let writers =
        History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
    let (mut kills, mut gone) = (0, Vec::<String>::new());
    while kills < KILLS {
        tokio::time::sleep(Duration::from_millis(random.random_range(WELL))).await;
        let machines = handle.etcd_machines().await?;
        if FOR_GOOD.get(gone.len()).is_some_and(|after| kills >= *after) {
            let doomed = machines.iter().rfind(|name| first.contains(name)).context("none of the first is left")?;
            let machine = bed.machines.get(&handle.namespace, doomed)?;
            let (status, url) = (handle.status().await?, api::names::client_url(&machine.address().to_string()));
            bed.fault(&format!("kill {kills}: {doomed}, for good"), &[&machine], Silence::Lasting);
            on(&machine, Machine::kill).await?;
            // The judge cannot handle many requests without an answer, so clients leave the dead endpoint out.
            writers.endpoints(status.endpoints.split(',').filter(|other| *other != url).map(str::to_owned).collect());
            only_theirs(bed, &handle, &replaced(bed, &handle, doomed).await?).await?;
            follow(&writers, &handle.status().await?);
            gone.push(doomed.clone());
            kills += 1;
        } else {
            let number = if random.random_ratio(PAIRS, 10) && kills + 2 <= KILLS { 2 } else { 1 };
            let doomed: Vec<String> = machines.sample(random, number).cloned().collect();
            dies_and_comes_back(bed, &handle, &doomed, random.random_range(OFF)).await?;
            kills += number;
        }
        all_are_well(&handle).await.with_context(|| format!("after {kills} kills"))?;
    }
    let machines = handle.etcd_machines().await?;
    let after = handle.membership(&bed.machines, &machines).await?;
    let stays = before.members.iter().filter(|member| !gone.contains(&member.name));
    let stayed = stays.clone().filter(|member| after.members.contains(member)).count();
    ensure!(after.cluster_id == before.cluster_id && stayed == stays.count(), "etcd was {before:?}, and is {after:?}");
    let last = handle.status().await?.last_remediation.context("nobody was replaced")?;
    ensure!(gone.last() == Some(&last.machine), "{gone:?} stayed dead, and replaced was {last:?}");
    println!("  {}: {kills} kills, {gone:?} for good", handle.namespace);
    let figures = nothing_is_lost(&handle, writers, &data_of(bed, &handle, &machines)?).await?;
    ensure!(figures.writes >= WRITES, "{figures}");
    Ok(())
}

/// Kills these machines, and switches them on again after `off` milliseconds.
async fn dies_and_comes_back(bed: &Bed, handle: &ClusterHandle, doomed: &[String], off: u64) -> Result<()> {
    let machines = bed.machines_of(&handle.namespace, doomed)?;
    let theirs: Vec<&Machine> = machines.iter().collect();
    bed.fault(&format!("{doomed:?} are killed for {off} ms"), &theirs, Silence::Lasting);
    try_join_all(machines.iter().map(|machine| on(machine, Machine::kill))).await?;
    tokio::time::sleep(Duration::from_millis(off)).await;
    bed.fault_is_over(&format!("{doomed:?} are on again"), &theirs);
    try_join_all(machines.iter().map(|machine| on(machine, Machine::power_on))).await.map(drop)
}
