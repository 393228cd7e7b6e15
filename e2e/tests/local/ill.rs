//! Members that are neither healthy nor dead: networks that work in one direction only, lose packets or are slow, a
//! disk that is slow or has changed what was written to it, an etcd that crashes again and again, and a copy that
//! differs from the others.

use crate::bring_up::PATIENCE;
use crate::departures::{only_theirs, replaced};
use crate::load::LowLoad;
use crate::rolls::{another_spec, changed, nothing_is_lost, up_to_date, used};
use crate::scale::{LOAD, data_of};
use crate::shrinks::{alone, are_well};
use anyhow::{Context, Result, ensure};
use e2e::bed::data::{DataLoss, on, said};
use e2e::bed::illness::{corrupt_database, end_slow_disk, end_slow_network, slow_disk, slow_network};
use e2e::bed::{Bed, ClusterHandle, Manifests, States};
use e2e::history::History;
use e2e::observer::Silence;
use e2e::until::until;
use e2e::world::ADDRESS;
use futures::future::try_join_all;
use futures::try_join;
use local_infrastructure::machine::{Machine, Result as Done, Way};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// How long a network or a disk is ill.
pub(crate) const ILLNESS: Duration = Duration::from_secs(8);
/// Seconds until a member counts as unhealthy: more than [`ILLNESS`], for members that are not to be replaced, or few.
pub(crate) const PATIENT: i64 = 30;
pub(crate) const IMPATIENT: i64 = 4;
/// The longest that nothing may be written: an illness of the leader, and the elections after it.
pub(crate) const STALL: Duration = Duration::from_secs(15);

/// How long a copy of a member's data may take to be saved, a reboot included.
const SAVED: Duration = Duration::from_secs(120);
/// Time between two crashes of an etcd: 2 s until it is started again, and enough for the other members to hear it.
const CRASHES: Duration = Duration::from_secs(5);
/// Kills etcd.
pub(crate) const CRASH: &str =
    r#"for p in /proc/[0-9]*; do if [ "$(cat $p/comm)" = etcd ]; then kill -9 "${p#/proc/}"; fi; done"#;

type Action = fn(&Machine) -> Done<()>;

/// A fault that a member recovers from.
struct Illness {
    what: &'static str,
    /// Whether a health check is certain to fail meanwhile.
    is_seen: bool,
    /// Whether all members may have it at the same time. Then nothing gets lost, so there is a quorum.
    of_all: bool,
    begins: Action,
    ends: Action,
}

const NETWORKS: [Illness; 4] = [
    Illness {
        what: "it hears nobody",
        is_seen: true,
        of_all: false,
        begins: |machine| machine.cut_off_one_way(Way::In),
        ends: Machine::reconnect,
    },
    Illness {
        what: "nobody hears it",
        is_seen: true,
        of_all: false,
        begins: |machine| machine.cut_off_one_way(Way::Out),
        ends: Machine::reconnect,
    },
    Illness {
        what: "it loses a third of what it is sent",
        is_seen: false,
        of_all: false,
        begins: |machine| machine.lose_packets(33),
        ends: Machine::reconnect,
    },
    Illness { what: "its network is slow", is_seen: false, of_all: true, begins: slow_network, ends: end_slow_network },
];

const SLOW_DISK: [Illness; 1] =
    [Illness { what: "its disk is slow", is_seen: false, of_all: true, begins: slow_disk, ends: end_slow_disk }];

/// Which members fall ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ill {
    Follower,
    Leader,
    All,
}

/// The network of a follower or of the leader has each of these illnesses, and recovers before the member counts as
/// unhealthy. No member is replaced, the endpoints stay, and no acknowledged write is lost. The networks of all three
/// members are also slow at the same time.
pub(crate) async fn networks(bed: &mut Bed) -> Result<()> {
    recover(bed, "ill-networks", PATIENT, &NETWORKS).await
}

