//! A rollout of three members: ours, and the same steps with etcdctl. Also what a control plane notices of ours.

use super::bare::{Bare, Pace};
use super::{PATIENCE, table::Table};
use crate::bed::{Bed, ClusterHandle, ControlPlaneStub, Manifests, Seen, States};
use crate::history::objects::{ObjectLoad, ObjectWriters};
use crate::history::{Figures, History, Load};
use crate::plane::Mark;
use crate::plane::users::PROVIDER;
use crate::until::until;
use anyhow::{Result, ensure};
use api::EtcdCluster;
use api::etcd_cluster::{EtcdClusterStatus, MemberRole, MemberStatus};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Clients that follow the published endpoints, as many as in scenarios.
const LOAD: Load = Load { seed: None, clients: 2, keys: 8, rest: Duration::from_millis(50), keep_endpoints: false };
/// Clients of the API servers.
const OBJECTS: ObjectLoad = ObjectLoad { writers: 2, rest: Duration::from_millis(50) };
/// API servers of the control plane.
const SERVERS: usize = 3;

/// Measures `rounds` rollouts of each kind in turns. Of their times the median counts, and of all else the worst.
pub(super) async fn measure(bed: &Bed, rounds: usize, table: &mut Table) -> Result<()> {
    let (mut rolled, mut replaced, mut doubled) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        rolled.push(alone(bed, &format!("rollout-{round}")).await?);
        replaced.push(by_hand(bed, &format!("rollout-bare-{round}"), Steps::Replace).await?);
        doubled.push(by_hand(bed, &format!("rollout-double-{round}"), Steps::Double).await?);
        eprintln!(
            "rollout {}: ours {:.1} s, with etcdctl {:.1} s, all new members first {:.1} s",
            round + 1,
            rolled[round].took.as_secs_f64(),
            replaced[round].as_secs_f64(),
            doubled[round].as_secs_f64()
        );
    }
    let times = rolled.iter().map(|rolled| rolled.took).collect();
    let ours = super::median(times).as_secs_f64();
    table.row("rollout of three, nobody else uses etcd", format!("{ours:.1} s"), "", "218 s on docker");
    let steps =
        [("the same steps with etcdctl", replaced, "≤ 1.3"), ("all three join first, with etcdctl", doubled, "")];
    for (what, times, goal) in steps {
        let bare = super::median(times).as_secs_f64();
        table.row(what, format!("{bare:.1} s"), "", "");
        table.row("  ratio", format!("{:.2}", ours / bare), goal, "");
    }
    let worst = |figure: fn(&Alone) -> usize| rolled.iter().map(figure).max().unwrap_or_default().to_string();
    noticed(rolled.iter().map(|rolled| &rolled.figures), table);
    table.row("  changes of the leader", worst(|rolled| rolled.leaders), "1", "");
    table.row("  API requests of ours", worst(|rolled| rolled.requests), "≤ 200", "785");
    let used = beside_a_control_plane(bed, "rollout-used").await?;
    let what = "rollout of three, and of a control plane of three API servers";
    table.row(what, format!("{:.1} s", used.took.as_secs_f64()), "", "218 s on docker");
    table.row("  API requests of ours", used.requests.to_string(), "≤ 200", "785");
    table.row("  changes of the leader", used.leaders.to_string(), "1", "");
    table.row("  peak of voters", used.voters.to_string(), "6", "6");
    table.row("  endpoints in use that no voter served, at most", used.dead.to_string(), "0", "");
    noticed([&used.figures], table);
    Ok(())
}

/// Adds what clients noticed in the worst of some rollouts.
fn noticed<'a>(figures: impl IntoIterator<Item = &'a Figures>, table: &mut Table) {
    let (mut once, mut twice, mut stall) = (0, 0, Duration::ZERO);
    for Figures { failed, unknown, failed_twice, longest_stall, .. } in figures {
        once = once.max(failed + unknown);
        twice = twice.max(*failed_twice);
        stall = stall.max(*longest_stall);
    }
    table.row("  failed writes of clients that try once", once.to_string(), "", "1–2");
    table.row("  failed writes of clients that try once more", twice.to_string(), "0", "");
    table.row("  longest stall", format!("{:.2} s", stall.as_secs_f64()), "≤ 1.5 s", "");
}

/// A rollout whose only clients follow the published endpoints.
struct Alone {
    took: Duration,
    figures: Figures,
    leaders: usize,
    requests: usize,
}

async fn alone(bed: &Bed, namespace: &str) -> Result<Alone> {
    let handle = applied(bed, Manifests::new(namespace, "demo")?.without_control_plane()).await?;
    handle.until_ready(PATIENCE).await?;
    let old = handle.etcd_machines().await?;
    let writers = History::begin(bed.world(), namespace, &handle.staged_etcd_access().await?, LOAD).await?;
    let states = States::of(handle.etcds(), &handle.etcd).await?;
    let (mark, begun) = (bed.plane.mark(), Instant::now());
    roll(&handle).await?;
    until_rolled(&handle, &old, |status| {
        writers.endpoints(status.endpoints.split(',').map(str::to_owned).collect());
    })
    .await?;
    let took = begun.elapsed();
    let requests = asked(bed, mark)?;
    let leaders = leaders(&states.stop().await?);
    let figures = writers.end().await?.figures();
    super::remove(bed, &handle).await?;
    Ok(Alone { took, figures, leaders, requests })
}

