//! The address of one cluster's member is given to a member of another cluster.

use crate::bring_up::{PATIENCE, released};
use crate::load::LowLoad;
use anyhow::{Context, Result, bail, ensure};
use api::EtcdClusterStatus;
use api::names;
use e2e::apply::apply_object;
use e2e::bed::{Bed, ClusterHandle, Manifests, Membership};
use e2e::observer::Silence;
use e2e::until::until;
use futures::future::try_join_all;
use kube::api::{Patch, PatchParams};
use local_infrastructure::machine::Machine;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The CA that the user supplies for both clusters.
const CERT: &str = include_str!("../../../etcdadm/src/pki/testdata/pkcs1-rsa.crt");
const KEY: &str = include_str!("../../../etcdadm/src/pki/testdata/pkcs1-rsa.key");
/// Long enough for several rounds of health checks, one per second.
const ROUNDS: Duration = Duration::from_secs(8);
/// Seconds of failing checks after which a member counts as unhealthy: `TOLD` where remediation only reports,
/// `REPLACED` where it replaces members. On a busy computer, checks may fail for 2 s although the member is well, and
/// its replacement would take an address too.
const TOLD: i64 = 2;
const REPLACED: i64 = 8;

/// Two clusters with the same CA. One loses two of its three machines, and with them its quorum. The other one grows,
/// and gets the address of one of these machines. So the only member that answers for the first cluster belongs to the
/// second one, and its certificate is valid. Nothing that it answers is believed, and nothing changes in the second
/// cluster because of it.
pub(crate) async fn given_to_another_cluster(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let (ours, theirs) =
        futures::try_join!(up(bed, "addresses-a", "lost", 3, TOLD), up(bed, "addresses-b", "taker", 1, TOLD))?;
    let load = LowLoad::begin(bed, &theirs).await?;
    let before = ours.status().await?;
    let published = ours.control_plane_endpoints().await?;
    let machines = ours.etcd_machines().await?;
    for name in &machines[1..] {
        let machine = bed.machines.get(&ours.namespace, name)?;
        bed.fault(&format!("{name} is killed"), &[&machine], Silence::Lasting);
        tokio::task::spawn_blocking(move || machine.kill()).await??;
    }
    ours.until_condition("Available", "False", "QuorumLost", PATIENCE).await?;

    let address = bed.machines.get(&ours.namespace, &machines[1])?.address();
    hand_over(bed, &address.to_string(), &format!("machine/{}/{}", theirs.namespace, theirs.member_names(2)[1]))?;
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    theirs.etcds().patch(&theirs.etcd, &PatchParams::default(), &patch).await?;
    let grown = until("the other cluster has grown", PATIENCE, async || {
        let status = theirs.status().await?;
        ensure!(status.ready && status.members.len() == 3, "{:?}", status.conditions);
        Ok(Some(status))
    })
    .await?;
    let urls: Vec<&str> = grown.endpoints.split(',').collect();
    ensure!(urls.contains(&names::client_url(&address.to_string()).as_str()), "nobody took {address}: {urls:?}");
    let members = etcd(bed, &theirs).await?;

    tokio::time::sleep(ROUNDS).await;
    is_what_it_was(&before, &ours.status().await?).context("the cluster that lost its quorum")?;
    let found = ours.control_plane_endpoints().await?;
    ensure!(found == published, "its control plane had {published:?}, and has {found:?}");
    let left = ours.etcd_machines().await?;
    ensure!(left == machines, "its Machines were {machines:?}, and are {left:?}");
    let found = etcd(bed, &theirs).await?;
    ensure!(found == members, "the other etcd was {members:?}, and is {found:?}");
    is_what_it_was(&grown, &theirs.status().await?).context("the cluster that took the address")?;
    theirs.until_ready(PATIENCE).await?;
    // Only the second cluster has clients: the first one has no quorum, so nobody can write to it.
    load.judged().await?;

    // The result is the same after a change of the spec, which makes the controller check everything again.
    and_after_another_look(bed, &ours, &before).await
}

/// Two clusters with the same CA, all of whose members are healthy. A Machine of each shows the address of a Machine of
/// the other, as when an infrastructure mixes them up. Neither cluster takes anything over from the other, and nothing
/// changes.
pub(crate) async fn exchanged(bed: &mut Bed) -> Result<()> {
    are_exchanged(bed, ["addresses-c", "addresses-d"], TOLD).await
}

