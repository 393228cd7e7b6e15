//! The manager beside many clusters of three simulated members. Every cluster comes up, and its members are probed as
//! always.

use super::crowd::processor_time;
use super::linear::{Point, Used};
use super::process::mebibytes;
use super::table::Table;
use super::{deaths, linear};
use crate::bed::{Bed, ClusterHandle, Manifests, first_address};
use crate::plane::users::PROVIDER;
use crate::until::until;
use crate::world::World;
use anyhow::{Context, Result, ensure};
use api::EtcdCluster;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How many clusters share a namespace, as a team's do.
const IN_A_NAMESPACE: usize = 50;
/// How many clusters' documents are applied side by side.
pub(super) const AT_ONCE: usize = 16;
/// How long the clusters may take to come up: a time for all of them, plus a time for each.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(5));
/// Time between two checks of all clusters, for each of them. Reading many clusters takes processor time that what is
/// measured needs.
const LOOKS: Duration = Duration::from_millis(10);
/// How long everything may settle before a measurement.
pub(super) const SETTLES: Duration = Duration::from_secs(30);
/// How long a measurement takes.
const MEASURED: Duration = Duration::from_secs(60);
/// After how many seconds of failing checks a member is replaced: so many that no frozen member is, while the manager is
/// measured.
pub(super) const PATIENT: i64 = 600;
/// One of this many members is frozen.
const FROZEN: usize = 100;
/// With this many clusters, the manager should use no more than one processor and this much memory.
const LARGE: usize = 2000;
const GOALS: (&str, &str) = ("≤ 1000 ms", "≤ 300 MiB");

/// Measures the manager with each of these numbers of clusters, from the smallest to the largest, and prints a table.
/// It is one manager, and the clusters there are stay, as clusters take longer to come up than to be measured.
///
/// # Errors
/// If the clusters do not come up.
pub async fn clusters(world: &World, numbers: &[usize]) -> Result<()> {
    let numbers: BTreeSet<usize> = numbers.iter().copied().collect();
    let (mut table, mut points, mut there) = (Table::default(), Vec::new(), 0);
    let mut bed = Bed::simulated(&world.with_logs("clusters")?).await?;
    for number in numbers {
        let measured = measure(&mut bed, there..number, &mut table).await;
        points.push(measured.with_context(|| format!("{number} clusters"))?);
        let deaths = deaths::measure(&bed, number, &mut table).await;
        // Larger numbers take long. If the program ends before then, there is this.
        eprint!("{table}");
        deaths.with_context(|| format!("deaths in {number} clusters"))?;
        there = number;
    }
    linear::rows(&points, &mut table);
    print!("{table}");
    Ok(())
}

/// Makes these clusters, and measures the manager with all that there are then: the last of them, and those before.
async fn measure(bed: &mut Bed, further: Range<usize>, table: &mut Table) -> Result<Point> {
    let (client, number, added) = (bed.client(), further.end, further.len());
    for first in further.clone().filter(|number| number % IN_A_NAMESPACE == 0) {
        ClusterHandle::make_namespace(&client, &namespace(first)).await?;
    }
    let (mark, begun) = (bed.plane.mark(), Instant::now());
    let apply = stream::iter(further).map(async |number| cluster(number)?.apply(&client).await);
    apply.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    until_all_are_ready(bed, number).await?;
    let took = begun.elapsed().as_secs_f64();
    let requests = bed.plane.requests_since(mark)?.user(PROVIDER).len();
    eprintln!("{number} clusters are ready after {took:.0} s");
    let mut row = |what: &str, figure: String, goal: &str| {
        let goal = if number == LARGE { goal } else { "" };
        table.row(&format!("{number} clusters of three: {what}"), figure, goal, "");
    };
    row(&format!("apply → all Ready, of the last {added}"), format!("{took:.0} s"), "");
    row("API requests of ours until then, for each of those", format!("{:.0}", ratio(requests, added)), "");

    tokio::time::sleep(SETTLES).await;
    let idle = Figures::of(bed).await?;
    let frozen = freeze(bed).await?;
    let failing = Figures::of(bed).await?;
    let share = format!("{} of {} members frozen", frozen.len(), number * 3);
    for (when, figures) in [("idle", &idle), (share.as_str(), &failing)] {
        row(&format!("{when}: processor time in a second"), format!("{:.1} ms", figures.processor), GOALS.0);
        row(&format!("{when}: API requests in a minute, beside watches"), figures.requests.to_string(), "");
        row(&format!("{when}: renewed watches in a minute"), figures.watches.to_string(), "");
        row(&format!("{when}: memory (resident)"), format!("{:.1} MiB", figures.memory), GOALS.1);
    }
    for address in frozen {
        bed.frozen().context("machines are simulated")?.thaw(address)?;
    }
    // A run of failing checks ends with the first check that succeeds.
    tokio::time::sleep(SETTLES).await;
    until_all_are_ready(bed, number).await?;
    let used = |figures: &Figures| Used { processor: figures.processor, memory: figures.memory };
    let failing = (number * 3 >= FROZEN).then(|| used(&failing));
    Ok(Point { clusters: number, idle: used(&idle), failing })
}

