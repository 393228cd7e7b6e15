//! A member's machine is gone for good: the member is replaced while the cluster is in use. A member that comes back
//! in time stays.

use crate::account::changed_machines;
use crate::bring_up::{PATIENCE, released};
use crate::departures::{only_theirs, replaced};
use crate::during::{CUT_OFF, Fault, KILLED, ROBBED};
use crate::load::LowLoad;
use crate::places::{Told, strikes};
use crate::records::warnings;
use crate::rolls::{changed, nothing_is_lost, now, used};
use crate::scale::{LOAD, data_of};
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::LastRemediation;
use e2e::bed::data::{on, serves};
use e2e::bed::{Bed, ClusterHandle, Manifests, Membership};
use e2e::faults::{FaultyManager, How, Place, Sweep};
use e2e::history::History;
use e2e::observer::Silence;
use e2e::plane::{Mark, Request, users};
use e2e::process::Signal;
use e2e::until::until;
use futures::try_join;
use local_infrastructure::machine::Machine;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Seconds between two checks, and until a member counts as unhealthy.
const CHECKS: (i64, i64) = (1, 4);
/// How long no write may be acknowledged when the leader dies: a few elections.
const STALL: Duration = Duration::from_secs(10);
/// How long a slow boot takes: ten times as long as it takes until a member counts as unhealthy, and less than the
/// default grace.
const SLOW_BOOT: Duration = Duration::from_secs(40);
/// How long the scenario waits to see that a failed replacement stays.
const STEADY: Duration = Duration::from_secs(8);
/// Seconds until the failed replacement is replaced, once `maxRetry` allows that.
const SOON: i64 = 10;
/// Clusters side by side in a sweep. Each has its own manager.
const AT_ONCE: usize = 2;
/// How long a cluster may take beside others.
const BESIDE_OTHERS: Duration = Duration::from_secs(300);

/// One machine of three dies and stays dead: first a follower's, then the leader's. Each time the replacement boots
/// before anything is deleted, the dead member is removed, and the control plane is told once. Nothing that was
/// acknowledged is lost.
pub(crate) async fn of_members_that_die(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "repair-dead", 3).await?;
    let writers = History::begin(bed.world(), &handle.namespace, &handle.etcd_access().await?, LOAD).await?;
    for leads in [false, true] {
        let status = handle.status().await?;
        let doomed = status.members.iter().find(|member| member.leader == leads).context("no such member")?;
        let before = handle.membership(&bed.machines, &handle.etcd_machines().await?).await?;
        let mark = bed.plane.mark();
        dies(bed, &handle, &doomed.machine).await?;
        let machines = replaced(bed, &handle, &doomed.machine).await?;
        let after = handle.membership(&bed.machines, &machines).await?;
        let stayed = before.stayed(&after);
        ensure!(after.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {after:?}");
        let last = begun(&handle).await?.context("it is not written down")?;
        ensure!(last.machine == doomed.machine && last.retry_count == 0, "written down is {last:?}");
        only_theirs(bed, &handle, &machines).await?;
        in_order(bed, &handle, &doomed.machine, mark)?;
        let endpoints = is_told(&handle).await?;
        writers.endpoints(endpoints.split(',').map(str::to_owned).collect());
    }
    let machines = handle.etcd_machines().await?;
    let figures = nothing_is_lost(&handle, writers, &data_of(bed, &handle, &machines)?).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    let told = warnings(&bed.client(), &handle.namespace).await?;
    let others: Vec<&String> = told.iter().filter(|warning| !warning.starts_with("MemberUnhealthy")).collect();
    ensure!(others.is_empty() && told.len() == 2, "the warnings are {told:#?}");
    Ok(())
}

