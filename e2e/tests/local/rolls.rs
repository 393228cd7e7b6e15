//! The spec of a cluster that is in use changes: every Machine is replaced by one that matches.

mod forecast;

use crate::account::{deleted, made};
use crate::bring_up::{self, PATIENCE, released};
use crate::deletion::all_is_gone;
use crate::departures::only_theirs;
use crate::records::{Record, warnings};
use crate::scale::{LOAD, data_of};
use crate::shrinks::{alone, are_well};
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::{EtcdClusterStatus, OperationKind};
use e2e::bed::{Bed, ClusterHandle, Manifests, States};
use e2e::history::{self, Figures, History, Load, MemberData, Unanswered, each_is_explained};
use e2e::observer::interruptions;
use e2e::tools::Etcd;
use e2e::until::until;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long no write may be acknowledged: one move of leadership at most.
const STALL: Duration = Duration::from_millis(1_500);
/// How long the scenario goes on when the change is over or has to wait.
const AFTERWARDS: Duration = Duration::from_secs(3);
/// By how much the clocks of the manager and of the API server may differ: for so long after `rolloutAfter`, nothing
/// is done.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(10);
/// How long three members may take to be replaced one after the other.
pub(crate) const ROLLOUT: Duration = Duration::from_secs(300);

/// A load whose clients follow the published endpoints.
pub(crate) const FOLLOWERS: Load = Load { keep_endpoints: false, ..LOAD };

/// Only the load uses the endpoints: the members are replaced one after the other, and the manager is killed
/// meanwhile. The rollout is what the plugin has forecast.
pub(crate) async fn three_one_by_one(bed: &mut Bed) -> Result<()> {
    let handle = alone(bed, Manifests::new("rolls-three", "demo")?).await?;
    let old = handle.etcd_machines().await?;
    let writers =
        History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
    let foretold = forecast::foretold(bed, &handle, &another_spec()).await?;
    let states = States::of(handle.etcds(), &handle.etcd).await?;
    let mark = bed.plane.mark();
    changed(&handle, &another_spec()).await?;
    until("the first old member leaves", PATIENCE, async || Ok(handle.status().await?.operation.map(drop))).await?;
    bed.kill_and_restart_manager(0).await?;
    rolled(bed, &handle, &old, &writers).await?;
    // No member that is left has the log from its beginning.
    judged(bed, &handle, writers, &[], old.len()).await?;
    let mut moves = BTreeSet::new();
    for status in states.stop().await?.into_iter().filter_map(|etcd| etcd.status) {
        ensure!(status.members.len() <= 4, "there were {} members", status.members.len());
        served_by_members(&status)?;
        let moved = status.operation.filter(|operation| operation.kind == OperationKind::MoveLeader);
        moves.extend(moved.map(|operation| operation.member_id));
    }
    // The leader's Machine goes last, so leadership moves once.
    ensure!(moves.len() == 1, "leadership was moved away from {moves:?}");
    let done = forecast::done(bed, &handle, mark, old.len())?;
    ensure!(done == foretold && done.replaces(&old), "foretold was {foretold:?}, and done {done:?}");
    Ok(())
}

/// Only `rolloutAfter` changes, to the present time. Each Machine is replaced once, not before that time has passed
/// on any clock that may differ, and the new Machines stay.
pub(crate) async fn after_a_time(bed: &mut Bed) -> Result<()> {
    let handle = alone(bed, Manifests::new("rolls-after", "demo")?).await?;
    let old = handle.etcd_machines().await?;
    let writers =
        History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
    let mark = bed.plane.mark();
    // Times of objects are whole seconds.
    let after = Timestamp::from_second(now().as_second())?;
    changed(&handle, &json!({"rolloutAfter": after.to_string()})).await?;
    let new = rolled(bed, &handle, &old, &writers).await?;
    for name in &new {
        let created = handle.api("Machine").get(name).await?.creation_timestamp().context("it was never made")?.0;
        println!("  {}: {name} was made {} s after that", handle.namespace, created.as_second() - after.as_second());
        ensure!(created.duration_since(after) >= CLOCKS_DIFFER, "{name} was made at {created}, after {after}");
    }
    tokio::time::sleep(AFTERWARDS).await;
    ensure!(handle.etcd_machines().await? == new, "the Machines are {:?}", handle.etcd_machines().await?);
    deleted(bed, &handle, mark, &old)?;
    made(bed, &handle, mark, old.len())?;
    judged(bed, &handle, writers, &[], old.len()).await
}