/// The same with remediation that replaces members. If a member of another etcd answers at a Machine's address, nothing
/// is known about the Machine's own member.
pub(crate) async fn exchanged_where_members_are_replaced(bed: &mut Bed) -> Result<()> {
    are_exchanged(bed, ["addresses-e", "addresses-f"], REPLACED).await
}

async fn are_exchanged(bed: &Bed, namespaces: [&str; 2], unhealthy_after: i64) -> Result<()> {
    let (left, right) = futures::try_join!(
        up(bed, namespaces[0], "left", 3, unhealthy_after),
        up(bed, namespaces[1], "right", 3, unhealthy_after)
    )?;
    // Long enough for the replacement of a member that is wrongly taken to be unhealthy.
    let rounds = ROUNDS + Duration::from_secs(u64::try_from(unhealthy_after)?);
    let both = [&left, &right];
    let loads = try_join_all(both.map(|handle| LowLoad::begin(bed, handle))).await?;
    let before = try_join_all(both.map(ClusterHandle::status)).await?;
    let machines = try_join_all(both.map(ClusterHandle::etcd_machines)).await?;
    let shown = async |handle: &ClusterHandle| {
        let machine = handle.api("LocalMachine").get(&handle.member_names(2)[1]).await?;
        anyhow::Ok(machine.data["status"]["addresses"].clone())
    };
    let (of_left, of_right) = futures::try_join!(shown(&left), shown(&right))?;
    ensure!(of_left != of_right, "both show {of_left}");
    let (one, other) = (left.member_names(2).remove(1), right.member_names(2).remove(1));
    let hidden = [bed.machines.get(&left.namespace, &one)?, bed.machines.get(&right.namespace, &other)?];
    let hidden: Vec<&Machine> = hidden.iter().collect();
    let what = "two Machines show each other's address";
    bed.fault(what, &hidden, Silence::Lasting);
    futures::try_join!(show(&left, &one, &of_right), show(&right, &other, &of_left))?;
    tokio::time::sleep(rounds).await;
    for (index, handle) in both.into_iter().enumerate() {
        let again = json!({"spec": {"healthCheck": {"unhealthyAfterSeconds": unhealthy_after + 1}}});
        crate::boots::look_again(handle, &again).await?;
        tokio::time::sleep(rounds).await;
        let now = handle.status().await?;
        is_what_it_was(&before[index], &now).context(handle.etcd.clone())?;
        ensure!(now.operation.is_none() && now.removed_members.is_empty(), "{:?}", now.operation);
        ensure!(now.last_remediation.is_none(), "{:?}", now.last_remediation);
        let (was, is) = (&machines[index], handle.etcd_machines().await?);
        ensure!(is == *was, "the Machines of {} were {was:?}, and are {is:?}", handle.etcd);
        ensure!(etcd(bed, handle).await?.voters() == *was, "{:?}", etcd(bed, handle).await?.members);
        let found = handle.control_plane_endpoints().await?.join(",");
        ensure!(found == now.endpoints, "the control plane of {} has {found}", handle.etcd);
    }
    for handle in both {
        show_its_own(handle, &handle.member_names(2)[1]).await?;
        handle.until_ready(PATIENCE).await?;
    }
    bed.fault_is_over(what, &hidden);
    try_join_all(loads.into_iter().map(LowLoad::judged)).await.map(drop)
}

