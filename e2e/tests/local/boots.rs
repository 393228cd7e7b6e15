//! Machines that boot late, or never.

use crate::bring_up::{PATIENCE, released};
use crate::during::agreed;
use crate::load::LowLoad;
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::RemovalState;
use api::{EtcdCluster, names};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::observer::Silence;
use e2e::scenarios::is_full;
use e2e::until::until;
use futures::future::try_join_all;
use futures::try_join;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a slow boot takes: well within the default grace, but longer than the grace of the other clusters. And the
/// seconds of failing checks that make a member unhealthy, which end before the boot does.
const SLOW: (Duration, i64) = (Duration::from_secs(25), 15);
/// The same with `E2E_FULL` set. The seconds are the default.
const FULL_SLOW: (Duration, i64) = (Duration::from_secs(90), 60);
/// A boot that ends after its Machine has been deleted.
const BOOT: Duration = Duration::from_secs(12);
/// Long enough for a probe of a member that is probed every second.
const PROBED: Duration = Duration::from_secs(5);
/// Keeps a Machine that we have released, as a pre-terminate hook of another controller does.
const THEIR_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/of-somebody-else";
/// A boot that takes longer than the grace, but not so long that its Machine counts as stuck.
const LATER: Duration = Duration::from_secs(30);
/// Grace of the clusters with a machine that never boots: as short as a busy computer allows for the other machines.
const GRACE: i64 = 20;

/// Side by side, a cluster for each case. A machine that is slow to boot causes no complaint. A machine that never
/// boots is reported, the cluster goes on without it as far as is safe, and the Machine is replaced if remediation is
/// on. A Machine that is deleted before it boots, and still initializes etcd, takes that etcd with it. A Machine that
/// is deleted, is released after its grace, and still joins, takes nothing with it.
pub(crate) async fn late_and_never(bed: &mut Bed) -> Result<()> {
    ClusterHandle::make_namespace(&bed.client(), "boots").await?;
    try_join!(late(bed), second_never(bed), replaced(bed), first_never(bed), deleted(bed), given_up(bed))?;
    Ok(())
}

async fn late(bed: &Bed) -> Result<()> {
    let (boot, unhealthy_after) = if is_full() { FULL_SLOW } else { SLOW };
    let manifests = Manifests::new("boots", "late")?.with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"unhealthyAfterSeconds": unhealthy_after});
    });
    let handle = apply(bed, manifests, |machines| machines.fault_boot_delay("boots", "late-etcd-1", boot)).await?;
    let load = LowLoad::begin_early(bed, &handle).await?;
    let mut seen = Vec::new();
    until("the cluster with the late machine is ready", boot + PATIENCE, async || {
        let status = handle.status().await?;
        seen.extend(status.conditions.iter().map(|c| (c.type_.clone(), c.reason.clone(), c.message.clone())));
        seen.sort();
        seen.dedup();
        anyhow::ensure!(status.ready, "{:?}", seen.last());
        Ok(Some(()))
    })
    .await?;
    let alarms: Vec<_> = seen.iter().filter(|(_, reason, _)| reason == "MachineNotBooting").collect();
    ensure!(alarms.is_empty(), "a slow boot was reported as a failure: {alarms:?}");
    let warnings = handle.warnings(3).await?;
    ensure!(warnings.is_empty(), "a slow boot is not a reason for warnings: {warnings:?}");
    released(&handle).await?;
    load.judged_of(bed, 3).await?;
    one_etcd_of_three(bed, &handle).await
}