/// From etcd 3.5 through two patch versions of 3.6 to 3.7, with a return to 3.5 and to 3.6 while versions are mixed. A
/// change of version that etcd cannot make in one step is refused.
pub(crate) async fn versions_under_load(bed: &mut Bed) -> Result<()> {
    let [first, earlier, second, third] = Etcd::ALL.map(Etcd::version);
    let (first, earlier, second, third) = (first?, earlier?, second?, third?);
    let manifests = Manifests::new("rolls-versions", "demo")?;
    let at_first = |etcd: &mut Value| etcd["spec"]["etcdadmConfigSpec"]["version"] = json!(first);
    let handle = alone(bed, manifests.with("EtcdCluster", at_first)).await?;
    let states = Record::of(&bed.client(), &handle.namespace).await?;
    let writers =
        History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;

    is_refused(&handle, &third, "at a time; go to 3.6.11 or later first").await?;
    let machines = goes_there_and_back(bed, &handle, (&second, &first), &writers).await?;
    let machines = goes_to(bed, &handle, &earlier, &machines, &writers).await?;
    is_refused(&handle, &third, ": go to 3.6.11 or later first").await?;
    goes_to(bed, &handle, &second, &machines, &writers).await?;
    is_refused(&handle, &first, "stay with 3.6").await?;
    let machines = goes_there_and_back(bed, &handle, (&third, &second), &writers).await?;
    goes_to(bed, &handle, &third, &machines, &writers).await?;

    hardly_noticed(bed, &handle, writers, states, &[]).await?;
    let told = warnings(&bed.client(), &handle.namespace).await?;
    ensure!(told.iter().all(|warning| warning.starts_with("UnsupportedVersionChange")), "the warnings are {told:#?}");
    Ok(())
}

fn version(version: &str) -> Value {
    json!({"etcdadmConfigSpec": {"version": version}})
}

/// Rolls out this version of etcd. Returns the names of the new Machines.
async fn goes_to(
    bed: &Bed,
    handle: &ClusterHandle,
    asked: &str,
    old: &[String],
    writers: &History,
) -> Result<Vec<String>> {
    changed(handle, &version(asked)).await?;
    let machines = rolled(bed, handle, old, writers).await?;
    let runs = handle.status().await?.version;
    ensure!(runs == asked, "it runs {runs}, and not {asked}");
    Ok(machines)
}

/// Rolls out another version of etcd until a member of it votes, and then goes back to the present one. Returns the
/// names of the Machines.
async fn goes_there_and_back(
    bed: &Bed,
    handle: &ClusterHandle,
    (there, back): (&str, &str),
    writers: &History,
) -> Result<Vec<String>> {
    changed(handle, &version(there)).await?;
    until(format!("a member of {there} votes"), ROLLOUT, async || {
        let status = handle.status().await?;
        follow(writers, &status);
        let new = status.members.iter().filter(|member| member.version == there && is_voter(member));
        Ok((new.count() > 0).then_some(()))
    })
    .await?;
    changed(handle, &version(back)).await?;
    until(format!("all are back at {back}"), ROLLOUT, async || {
        let status = handle.status().await?;
        follow(writers, &status);
        ensure!(up_to_date(&status)?.0 == "True", "{:?}", status.conditions);
        ensure!(status.members.iter().all(|member| member.version == back), "{:?}", status.members);
        Ok(Some(()))
    })
    .await?;
    let machines = are_well(bed, handle, 3).await?;
    follow(writers, &handle.status().await?);
    Ok(machines)
}

