//! Our own processes are killed while clusters come up, at random moments: nothing is lost, and nothing is made twice.
//! [`crate::places`] kills our manager at every write.

use crate::account::changed_machines;
use crate::bring_up::{PATIENCE, released};
use crate::departures::{only_theirs, replaced};
use crate::ill::{IMPATIENT, checked};
use crate::load::LowLoad;
use crate::repair;
use crate::rolls::{FOLLOWERS, another_spec, changed, nothing_is_lost, rolled};
use crate::shrinks::{alone, shrinks_to};
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::history::History;
use e2e::observer::writes;
use e2e::plane::{Mark, users};
use e2e::scenarios::{is_full, seed};
use futures::future::try_join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// How many kills there are in all, and how many with `E2E_FULL` set.
const KILLS: (usize, usize) = (30, 200);
/// How many kills there are before a pair of clusters comes up undisturbed, so that the next kills hit the beginning
/// again.
const KILLS_A_WAVE: usize = 15;
/// Milliseconds between two kills. A manager needs a third of a second for its first step, so some of its lives have
/// none.
const LIFETIMES: std::ops::Range<u64> = 50..1800;
/// The fewest kills of the machines' controllers while machines are made.
const LEAST_KILLS: usize = 2;
/// Machines of etcd in two clusters.
const MACHINES: usize = 6;

/// Our manager is killed again and again, at random moments on the way to three members, and is started again
/// immediately. Each time, its last write is printed.
pub(crate) async fn manager_at_random_points(bed: &mut Bed) -> Result<()> {
    let kills = if is_full() { KILLS.1 } else { KILLS.0 };
    let seed = seed()?;
    println!("kills::manager_at_random_points: E2E_SEED={seed} repeats these moments");
    let mut random = StdRng::seed_from_u64(seed);
    let mut done = 0;
    let mut wave = 0;
    while done < kills {
        wave += 1;
        let wanted = KILLS_A_WAVE.min(kills - done);
        let killed = a_wave(bed, wave, wanted, &mut random).await;
        done += killed.with_context(|| format!("wave {wave} after {done} kills, E2E_SEED={seed}"))?;
    }
    println!("kills::manager_at_random_points: {done} kills in {wave} waves");
    Ok(())
}

/// Two clusters come up while the manager is killed up to `most` times. Returns how often it was killed.
async fn a_wave(bed: &mut Bed, wave: usize, most: usize, random: &mut StdRng) -> Result<usize> {
    let looks = two_clusters(bed, &format!("kills-{wave}")).await?;
    let before = bed.plane.mark();
    let mut loads = [None, None];
    let mut killed = 0;
    let mut life = before;
    while killed < most {
        tokio::time::sleep(Duration::from_millis(random.random_range(LIFETIMES))).await;
        if all_released(&looks).await? {
            break;
        }
        // Without `E2E_FULL`, there is no time to spare.
        if is_full() {
            are_written_to(bed, &looks, &mut loads).await?;
        }
        let last = last_write(bed, life)?;
        life = bed.plane.mark();
        bed.kill_and_restart_manager(0).await?;
        killed += 1;
        println!("  kill {killed} of wave {wave}, after {last}");
    }
    come_up(bed, &looks, before).await?;
    for load in loads.into_iter().flatten() {
        load.judged_of(bed, 3).await?;
    }
    ensure!(killed > 0, "the clusters were up before the first kill");
    // These clusters go while the next wave comes up, so that its kills also hit the middle of a deletion.
    for handle in &looks {
        handle.delete("Cluster", &handle.cluster).await?;
    }
    Ok(killed)
}

/// The manager's last write since it was started, according to the audit log. The kill comes after this write.
fn last_write(bed: &Bed, life: Mark) -> Result<String> {
    let ours = bed.plane.requests_since(life)?.user(users::PROVIDER);
    let last = writes(&ours).into_iter().next_back();
    Ok(last.map_or_else(|| "no write".to_owned(), |write| format!("{}: {}", write.deed(), write.code)))
}