/// The etcd of a follower, of the leader, and of all three members stands still most of the time, but still answers in
/// time. However long this lasts, no member is replaced. Otherwise the same as with networks.
pub(crate) async fn slow_disks(bed: &mut Bed) -> Result<()> {
    recover(bed, "ill-slow-disks", IMPATIENT, &SLOW_DISK).await
}

/// A follower and the leader have each of these illnesses. All members together have those that leave a quorum.
async fn recover(bed: &Bed, namespace: &str, unhealthy_after: i64, illnesses: &[Illness]) -> Result<()> {
    let handle = up(bed, namespace, unhealthy_after).await?;
    let machines = handle.etcd_machines().await?;
    let before = (handle.membership(&bed.machines, &machines).await?, handle.status().await?.endpoints);
    let writers = History::begin(bed.world(), &handle.namespace, &handle.etcd_access().await?, LOAD).await?;
    for Illness { what, is_seen, of_all, begins, ends } in illnesses {
        for who in [Ill::Follower, Ill::Leader, Ill::All] {
            if who == Ill::All && !of_all {
                continue;
            }
            let members = handle.status().await?.members.into_iter();
            let is_it = |leads: bool| who == Ill::All || leads == (who == Ill::Leader);
            let found = members.filter(|member| is_it(member.leader)).map(|member| member.machine);
            let ill: Vec<String> = found.take(if who == Ill::All { usize::MAX } else { 1 }).collect();
            ensure!(!ill.is_empty(), "no such member: {who:?}");
            let machines = bed.machines_of(&handle.namespace, &ill)?;
            let theirs: Vec<&Machine> = machines.iter().collect();
            bed.fault(&format!("{who:?} {ill:?}: {what}"), &theirs, Silence::Lasting);
            try_join_all(machines.iter().map(|machine| on(machine, *begins))).await.context(*what)?;
            let end = Instant::now() + ILLNESS;
            if *is_seen {
                handle.until_condition("MembersHealthy", "False", "MemberUnhealthy", ILLNESS).await.context(*what)?;
            }
            tokio::time::sleep_until(end).await;
            bed.fault_is_over(&format!("{who:?} {ill:?}: that is over"), &theirs);
            try_join_all(machines.iter().map(|machine| on(machine, *ends))).await.context(*what)?;
            all_are_well(&handle).await?;
        }
    }
    let figures = nothing_is_lost(&handle, writers, &data_of(bed, &handle, &machines)?).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    let after = (handle.membership(&bed.machines, &machines).await?, handle.status().await?.endpoints);
    ensure!(after == before, "etcd was {before:?}, and is {after:?}");
    bed.exactly(&[(&handle, 3)]).await
}

/// A byte of a member's log differs from what was written. In a second cluster, the beginning of a member's database is
/// overwritten. There, etcd does not start any more, the member is replaced, and no acknowledged write is lost.
pub(crate) async fn disks(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let logs = are_damaged(bed, "ill-disks", "a byte of its log changes", Machine::corrupt_log);
    let databases = are_damaged(bed, "ill-databases", "its database is overwritten", corrupt_database);
    let logs = async { logs.await.context("logs") };
    let databases = async { databases.await.context("databases") };
    try_join!(logs, databases).map(drop)
}

/// Damages a follower, and then the leader.
async fn are_damaged(bed: &Bed, namespace: &str, what: &str, damage: Action) -> Result<()> {
    let handle = up(bed, namespace, IMPATIENT).await?;
    let writers = History::begin(bed.world(), &handle.namespace, &handle.etcd_access().await?, LOAD).await?;
    for leads in [false, true] {
        let status = handle.status().await?;
        let ill = status.members.iter().find(|member| member.leader == leads).context("no such member")?;
        let machine = bed.machines.get(&handle.namespace, &ill.machine)?;
        bed.fault(&format!("{}: {what}", ill.machine), &[&machine], Silence::Lasting);
        on(&machine, damage).await?;
        let machines = replaced(bed, &handle, &ill.machine).await?;
        only_theirs(bed, &handle, &machines).await?;
        let endpoints = handle.status().await?.endpoints;
        writers.endpoints(endpoints.split(',').map(str::to_owned).collect());
    }
    let machines = handle.etcd_machines().await?;
    let figures = nothing_is_lost(&handle, writers, &data_of(bed, &handle, &machines)?).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    Ok(())
}