/// Asks for a version that the members cannot go to: a condition says which version they can have instead, and nothing
/// is done.
async fn is_refused(handle: &ClusterHandle, asked: &str, instead: &str) -> Result<()> {
    let machines = handle.etcd_machines().await?;
    changed(handle, &version(asked)).await?;
    until(format!("{asked} is refused"), PATIENCE, async || {
        let condition = up_to_date(&handle.status().await?)?;
        ensure!(condition.1 == "UnsupportedVersionChange" && condition.2.contains(instead), "{condition:?}");
        Ok(Some(()))
    })
    .await?;
    tokio::time::sleep(AFTERWARDS).await;
    ensure!(
        handle.etcd_machines().await? == machines && handle.status().await?.ready,
        "it did more than refuse {asked}"
    );
    Ok(())
}

/// A control plane uses the endpoints: three members become six, the control plane is told of the new ones once, and
/// the old ones stay until it has rolled out, which it never does here. No write fails. What we do is what the plugin
/// has forecast. Deleting the Cluster works as always.
pub(crate) async fn beside_a_control_plane(bed: &mut Bed) -> Result<()> {
    let handle = used(bed, Manifests::new("rolls-used", "demo")?).await?;
    let (old, before) = (handle.etcd_machines().await?, handle.status().await?.endpoints);
    let writers = History::begin(bed.world(), &handle.namespace, &handle.etcd_access().await?, LOAD).await?;
    let foretold = forecast::foretold(bed, &handle, &another_spec()).await?;
    let states = States::of(handle.etcds(), &handle.etcd).await?;
    let mark = bed.plane.mark();
    let after = told_next(&handle, &before, None).await?;
    ensure!(shared(&after, &before) == 0, "{after} has some of {before}");
    let waits = until("the old members wait", PATIENCE, async || {
        let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
        let deleting = status.conditions.iter().find(|c| c.type_ == "MachinesDeleting").context("no condition")?;
        ensure!(deleting.status == "True" && status.operation.is_none(), "{deleting:?}");
        ensure!(old.iter().all(|name| machines.contains(name)), "the Machines are {machines:?}");
        Ok(Some(deleting.message.clone()))
    })
    .await?;
    tokio::time::sleep(AFTERWARDS).await;
    let says_so = waits.contains("when the control plane has rolled out");
    ensure!(says_so, "the old members do not wait for the control plane: {waits}");
    ensure!(handle.etcd_machines().await?.len() == 6, "an old member has left");
    let done = forecast::done(bed, &handle, mark, old.len())?;
    ensure!(done == foretold && done.replaces(&old), "foretold was {foretold:?}, and done {done:?}");
    judged(bed, &handle, writers, &old, 0).await?;
    for status in states.stop().await?.into_iter().filter_map(|etcd| etcd.status) {
        ensure!([&before, &after].contains(&&status.endpoints), "these were published: {}", status.endpoints);
        ensure!(status.ready, "it was not ready: {:?}", status.conditions);
    }
    handle.delete("Cluster", &handle.cluster).await?;
    all_is_gone(bed, &handle).await
}

/// `maxSurge` 1: there is never more than one member beyond the wanted number.
pub(crate) async fn with_room_for_one(bed: &mut Bed) -> Result<()> {
    for status in in_little_room(bed, "rolls-narrow", 1).await? {
        ensure!(status.members.len() <= 4, "there were {} members", status.members.len());
    }
    Ok(())
}

/// `maxSurge` 0: a member leaves first, and then its replacement joins.
pub(crate) async fn without_room(bed: &mut Bed) -> Result<()> {
    let mut fewest = usize::MAX;
    for status in in_little_room(bed, "rolls-in-place", 0).await? {
        ensure!(status.members.len() <= 3, "there were {} members", status.members.len());
        fewest = fewest.min(status.members.iter().filter(|member| is_voter(member)).count());
    }
    ensure!(fewest == 2, "there were {fewest} voters at least");
    Ok(())
}

