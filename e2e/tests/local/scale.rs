//! More members for a cluster that is in use: its control plane is told of them once, when all are there.

use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result, bail, ensure};
use api::etcd_cluster::{EtcdClusterStatus, MemberRole};
use e2e::bed::{Bed, ClusterHandle, Manifests, States};
use e2e::history::{self as load, Load, MemberData};
use e2e::plane::{Requests, users};
use e2e::until::until;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

/// The load meanwhile: lighter than elsewhere, because machines boot beside it.
pub(crate) const LOAD: Load =
    Load { seed: None, clients: 2, keys: 8, rest: Duration::from_millis(50), keep_endpoints: true };
/// etcd's `max-learners` in these clusters.
const MAX_LEARNERS: usize = 3;
/// How long the new members are written to.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// From one member to three. The manager is killed once, while the second one joins.
pub(crate) async fn one_to_three(bed: &mut Bed) -> Result<()> {
    grows(bed, "one-to-three", 1, 3, true).await
}

/// From three members to five.
pub(crate) async fn three_to_five(bed: &mut Bed) -> Result<()> {
    grows(bed, "three-to-five", 3, 5, false).await
}

async fn grows(bed: &mut Bed, namespace: &str, before: usize, after: usize, killed: bool) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manifests = Manifests::new(namespace, "demo")?.replicas(i64::try_from(before)?);
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    let old = handle.until_ready(PATIENCE).await?.endpoints;
    released(&handle).await?;

    let mark = bed.plane.mark();
    let writers = load::History::begin(bed.world(), namespace, &handle.etcd_access().await?, LOAD).await?;
    let etcds = States::of(handle.etcds(), &handle.etcd).await?;
    let clusters = States::of(handle.api("Cluster"), &handle.cluster).await?;
    let patch = Patch::Merge(json!({"spec": {"replicas": after}}));
    handle.etcds().patch(&handle.etcd, &PatchParams::default(), &patch).await?;
    if killed {
        until("the next member joins", PATIENCE, async || {
            Ok((handle.status().await?.members.len() > before).then_some(()))
        })
        .await?;
        bed.kill_and_restart_manager(0).await?;
    }
    let new = until(format!("{after} members are ready"), PATIENCE, async || {
        let status = handle.status().await?;
        ensure!(status.ready && status.members.len() == after, "{:?}", status.conditions);
        Ok(Some(status.endpoints))
    })
    .await?;
    until("the control plane has the endpoint of every member", PATIENCE, async || {
        let published = handle.control_plane_endpoints().await?;
        ensure!(published.join(",") == new, "it has {published:?}");
        Ok(Some(()))
    })
    .await?;

    writers.endpoints(new.split(',').map(str::to_owned).collect());
    tokio::time::sleep(AFTERWARDS).await;
    is_kept(bed, &handle, &writers.end().await?, after)?;
    for status in etcds.stop().await?.into_iter().filter_map(|etcd| etcd.status) {
        in_order(&status, &old, before, after).with_context(|| format!("a status on the way: {status:?}"))?;
    }
    for cluster in clusters.stop().await? {
        is_no_alarm(&cluster)?;
    }
    ensure!(!handle.control_plane_is_paused().await?, "the control plane was paused again");
    told_once(&handle, &bed.plane.requests_since(mark)?, &new, before, after)?;
    bed.exactly(&[(&handle, after)]).await
}

/// Checks that every write was acknowledged, and that none was lost.
fn is_kept(bed: &Bed, handle: &ClusterHandle, record: &load::Record, members: usize) -> Result<()> {
    let figures = record.figures();
    println!("  {}: {figures}", handle.namespace);
    ensure!(figures.failed + figures.unknown == 0, "{figures}");
    println!("  {}: {}", handle.namespace, record.judge(&data_of(bed, handle, &handle.member_names(members))?)?);
    Ok(())
}