/// Our manager does not reach a follower that the other members hear: no member is replaced. Then its etcd crashes
/// again and again. The other members receive something from it at each start, but it is still replaced.
pub(crate) async fn programs(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "ill-programs", IMPATIENT).await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let status = handle.status().await?;
    let ill = status.members.iter().find(|member| !member.leader).context("no such member")?;
    let (machine, us) = (bed.machines.get(&handle.namespace, &ill.machine)?, ADDRESS.parse()?);
    bed.fault(&format!("{}: only we do not hear it", ill.machine), &[&machine], Silence::Lasting);
    on(&machine, move |machine| machine.cut_off_from(us)).await?;
    let message = handle.until_condition("MembersHealthy", "Unknown", "HealthUnknown", PATIENCE).await?;
    ensure!(message.contains("the other members hear it"), "it says: {message}");
    bed.fault(&format!("{}: its etcd crashes again and again", ill.machine), &[&machine], Silence::Lasting);
    let crashes = async {
        while on(&machine, |machine| machine.exec(&["sh", "-c", CRASH])).await.is_ok() {
            tokio::time::sleep(CRASHES).await;
        }
        // The machine is gone, and nothing is left to crash.
        std::future::pending::<()>().await;
    };
    let machines = tokio::select! {
        machines = replaced(bed, &handle, &ill.machine) => machines?,
        () = crashes => anyhow::bail!("it no longer crashes"),
    };
    only_theirs(bed, &handle, &machines).await?;
    load.judged().await
}

/// Sends a request to etcd on a machine, through the gateway.
const CURL: &str = "cd /etc/etcd/pki && exec curl --silent --show-error --fail --cacert ca.crt --cert etcdctl-etcd-client.crt --key etcdctl-etcd-client.key https://127.0.0.1:2379";

/// An alarm says that the leader's copy differs from the others. Until a person decides, a rollout replaces no member.
/// When the leader's Machine is deleted, another member takes its place and copies the data of another leader, and then
/// the rollout goes on.
pub(crate) async fn data(bed: &mut Bed) -> Result<()> {
    let handle = alone(bed, Manifests::new("ill-data", "demo")?).await?;
    let old = handle.etcd_machines().await?;
    let named = until("a member leads", PATIENCE, async || {
        Ok(handle.status().await?.members.into_iter().find(|member| member.leader))
    })
    .await?;
    let witness = old.iter().find(|name| **name != named.machine).context("there is one member only")?;
    let witness = bed.machines.get(&handle.namespace, witness)?;
    let alarm =
        json!({"action": "ACTIVATE", "memberID": u64::from_str_radix(&named.id, 16)?.to_string(), "alarm": "CORRUPT"});
    said(&witness, &["sh", "-c", &format!("{CURL}/v3/maintenance/alarm --data '{alarm}'")]).await?;
    let message = handle.until_condition("NoAlarms", "False", "DataCorrupt", PATIENCE).await?;
    ensure!(message.contains(&named.name), "it says: {message}");

    let states = States::of(handle.etcds(), &handle.etcd).await?;
    changed(&handle, &another_spec()).await?;
    until("the rollout says why it does not begin", PATIENCE, async || {
        let (status, _, message) = up_to_date(&handle.status().await?)?;
        Ok((status == "False" && message.contains("no member joins")).then_some(()))
    })
    .await?;
    tokio::time::sleep(ILLNESS).await;
    ensure!(handle.etcd_machines().await? == old, "the Machines are {:?}", handle.etcd_machines().await?);

    handle.delete("Machine", &named.machine).await?;
    until(format!("the member of {} has left", named.machine), PATIENCE, async || {
        let machines = handle.etcd_machines().await?;
        ensure!(
            !machines.contains(&named.machine),
            "the Machines are {machines:?}: {:?}",
            handle.status().await?.conditions
        );
        Ok(Some(()))
    })
    .await?;
    for status in states.stop().await?.into_iter().filter_map(|etcd| etcd.status) {
        let leads = status.members.iter().any(|member| member.leader && member.id == named.id);
        ensure!(!leads || status.members.len() <= old.len(), "{} led when another one joined", named.name);
    }
    until("the alarm is ended", PATIENCE, async || {
        // Meanwhile the rollout replaces other members.
        let left = handle.status().await?.members.into_iter().next().context("no member is left")?;
        let machine = bed.machines.get(&handle.namespace, &left.machine)?;
        Ok(Some(said(&machine, &["/opt/bin/etcdctl.sh", "alarm", "disarm"]).await?))
    })
    .await?;
    // As long as the alarm is there, etcd refuses every request.
    let load = LowLoad::begin(bed, &handle).await?;
    until("the rollout has ended", PATIENCE, async || {
        let status = handle.status().await?;
        ensure!(up_to_date(&status)?.0 == "True", "{:?}", status.conditions);
        Ok(Some(()))
    })
    .await?;
    let machines = are_well(bed, &handle, old.len()).await?;
    ensure!(!machines.iter().any(|name| old.contains(name)), "the Machines are {machines:?}, and were {old:?}");
    only_theirs(bed, &handle, &machines).await?;
    load.judged().await
}