/// A rollout of three members with this `maxSurge`. When no other old member may leave, the control plane is told of
/// the members that there are. It never rolls out here, so nothing goes on until a person says that it may. Returns
/// every status on the way.
async fn in_little_room(bed: &mut Bed, namespace: &str, max_surge: usize) -> Result<Vec<EtcdClusterStatus>> {
    let narrow = |etcd: &mut Value| etcd["spec"]["rolloutStrategy"] = json!({"rollingUpdate": {"maxSurge": max_surge}});
    let handle = used(bed, Manifests::new(namespace, "demo")?.with("EtcdCluster", narrow)).await?;
    let (old, before) = (handle.etcd_machines().await?, handle.status().await?.endpoints);
    let writers = History::begin(bed.world(), &handle.namespace, &handle.etcd_access().await?, FOLLOWERS).await?;
    let states = States::of(handle.etcds(), &handle.etcd).await?;
    let between = told_next(&handle, &before, Some(&writers)).await?;
    ensure!(shared(&between, &before) == 2, "{between} after {before}");
    tokio::time::sleep(AFTERWARDS).await;
    let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
    ensure!(up_to_date(&status)?.2.contains("has yet to roll out") && status.ready, "{:?}", status.conditions);
    ensure!(machines.len() == 3 + max_surge && status.endpoints == between, "{machines:?}: {}", status.endpoints);
    ensure!(until_machines_say(&handle, &old).await? > 0, "no old Machine is left that stays: {machines:?}");

    ignore_what_is_in_use(&handle).await?;
    rolled(bed, &handle, &old, &writers).await?;
    until_machines_say(&handle, &old).await?;
    // Unlike API servers, the clients here try dead endpoints: some requests fail or wait when members leave.
    only_interrupted(bed, &handle, &kept(&handle, writers, &[]).await?)?;
    let states = states.stop().await?.into_iter().filter_map(|etcd| etcd.status).collect();
    handle.delete("Cluster", &handle.cluster).await?;
    all_is_gone(bed, &handle).await?;
    Ok(states)
}

/// Waits until each Machine that is not being deleted says in `UpToDate` whether it matches the spec: no old Machine
/// does, and every other one does. Returns how many old Machines there are.
async fn until_machines_say(handle: &ClusterHandle, old: &[String]) -> Result<usize> {
    until("each Machine says whether it matches the spec", PATIENCE, async || {
        let mut outdated = 0;
        for name in handle.etcd_machines().await? {
            let machine = handle.api("Machine").get(&name).await?;
            if machine.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let is_old = old.contains(&name);
            let (expected, found) = (if is_old { "False" } else { "True" }, bring_up::up_to_date(&machine));
            ensure!(found == Some(expected), "UpToDate of Machine {name} is {found:?}");
            outdated += usize::from(is_old);
        }
        Ok(Some(outdated))
    })
    .await
}

/// A person says, for the present spec, that no API server needs endpoints that are no longer published.
pub(crate) async fn ignore_what_is_in_use(handle: &ClusterHandle) -> Result<()> {
    let generation = handle.etcds().get(&handle.etcd).await?.metadata.generation.context("no generation")?;
    let annotations = json!({"etcdcluster.cluster.x-k8s.io/ignore-endpoints-in-use": generation.to_string()});
    let ignore = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    handle.etcds().patch(&handle.etcd, &PatchParams::default(), &ignore).await?;
    Ok(())
}