/// How often another member led than before, asked for or not.
fn leaders(states: &[EtcdCluster]) -> usize {
    let statuses = states.iter().filter_map(|etcd| etcd.status.as_ref());
    let leading = statuses.filter_map(|status| status.members.iter().find(|member| member.leader));
    let mut leaders: Vec<&str> = leading.map(|member| member.name.as_str()).collect();
    leaders.dedup();
    leaders.len().saturating_sub(1)
}

/// In which order a person replaces three members.
#[derive(Clone, Copy)]
enum Steps {
    /// One after the other, as our controllers do if no API server uses etcd.
    Replace,
    /// All new members join before an old one leaves.
    Double,
}

/// Makes three machines by hand, one after the other, and replaces them by three others. Returns how long the
/// replacement takes. There are the same clients as in our rollout, because they decide how a member joins: from a
/// hundred entries on, etcd 3.6 and later send a new member a snapshot, and not the log (`memorySnapshotCount` in
/// `server/etcdserver/server.go`). Then `etcdadm join` may have to restart it.
async fn by_hand(bed: &Bed, namespace: &str, steps: Steps) -> Result<Duration> {
    let mut bare = Bare::new(bed, namespace, Pace::OneByOne)?;
    bare.joins().await?;
    let writers = History::begin(bed.world(), namespace, &bare.access().await?, LOAD).await?;
    let begun = Instant::now();
    match steps {
        Steps::Replace => bare.replaces(|endpoints| writers.endpoints(endpoints)).await?,
        Steps::Double => bare.doubles(|endpoints| writers.endpoints(endpoints)).await?,
    }
    let took = begun.elapsed();
    writers.end().await?;
    bare.destroy()?;
    Ok(took)
}

/// A rollout that API servers use. They are replaced when they get other endpoints.
struct Used {
    took: Duration,
    requests: usize,
    leaders: usize,
    voters: usize,
    /// Endpoints that an API server had and that no voter served.
    dead: usize,
    figures: Figures,
}

async fn beside_a_control_plane(bed: &Bed, namespace: &str) -> Result<Used> {
    let handle = applied(bed, Manifests::new(namespace, "demo")?.with_control_plane_stub(SERVERS)).await?;
    let stub = ControlPlaneStub::start(bed, &handle).await?;
    let status = handle.until_ready(PATIENCE).await?;
    stub.until_all_use(&status.endpoints, PATIENCE).await?;
    handle.until_cluster_condition("ManagedExternalEtcdReady", "True", "Ready", PATIENCE).await?;
    let old = handle.etcd_machines().await?;
    let writers = ObjectWriters::begin(&stub.kubeconfig, "kube-system", OBJECTS).await?;
    let states = States::of(handle.etcds(), &handle.etcd).await?;
    let (mark, begun) = (bed.plane.mark(), Instant::now());
    roll(&handle).await?;
    let mut dead = 0;
    until_rolled(&handle, &old, |status| {
        let urls = voters(status).map(|member| member.client_url.as_str()).collect();
        dead = dead.max(unserved(&stub.seen(), &urls));
    })
    .await?;
    let (took, requests) = (begun.elapsed(), asked(bed, mark)?);
    let states = states.stop().await?;
    let statuses = states.iter().filter_map(|etcd| etcd.status.as_ref());
    let most = statuses.map(|status| voters(status).count()).max().unwrap_or_default();
    let record = writers.end().await?;
    record.check()?;
    let (leaders, figures) = (leaders(&states), record.figures());
    let used = Used { took, requests, leaders, voters: most, dead, figures };
    super::remove(bed, &handle).await?;
    stub.until_gone(PATIENCE).await?;
    Ok(used)
}

fn voters(status: &EtcdClusterStatus) -> impl Iterator<Item = &MemberStatus> {
    status.members.iter().filter(|member| member.role == MemberRole::Voter)
}

/// How many endpoints no voter serves, of the API server with most of these.
fn unserved(seen: &Seen, voters: &BTreeSet<&str>) -> usize {
    let dead = |used: &Vec<String>| used.iter().filter(|url| !voters.contains(url.as_str())).count();
    seen.servers.iter().map(dead).max().unwrap_or_default()
}

async fn applied(bed: &Bed, manifests: Manifests) -> Result<ClusterHandle> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, &manifests.namespace).await?;
    manifests.apply(&client).await?;
    Ok(ClusterHandle::new(&client, &manifests))
}

/// Changes the template so that the machines are replaced.
async fn roll(handle: &ClusterHandle) -> Result<()> {
    let spec = Patch::Merge(json!({"spec": {"etcdadmConfigSpec": {"preEtcdadmCommands": ["true"]}}}));
    handle.etcds().patch(&handle.etcd, &PatchParams::default(), &spec).await?;
    Ok(())
}

/// Waits until three other members are there and the rollout is over. Passes every status on the way to `seen`.
async fn until_rolled(handle: &ClusterHandle, old: &[String], mut seen: impl FnMut(&EtcdClusterStatus)) -> Result<()> {
    until(format!("the members of {} are replaced", handle.namespace), PATIENCE * 2, async || {
        let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
        seen(&status);
        let left = machines.iter().any(|name| old.contains(name));
        ensure!(!left && machines.len() == old.len() && status.ready, "{machines:?}: {:?}", status.conditions);
        let is_done = status.operation.is_none() && status.removed_members.is_empty();
        ensure!(is_done && status.members.len() == old.len(), "{:?}", status.conditions);
        Ok(Some(()))
    })
    .await
}

/// Our requests since a mark, without renewed watches.
fn asked(bed: &Bed, mark: Mark) -> Result<usize> {
    let requests = bed.plane.requests_since(mark)?.user(PROVIDER).filter(|request| request.verb != "watch");
    eprintln!("requests of one rollout:\n{requests}");
    Ok(requests.len())
}