/// The dead member comes back while its replacement is held up: the member stays, and the replacement is deleted. The
/// endpoints never change.
pub(crate) async fn is_called_off(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "repair-off", 3).await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let names = handle.member_names(3);
    let before = handle.membership(&bed.machines, &names).await?;
    let endpoints = handle.status().await?.endpoints;
    bed.local_infrastructure().signal(Signal::STOP)?;
    dies(bed, &handle, &names[1]).await?;
    until("a replacement is made and may join", PATIENCE, async || {
        let machines = handle.etcd_machines().await?;
        Ok((machines.len() == 4 && begun(&handle).await?.is_some()).then_some(()))
    })
    .await?;
    let machine = bed.machines.get(&handle.namespace, &names[1])?;
    bed.fault_is_over(&format!("{} comes back", names[1]), &[&machine]);
    on(&machine, Machine::power_on).await?;
    // Where there is much to do, the replacement's machine may boot faster than this one.
    serves(&machine).await?;
    bed.local_infrastructure().signal(Signal::CONT)?;
    until("the replacement is gone", PATIENCE * 2, async || {
        let machines = handle.etcd_machines().await?;
        ensure!(machines == names, "the Machines are {machines:?}");
        let status = handle.status().await?;
        ensure!(status.ready && status.endpoints == endpoints, "{}: {:?}", status.endpoints, status.conditions);
        Ok(Some(()))
    })
    .await?;
    let after = handle.membership(&bed.machines, &names).await?;
    ensure!(after == before, "etcd was {before:?}, and is {after:?}");
    ensure!(handle.control_plane_endpoints().await?.join(",") == endpoints, "the control plane was told of something");
    bed.exactly(&[(&handle, 3)]).await?;
    load.judged().await
}

/// Two of five machines die at the same time. In a second cluster, one machine is cut off and another one loses its
/// disk. The members are replaced one after the other, and in the end there are five again.
pub(crate) async fn of_two_of_five(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let die = async { two_fail(bed, "repair-two", [&KILLED, &KILLED]).await.context("two die") };
    let live = async { two_fail(bed, "repair-two-alive", [&CUT_OFF, &ROBBED]).await.context("two machines live") };
    try_join!(die, live).map(drop)
}