/// Waits until every member is healthy, and one leads.
pub(crate) async fn all_are_well(handle: &ClusterHandle) -> Result<()> {
    handle.until_all_are_well(PATIENCE).await
}

/// Waits until a condition reports that etcd is not available, and returns its message.
pub(crate) async fn unavailability_is_told(handle: &ClusterHandle, within: Duration) -> Result<String> {
    let message = until("it is told that etcd is not available", within, async || {
        let conditions = handle.status().await?.conditions;
        let available = conditions.into_iter().find(|condition| condition.type_ == "Available");
        let available = available.context("no condition")?;
        ensure!(available.status != "True", "{available:?}");
        Ok(Some(available.message))
    })
    .await?;
    ensure!(!message.is_empty(), "it is not explained");
    Ok(message)
}

/// Saves a copy of the data of one member after the other. The machine stands still meanwhile, or reboots. This alone
/// is not a reason to replace the member, so members count as unhealthy later until all copies are saved.
pub(crate) async fn copies_are_saved(
    bed: &Bed,
    handle: &ClusterHandle,
    machines: &[Machine],
    loss: DataLoss,
) -> Result<()> {
    unhealthy_after(handle, PATIENT).await?;
    for machine in machines {
        bed.fault(&format!("{}: a copy is saved", machine.spec().name), &[machine], Silence::AtMost(SAVED));
        loss.prepare(machine).await?;
        all_are_well(handle).await?;
    }
    unhealthy_after(handle, IMPATIENT).await
}

/// Changes the spec so that a member counts as unhealthy after this many seconds of failing checks.
pub(crate) async fn unhealthy_after(handle: &ClusterHandle, seconds: i64) -> Result<()> {
    changed(handle, &json!({"healthCheck": {"unhealthyAfterSeconds": seconds}})).await
}

/// Brings up three members, with the control plane released. Members count as unhealthy after this many seconds.
pub(crate) async fn up(bed: &Bed, namespace: &str, unhealthy_after: i64) -> Result<ClusterHandle> {
    used(bed, checked(Manifests::new(namespace, "demo")?, unhealthy_after)).await
}

/// Health checks come every second, and members count as unhealthy after this many seconds.
pub(crate) fn checked(manifests: Manifests, unhealthy_after: i64) -> Manifests {
    manifests.with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"intervalSeconds": 1, "unhealthyAfterSeconds": unhealthy_after});
    })
}
