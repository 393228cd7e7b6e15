//! A restore from a snapshot, as docs/tasks/back-up-and-restore.md describes it. The commands of its blocks run on the
//! machines, and then the command that the EtcdCluster's condition names.

use super::shell::Shell;
use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result, anyhow, ensure};
use api::names::{ACCEPT_CLUSTER_ID_ANNOTATION, CLUSTER_ID_ANNOTATION};
use e2e::bed::data::{Host, Keys, said, serves};
use e2e::bed::{Bed, ClusterHandle, Manifests, Member, Membership};
use e2e::observer::Silence;
use e2e::pages::blocks;
use e2e::until::until;
use futures::future::try_join_all;
use kube::ResourceExt;
use local_infrastructure::machine::Machine;
use std::collections::BTreeSet;
use std::time::Instant;

const NAMESPACE: &str = "restores";
const PAGE: &str = "docs/tasks/back-up-and-restore.md";
/// The members in the page's command.
const EXAMPLE: &str =
    "demo-etcd-0=https://10.0.0.1:2380,demo-etcd-1=https://10.0.0.2:2380,demo-etcd-2=https://10.0.0.3:2380";
const SNAPSHOT: &str = "/root/etcd.snapshot";
/// A key that is written after the snapshot.
const LATER: &str = "/after-the-snapshot";
const ETCDCTL: &str = "/opt/bin/etcdctl.sh";
/// How many keys the snapshot has.
const BEFORE: usize = 50;
/// The length of a piece of a file in base64: a program takes no argument of more than 128 KiB. Four characters are
/// three bytes.
const PIECE: usize = 80_000;
const APPEND: &str = "printf %s \"$1\" | base64 -d >> \"$2\"";

/// etcd has the data of the snapshot again, under a new cluster ID that a person accepts, and no machine is replaced.
/// What was written after the snapshot is gone, and a member that reboots comes back.
pub(crate) async fn from_a_snapshot(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    let manifests = Manifests::new(NAMESPACE, "demo")?;
    ClusterHandle::make_namespace(&client, NAMESPACE).await?;
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    let (shell, typed) = (Shell::new(bed, &manifests)?, Typed::of_the_page()?);
    let names = handle.member_names(3);
    let machines = bed.machines_of(NAMESPACE, &names)?;
    let before = handle.membership(&bed.machines, &names).await?;

    let mut keys = Keys::default();
    keys.write(&machines[0], BEFORE).await?;
    // As the page does it.
    said(&machines[0], &[ETCDCTL, "snapshot", "save", SNAPSHOT]).await?;
    said(&machines[0], &[ETCDCTL, "put", LATER, "1"]).await?;
    shell.succeeds(&typed.pause.replace("NAME", &handle.etcd)).await?;
    handle.until_condition("Paused", "True", "Paused", PATIENCE).await?;
    // To the observer, a restored etcd is a new one. It judges first what came before the restore, and then what
    // follows.
    bed.end_observation()?;

    let begun = Instant::now();
    for machine in &machines[1..] {
        copy(&machines[0], machine).await?;
    }
    for machine in &machines {
        said(machine, &["sh", "-c", &typed.stop]).await?;
    }
    let one = |it: &Member| it.peer_urls.iter().map(|url| format!("{}={url}", it.name)).collect::<Vec<_>>();
    let members = before.members.iter().flat_map(one).collect::<Vec<_>>().join(",");
    for (machine, name) in machines.iter().zip(&names) {
        let member = before.members.iter().find(|member| member.name == *name).context("a Machine without a member")?;
        let url = member.peer_urls.first().context("a member without a peer URL")?;
        said(machine, &["sh", "-c", &typed.aside]).await?;
        let restore = typed.restore.replace("MACHINE", name).replace("PEER_URL", url);
        said(machine, &["sh", "-c", &restore.replace(EXAMPLE, &members)]).await?;
        said(machine, &["sh", "-c", &typed.forget]).await?;
    }
    let start = ["sh", "-c", typed.start.as_str()];
    try_join_all(machines.iter().map(|machine| said(machine, &start))).await?;
    for machine in &machines {
        serves(machine).await?;
        keys.are_all_on(machine).await?;
    }
    println!("  restored in {:.1} s", begun.elapsed().as_secs_f32());
    let later = said(&machines[0], &[ETCDCTL, "get", LATER, "--keys-only"]).await?;
    ensure!(later.trim().is_empty(), "there is what came after the snapshot: {later}");
    let after = handle.membership(&bed.machines, &names).await?;
    ensure!(after.cluster_id != before.cluster_id, "the restored etcd cluster has the ID of before: {after:?}");

    bed.observe("restores::restored")?;
    shell.succeeds(&typed.resume.replace("NAME", &handle.etcd)).await?;
    shell.succeeds(&accepts(&handle, &before, &after).await?).await?;
    is_well(&handle, &after).await?;
    bed.fault("a machine reboots", &[&machines[2]], Silence::Lasting);
    Host::reboot(&machines[2]).await?;
    serves(&machines[2]).await.context("after a reboot")?;
    bed.fault_is_over("it has rebooted", &[&machines[2]]);
    is_well(&handle, &after).await?;
    keys.write(&machines[2], BEFORE).await?;
    keys.are_all_on(&machines[0]).await?;
    ensure!(handle.etcd_machines().await? == names, "another Machine has been made");
    ensure!(handle.membership(&bed.machines, &names).await? == after, "the members are others than after the restore");
    released(&handle).await
}

