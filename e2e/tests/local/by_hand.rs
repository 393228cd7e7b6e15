//! Machines that a person deletes with kubectl: they go one after the other, and only when etcd can do without them.

mod witness;

use crate::bring_up::PATIENCE;
use crate::departures::only_theirs;
use crate::ill::{IMPATIENT, checked};
use crate::kills::admitted;
use crate::load::LowLoad;
use crate::records::{Record, always_available};
use crate::repair;
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use e2e::bed::data::{Host, Keys};
use e2e::bed::{Bed, ClusterHandle, Manifests, Membership};
use e2e::until::until;
use futures::try_join;
use kube::ResourceExt;
use std::time::Duration;
use witness::Witness;

/// How long etcd may be without a leader: a few elections.
const STALL: Duration = Duration::from_secs(10);
/// How long the scenario watches a cluster that has to stay as it is.
const STEADY: Duration = Duration::from_secs(8);

/// How long the boot takes during which the Machine is deleted.
const BOOT: Duration = Duration::from_secs(15);

/// Side by side: two of three Machines are deleted together, the only Machine of a cluster of one is deleted, and a
/// Machine is deleted while its machine boots.
pub(crate) async fn machines_are_deleted(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    try_join!(
        async { two_of_three(bed).await.context("two of three Machines are deleted") },
        async { the_only_one(bed).await.context("the only Machine is deleted") },
        async { one_that_boots(bed).await.context("a Machine is deleted while it boots") }
    )?;
    Ok(())
}

/// At most one Machine goes at a time, and the quorum is kept at every moment. The other Machine waits, and a condition
/// says so. In the end, three members are healthy again, two of them on other Machines, and no write is lost.
async fn two_of_three(bed: &Bed) -> Result<()> {
    let handle = up(bed, "by-hand-two", 3).await?;
    let before = handle.etcd_machines().await?;
    let (stay, doomed) = before.split_first().context("no Machine")?;
    let record = Record::of(&bed.client(), &handle.namespace).await?;
    let witness = Witness::start(bed, &handle).await?;
    let delete = |name| handle.delete("Machine", name);
    try_join!(delete(&doomed[0]), delete(&doomed[1]))?;

    let said = until_it_is_said(&handle, doomed).await?;
    println!("  meanwhile it is said: {said}");
    until("three other members are well", PATIENCE * 2, async || {
        let machines = handle.etcd_machines().await?;
        ensure!(!machines.iter().any(|name| doomed.contains(name)), "the Machines are {machines:?}");
        let status = handle.status().await?;
        ensure!(status.ready && status.ready_replicas == 3, "{:?}", status.conditions);
        let etcd = handle.membership(&bed.machines, &machines).await?;
        ensure!(etcd.voters() == machines && machines.len() == 3, "Machines {machines:?}, voters {:?}", etcd.voters());
        ensure!(machines.contains(stay), "{stay}, which nobody has deleted, is gone: {machines:?}");
        Ok(Some(()))
    })
    .await?;
    witness.stop(3, STALL).await?;
    always_available(&record.stop().await?)
}

/// The Machine waits, and a condition says so. Its data can be read all the time. If it is replaced, the replacement
/// has the data.
async fn the_only_one(bed: &Bed) -> Result<()> {
    let handle = up(bed, "by-hand-one", 1).await?;
    let only = handle.etcd_machines().await?;
    let witness = Witness::start(bed, &handle).await?;
    handle.delete("Machine", &only[0]).await?;
    let said = until_it_is_said(&handle, &only).await?;
    println!("  meanwhile it is said: {said}");
    // The witness goes on writing and reading.
    tokio::time::sleep(STEADY).await;
    until("every Machine has a member", PATIENCE, async || {
        let machines = handle.etcd_machines().await?;
        let etcd = handle.membership(&bed.machines, &machines).await?;
        ensure!(!machines.is_empty() && etcd.voters() == machines, "Machines {machines:?}, members {:?}", etcd.members);
        Ok(Some(()))
    })
    .await?;
    witness.stop(1, STALL).await
}

