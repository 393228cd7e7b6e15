//! One cluster meets one fault after the other. First come faults that pass: networks that are cut or slow, and an etcd
//! that stalls again and again. Then come faults for which a member is replaced: a log in which a byte has changed, and
//! expired certificates.

use crate::clusters::{PATIENCE, change, gone, up};
use crate::data_loss;
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::MemberStatus;
use e2e::bed::ClusterHandle;
use e2e::bed::data::said;
use e2e::bed::illness::replace_certificate;
use e2e::docker::DockerBed;
use e2e::history::{History, Load, MemberData};
use e2e::tls::Authority;
use e2e::until::until;
use local_infrastructure::machine::Way;
use serde_json::json;
use std::time::{Duration, Instant};

/// One client and one watch, which follow the endpoints that they are given.
const LOAD: Load = Load { seed: None, clients: 1, keys: 4, rest: Duration::from_millis(50), keep_endpoints: false };
/// The longest time without a write: a leader is cut off or slow, and then there are elections.
const STALL: Duration = Duration::from_secs(30);
/// How long a fault lasts at least, and how long it may take until a cut is reported.
const CUT: Duration = Duration::from_secs(8);
const SEEN: Duration = Duration::from_secs(20);
/// Seconds until a member counts as unhealthy: longer than a fault that passes, and only a few.
const PATIENT: i64 = 40;
const IMPATIENT: i64 = 5;
/// Kills etcd. systemd starts it again.
const CRASH: [&str; 4] = ["systemctl", "kill", "--signal=KILL", "etcd"];
/// A day in the past.
const EXPIRED: (i32, u8, u8) = (2020, 1, 1);

/// For faults that pass, no member is replaced, and cuts are reported. For the two others, exactly the faulty member is
/// replaced, without help. The first member stays throughout and has the log from its beginning, which shows that no
/// acknowledged write is lost.
pub(crate) async fn one_after_the_other(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    ClusterHandle::make_namespace(&bed.client(), "faults").await?;
    let handle = up(bed, "faults", "faults", 3).await?;
    unhealthy_after(&handle, PATIENT).await?;
    let names = handle.member_names(3);
    let writers = History::begin(bed.world(), "faults", &handle.etcd_access().await?, LOAD).await?;

    let leader = member(&handle, |member| member.leader).await?;
    let (cut, end) = (bed.cut_off(&leader.machine), bed.reconnect(&leader.machine));
    recovers(&handle, &leader, "cut off from everything", true, cut, end).await?;
    let follower = member(&handle, |member| !member.leader).await?;
    let others = handle.status().await?.members.into_iter().filter(|other| other.name != follower.name);
    let others: Vec<String> = others.map(|other| host(&other).to_owned()).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let cut = bed.cut_off_from(&follower.machine, &others);
    let end = bed.reconnect(&follower.machine);
    recovers(&handle, &follower, "cut off from the other members", true, cut, end).await?;
    let leader = member(&handle, |member| member.leader).await?;
    let (cut, end) = (bed.cut_off_one_way(&leader.machine, Way::In), bed.reconnect(&leader.machine));
    recovers(&handle, &leader, "hearing nobody", true, cut, end).await?;
    let follower = member(&handle, |member| !member.leader).await?;
    let (cut, end) = (bed.cut_off_one_way(&follower.machine, Way::Out), bed.reconnect(&follower.machine));
    recovers(&handle, &follower, "heard by nobody", true, cut, end).await?;
    // These may be too short for a check to fail.
    let leader = member(&handle, |member| member.leader).await?;
    let (slow, end) = (bed.slow_network(&leader.machine), bed.end_slow_network(&leader.machine));
    recovers(&handle, &leader, "slow to send", false, slow, end).await?;
    let leader = member(&handle, |member| member.leader).await?;
    let (stutters, end) = (bed.slow_disk(&leader.machine), bed.end_slow_disk(&leader.machine));
    recovers(&handle, &leader, "standing still again and again", false, stutters, end).await?;
    let machines = handle.etcd_machines().await?;
    ensure!(machines == names, "a member was replaced for what has passed: {machines:?}");

    unhealthy_after(&handle, IMPATIENT).await?;
    let begun = Instant::now();
    bed.corrupt_log(&names[1]).await?;
    is_replaced(bed, &handle, &writers, &names[1]).await.context("a byte of its log has changed")?;
    println!("  {}: a byte of its log changed: replaced after {:.1} s", names[1], begun.elapsed().as_secs_f32());

    let begun = Instant::now();
    expire(bed, &handle, &names[2]).await?;
    let left = is_replaced(bed, &handle, &writers, &names[2]).await.context("its certificates have expired")?;
    println!("  {}: its certificates expired: replaced after {:.1} s", names[2], begun.elapsed().as_secs_f32());

    ensure!(left.contains(&names[0]), "{} has nothing, and is gone: {left:?}", names[0]);
    let record = writers.end().await?;
    let figures = record.figures();
    println!("  {figures}");
    let data = |name: &String| anyhow::Ok(MemberData { name: name.clone(), data: bed.etcd_data(name)? });
    println!("  {}", record.judge(&left.iter().map(data).collect::<Result<Vec<_>>>()?)?);
    ensure!(figures.longest_stall <= STALL, "{figures}");
    handle.delete("Cluster", &handle.cluster).await?;
    gone(bed, &handle).await
}

