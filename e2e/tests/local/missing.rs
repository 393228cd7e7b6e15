//! Something that a cluster needs is missing: its CA, its init Secret, or a member that a person has removed.

use crate::account::{deleted, made};
use crate::bring_up::{PATIENCE, released};
use crate::departures::{only_theirs, replaced};
use crate::forced::told;
use crate::load::LowLoad;
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::Health;
use e2e::bed::data::{Host, on, said, serves, stays_silent};
use e2e::bed::{Bed, ClusterHandle, Manifests, Membership};
use e2e::observer::Silence;
use e2e::until::until;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use local_infrastructure::machine::Machine;
use serde_json::json;
use std::time::{Duration, Instant};

/// Seconds between two checks, and until a member counts as unhealthy.
const CHECKS: (i64, i64) = (1, 4);
/// How long it may take until the status shows a change, or a Secret is corrected.
const NOTICED: Duration = Duration::from_secs(30);
/// How long the scenario waits to see that nothing happens.
const STEADY: Duration = Duration::from_secs(8);
/// Seconds that a Machine has to become a member, and a stranger to answer for the first time.
const GRACE: i64 = 20;
/// The peer URL of a stranger. Nothing listens there.
const STRANGER: &str = "https://10.77.255.254:2380";

/// The Secret with the CA is deleted. A machine that dies meanwhile is reported all the same, and not replaced. It
/// comes back, and the Secret is restored as the message asks: with its name and data, but without labels, which
/// backups may lack. Then the EtcdCluster is Ready again. All this is in mode `Replace`, which is the default: if our
/// manager blamed a member for the lack of a CA, it would replace the member.
pub(crate) async fn the_ca(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "ca-missing", "Replace").await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let (machines, mark) = (handle.etcd_machines().await?, bed.plane.mark());
    let name = api::names::ca_secret(&handle.cluster);
    let backup = handle.secrets().get(&name).await?;
    handle.secrets().delete(&name, &DeleteParams::default()).await?;
    let message = handle.until_condition("Ready", "False", "SecretInvalid", PATIENCE).await?;
    ensure!(message.contains(&name), "the Secret is named: {message}");

    let dead = handle.member_names(3)[1].clone();
    let machine = bed.machines.get(&handle.namespace, &dead)?;
    bed.fault(&format!("{dead} is killed"), &[&machine], Silence::Lasting);
    on(&machine, Machine::kill).await?;
    let message = handle
        .until_condition("MembersHealthy", "False", "MemberUnhealthy", NOTICED)
        .await
        .context("a machine dies while the CA is missing")?;
    ensure!(message.contains(&dead), "the member is named: {message}");
    // The message names it from its first failed check on. It is replaced only when it has failed for long enough.
    until("it counts as unhealthy", NOTICED, async || {
        let members = handle.status().await?.members;
        let failed = members.iter().any(|member| member.machine == dead && member.health == Health::Unhealthy);
        ensure!(failed, "the members are {members:?}");
        Ok(Some(()))
    })
    .await?;
    bed.fault_is_over(&format!("{dead} is switched on"), &[&machine]);
    Host::power_on(&machine).await?;
    // With the CA, it would be replaced at once if it still failed.
    handle.until_condition("MembersHealthy", "True", "MembersHealthy", PATIENCE).await.context("it is switched on")?;

    let restored = Secret {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        data: backup.data.clone(),
        type_: backup.type_.clone(),
        ..Secret::default()
    };
    handle.secrets().create(&PostParams::default(), &restored).await?;
    handle.until_condition("Ready", "True", "Ready", PATIENCE).await.context("the CA is back, without its labels")?;
    // The Secret has no owner now, like one that a user has made, so clusterctl moves it by its label.
    let mut wanted = backup.labels().clone();
    wanted.insert(api::names::MOVE_LABEL.to_owned(), String::new());
    until("the Secret has its labels again, and clusterctl's", NOTICED, async || {
        let labels = handle.secrets().get(&name).await?.labels().clone();
        ensure!(labels == wanted, "{labels:?} instead of {wanted:?}");
        Ok(Some(()))
    })
    .await?;
    deleted(bed, &handle, mark, &[])?;
    made(bed, &handle, mark, 0)?;
    ensure!(handle.etcd_machines().await? == machines, "the Machines were {machines:?}");
    load.judged().await
}