/// The only member is dead, and a person deletes its Machine, with which the data would go. A condition reports that,
/// and the Machine, its infrastructure machine and its data are kept. When the machine is on again, it has everything
/// that was written. Another member takes the data over, and the Machine goes.
pub(crate) async fn the_only_one_that_is_dead(bed: &mut Bed) -> Result<()> {
    let manifests = checked(Manifests::new("by-hand-dead", "demo")?.replicas(1), IMPATIENT);
    let handle = alone(bed, manifests).await?;
    let only = handle.etcd_machines().await?;
    let machine = bed.machines.get(&handle.namespace, &only[0])?;
    let before = Membership::on(machine.clone()).await?;
    let mut keys = Keys::default();
    keys.write(&machine, 20).await?;
    repair::dies(bed, &handle, &only[0]).await?;
    handle.until_condition("Available", "False", "QuorumLost", PATIENCE).await?;
    handle.delete("Machine", &only[0]).await?;
    let message = handle.until_condition("Ready", "False", "WouldLoseData", PATIENCE).await?;
    println!("  {}: {message}", handle.namespace);
    ensure!(message.contains(&only[0]) && message.contains("is kept"), "it says: {message}");
    tokio::time::sleep(STEADY).await;
    handle.until_condition("Ready", "False", "WouldLoseData", PATIENCE).await?;
    let kept = handle.api("Machine").get(&only[0]).await?;
    let hook = api::names::PRE_TERMINATE_HOOK_ANNOTATION;
    ensure!(kept.annotations().contains_key(hook), "the hook is gone: {:?}", kept.metadata);
    ensure!(handle.etcd_machines().await? == only, "the Machines are {:?}", handle.etcd_machines().await?);
    let its_own = handle.names("LocalMachine", "").await?;
    ensure!(its_own == only && machine.directory().exists(), "of its machine there is {its_own:?}");

    bed.fault_is_over(&format!("{} is on again", only[0]), &[&machine]);
    Host::power_on(&machine).await?;
    let machines = until("another member has taken over", PATIENCE * 2, async || {
        let machines = handle.etcd_machines().await?;
        let status = handle.status().await?;
        ensure!(machines.len() == 1 && machines != only, "the Machines are {machines:?}: {:?}", status.conditions);
        ensure!(status.ready && status.operation.is_none(), "{:?}", status.conditions);
        Ok(Some(machines))
    })
    .await?;
    let etcd = handle.membership(&bed.machines, &machines).await?;
    ensure!(etcd.cluster_id == before.cluster_id && etcd.voters() == machines, "etcd was {before:?}, and is {etcd:?}");
    keys.are_all_on(&bed.machines.get(&handle.namespace, &machines[0])?).await?;
    only_theirs(bed, &handle, &machines).await
}

/// The machine would join just before it is destroyed. So the Machine stays until the machine has joined. Then its
/// member leaves etcd, and the Machine goes.
async fn one_that_boots(bed: &Bed) -> Result<()> {
    let client = bed.client();
    let (namespace, doomed) = ("by-hand-boots", "demo-etcd-1");
    ClusterHandle::make_namespace(&client, namespace).await?;
    bed.machines.fault_boot_delay(namespace, doomed, BOOT)?;
    let manifests = Manifests::new(namespace, "demo")?.without_control_plane();
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    until(format!("{doomed} may boot"), PATIENCE, async || {
        let may = admitted(&handle).await?;
        ensure!(may.iter().any(|name| name == doomed), "bootstrap data is there for {may:?}");
        Ok(Some(()))
    })
    .await?;
    let load = LowLoad::begin_early(bed, &handle).await?;
    handle.delete("Machine", doomed).await?;
    let said = until(format!("it is said what {doomed} waits for"), BOOT, async || {
        let conditions = handle.status().await?.conditions;
        let said = conditions.into_iter().map(|condition| condition.message);
        Ok(said.into_iter().find(|message| message.contains(doomed) && message.contains("may still become a member")))
    })
    .await?;
    println!("  meanwhile it is said: {said}");
    until("three other members are well", PATIENCE * 2, async || {
        let machines = handle.etcd_machines().await?;
        let status = handle.status().await?;
        ensure!(status.ready && !machines.iter().any(|name| name == doomed), "{machines:?}: {:?}", status.conditions);
        let etcd = handle.membership(&bed.machines, &machines).await?;
        ensure!(etcd.voters() == machines && machines.len() == 3, "Machines {machines:?}, members {:?}", etcd.members);
        Ok(Some(()))
    })
    .await?;
    let warnings = handle.warnings(3).await?;
    ensure!(!warnings.iter().any(|warning| warning.contains("QuorumLost")), "{warnings:?}");
    load.judged().await
}

/// Waits until one of these Machines is being deleted and a condition says what it waits for. Returns the condition.
async fn until_it_is_said(handle: &ClusterHandle, doomed: &[String]) -> Result<String> {
    until(format!("it is said what Machines {doomed:?} wait for"), Duration::from_secs(30), async || {
        let machines = handle.api("Machine").list(&kube::api::ListParams::default()).await?.items;
        let waits = |name: &String| {
            machines.iter().any(|machine| machine.name_any() == *name && machine.metadata.deletion_timestamp.is_some())
        };
        let waiting: Vec<&String> = doomed.iter().filter(|name| waits(name)).collect();
        ensure!(!waiting.is_empty(), "none of {doomed:?} waits");
        let conditions = handle.status().await?.conditions;
        let about = conditions.iter().find(|condition| {
            // A condition that only names the Machine explains nothing.
            let said =
                |name: &&String| condition.message.split_once(name.as_str()).is_some_and(|(_, why)| why.len() > 10);
            let topic = format!("{} {} {}", condition.type_, condition.reason, condition.message).to_lowercase();
            waiting.iter().any(said) && topic.contains("delet")
        });
        let about = about.with_context(|| format!("{waiting:?} wait; the conditions are {conditions:?}"))?;
        Ok(Some(format!("{}={} {}: {}", about.type_, about.status, about.reason, about.message)))
    })
    .await
}

/// Brings up a cluster without a control plane. Control planes here never get a Node, so they would never roll out with
/// the endpoints of other members, and a Machine may have to wait for that.
async fn up(bed: &Bed, namespace: &str, replicas: i64) -> Result<ClusterHandle> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manifests = Manifests::new(namespace, "demo")?.replicas(replicas).without_control_plane();
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    handle.until_ready(PATIENCE).await?;
    Ok(handle)
}