/// The two newest machines have these faults, and their members are replaced.
async fn two_fail(bed: &Bed, namespace: &str, faults: [&'static Fault; 2]) -> Result<()> {
    let handle = up(bed, namespace, 5).await?;
    let names = handle.member_names(5);
    let load = LowLoad::begin(bed, &handle).await?;
    for (doomed, fault) in names[3..].iter().zip(faults) {
        let machine = bed.machines.get(&handle.namespace, doomed)?;
        bed.fault(&format!("{doomed}: {}", fault.name), &[&machine], Silence::Lasting);
        on(&machine, fault.begins).await?;
    }
    let machines = until("five others are well", BESIDE_OTHERS, async || {
        let machines = handle.etcd_machines().await?;
        let status = handle.status().await?;
        ensure!(status.ready && machines.len() == 5, "{machines:?}: {:?}", status.conditions);
        ensure!(!machines.iter().any(|name| names[3..].contains(name)), "the Machines are {machines:?}");
        Ok(Some(machines))
    })
    .await?;
    let etcd = handle.membership(&bed.machines, &machines).await?;
    ensure!(etcd.voters() == machines, "Machines {machines:?}, members {:?}", etcd.members);
    for name in &machines {
        serves(&bed.machines.get(&handle.namespace, name)?).await?;
    }
    only_theirs(bed, &handle, &machines).await?;
    load.judged().await
}

/// The replacement boots for much longer than it takes until a member counts as unhealthy: the manager waits for it,
/// and makes no other. Nothing is deleted until the replacement is up, and then one Machine is. In a second cluster,
/// the replacement fails too: see [`limited`].
pub(crate) async fn by_one_that_boots_slowly(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let slow = async { slowly(bed).await.context("one that boots slowly") };
    let limited = async { limited(bed).await.context("one that fails too") };
    try_join!(slow, limited).map(drop)
}

async fn slowly(bed: &Bed) -> Result<()> {
    let handle = alone(bed, manifests("repair-slow", 3)?).await?;
    let names = handle.etcd_machines().await?;
    let before = handle.membership(&bed.machines, &names).await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let (doomed, slow) = (&names[1], "demo-etcd-3");
    bed.machines.fault_boot_delay(&handle.namespace, slow, SLOW_BOOT)?;
    let (mark, begun) = (bed.plane.mark(), Instant::now());
    dies(bed, &handle, doomed).await?;
    let machines = replaced(bed, &handle, doomed).await?;
    println!("  {}: replaced after {:.0} s", handle.namespace, begun.elapsed().as_secs_f32());
    ensure!(begun.elapsed() >= SLOW_BOOT, "it did not boot slowly: {:?}", begun.elapsed());
    ensure!(machines.iter().any(|name| name == slow), "the Machines are {machines:?}");
    in_order(bed, &handle, doomed, mark)?;
    let ours = bed.plane.requests_since(mark)?.user(users::PROVIDER).done_in(&handle.namespace);
    for verb in ["create", "delete"] {
        let done = ours.verb(verb).resource("machines");
        let done: Vec<&str> = done.iter().map(|r| r.name.as_str()).collect();
        ensure!(done.len() == 1, "{verb}: {done:?}");
    }
    let after = handle.membership(&bed.machines, &machines).await?;
    let stayed = before.stayed(&after);
    ensure!(after.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &handle, &machines).await?;
    load.judged().await
}

/// A member dies, and then its replacement dies too. While `maxRetry` is 0, nothing is done, and a person has to
/// decide. With `maxRetry` 1, the manager waits until `retryPeriodSeconds` have passed since the first remediation
/// began, and then replaces the failed replacement.
async fn limited(bed: &Bed) -> Result<()> {
    let limits = |etcd: &mut Value| etcd["spec"]["remediation"] = json!({"maxRetry": 0});
    let handle = alone(bed, manifests("repair-limited", 3)?.with("EtcdCluster", limits)).await?;
    let names = handle.etcd_machines().await?;
    let before = handle.membership(&bed.machines, &names).await?;
    let load = LowLoad::begin(bed, &handle).await?;
    dies(bed, &handle, &names[1]).await?;
    let machines = replaced(bed, &handle, &names[1]).await?;
    let first = begun(&handle).await?.context("it is not written down")?;
    ensure!(first.machine == names[1] && first.retry_count == 0, "written down is {first:?}");
    let second = machines.iter().find(|name| !names.contains(name)).context("there is no replacement")?;

    dies(bed, &handle, second).await?;
    let message = handle.until_condition("Ready", "False", "RemediationLimitReached", PATIENCE).await?;
    let advice = format!("delete Machine {second} to have it replaced");
    ensure!(message.contains("spec.remediation.maxRetry") && message.contains(&advice), "it says: {message}");
    tokio::time::sleep(STEADY).await;
    ensure!(handle.etcd_machines().await? == machines, "the Machines are {:?}", handle.etcd_machines().await?);
    ensure!(begun(&handle).await?.as_ref() == Some(&first), "written down is {:?}", begun(&handle).await?);

    let period = now().as_second() - first.time.0.as_second() + SOON;
    changed(&handle, &json!({"remediation": {"maxRetry": 1, "retryPeriodSeconds": period}})).await?;
    let message = handle.until_condition("Ready", "False", "RemediationDelayed", PATIENCE).await?;
    ensure!(message.contains("spec.remediation.retryPeriodSeconds"), "it says: {message}");
    let machines = replaced(bed, &handle, second).await?;
    let last = begun(&handle).await?.context("it is not written down")?;
    let waited = last.time.0.as_second() - first.time.0.as_second();
    println!("  {}: of {period} s it has waited {waited}", handle.namespace);
    ensure!(last.machine == *second && last.retry_count == 1 && waited >= period, "written down is {last:?}");
    let after = handle.membership(&bed.machines, &machines).await?;
    let stayed = before.stayed(&after);
    ensure!(after.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &handle, &machines).await?;
    load.judged().await
}

/// Our manager is killed before a write of a remediation, killed after it, or loses the answer: at a sample of the
/// writes, or at all of them if `E2E_EVERY_PLACE` is set. Each time one Machine replaces the member, and the control
/// plane, which has the endpoints in use, is told of that.
pub(crate) async fn survives_kills(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let counted = tell(bed, "repair-counted", None).await.context("without a fault")?.writes;
    let told =
        async |place: Place| anyhow::Ok(tell(bed, &format!("repair-{}", place.slug()), Some(place)).await?.ending());
    let sweep = Sweep { name: "repair::survives_kills", writes: counted, at_once: AT_ONCE };
    sweep.run_wanted(&How::DEATHS, told).await?;
    bed.start_manager(0).await
}

/// Runs one remediation. Returns its writes, and the call that the fault struck.
async fn tell(bed: &Bed, namespace: &str, place: Option<Place>) -> Result<Told> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manager = FaultyManager::start(bed, namespace, Some(namespace), Vec::new()).await?;
    let manifests = manifests(namespace, 3)?;
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(BESIDE_OTHERS).await?;
    released(&handle).await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let (mark, up) = (bed.plane.mark(), strikes(&manager, place.as_ref()));
    let doomed = handle.member_names(3)[2].clone();
    dies(bed, &handle, &doomed).await?;
    let machines = replaced(bed, &handle, &doomed).await?;
    only_theirs(bed, &handle, &machines).await?;
    ensure!(machines.len() == 3, "the Machines are {machines:?}");
    is_told(&handle).await?;
    changed_machines(bed, &handle, mark, &[doomed], 1)?;
    load.judged().await?;
    let told = Told::until_now(&manager, up);
    handle.delete("Cluster", &handle.cluster).await?;
    crate::deletion::all_is_gone(bed, &handle).await.context("the deletion")?;
    manager.stop().await?;
    Ok(told)
}