/// The commands of the page, in their order.
struct Typed {
    pause: String,
    stop: String,
    aside: String,
    restore: String,
    forget: String,
    start: String,
    resume: String,
}

impl Typed {
    /// Reads the commands from the pause before the restore to the end of that pause.
    fn of_the_page() -> Result<Self> {
        let blocks = blocks()?;
        let of_the_page = blocks.iter().filter(|block| block.page == PAGE);
        let all: Vec<String> = of_the_page.flat_map(|block| block.commands()).collect();
        let at = |text: &str| all.iter().position(|command| command.contains(text)).with_context(|| text.to_owned());
        let (restore, end) = (at("etcdutl snapshot restore")?, at("cluster.x-k8s.io/paused-")?);
        let begin = all[..restore].iter().rposition(|command| command.ends_with("cluster.x-k8s.io/paused="));
        let section = all.get(begin.context("nothing is paused before")?..=end).context("it is resumed too early")?;
        let Ok([pause, stop, aside, restore, forget, start, resume]) = <[String; 7]>::try_from(section.to_vec()) else {
            return Err(anyhow!("these are not the commands that this scenario knows: {section:#?}"));
        };
        ensure!(restore.contains(EXAMPLE), "its members are not {EXAMPLE}: {restore}");
        ensure!(restore.contains(SNAPSHOT), "it restores another file than {SNAPSHOT}: {restore}");
        Ok(Self { pause, stop, aside, restore, forget, start, resume })
    }
}

/// Copies the snapshot to another machine.
async fn copy(from: &Machine, to: &Machine) -> Result<()> {
    let text = said(from, &["base64", "--wrap=0", SNAPSHOT]).await?;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (piece, left) = rest.split_at(rest.len().min(PIECE));
        said(to, &["sh", "-c", APPEND, "append", piece, SNAPSHOT]).await?;
        rest = left;
    }
    Ok(())
}

/// The command in the EtcdCluster's condition that accepts the new cluster ID. Until then, the EtcdCluster has the old
/// ID.
async fn accepts(handle: &ClusterHandle, before: &Membership, after: &Membership) -> Result<String> {
    let message = until("it says that the cluster ID has changed", PATIENCE, async || {
        let status = handle.status().await?;
        let mut said = status.conditions.iter().filter(|condition| condition.reason == "ClusterIDChanged");
        Ok(said.find(|condition| condition.message.contains("kubectl annotate")).map(|it| it.message.clone()))
    })
    .await?;
    let recorded = handle.etcds().get(&handle.etcd).await?.annotations().get(CLUSTER_ID_ANNOTATION).cloned();
    ensure!(recorded.as_ref() == Some(&before.cluster_id), "{recorded:?} is recorded before anybody has accepted it");
    let (_, command) = message.split_once("accept its new ID: ").with_context(|| message.clone())?;
    let (command, _) = command.split_once(". Otherwise").with_context(|| message.clone())?;
    ensure!(command.ends_with(&format!("{ACCEPT_CLUSTER_ID_ANNOTATION}={}", after.cluster_id)), "{message}");
    Ok(command.to_owned())
}

/// Waits until the EtcdCluster is Ready with the restored etcd cluster, and the acceptance of the new ID is complete.
async fn is_well(handle: &ClusterHandle, after: &Membership) -> Result<()> {
    until("it is Ready with the restored etcd cluster", PATIENCE, async || {
        let etcd = handle.etcds().get(&handle.etcd).await?;
        let status = etcd.status.clone().unwrap_or_default();
        let annotations = etcd.annotations();
        let is_accepted = annotations.get(CLUSTER_ID_ANNOTATION) == Some(&after.cluster_id)
            && !annotations.contains_key(ACCEPT_CLUSTER_ID_ANNOTATION);
        let is_ready = status.ready && status.ready_replicas == 3 && status.cluster_id == after.cluster_id;
        ensure!(is_accepted && is_ready, "{annotations:?}, {:?}", status.conditions);
        let ids: BTreeSet<&String> = status.members.iter().map(|member| &member.id).collect();
        let restored: BTreeSet<&String> = after.members.iter().map(|member| &member.id).collect();
        ensure!(ids == restored, "the members are {:?}", status.members);
        Ok(Some(()))
    })
    .await
}