/// Begins to write to the clusters that have an etcd by now.
async fn are_written_to(bed: &Bed, looks: &[ClusterHandle; 2], loads: &mut [Option<LowLoad>; 2]) -> Result<()> {
    for (handle, load) in looks.iter().zip(loads) {
        if load.is_none() {
            *load = LowLoad::begin_if_possible(bed, handle).await?;
        }
    }
    Ok(())
}

/// Two managers that know nothing of each other work on the same clusters, as they do for a moment when a lease is
/// lost.
pub(crate) async fn two_managers_at_once(bed: &mut Bed) -> Result<()> {
    bed.start_manager(1).await?;
    let before = bed.plane.mark();
    let looks = two_clusters(bed, "twins").await?;
    come_up_in_use(bed, &looks, before).await?;
    let requests = bed.plane.requests_since(before)?.user(users::PROVIDER).writes();
    // Without a refused write, the second manager was idle, and the scenario has shown nothing. A refused UpToDate does
    // not count, because Cluster API changes Machines too.
    let refused = requests.filter(|request| {
        let is_up_to_date = request.resource == "machines" && request.subresource == "status";
        request.code == 409 && !is_up_to_date
    });
    ensure!(!refused.is_empty(), "the two never met:\n{requests}");
    bed.kill_manager(1).await
}

/// Two managers that know nothing of each other replace a dead member, roll out another spec, and scale down. Nothing
/// is done twice.
pub(crate) async fn two_managers_through_changes(bed: &mut Bed) -> Result<()> {
    bed.start_manager(1).await?;
    let handle = alone(bed, checked(Manifests::new("twins-changes", "demo")?, IMPATIENT)).await?;
    let writers =
        History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
    let mut mark = bed.plane.mark();
    let begun = mark;
    let mut members = handle.status().await?.members.into_iter();
    let dead = members.find(|member| !member.leader).context("there is no follower")?.machine;
    repair::dies(bed, &handle, &dead).await?;
    let old = replaced(bed, &handle, &dead).await?;
    only_theirs(bed, &handle, &old).await?;
    changed_machines(bed, &handle, mark, &[dead], 1).context("the dead member")?;

    mark = bed.plane.mark();
    changed(&handle, &another_spec()).await?;
    let new = rolled(bed, &handle, &old, &writers).await?;
    changed_machines(bed, &handle, mark, &old, new.len()).context("the rollout")?;

    mark = bed.plane.mark();
    shrinks_to(bed, &handle, 1, false, &writers).await?;
    let left = handle.etcd_machines().await?;
    let gone: Vec<String> = new.into_iter().filter(|name| !left.contains(name)).collect();
    changed_machines(bed, &handle, mark, &gone, 0).context("the scale-down")?;

    let refused = bed.plane.requests_since(begun)?.user(users::PROVIDER).writes();
    let refused = refused.filter(|request| request.namespace == handle.namespace && request.code == 409);
    println!("  {} writes were refused, because the other manager was faster", refused.len());
    ensure!(!refused.is_empty(), "the two never met");
    let figures = nothing_is_lost(&handle, writers, &[]).await?;
    ensure!(figures.failed_twice == 0, "{figures}");
    bed.kill_manager(1).await
}

/// The machines' controllers are killed as soon as a part of a new machine is on the disk: at least twice, and until a
/// machine was half made at that moment. Half made means that its LocalMachine does not have its ID yet, which comes
/// last. The machine is the same afterwards.
pub(crate) async fn local_infrastructure(bed: &mut Bed) -> Result<()> {
    let before = bed.plane.mark();
    let looks = two_clusters(bed, "infrastructure").await?;
    let machines = bed.world().state("machines")?.join("machines").join(&looks[0].namespace);
    let (mut seen, mut half_made, mut kills) = (BTreeSet::new(), Vec::new(), 0);
    while kills < LEAST_KILLS || half_made.is_empty() {
        ensure!(seen.len() < MACHINES, "each machine was whole when its controllers died: nothing is shown");
        let found = until_there_are_more(&machines, seen.len()).await?;
        bed.local_infrastructure().kill().await?;
        kills += 1;
        for name in found.difference(&seen) {
            let machine = looks[0].api("LocalMachine").get(name).await?;
            if machine.data.pointer("/spec/providerID").is_none() {
                half_made.push(name.clone());
            }
        }
        seen = found;
        bed.local_infrastructure().restart().await?;
    }
    println!("kills::local_infrastructure: {kills} kills, half made were {}", half_made.join(", "));
    come_up_in_use(bed, &looks, before).await
}