/// The second of three never boots: the third joins beside it, and no fourth is made. When the second boots after all,
/// it joins.
async fn second_never(bed: &Bed) -> Result<()> {
    let dead = "second-etcd-1";
    let manifests = Manifests::new("boots", "second")?.with("EtcdCluster", |etcd| {
        short_grace(etcd);
        etcd["spec"]["remediation"] = json!({"mode": "Report"});
    });
    let handle = apply(bed, manifests, |machines| machines.fault_no_boot("boots", dead)).await?;
    let load = LowLoad::begin_early(bed, &handle).await?;
    let message = handle.until_condition("Ready", "False", "MachineNotBooting", PATIENCE).await?;
    ensure!(message.contains(dead), "the machine is named: {message}");
    says_why(bed, dead, &message)?;

    let healthy = ["second-etcd-0".to_owned(), "second-etcd-2".to_owned()];
    until("two voters are well", PATIENCE, async || {
        let status = handle.status().await?;
        ensure!(status.ready_replicas == 2, "{:?}", status.members);
        let etcd = handle.membership(&bed.machines, &healthy).await?;
        ensure!(etcd.voters() == healthy, "{:?}", etcd.members);
        Ok(Some(()))
    })
    .await?;
    let message = handle.until_condition("Ready", "False", "MachineNotBooting", PATIENCE).await?;
    ensure!(message.contains(dead), "the machine is still named: {message}");
    let warning = handle.until_the_only_warning().await?;
    ensure!(warning.starts_with("Warning MachineNotBooting") && warning.contains(dead), "the warning is: {warning}");
    stays_so(&handle, &["second-etcd-0", dead, "second-etcd-2"]).await?;
    ensure!(handle.control_plane_is_paused().await?, "the control plane is held back until all three are there");

    bed.machines.clear_faults("boots", dead)?;
    let machine = bed.machines.get("boots", dead)?;
    tokio::task::spawn_blocking(move || machine.reboot()).await??;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    load.judged_of(bed, 3).await?;
    one_etcd_of_three(bed, &handle).await
}

/// The second of three never boots. Without help, a replacement is made, and joins.
async fn replaced(bed: &Bed) -> Result<()> {
    let dead = "replaced-etcd-1";
    let manifests = Manifests::new("boots", "replaced")?.with("EtcdCluster", short_grace);
    let handle = apply(bed, manifests, |machines| machines.fault_no_boot("boots", dead)).await?;
    let load = LowLoad::begin_early(bed, &handle).await?;
    let message = handle.until_condition("Ready", "False", "MachineNotBooting", PATIENCE).await?;
    ensure!(message.contains(dead) && message.contains("the Machine is replaced at "), "it says: {message}");
    says_why(bed, dead, &message)?;
    let warning = handle.until_the_only_warning().await?;
    ensure!(warning.starts_with("Warning MachineNotBooting") && warning.contains(dead), "the warning is: {warning}");
    ends_with(bed, &handle, &["replaced-etcd-0", "replaced-etcd-2", "replaced-etcd-3"]).await?;
    load.judged().await
}

/// The first of three never boots: without it there is no etcd to join, so no other Machine is admitted, and none
/// boots.
async fn first_never(bed: &Bed) -> Result<()> {
    let dead = "first-etcd-0";
    let manifests = Manifests::new("boots", "first")?.with("EtcdCluster", short_grace);
    let handle = apply(bed, manifests, |machines| machines.fault_no_boot("boots", dead)).await?;
    let message = handle.until_condition("Ready", "False", "MachineNotBooting", PATIENCE).await?;
    ensure!(message.contains(dead), "the machine is named: {message}");
    says_why(bed, dead, &message)?;
    stays_so(&handle, &[dead, "first-etcd-1", "first-etcd-2"]).await?;
    for held_back in ["first-etcd-1", "first-etcd-2"] {
        ensure!(bed.machines.get("boots", held_back).is_err(), "{held_back} has been made, with nothing to join");
    }
    Ok(())
}

/// The first of three is deleted before it boots. No etcd has begun, so we release the Machine. The hook of another
/// controller keeps it, so it boots and initializes etcd. The EtcdCluster must not adopt that etcd, or it would wait
/// for it forever.
async fn deleted(bed: &Bed) -> Result<()> {
    let first = "deleted-etcd-0";
    let handle =
        apply(bed, Manifests::new("boots", "deleted")?, |machines| machines.fault_boot_delay("boots", first, BOOT))
            .await?;
    until_data(&handle, first).await?;
    keep(&handle, first, json!("scenario")).await?;
    handle.delete("Machine", first).await?;
    until_released(&handle, first, BOOT).await?;
    until("it initializes etcd", PATIENCE, async || {
        let etcd = handle.membership(&bed.machines, &[first.to_owned()]).await?;
        ensure!(etcd.voters() == [first], "{:?}", etcd.members);
        Ok(Some(()))
    })
    .await?;
    // The scenario is about this time, in which the controller could adopt that etcd.
    tokio::time::sleep(PROBED).await;
    for round in 0..3 {
        look_again(&handle, &json!({"spec": {"healthCheck": {"unhealthyAfterSeconds": 100 + round}}})).await?;
        let etcd = handle.etcds().get(&handle.etcd).await?;
        let recorded = etcd.annotations().get(names::CLUSTER_ID_ANNOTATION);
        let status = etcd.status.clone().unwrap_or_default();
        ensure!(recorded.is_none() && !status.initialized, "etcd {recorded:?} is taken for ours: {:?}", status.members);
    }
    keep(&handle, first, Value::Null).await?;
    ends_with(bed, &handle, &["deleted-etcd-1", "deleted-etcd-2", "deleted-etcd-3"]).await
}

