//! Our manager's clock jumps, as when a person sets it or a computer wakes up: two hours ahead, two hours back, and
//! more than a year ahead, which makes every member's certificate count as expired.

mod middle;

use crate::account::deleted;
use crate::departures::only_theirs;
use crate::ill::{IMPATIENT, all_are_well, checked};
use crate::load::LowLoad;
use crate::shrinks::{alone, are_well};
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::EtcdClusterStatus;
use e2e::bed::clock::Clock;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::observer::Silence;
use futures::try_join;
use std::time::Duration;

pub(crate) use middle::jump_while_a_machine_boots;

/// More than any time that our manager waits for, and less than the time by which certificates are backdated.
const HOURS: i64 = 2 * 3600;
/// More than a member's certificate is good for.
const YEAR: i64 = 400 * 24 * 3600;
/// How long a clock stays wrong: several times what it takes until a member counts as unhealthy.
const STAYS: Duration = Duration::from_secs(16);

/// All is well, and the clock jumps. If it jumps by two hours, in either direction, no Machine is removed or replaced,
/// and all members are healthy by the wrong clock too. If it jumps by more than a year, Machines may be replaced,
/// because their certificates have expired by that clock, but only one by one and without loss. When the clock is right
/// again, there are three members, and no Machine is replaced any more.
pub(crate) async fn jump_while_all_is_well(bed: &mut Bed) -> Result<()> {
    let clock = of_the_manager(bed).await?;
    let handle = alone(bed, checked(Manifests::new("clocks-well", "demo")?, IMPATIENT)).await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let machines = handle.etcd_machines().await?;
    let before = handle.membership(&bed.machines, &machines).await?;
    let endpoints = handle.status().await?.endpoints;
    for ahead in [HOURS, -HOURS] {
        let mark = bed.plane.mark();
        for ahead in [ahead, 0] {
            clock.jump(ahead)?;
            tokio::time::sleep(STAYS).await;
            let what = || format!("the clock is {ahead} s ahead");
            all_are_well(&handle).await.with_context(what)?;
            let status = handle.status().await?;
            is_sane(&status).with_context(what)?;
            ensure!(status.endpoints == endpoints, "{}: {} are published", what(), status.endpoints);
            ensure!(status.last_remediation.is_none(), "{}: {:?}", what(), status.last_remediation);
            ensure!(handle.etcd_machines().await? == machines, "{}: {:?}", what(), handle.etcd_machines().await?);
            let etcd = handle.membership(&bed.machines, &machines).await?;
            ensure!(etcd == before, "{}: etcd was {before:?}, and is {etcd:?}", what());
        }
        deleted(bed, &handle, mark, &[])?;
    }
    bed.fault("the manager's clock goes to a time after the certificates", &[], Silence::Lasting);
    a_year_ahead(&clock, &[&handle], STAYS).await?;
    comes_to_rest(bed, &handle, &before.cluster_id).await?;
    load.judged().await?;
    the_right_one(bed).await
}

/// Sets the clock more than a year ahead for a while, and prints the Machines and conditions at the end of this time.
async fn a_year_ahead(clock: &Clock, handles: &[&ClusterHandle], stays: Duration) -> Result<()> {
    clock.jump(YEAR)?;
    tokio::time::sleep(stays).await;
    for handle in handles {
        let (status, machines) = try_join!(handle.status(), handle.etcd_machines())?;
        println!("  {}: a year ahead there are {machines:?}", handle.namespace);
        for condition in status.conditions.iter().filter(|condition| !condition.message.is_empty()) {
            println!("    {} is {} {}: {}", condition.type_, condition.status, condition.reason, condition.message);
        }
        is_sane(&status).context("a year ahead")?;
    }
    clock.jump(0)
}

/// Checks that, by the right clock, three members are healthy, the cluster ID is still the same, and no Machine is
/// replaced any more.
async fn comes_to_rest(bed: &Bed, handle: &ClusterHandle, cluster_id: &str) -> Result<()> {
    are_well(bed, handle, 3).await?;
    all_are_well(handle).await?;
    let machines = are_well(bed, handle, 3).await?;
    only_theirs(bed, handle, &machines).await?;
    let mark = bed.plane.mark();
    tokio::time::sleep(STAYS).await;
    ensure!(handle.etcd_machines().await? == machines, "the Machines were {machines:?}, and others are there");
    deleted(bed, handle, mark, &[])?;
    let etcd = handle.membership(&bed.machines, &machines).await?;
    ensure!(etcd.cluster_id == cluster_id, "it is another cluster: {etcd:?}");
    is_sane(&handle.status().await?)
}

/// Checks what has to hold whatever the clock says: each condition has a reason, endpoints are published, and there are
/// members.
fn is_sane(status: &EtcdClusterStatus) -> Result<()> {
    let unexplained = status.conditions.iter().find(|condition| condition.reason.is_empty());
    ensure!(unexplained.is_none(), "{unexplained:?}");
    ensure!(!status.conditions.is_empty() && !status.members.is_empty(), "{status:?}");
    ensure!(!status.endpoints.is_empty() && status.initialized, "{status:?}");
    Ok(())
}

/// Restarts the manager with a clock that can be set.
async fn of_the_manager(bed: &mut Bed) -> Result<Clock> {
    let clock = Clock::right(bed.world())?;
    bed.kill_manager(0).await?;
    bed.start_manager_with_clock(0, &clock).await?;
    Ok(clock)
}

/// Restarts the manager with the computer's clock. The manager ends in good order, so that the clock's library tidies
/// up.
async fn the_right_one(bed: &mut Bed) -> Result<()> {
    bed.end_manager(0).await?;
    bed.start_manager(0).await
}