/// Waits until the control plane has the published endpoints, and returns them.
async fn is_told(handle: &ClusterHandle) -> Result<String> {
    let endpoints = handle.status().await?.endpoints;
    until("the control plane is told", PATIENCE, async || {
        let published = handle.control_plane_endpoints().await?.join(",");
        ensure!(published == endpoints, "it has {published}");
        Ok(Some(()))
    })
    .await?;
    Ok(endpoints)
}

/// Checks by the API server's audit log that a replacement was made and got its bootstrap data before the dead
/// Machine was deleted, and that this Machine was deleted once.
fn in_order(bed: &Bed, handle: &ClusterHandle, doomed: &str, mark: Mark) -> Result<()> {
    let requests = bed.plane.requests_since(mark)?;
    let ours = requests.user(users::PROVIDER).done_in(&handle.namespace);
    let writes: Vec<_> = ours.writes().iter().cloned().collect();
    let first = |verb: &str, resource: &str| writes.iter().position(|r| r.verb == verb && r.resource == resource);
    let (made, deleted) = (first("create", "machines"), first("delete", "machines"));
    let boots = made.and_then(|made| {
        let data = |r: &Request| r.verb == "create" && r.resource == "secrets" && r.name == writes[made].name;
        writes.iter().position(data)
    });
    ensure!(made.is_some() && made < boots && boots < deleted, "made {made:?}, boots {boots:?}, deleted {deleted:?}");
    let deletions: Vec<&str> = writes.iter().filter(|r| r.verb == "delete").map(|r| r.name.as_str()).collect();
    ensure!(deletions.iter().filter(|name| **name == doomed).count() == 1, "deleted were {deletions:?}");
    Ok(())
}

async fn begun(handle: &ClusterHandle) -> Result<Option<LastRemediation>> {
    Ok(handle.status().await?.last_remediation)
}

/// Kills the machine of a member. It stays off.
pub(crate) async fn dies(bed: &Bed, handle: &ClusterHandle, name: &str) -> Result<()> {
    let machine = bed.machines.get(&handle.namespace, name)?;
    bed.fault(&format!("{name}: its machine is killed"), &[&machine], Silence::Lasting);
    on(&machine, Machine::kill).await
}

/// A cluster whose members are checked often, and soon count as unhealthy.
pub(crate) fn manifests(namespace: &str, replicas: i64) -> Result<Manifests> {
    Ok(Manifests::new(namespace, "demo")?.replicas(replicas).with("EtcdCluster", |etcd| {
        // To the closest peer, a number that cannot be read means that the first failed check is enough.
        etcd["metadata"]["annotations"]["etcdcluster.cluster.x-k8s.io/healthcheck-retries"] = json!("x");
        etcd["spec"]["healthCheck"] = json!({"intervalSeconds": CHECKS.0, "unhealthyAfterSeconds": CHECKS.1});
    }))
}

/// A cluster that is up, with its control plane released.
async fn up(bed: &Bed, namespace: &str, replicas: usize) -> Result<ClusterHandle> {
    let handle = used(bed, manifests(namespace, i64::try_from(replicas)?)?).await?;
    let _: Membership = handle.membership(&bed.machines, &handle.member_names(replicas)).await?;
    Ok(handle)
}