/// Five members get another spec while API servers use the old members: two old members make room for new ones, three
/// stay, and the control plane is told once.
pub(crate) async fn five_beside_a_control_plane(bed: &mut Bed) -> Result<()> {
    let five = |etcd: &mut Value| etcd["spec"]["replicas"] = json!(5);
    let handle = used(bed, Manifests::new("rolls-five", "demo")?.with("EtcdCluster", five)).await?;
    let (old, before) = (handle.etcd_machines().await?, handle.status().await?.endpoints);
    let writers = History::begin(bed.world(), &handle.namespace, &handle.etcd_access().await?, LOAD).await?;
    let states = States::of(handle.etcds(), &handle.etcd).await?;
    let after = told_next(&handle, &before, None).await?;
    ensure!(shared(&after, &before) == 0 && after.split(',').count() == 5, "{after} after {before}");
    tokio::time::sleep(AFTERWARDS).await;
    let machines = handle.etcd_machines().await?;
    let left = machines.iter().filter(|name| old.contains(name)).count();
    ensure!((machines.len(), left) == (8, 3), "the Machines are {machines:?}");
    // Nobody tells the clients of other endpoints, so once members have left, some requests fail or wait at any time.
    nothing_is_lost(&handle, writers, &[]).await?;
    for status in states.stop().await?.into_iter().filter_map(|etcd| etcd.status) {
        ensure!([&before, &after].contains(&&status.endpoints), "these were published: {}", status.endpoints);
        ensure!(status.ready && status.members.len() <= 9, "{} members: {:?}", status.members.len(), status.conditions);
    }
    handle.delete("Cluster", &handle.cluster).await?;
    all_is_gone(bed, &handle).await
}

/// A cluster whose endpoints are in a control plane.
pub(crate) async fn used(bed: &Bed, manifests: Manifests) -> Result<ClusterHandle> {
    let client = bed.client();
    let handle = ClusterHandle::new(&client, &manifests);
    ClusterHandle::make_namespace(&client, &handle.namespace).await?;
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    Ok(handle)
}

/// How many endpoints two lists have in common.
pub(crate) fn shared(one: &str, other: &str) -> usize {
    one.split(',').filter(|url| other.split(',').any(|it| it == *url)).count()
}

/// The writers switch to other endpoints as soon as these are published. API servers do not, but nothing waits for
/// them here.
pub(crate) fn follow(writers: &History, status: &EtcdClusterStatus) {
    writers.endpoints(status.endpoints.split(',').map(str::to_owned).collect());
}

pub(crate) fn is_voter(member: &api::etcd_cluster::MemberStatus) -> bool {
    member.role == api::etcd_cluster::MemberRole::Voter
}

/// Checks that every published endpoint is that of a voter.
fn served_by_members(status: &EtcdClusterStatus) -> Result<()> {
    let serves = |url: &str| status.members.iter().any(|member| member.client_url == url && is_voter(member));
    let dead = status.endpoints.split(',').find(|url| !serves(url));
    ensure!(dead.is_none(), "{dead:?} is published, and the members are {:?}", status.members);
    Ok(())
}

/// Status, reason and message of the condition MachinesUpToDate.
pub(crate) fn up_to_date(status: &EtcdClusterStatus) -> Result<(String, String, String)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == "MachinesUpToDate");
    let found = found.with_context(|| format!("there is no MachinesUpToDate: {:?}", status.conditions))?;
    Ok((found.status.clone(), found.reason.clone(), found.message.clone()))
}

/// Waits until so many new Machines have replaced the old ones, all are voters, and nothing is being done. Returns
/// their names.
pub(crate) async fn rolled(
    bed: &Bed,
    handle: &ClusterHandle,
    old: &[String],
    writers: &History,
) -> Result<Vec<String>> {
    until(format!("the members of {} are replaced", handle.namespace), ROLLOUT, async || {
        let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
        follow(writers, &status);
        let left: Vec<&String> = machines.iter().filter(|name| old.contains(name)).collect();
        ensure!(left.is_empty(), "{left:?} of {machines:?}: {:?}", status.conditions);
        ensure!(up_to_date(&status)?.0 == "True", "{:?}", status.conditions);
        Ok(Some(()))
    })
    .await?;
    let machines = are_well(bed, handle, old.len()).await?;
    follow(writers, &handle.status().await?);
    only_theirs(bed, handle, &machines).await?;
    Ok(machines)
}

/// Checks that nothing that was acknowledged is lost, that no write failed or had to wait for long, and that there is
/// no warning. A write that is under way when its member leaves may stay without an answer; `left`: how many members
/// have left.
pub(crate) async fn judged(
    bed: &Bed,
    handle: &ClusterHandle,
    writers: History,
    machines: &[String],
    left: usize,
) -> Result<()> {
    let record = kept(handle, writers, &data_of(bed, handle, machines)?).await?;
    let figures = record.figures();
    ensure!(figures.longest_stall <= STALL && figures.failed + figures.unknown <= left, "{figures}");
    only_interrupted(bed, handle, &record)?;
    let told = warnings(&bed.client(), &handle.namespace).await?;
    ensure!(told.is_empty(), "the warnings are {told:#?}");
    Ok(())
}