/// The data of members, for the judge.
pub(crate) fn data_of(bed: &Bed, handle: &ClusterHandle, names: &[String]) -> Result<Vec<MemberData>> {
    let data = |name: &String| {
        let data = bed.machines.get(&handle.namespace, name)?.etcd_data();
        anyhow::Ok(MemberData { name: name.clone(), data })
    };
    names.iter().map(data).collect()
}

/// Checks a status on the way: it has all old endpoints, no learner's, no more learners than etcd accepts, and, while
/// it is Ready, all or none of the new endpoints. etcd is Available.
fn in_order(status: &EtcdClusterStatus, old: &str, before: usize, after: usize) -> Result<()> {
    let endpoints: Vec<&str> = status.endpoints.split(',').collect();
    ensure!(old.split(',').all(|url| endpoints.contains(&url)), "an old endpoint has gone");
    let learners: Vec<_> = status.members.iter().filter(|member| member.role == MemberRole::Learner).collect();
    ensure!(learners.len() <= MAX_LEARNERS, "{} learners", learners.len());
    let published = learners.iter().find(|learner| endpoints.contains(&learner.client_url.as_str()));
    ensure!(published.is_none(), "a learner is published");
    ensure!(!status.ready || [before, after].contains(&endpoints.len()), "ready with {} endpoints", endpoints.len());
    let available = status.conditions.iter().find(|condition| condition.type_ == "Available");
    ensure!(available.is_some_and(|condition| condition.status == "True"), "not available");
    Ok(())
}

/// Checks that the Cluster never doubts its etcd: growth is not a reason to doubt the endpoints that the control
/// plane has.
fn is_no_alarm(cluster: &DynamicObject) -> Result<()> {
    let conditions = cluster.data.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == "ManagedExternalEtcdReady");
    let found = found.context("the Cluster says nothing of etcd")?;
    ensure!(found["status"] == "True", "the Cluster said {found}");
    Ok(())
}

/// Checks by the API server's audit log that each Machine was admitted once, and then got its bootstrap data once.
/// Apart from that, only the voters' addresses were written into the init Secret, at most once for each new voter.
/// The control plane's endpoints were written once.
fn told_once(handle: &ClusterHandle, requests: &Requests, new: &str, before: usize, after: usize) -> Result<()> {
    let ours = requests.user(users::PROVIDER).done_in(&handle.namespace);
    let init = api::names::init_secret(&handle.cluster);
    let names = handle.member_names(after);
    let secrets = ours.writes().resource("secrets");
    let relevant = secrets.filter(|r| names.contains(&r.name) || r.name == init);
    let found: Vec<(&str, &str)> = relevant.iter().map(|r| (r.verb.as_str(), r.name.as_str())).collect();
    let mut left: Vec<&str> = names[before..].iter().map(String::as_str).collect();
    let mut told = 0;
    for (verb, name) in &found {
        match *verb {
            "patch" if *name == init => told += 1,
            "create" => {
                let seat = left.iter().position(|left| left == name);
                left.remove(seat.with_context(|| format!("{name} has got data twice: {found:?}"))?);
                let served = after - before - left.len();
                ensure!(told >= served, "{served} have data, and {told} were admitted: {found:?}");
            }
            other => bail!("{other} of {name}: {found:?}"),
        }
    }
    ensure!(left.is_empty(), "{left:?} have no data: {found:?}");
    let new_voters = after - before;
    ensure!(
        (new_voters + 1..=2 * new_voters).contains(&told),
        "the init Secret was written {told} times for {new_voters} new voters: {found:?}"
    );

    let path = "/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external/endpoints";
    let patches = ours.verb("patch").resource("kubeadmcontrolplanes");
    let written: Vec<String> = patches
        .iter()
        .filter_map(|patch| patch.body.pointer(path)?.as_array())
        .map(|urls| urls.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","))
        .collect();
    ensure!(written == [new], "endpoints were written {} times: {written:?}", written.len());
    Ok(())
}
