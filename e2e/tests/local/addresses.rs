//! An address that had one cluster's member is given to another cluster's.

use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result, bail, ensure};
use api::EtcdClusterStatus;
use api::names;
use e2e::apply::apply_object;
use e2e::bed::{Bed, Look, Manifests, Membership};
use e2e::observer::Silence;
use e2e::until::until;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// The CA that both clusters have from their user.
const CERT: &str = include_str!("../../../etcdadm/src/pki/testdata/pkcs1-rsa.crt");
const KEY: &str = include_str!("../../../etcdadm/src/pki/testdata/pkcs1-rsa.key");
/// Several rounds of checks, once a second.
const ROUNDS: Duration = Duration::from_secs(8);

/// Two clusters of one CA. One loses two of its three machines, and with them its quorum; the other one grows, and gets one
/// of their addresses. The only member that answers for the first is one of the second, with a certificate that is good:
/// nothing of that is believed, nor is anything changed in the second because of it.
pub(crate) async fn given_to_another_cluster(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let (ours, theirs) = futures::try_join!(up(bed, "addresses-a", "lost", 3), up(bed, "addresses-b", "taker", 1))?;
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

    // And so it stays when the spec has changed, and everything is looked at anew.
    and_after_another_look(bed, &ours, &before).await
}

/// Also when all is looked at anew, and its last member is left alone.
async fn and_after_another_look(bed: &Bed, ours: &Look, before: &EtcdClusterStatus) -> Result<()> {
    let patch = json!({"spec": {"healthCheck": {"unhealthyAfterSeconds": 3}}});
    crate::boots::look_again(ours, &patch).await?;
    tokio::time::sleep(ROUNDS).await;
    is_what_it_was(before, &ours.status().await?).context("after another look")?;
    let machine = bed.machines.get(&ours.namespace, &ours.member_names(1)[0])?;
    ensure!(machine.is_running(), "the machine of the last member has been taken away");
    Ok(())
}

/// Cluster ID, member IDs and endpoints.
fn is_what_it_was(before: &EtcdClusterStatus, now: &EtcdClusterStatus) -> Result<()> {
    let ids = |status: &EtcdClusterStatus| status.members.iter().map(|member| member.id.clone()).collect::<Vec<_>>();
    ensure!(now.cluster_id == before.cluster_id, "its ID was {}, and is {}", before.cluster_id, now.cluster_id);
    ensure!(ids(now) == ids(before), "its members were {:?}, and are {:?}", before.members, now.members);
    ensure!(now.endpoints == before.endpoints, "its endpoints were {}, and are {}", before.endpoints, now.endpoints);
    Ok(())
}

async fn etcd(bed: &Bed, look: &Look) -> Result<Membership> {
    look.membership(&bed.machines, &look.etcd_machines().await?).await
}

/// From now on an address is reserved for somebody else, as where leases run out.
fn hand_over(bed: &Bed, address: &str, owner: &str) -> Result<()> {
    let file = bed.world().state("machines")?.join("addresses").join(address);
    ensure!(Path::new(&file).exists(), "{} is not reserved", file.display());
    std::fs::write(&file, owner).with_context(|| format!("write {}", file.display()))
}

async fn up(bed: &Bed, namespace: &str, name: &str, replicas: i64) -> Result<Look> {
    let client = bed.client();
    Look::make_namespace(&client, namespace).await?;
    let authority = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": names::ca_secret(name), "namespace": namespace},
        "stringData": {"tls.crt": CERT, "tls.key": KEY},
    });
    apply_object(&client, &authority).await?;
    let manifests = Manifests::new(namespace, name)?.replicas(replicas).with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"intervalSeconds": 1, "unhealthyAfterSeconds": 2});
        // Two seconds do not make a failure on a busy computer, and another member would be given an address too.
        etcd["spec"]["remediation"] = json!({"mode": "Report"});
    });
    manifests.apply(&client).await?;
    let look = Look::at(&client, &manifests);
    let status = look.until_ready(PATIENCE).await?;
    if status.cluster_id.is_empty() {
        bail!("the cluster has no ID: {status:?}");
    }
    released(&look).await?;
    Ok(look)
}