/// Ends a load whose clients follow the endpoints. Checks that nothing that was acknowledged is lost, and that writes
/// never stopped for long. Writes failed only when leadership moved or a member left, no more of them than could be
/// under way then, and no second try did.
pub(crate) async fn hardly_noticed(
    bed: &Bed,
    handle: &ClusterHandle,
    writers: History,
    states: Record,
    data: &[MemberData],
) -> Result<()> {
    let record = kept(handle, writers, data).await?;
    let (figures, states) = (record.figures(), states.stop().await?);
    let operations = states.iter().filter_map(|etcd| etcd.status.as_ref()?.operation.as_ref());
    let operations: BTreeSet<(bool, &str)> = operations
        .map(|operation| (operation.kind == OperationKind::MoveLeader, operation.member_id.as_str()))
        .collect();
    let moments = operations.len();
    println!("  leadership was moved, or a member removed, {moments} times");
    ensure!(figures.failed + figures.unknown <= moments * FOLLOWERS.clients, "{moments} times: {figures}");
    ensure!(figures.longest_stall <= STALL, "{figures}");
    only_interrupted(bed, handle, &record)
}

/// Checks that no second try of a write failed, and that each first try that did was under way when leadership moved or
/// a member left, or went to a member that had left and was still published.
fn only_interrupted(bed: &Bed, handle: &ClusterHandle, record: &history::Record) -> Result<()> {
    let figures = record.figures();
    ensure!(figures.failed_twice == 0, "{figures}");
    explained(bed, handle, &record.unanswered())
}

/// Checks that each of these writes was under way at something that the observer has seen to interrupt clients.
pub(crate) fn explained(bed: &Bed, handle: &ClusterHandle, writes: &[Unanswered]) -> Result<()> {
    let etcd = format!("{}/{}", handle.namespace, handle.etcd);
    each_is_explained(writes, &interruptions(&bed.observed_so_far()?, &etcd))
}

/// Ends the load, checks that nothing that was acknowledged is lost, and returns the figures.
pub(crate) async fn nothing_is_lost(handle: &ClusterHandle, writers: History, data: &[MemberData]) -> Result<Figures> {
    Ok(kept(handle, writers, data).await?.figures())
}

/// The same, and returns everything that was requested.
async fn kept(handle: &ClusterHandle, writers: History, data: &[MemberData]) -> Result<history::Record> {
    let record = writers.end().await?;
    println!("  {}: {}", handle.namespace, record.figures());
    println!("  {}: {}", handle.namespace, record.judge(data)?);
    Ok(record)
}

/// Changes the spec, and returns the endpoints that the control plane is told next.
async fn told_next(handle: &ClusterHandle, before: &str, writers: Option<&History>) -> Result<String> {
    changed(handle, &another_spec()).await?;
    until("the control plane is told of other members", ROLLOUT, async || {
        let (status, published) = (handle.status().await?, handle.control_plane_endpoints().await?.join(","));
        writers.into_iter().for_each(|writers| follow(writers, &status));
        ensure!(published != before && published == status.endpoints, "{published}: {:?}", status.conditions);
        Ok(Some(published))
    })
    .await
}

/// A spec for other machines with the same etcd.
pub(crate) fn another_spec() -> Value {
    json!({"etcdadmConfigSpec": {"preEtcdadmCommands": ["true"]}})
}

/// The present time, as the API server and the manager tell it.
#[expect(clippy::disallowed_methods, reason = "some fields of the spec, and certificates, go by the clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

pub(crate) async fn changed(handle: &ClusterHandle, spec: &Value) -> Result<()> {
    handle.etcds().patch(&handle.etcd, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
    Ok(())
}
