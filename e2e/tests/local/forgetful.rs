//! The observer finds members that vote although they have forgotten their earlier votes.

use crate::bring_up::PATIENCE;
use anyhow::{Context, Result, bail, ensure};
use e2e::bed::data::{DataLoss, Host, Keys, said, serves, stays_silent};
use e2e::bed::{Bed, ClusterHandle, Manifests, Member, Membership};
use e2e::observer::{Silence, rules};
use futures::try_join;
use local_infrastructure::machine::Machine;
use serde_json::Value;
use serde_json::json;
use std::time::Duration;

/// How long the guard in front of etcd is watched: a few times what a restart takes.
const REFUSED: Duration = Duration::from_secs(4);
/// How many keys are written between the preparation of the loss, such as a copy, and the loss.
const MORE: usize = 5;
/// The observer counts as written what it saw two seconds before a member fell silent. On a busy computer, an answer
/// may take the observer a second or two.
const WRITTEN: Duration = Duration::from_secs(6);
/// Starts etcd as the unit would, without the guard in front of it. `$1` is the list of members.
const BY_HAND: &str = "set -a; . /etc/etcd/etcd.env; set +a; \
    export ETCD_INITIAL_CLUSTER=$1 ETCD_INITIAL_CLUSTER_STATE=existing; \
    setsid /opt/bin/etcd </dev/null >/var/log/etcd-by-hand.log 2>&1 &";

/// Side by side: an emptied disk, and an older copy. Each time, the guard refuses to start etcd, and a person starts
/// etcd by hand, around the guard. Soon the member looks as healthy as any other to all that ask it. Only the observer
/// finds the fault.
pub(crate) async fn voters_are_found(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    ClusterHandle::make_namespace(&bed.client(), "forgetful").await?;
    try_join!(async { votes_again(bed, "emptied", DataLoss::RobbedDisk).await.context("an emptied disk") }, async {
        votes_again(bed, "older", DataLoss::OlderCopy).await.context("an older copy")
    },)?;
    Ok(())
}

async fn votes_again(bed: &Bed, name: &str, loss: DataLoss) -> Result<()> {
    let client = bed.client();
    let manifests = Manifests::new("forgetful", name)?.without_control_plane().with("EtcdCluster", |etcd| {
        etcd["spec"]["remediation"] = json!({"mode": "Report"});
    });
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    handle.until_ready(PATIENCE).await?;
    let names = handle.member_names(3);
    let lost = bed.machines.get(&handle.namespace, &names[2])?;
    let others = [bed.machines.get(&handle.namespace, &names[0])?, bed.machines.get(&handle.namespace, &names[1])?];

    let mut keys = Keys::default();
    bed.fault(&format!("{}: {loss}", names[2]), &[&lost], Silence::Lasting);
    loss.prepare(&lost).await?;
    keys.write(&others[0], MORE).await?;
    tokio::time::sleep(WRITTEN).await;
    loss.strike(&lost).await?;
    stays_silent(&lost, REFUSED).await.context("the guard refuses")?;

    // A leader makes a member panic that has less than it said it had. A new leader asks the member first.
    let ids = Membership::on(others[0].clone()).await?;
    hand_over(&others, &ids).await?;
    bed.expect_violation(rules::FORGETFUL, &lost);
    let one = |member: &Member| member.peer_urls.iter().map(|url| format!("{}={url}", member.name)).collect::<Vec<_>>();
    let all = ids.members.iter().flat_map(one).collect::<Vec<_>>().join(",");
    said(&lost, &["sh", "-c", BY_HAND, "by-hand", &all]).await?;
    if let Err(error) = serves(&lost).await {
        let log = said(&lost, &["tail", "-n", "12", "/var/log/etcd-by-hand.log"]).await?;
        bail!("started by hand, it does not serve: {error:#}; its log:\n{log}");
    }
    keys.are_all_on(&lost).await.context("nobody who asks the member can see it")?;
    let after = Membership::on(lost.clone()).await?;
    ensure!(after == ids, "it has come back as another member: {ids:?}, {after:?}");
    Ok(())
}

/// Moves leadership between the members of these two machines.
async fn hand_over(machines: &[Machine; 2], ids: &Membership) -> Result<()> {
    for (one, other) in [(&machines[0], &machines[1]), (&machines[1], &machines[0])] {
        let status = said(one, &["/opt/bin/etcdctl.sh", "endpoint", "status", "--write-out=json"]).await?;
        let status: Value = serde_json::from_str(&status).context("etcdctl's answer")?;
        let status = &status[0]["Status"];
        if status["leader"] == status["header"]["member_id"] {
            let to = ids.members.iter().find(|member| member.name == Host::name(other)).context("it is not listed")?;
            return said(one, &["/opt/bin/etcdctl.sh", "move-leader", &to.id]).await.map(drop);
        }
    }
    bail!("neither leads")
}