/// The second of three is deleted, and when its grace ends, the first is the only voter. The Machine is kept until
/// another member votes too, because it may still join. Once released, it does join: its member is removed, and nothing
/// is lost.
async fn given_up(bed: &Bed) -> Result<()> {
    let (dead, slow) = ("given-etcd-1", "given-etcd-2");
    let manifests = Manifests::new("boots", "given")?.with("EtcdCluster", short_grace);
    let handle = apply(bed, manifests, |machines| {
        machines.fault_no_boot("boots", dead)?;
        machines.fault_boot_delay("boots", slow, LATER)
    })
    .await?;
    let load = LowLoad::begin_early(bed, &handle).await?;
    until_data(&handle, slow).await?;
    keep(&handle, dead, json!("scenario")).await?;
    handle.delete("Machine", dead).await?;
    until("it is said why it is kept", LATER, async || {
        let status = handle.status().await?;
        let said = status.conditions.iter().any(|condition| condition.message.contains("take the quorum with it"));
        ensure!(said && waits_for_us(&handle, dead).await?, "{:?}", status.conditions);
        let etcd = handle.membership(&bed.machines, &["given-etcd-0".to_owned()]).await?;
        ensure!(etcd.voters() == ["given-etcd-0"], "{:?}", etcd.members);
        Ok(Some(()))
    })
    .await?;
    until_released(&handle, dead, PATIENCE).await?;
    // Its replacement has become a voter first. Meanwhile the slow machine may be joining, so the members may disagree
    // for a moment.
    let there = ["given-etcd-0", "given-etcd-3"].map(str::to_owned);
    let etcd = agreed(bed, &handle, &there).await?;
    ensure!(there.iter().all(|name| etcd.voters().contains(&name.as_str())), "{:?}", etcd.members);

    bed.machines.clear_faults("boots", dead)?;
    let machine = bed.machines.get("boots", dead)?;
    tokio::task::spawn_blocking(move || machine.reboot()).await??;
    until("it has joined, and its member is removed", PATIENCE, async || {
        let removed = handle.status().await?.removed_members;
        ensure!(
            removed.iter().any(|record| record.machine == dead && record.state == RemovalState::Removed),
            "{removed:?}"
        );
        Ok(Some(()))
    })
    .await?;
    keep(&handle, dead, Value::Null).await?;
    until(format!("Machine {dead} is gone"), PATIENCE, async || {
        let there = handle.etcd_machines().await?;
        Ok((!there.iter().any(|name| name == dead)).then_some(()))
    })
    .await?;
    ends_with(bed, &handle, &["given-etcd-0", slow, "given-etcd-3"]).await?;
    load.judged().await
}

/// Checks that the message about a machine that does not boot has all that a person needs to find the cause: which
/// address does not answer, with which error, since when, and when the machine could boot.
fn says_why(bed: &Bed, machine: &str, message: &str) -> Result<()> {
    let url = names::client_url(&bed.machines.get("boots", machine)?.address().to_string());
    let why = format!("{url}: connection refused");
    ensure!(url.ends_with(":2379") && message.contains(&why), "{why:?} is missing in {message}");
    for before in ["could boot at ", "(since "] {
        let (_, rest) = message.split_once(before).with_context(|| format!("{before:?} is missing in {message}"))?;
        let time = rest.split([',', ')']).next().unwrap_or_default();
        time.parse::<Timestamp>().with_context(|| format!("{time:?} is not a time in {message}"))?;
    }
    Ok(())
}