/// What the manager uses.
struct Figures {
    /// Milliseconds of processor time in a second.
    processor: f64,
    requests: usize,
    watches: usize,
    /// MiB.
    memory: f64,
}

impl Figures {
    /// What the manager uses during the next minute.
    async fn of(bed: &mut Bed) -> Result<Self> {
        let (mark, before, begun) = (bed.plane.mark(), processor_time(bed)?, Instant::now());
        tokio::time::sleep(MEASURED).await;
        let (used, took) = (processor_time(bed)? - before, begun.elapsed());
        let requests = bed.plane.requests_since(mark)?.user(PROVIDER);
        let others = requests.filter(|request| request.verb != "watch");
        if !others.is_empty() {
            eprintln!("requests in a minute:\n{others}");
        }
        let pid = bed.manager(0)?.pid().context("the manager has ended")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).context("read the manager's memory")?;
        Ok(Self {
            processor: used.as_secs_f64() * 1e3 / took.as_secs_f64(),
            requests: others.len(),
            watches: requests.len() - others.len(),
            memory: mebibytes(&status, "VmRSS:")?,
        })
    }
}

/// Freezes one of [`FROZEN`] members, and at least one. Returns their addresses.
async fn freeze(bed: &Bed) -> Result<Vec<Ipv4Addr>> {
    let frozen = bed.frozen().context("machines are simulated")?;
    let machines =
        ClusterHandle::anywhere(&bed.client()).everywhere("LocalMachine").list(&ListParams::default()).await?;
    let mut addresses = Vec::new();
    for machine in machines.items.iter().step_by(FROZEN) {
        let address: Ipv4Addr = first_address(machine).context("no address")?.parse()?;
        frozen.freeze(address)?;
        addresses.push(address);
    }
    Ok(addresses)
}

/// Waits until this many clusters are ready, and there are no others.
pub(super) async fn until_all_are_ready(bed: &Bed, number: usize) -> Result<()> {
    let etcds: Api<EtcdCluster> = Api::all(bed.client());
    let each = u32::try_from(number)?;
    until(format!("{number} clusters are ready"), PATIENCE.0 + PATIENCE.1 * each, async || {
        tokio::time::sleep(LOOKS * each).await;
        let all = etcds.list(&ListParams::default()).await?.items;
        let ready = all.iter().filter(|etcd| etcd.status.as_ref().is_some_and(|status| status.ready)).count();
        ensure!(ready == number, "{ready} of {} are", all.len());
        Ok(Some(()))
    })
    .await
}

fn namespace(number: usize) -> String {
    format!("team-{}", number / IN_A_NAMESPACE)
}

/// A cluster of three members without a control plane.
fn cluster(number: usize) -> Result<Manifests> {
    let manifests = Manifests::new(&namespace(number), &format!("c{number}"))?.with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"unhealthyAfterSeconds": PATIENT});
    });
    Ok(manifests.without_control_plane())
}

#[expect(clippy::cast_precision_loss, reason = "shown without digits")]
fn ratio(all: usize, each: usize) -> f64 {
    all as f64 / each as f64
}