/// A member has a fault for a while. If a check is sure to fail, the fault is reported. All members are healthy when it
/// is over.
async fn recovers(
    handle: &ClusterHandle,
    ill: &MemberStatus,
    what: &str,
    is_seen: bool,
    begins: impl Future<Output = Result<()>>,
    ends: impl Future<Output = Result<()>>,
) -> Result<()> {
    let begun = Instant::now();
    begins.await.with_context(|| format!("{}: {what}", ill.name))?;
    if is_seen {
        is_told(handle, ill).await.with_context(|| format!("{}: {what}", ill.name))?;
    }
    // This time is what the scenario is about.
    tokio::time::sleep(CUT.saturating_sub(begun.elapsed())).await;
    ends.await.with_context(|| format!("{}: no longer {what}", ill.name))?;
    handle.until_all_are_well(PATIENCE).await?;
    println!("  {}: {what}: all well after {:.1} s", ill.name, begun.elapsed().as_secs_f32());
    Ok(())
}

/// Waits until the status reports that a member fails.
async fn is_told(handle: &ClusterHandle, ill: &MemberStatus) -> Result<()> {
    until(format!("it is told that {} fails", ill.name), SEEN, async || {
        let conditions = handle.status().await?.conditions;
        let healthy = conditions.iter().find(|condition| condition.type_ == "MembersHealthy");
        let healthy = healthy.context("no condition MembersHealthy")?;
        // While the other members elect a leader, they fail as well.
        ensure!(healthy.status == "False" && healthy.message.contains(&ill.name), "{healthy:?}");
        Ok(Some(()))
    })
    .await
}

/// Makes the member use expired certificates towards clients and other members. Kills etcd, so that open connections
/// end and it starts again.
async fn expire(bed: &DockerBed, handle: &ClusterHandle, name: &str) -> Result<()> {
    let (host, ca) = (data_loss::container(bed, handle, name).await?, api::names::ca_secret(&handle.cluster));
    let ill = member(handle, |member| member.name == name).await?;
    let authority = Authority::from_pem(&handle.secret(&ca, "tls.crt").await?, &handle.secret(&ca, "tls.key").await?)?;
    let names = [name, self::host(&ill), "127.0.0.1", "localhost"].map(str::to_owned).to_vec();
    let expired = authority.member_until(name, names, EXPIRED)?;
    bed.fault_for_good(&format!("{name}: its certificates have expired"), &[name]);
    for which in ["server", "peer"] {
        replace_certificate(&host, which, &expired).await?;
    }
    said(&host, &CRASH).await.map(drop)
}

/// Waits until three Machines other than this one have three healthy members, nothing else is going on, and its
/// container is gone. Returns the names of the Machines, and gives their endpoints to the writers.
async fn is_replaced(bed: &DockerBed, handle: &ClusterHandle, writers: &History, name: &str) -> Result<Vec<String>> {
    let before = handle.etcd_machines().await?;
    let after = until(format!("{name} is replaced"), PATIENCE, async || {
        let (machines, status) = (handle.etcd_machines().await?, handle.status().await?);
        ensure!(machines.len() == 3 && !machines.iter().any(|it| it == name), "the Machines are {machines:?}");
        ensure!(status.ready && status.ready_replicas == 3 && status.members.len() == 3, "{:?}", status.conditions);
        ensure!(status.operation.is_none() && status.removed_members.is_empty(), "{:?}", status.conditions);
        ensure!(!bed.containers().await?.iter().any(|it| it == name), "its container is still there");
        Ok(Some(machines))
    })
    .await?;
    let stayed = before.iter().filter(|it| after.contains(it)).count();
    ensure!(stayed == 2, "the Machines were {before:?}, and are {after:?}");
    writers.endpoints(handle.status().await?.endpoints.split(',').map(str::to_owned).collect());
    Ok(after)
}

/// Waits until a member satisfies `is_it`.
async fn member(handle: &ClusterHandle, is_it: impl Fn(&MemberStatus) -> bool) -> Result<MemberStatus> {
    until(format!("a member of {} is as wanted", handle.etcd), PATIENCE, async || {
        Ok(handle.status().await?.members.into_iter().find(&is_it))
    })
    .await
}

/// A member's address.
fn host(member: &MemberStatus) -> &str {
    member.client_url.trim_start_matches("https://").trim_end_matches(":2379")
}

/// Lets members be probed every second, and replaced after this many seconds of failing checks.
async fn unhealthy_after(handle: &ClusterHandle, seconds: i64) -> Result<()> {
    let check = json!({"intervalSeconds": 1, "unhealthyAfterSeconds": seconds});
    change(handle, "EtcdCluster", &handle.etcd, &json!({"spec": {"healthCheck": check}})).await
}