/// Waits until a Machine has its bootstrap data.
async fn until_data(handle: &ClusterHandle, machine: &str) -> Result<()> {
    until(format!("{machine} has its bootstrap data"), PATIENCE, async || {
        let machine = handle.api("Machine").get(machine).await?;
        let data = machine.data.pointer("/spec/bootstrap/dataSecretName").cloned();
        Ok(data.filter(|name| !name.is_null()).map(|_| ()))
    })
    .await
}

/// Whether a Machine has our pre-terminate hook.
async fn waits_for_us(handle: &ClusterHandle, machine: &str) -> Result<bool> {
    let machine = handle.api("Machine").get(machine).await?;
    Ok(machine.annotations().contains_key(names::PRE_TERMINATE_HOOK_ANNOTATION))
}

pub(crate) async fn until_released(handle: &ClusterHandle, machine: &str, patience: Duration) -> Result<()> {
    until("we have let it go", patience, async || Ok((!waits_for_us(handle, machine).await?).then_some(()))).await
}

/// Adds the pre-terminate hook of another controller to a Machine, or removes it.
pub(crate) async fn keep(handle: &ClusterHandle, machine: &str, value: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {(THEIR_HOOK): value}}}));
    handle.api("Machine").patch(machine, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the cluster is Ready and released, with these Machines and no others.
async fn ends_with(bed: &Bed, handle: &ClusterHandle, machines: &[&str]) -> Result<()> {
    handle.until_ready(PATIENCE).await?;
    released(handle).await?;
    let there = handle.etcd_machines().await?;
    ensure!(there == machines, "{there:?}");
    let etcd = handle.membership(&bed.machines, &there).await?;
    ensure!(etcd.voters() == there, "{:?}", etcd.members);
    Ok(())
}

/// Injects the fault, before there is a machine, and then makes the cluster.
async fn apply(
    bed: &Bed,
    manifests: Manifests,
    fault: impl FnOnce(&local_infrastructure::machine::Machines) -> local_infrastructure::machine::Result<()>,
) -> Result<ClusterHandle> {
    bed.fault("machines boot late, or never", &[], Silence::Lasting);
    fault(&bed.machines)?;
    manifests.apply(&bed.client()).await?;
    Ok(ClusterHandle::new(&bed.client(), &manifests))
}

fn short_grace(etcd: &mut Value) {
    etcd["spec"]["healthCheck"] = json!({"startupGraceSeconds": GRACE, "intervalSeconds": 2});
}

/// Checks that these are the Machines, also after the controller has checked again. Changes without an effect make it
/// do so.
async fn stays_so(handle: &ClusterHandle, machines: &[&str]) -> Result<()> {
    for round in 0..3 {
        let patch = json!({"spec": {"healthCheck": {"unhealthyAfterSeconds": 100 + round}}});
        look_again(handle, &patch).await?;
        let found = handle.etcd_machines().await?;
        ensure!(found == machines, "Machines {machines:?} are wanted, there are {found:?}");
    }
    Ok(())
}

/// How long the controller may take to see a change where it does not matter how soon it does. Beside nine clusters that
/// come up on two processors, it took 20 s.
const SEEN: Duration = Duration::from_secs(60);

/// Changes the EtcdCluster, and waits until the controller has taken the change into account.
pub(crate) async fn look_again(handle: &ClusterHandle, patch: &Value) -> Result<()> {
    look_again_within(handle, patch, SEEN).await
}

/// The same, and the controller has no more than this time.
pub(crate) async fn look_again_within(handle: &ClusterHandle, patch: &Value, time: Duration) -> Result<()> {
    let params = PatchParams::default();
    let changed: EtcdCluster = handle.etcds().patch(&handle.etcd, &params, &Patch::Merge(patch)).await?;
    let generation = changed.metadata.generation.context("the API server counts generations")?;
    until(format!("generation {generation} of {} is seen", changed.name_any()), time, async || {
        let seen = handle.status().await?.observed_generation;
        ensure!(seen >= Some(generation), "generation {seen:?} is");
        Ok(Some(()))
    })
    .await
}

async fn one_etcd_of_three(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    let names = handle.member_names(3);
    let etcd = handle.membership(&bed.machines, &names).await?;
    ensure!(etcd.voters() == names, "{:?}", etcd.members);
    let machines = handle.etcd_machines().await?;
    ensure!(machines == names, "{machines:?}");
    try_join_all(names.iter().map(|name| handle.secret(name, "value"))).await?;
    Ok(())
}