/// Waits until the directory of a namespace has more machines than this, and returns their names. It polls every
/// millisecond, because making a machine takes some hundredths of a second.
async fn until_there_are_more(machines: &Path, than: usize) -> Result<BTreeSet<String>> {
    let begun = Instant::now();
    loop {
        // There is no such directory before the first machine.
        let entries = std::fs::read_dir(machines).into_iter().flatten().filter_map(Result::ok);
        let names: BTreeSet<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        if names.len() > than {
            return Ok(names);
        }
        ensure!(begun.elapsed() < PATIENCE, "there are no machines but {names:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn two_clusters(bed: &Bed, namespace: &str) -> Result<[ClusterHandle; 2]> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manifests = [Manifests::new(namespace, "one")?, Manifests::new(namespace, "other")?];
    try_join_all(manifests.iter().map(|manifests| manifests.apply(&client))).await?;
    Ok(manifests.each_ref().map(|manifests| ClusterHandle::new(&client, manifests)))
}

async fn all_released(looks: &[ClusterHandle]) -> Result<bool> {
    for handle in looks {
        if handle.control_plane_machines().await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits until the clusters have come up. With `E2E_FULL`, clients write to each from its first member on.
async fn come_up_in_use(bed: &Bed, looks: &[ClusterHandle; 2], before: Mark) -> Result<()> {
    if !is_full() {
        return come_up(bed, looks, before).await;
    }
    let loads = try_join_all(looks.iter().map(|handle| LowLoad::begin_early(bed, handle))).await?;
    come_up(bed, looks, before).await?;
    try_join_all(loads.into_iter().map(|load| load.judged_of(bed, 3))).await.map(drop)
}

/// Checks that the clusters come up as if nothing had happened: they have exactly what belongs to them, and, according
/// to the audit log, never had more.
async fn come_up(bed: &Bed, looks: &[ClusterHandle; 2], before: Mark) -> Result<()> {
    try_join_all(looks.iter().map(|handle| handle.until_ready(PATIENCE))).await?;
    try_join_all(looks.iter().map(released)).await?;
    bed.exactly(&[(&looks[0], 3), (&looks[1], 3)]).await?;
    made_once(bed, &looks[0].namespace, before)
}

/// Members of three that have bootstrap data, sorted. All Machines are made at the same time, and then wait for
/// bootstrap data.
pub(crate) async fn admitted(handle: &ClusterHandle) -> Result<Vec<String>> {
    let members = handle.member_names(3);
    Ok(handle.secret_names().await?.into_iter().filter(|name| members.contains(name)).collect())
}

/// Checks in the audit log that everything that our manager made in this namespace was made once, and that it deleted
/// nothing.
pub(crate) fn made_once(bed: &Bed, namespace: &str, before: Mark) -> Result<()> {
    let requests = bed.plane.requests_since(before)?.user(users::PROVIDER);
    let ours = requests.writes().filter(|request| request.namespace == namespace && request.group != "events.k8s.io");
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for request in ours.filter(|request| request.code == 201).iter() {
        *made.entry(format!("{} {}", request.resource, request.name)).or_default() += 1;
    }
    let twice: Vec<_> = made.iter().filter(|(_, count)| **count > 1).collect();
    ensure!(twice.is_empty(), "made more than once: {twice:?}");
    let deleted = ours.filter(|request| request.verb.starts_with("delete"));
    let deleted: Vec<_> = deleted.iter().map(|request| (&request.resource, &request.name, request.code)).collect();
    ensure!(deleted.is_empty(), "deleted: {deleted:?}");
    Ok(())
}