/// A member is removed with etcdctl. The status and an event report that its Machine has no member any more. No write
/// is lost, and neither a reboot of the machine nor the bootstrap commands bring the member back.
pub(crate) async fn a_member(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "member-missing", "Report").await?;
    let names = handle.member_names(3);
    let machine = |number: usize| bed.machines.get(&handle.namespace, &names[number]);
    let (witness, removed) = (machine(0)?, machine(2)?);
    let load = LowLoad::begin(bed, &handle).await?;
    let list = Membership::on(witness.clone()).await?;
    let member = list.members.iter().find(|member| member.name == names[2]).context("it is not listed")?;
    bed.removal_by_hand(&removed);
    is_removed(&witness, &member.id).await?;

    until("the missing member is told", NOTICED, async || {
        let conditions = handle.status().await?.conditions;
        let find = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
        let healthy = find("MembersHealthy").context("no condition MembersHealthy")?;
        let since = format!("of Machine {} has been missing from the member list since 2", names[2]);
        ensure!(healthy.status == "False" && healthy.message.contains(&since), "{healthy:?}");
        let ready = find("Ready").context("no condition Ready")?;
        // In mode `Report` the member is not replaced: the message says how a person has it replaced.
        let next = format!("Delete Machine {} to have it replaced", names[2]);
        ensure!(ready.status == "False" && ready.message.contains(&next), "{ready:?}");
        Ok(Some(()))
    })
    .await?;
    until("an event tells of the missing member", NOTICED, async || {
        let events = handle.events_about("EtcdCluster", &handle.etcd).await?;
        let next = format!("to have it replaced at once, delete Machine {}", names[2]);
        let told = events.iter().any(|event| event.starts_with("Warning MemberMissing: ") && event.contains(&next));
        ensure!(told, "no event tells of {}: {events:?}", names[2]);
        Ok(Some(()))
    })
    .await?;

    let two = Membership::on(witness.clone()).await?;
    ensure!(two.voters() == names[..2], "{two:?}");
    let again = Host::rerun_bootstrap(&removed, Duration::from_secs(30)).await?;
    ensure!(!again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    Host::reboot(&removed).await?;
    stays_silent(&removed, Duration::from_secs(5)).await?;
    let now = Membership::on(witness.clone()).await?;
    ensure!(now == two, "the members were {two:?}, and are {now:?}");
    for number in 0..2 {
        serves(&machine(number)?).await?;
    }
    load.judged().await
}

/// The init Secret and the init lock, by which later members find the voters and are admitted, are deleted while all
/// is well, and a person adds a learner. The Secret is made again with the same content. The stranger is reported and
/// left alone, and no member is added beside it.
pub(crate) async fn the_init_secret(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "init-missing", "Report").await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let (machines, name) = (handle.etcd_machines().await?, api::names::init_secret(&handle.cluster));
    let urls = handle.secret(&name, "clientUrls").await?;
    let id = handle.secret(&name, "clusterId").await?;
    let locks = Api::<ConfigMap>::namespaced(bed.client(), &handle.namespace);
    let found = locks.list(&ListParams::default()).await?;
    let lock = api::names::init_lock(&handle.cluster);
    ensure!(found.iter().any(|found| found.name_any() == lock), "there is no init lock");
    locks.delete(&lock, &DeleteParams::default()).await?;
    handle.secrets().delete(&name, &DeleteParams::default()).await?;
    until("the init Secret is there again", NOTICED, async || {
        let same = handle.secret(&name, "clientUrls").await? == urls && handle.secret(&name, "clusterId").await? == id;
        ensure!(same, "it says something else");
        Ok(Some(()))
    })
    .await?;

    let witness = bed.machines.get(&handle.namespace, &machines[0])?;
    adds_a_stranger(&witness).await?;
    // All wanted members are there, so the EtcdCluster is Ready, and only MembersHealthy reports the stranger.
    let message = handle.until_condition("MembersHealthy", "Unknown", "HealthUnknown", NOTICED).await?;
    ensure!(message.contains("runs on no Machine"), "it says: {message}");
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    handle.etcds().patch(&handle.etcd, &PatchParams::default(), &patch).await?;
    until("growth waits for the stranger", NOTICED, async || {
        let conditions = handle.status().await?.conditions;
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        let message = ready.map(|ready| ready.message).unwrap_or_default();
        let told = message.contains(STRANGER) && message.contains("etcdctl member remove");
        ensure!(told && message.contains("Nothing is added beside it"), "it says: {message}");
        Ok(Some(()))
    })
    .await?;
    tokio::time::sleep(STEADY).await;
    let list = Membership::on(witness.clone()).await?;
    ensure!(list.members.len() == 4 && list.voters() == machines, "{list:?}");
    ensure!(handle.status().await?.members.len() == 4, "the status does not show it");
    load.judged().await
}