/// Makes a Machine show addresses that are not its machine's. The LocalMachine stays paused, because its controller
/// would correct the addresses.
pub(crate) async fn show(handle: &ClusterHandle, machine: &str, addresses: &Value) -> Result<()> {
    let machines = handle.api("LocalMachine");
    pause(handle, machine, Some("")).await?;
    until(format!("LocalMachine {machine} is paused"), PATIENCE, async || {
        let conditions = machines.get(machine).await?.data["status"]["conditions"].clone();
        let is = |condition: &Value| condition["type"] == "Paused" && condition["status"] == "True";
        Ok(conditions.as_array().is_some_and(|conditions| conditions.iter().any(is)).then_some(()))
    })
    .await?;
    let own = PatchParams::default();
    let patch = json!({"status": {"addresses": addresses}});
    machines.patch_status(machine, &own, &Patch::Merge(&patch)).await.context("change the address")?;
    let mut looks = 0;
    until(format!("Machine {machine} shows {addresses}"), PATIENCE, async || {
        // None of these Machines gets a Node, so Cluster API's reconciles fail, and its retries are minutes apart. A
        // change of the Machine makes Cluster API reconcile it now.
        looks += 1;
        let touch = json!({"metadata": {"annotations": {"looks": looks.to_string()}}});
        handle.api("Machine").patch(machine, &own, &Patch::Merge(&touch)).await.context("touch the Machine")?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let found = handle.api("Machine").get(machine).await?.data["status"]["addresses"].clone();
        ensure!(found == *addresses, "it has {found}");
        Ok(Some(()))
    })
    .await
}

/// Lets a Machine show its machine's addresses again.
pub(crate) async fn show_its_own(handle: &ClusterHandle, machine: &str) -> Result<()> {
    pause(handle, machine, None).await
}

async fn pause(handle: &ClusterHandle, machine: &str, value: Option<&str>) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {(names::PAUSED_ANNOTATION): value}}}));
    let patched = handle.api("LocalMachine").patch(machine, &PatchParams::default(), &patch).await;
    patched.map(drop).with_context(|| format!("pause LocalMachine {machine}, or no longer"))
}

/// The same after the controller has checked everything again. The machine of the last member keeps running.
async fn and_after_another_look(bed: &Bed, ours: &ClusterHandle, before: &EtcdClusterStatus) -> Result<()> {
    let patch = json!({"spec": {"healthCheck": {"unhealthyAfterSeconds": 3}}});
    crate::boots::look_again(ours, &patch).await?;
    tokio::time::sleep(ROUNDS).await;
    is_what_it_was(before, &ours.status().await?).context("after another look")?;
    let machine = bed.machines.get(&ours.namespace, &ours.member_names(1)[0])?;
    ensure!(machine.is_running(), "the machine of the last member has been taken away");
    Ok(())
}

/// Checks that cluster ID, member IDs and endpoints are the same as before.
fn is_what_it_was(before: &EtcdClusterStatus, now: &EtcdClusterStatus) -> Result<()> {
    let ids = |status: &EtcdClusterStatus| status.members.iter().map(|member| member.id.clone()).collect::<Vec<_>>();
    ensure!(now.cluster_id == before.cluster_id, "its ID was {}, and is {}", before.cluster_id, now.cluster_id);
    ensure!(ids(now) == ids(before), "its members were {:?}, and are {:?}", before.members, now.members);
    ensure!(now.endpoints == before.endpoints, "its endpoints were {}, and are {}", before.endpoints, now.endpoints);
    Ok(())
}

async fn etcd(bed: &Bed, handle: &ClusterHandle) -> Result<Membership> {
    handle.membership(&bed.machines, &handle.etcd_machines().await?).await
}

/// From now on, an address is reserved for another owner, as when a lease of the address runs out.
fn hand_over(bed: &Bed, address: &str, owner: &str) -> Result<()> {
    let file = bed.world().state("machines")?.join("addresses").join(address);
    ensure!(Path::new(&file).exists(), "{} is not reserved", file.display());
    std::fs::write(&file, owner).with_context(|| format!("write {}", file.display()))
}

/// Brings up a cluster with the user's CA. Members are replaced only if `unhealthy_after` is at least `REPLACED`.
async fn up(bed: &Bed, namespace: &str, name: &str, replicas: i64, unhealthy_after: i64) -> Result<ClusterHandle> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let authority = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": names::ca_secret(name), "namespace": namespace},
        "stringData": {"tls.crt": CERT, "tls.key": KEY},
    });
    apply_object(&client, &authority).await?;
    let manifests = Manifests::new(namespace, name)?.replicas(replicas).with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"intervalSeconds": 1, "unhealthyAfterSeconds": unhealthy_after});
        if unhealthy_after < REPLACED {
            etcd["spec"]["remediation"] = json!({"mode": "Report"});
        }
    });
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    let status = handle.until_ready(PATIENCE).await?;
    if status.cluster_id.is_empty() {
        bail!("the cluster has no ID: {status:?}");
    }
    released(&handle).await?;
    Ok(handle)
}