/// Mode `Replace`, which is the default. A member is removed with etcdctl: its Machine is replaced after its grace. A
/// learner that never answers is added with etcdctl: it is reported, and removed once it has had as much time as a
/// member that starts.
pub(crate) async fn is_replaced(bed: &mut Bed) -> Result<()> {
    let manifests = Manifests::new("missing-replaced", "demo")?.with("EtcdCluster", |etcd| {
        let (interval, after) = CHECKS;
        etcd["spec"]["healthCheck"] =
            json!({"intervalSeconds": interval, "unhealthyAfterSeconds": after, "startupGraceSeconds": GRACE});
    });
    let handle = alone(bed, manifests).await?;
    let names = handle.etcd_machines().await?;
    let (witness, removed) =
        (bed.machines.get(&handle.namespace, &names[0])?, bed.machines.get(&handle.namespace, &names[2])?);
    let before = Membership::on(witness.clone()).await?;
    let member = before.members.iter().find(|member| member.name == names[2]).context("it is not listed")?;
    let load = LowLoad::begin(bed, &handle).await?;
    bed.removal_by_hand(&removed);
    is_removed(&witness, &member.id).await?;
    let begun = Instant::now();
    let message = handle.until_condition("MembersHealthy", "False", "MemberMissing", NOTICED).await?;
    ensure!(message.contains(&names[2]), "the member is named: {message}");
    let machines = replaced(bed, &handle, &names[2]).await?;
    println!("  {}: replaced after {:.0} s", handle.namespace, begun.elapsed().as_secs_f32());
    ensure!(begun.elapsed() >= seconds(GRACE)?, "it had {:?}, and {GRACE} s are its grace", begun.elapsed());
    let after = Membership::on(witness.clone()).await?;
    let stayed = before.stayed(&after);
    ensure!(after.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &handle, &machines).await?;

    let begun = adds_a_stranger(&witness).await?;
    let message = handle.until_condition("MembersHealthy", "Unknown", "HealthUnknown", NOTICED).await?;
    ensure!(message.contains("runs on no Machine"), "it says: {message}");
    let now = until("the stranger is removed", PATIENCE, async || {
        let list = Membership::on(witness.clone()).await?;
        ensure!(list.members.len() == 3, "{list:?}");
        Ok(Some(list))
    })
    .await?;
    println!("  {}: the stranger was removed after {:.0} s", handle.namespace, begun.elapsed().as_secs_f32());
    let patience = seconds(CHECKS.1 + GRACE)?;
    ensure!(begun.elapsed() >= patience, "it had {:?}, and {patience:?} are its time", begun.elapsed());
    ensure!(now == after, "the members were {after:?}, and are {now:?}");
    told(&handle, &["Normal MemberRemoved: ", "which no Machine carried"]).await?;
    ensure!(handle.etcd_machines().await? == machines, "the Machines are {:?}", handle.etcd_machines().await?);
    load.judged().await
}

/// Adds a learner that never answers. Returns when that began.
async fn adds_a_stranger(witness: &Machine) -> Result<Instant> {
    let add = ["add", "stranger", "--learner", "--peer-urls", STRANGER];
    is_changed(witness, &add, |list| list.members.iter().any(|member| member.peer_urls == [STRANGER])).await
}

/// Removes a member.
async fn is_removed(witness: &Machine, id: &str) -> Result<()> {
    is_changed(witness, &["remove", id], |list| list.members.iter().all(|member| member.id != id)).await.map(drop)
}

/// Changes the member list with etcdctl, and returns when the change began. It retries, because etcd refuses a change
/// in the first seconds after a member has joined. A change may have been made although the command failed.
async fn is_changed(witness: &Machine, change: &[&str], is_done: impl Fn(&Membership) -> bool) -> Result<Instant> {
    let command = [&["/opt/bin/etcdctl.sh", "member"], change].concat();
    until(format!("etcd takes the change {change:?}"), PATIENCE, async || {
        let begun = Instant::now();
        if let Err(refused) = said(witness, &command).await {
            let list = Membership::on(witness.clone()).await?;
            ensure!(is_done(&list), "{refused:#}; the members are {list:?}");
        }
        Ok(Some(begun))
    })
    .await
}

fn seconds(seconds: i64) -> Result<Duration> {
    Ok(Duration::from_secs(u64::try_from(seconds)?))
}

/// A cluster of three that is up, with this mode of remediation.
async fn up(bed: &Bed, namespace: &str, mode: &str) -> Result<ClusterHandle> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manifests = Manifests::new(namespace, "demo")?.with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"intervalSeconds": CHECKS.0, "unhealthyAfterSeconds": CHECKS.1});
        etcd["spec"]["remediation"] = json!({"mode": mode});
    });
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    Ok(handle)
}
