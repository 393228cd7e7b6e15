//! Members on machines with systemd lose their data: they never vote again, the others keep their data, and if a person
//! deletes the Machine, another member replaces it.

use crate::clusters::{PATIENCE, look_closely, up};
use anyhow::{Context, Result, ensure};
use e2e::bed::data::{DataLoss, Host, Keys, never_comes_back, said};
use e2e::bed::{ClusterHandle, States, never_ready_again};
use e2e::docker::{Container, DockerBed};
use e2e::until::until;
use futures::future::try_join_all;
use std::time::{Duration, Instant};

/// How long the scenario checks that a member stays down: a few times what a restart takes.
const WATCHED: Duration = Duration::from_secs(8);

/// Losses of the only member, and the names of the clusters for them.
const OF_THE_ONLY_MEMBER: [(DataLoss, &str); 5] = [
    (DataLoss::RobbedDisk, "robbed"),
    (DataLoss::DeletedDirectory, "deleted"),
    (DataLoss::DeletedWhileOff, "off"),
    (DataLoss::OlderCopy, "older"),
    (DataLoss::CopyFromBeforeStop, "stopped"),
];

/// Side by side: each loss in a cluster of its own with one member. The member is not replaced.
pub(crate) async fn of_the_only_member(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    ClusterHandle::make_namespace(&bed.client(), "lost-one").await?;
    let stories = OF_THE_ONLY_MEMBER.into_iter().map(|(loss, name)| async move {
        let handle = up(bed, "lost-one", name, 1).await?;
        look_closely(&handle).await?;
        let (lost, begun) = (&handle.member_names(1)[0], Instant::now());
        loses(bed, &handle, lost, loss, &mut Keys::default()).await.with_context(|| format!("{lost}: {loss}"))?;
        handle.until_condition("Available", "False", "QuorumLost", PATIENCE).await?;
        println!("  {lost}: {loss}: {:.1} s", begun.elapsed().as_secs_f32());
        anyhow::Ok(())
    });
    try_join_all(stories).await.map(drop)
}

/// Of three members, each is lost in another way: those that joined, the one that initialized, and the last of their
/// replacements. A machine's bootstrap commands contact members before it, and need them to answer.
pub(crate) async fn of_one_of_three(bed: &mut DockerBed) -> Result<()> {
    let losses = [
        (2, DataLoss::DeletedDirectory),
        (1, DataLoss::OlderCopy),
        (0, DataLoss::RobbedDisk),
        (5, DataLoss::CopyFromBeforeStop),
    ];
    one_after_the_other(bed, "lost", 3, &losses).await
}

/// The same of five members: those that joined, and the one that initialized.
pub(crate) async fn of_one_of_five(bed: &mut DockerBed) -> Result<()> {
    let losses = [
        (4, DataLoss::DeletedWhileOff),
        (3, DataLoss::CopyFromBeforeStop),
        (2, DataLoss::RobbedDisk),
        (1, DataLoss::DeletedDirectory),
        (0, DataLoss::OlderCopy),
    ];
    one_after_the_other(bed, "lost-five", 5, &losses).await
}

/// A cluster loses the data of one member after the other. Each time, a person deletes its Machine.
async fn one_after_the_other(bed: &DockerBed, name: &str, replicas: usize, losses: &[(usize, DataLoss)]) -> Result<()> {
    ClusterHandle::make_namespace(&bed.client(), name).await?;
    let handle = up(bed, name, name, i64::try_from(replicas)?).await?;
    look_closely(&handle).await?;
    // Replacements get the next numbers.
    let (names, mut keys) = (handle.member_names(replicas + losses.len()), Keys::default());
    for (member, loss) in losses {
        let (lost, begun) = (&names[*member], Instant::now());
        loses(bed, &handle, lost, *loss, &mut keys).await.with_context(|| format!("{lost}: {loss}"))?;
        println!("  {lost}: {loss}: {:.1} s", begun.elapsed().as_secs_f32());
        replaced(bed, &handle, lost, replicas, keys).await.with_context(|| format!("{lost} is deleted"))?;
        println!("  {lost}: replaced after {:.1} s", begun.elapsed().as_secs_f32());
    }
    Ok(())
}

async fn loses(bed: &DockerBed, handle: &ClusterHandle, name: &str, loss: DataLoss, keys: &mut Keys) -> Result<()> {
    let lost = container(bed, handle, name).await?;
    let machines = handle.etcd_machines().await?;
    keys.write(&lost, 5).await?;
    loss.prepare(&lost).await?;
    keys.write(&lost, 5).await?;
    handle.until_ready(PATIENCE).await?;
    let before = members(&lost).await?;
    let states = States::of(handle.etcds(), &handle.etcd).await?;
    loss.strike(&lost).await?;
    never_comes_back(&lost, loss, WATCHED).await?;

    until(format!("{name} is said to fail, and the cluster not to be ready"), PATIENCE, async || {
        let status = handle.status().await?;
        let healthy = status.conditions.iter().find(|condition| condition.type_ == "MembersHealthy");
        let healthy = healthy.context("no condition MembersHealthy")?;
        let is_told = healthy.reason == "MemberUnhealthy" && healthy.message.contains(name);
        ensure!(is_told && healthy.status == "False", "{healthy:?}");
        ensure!(!status.ready, "it is said to be ready: {:?}", status.conditions);
        Ok(Some(()))
    })
    .await?;
    never_ready_again(&states.stop().await?)?;
    let now = handle.etcd_machines().await?;
    ensure!(now == machines, "the Machines were {machines:?}, and are {now:?}");
    for other in machines.iter().filter(|other| *other != name) {
        let other = container(bed, handle, other).await?;
        keys.are_all_on(&other).await?;
        keys.write(&other, 1).await?;
        let list = members(&other).await?;
        ensure!(list == before, "the members were\n{before}and are\n{list}");
    }
    Ok(())
}

/// Deletes the Machine of a lost member. Another one replaces it, with everything that was written.
async fn replaced(bed: &DockerBed, handle: &ClusterHandle, lost: &str, replicas: usize, keys: Keys) -> Result<()> {
    handle.delete("Machine", lost).await?;
    until(format!("another member is there in place of {lost}"), PATIENCE, async || {
        let machines = handle.etcd_machines().await?;
        ensure!(
            machines.len() == replicas && !machines.iter().any(|name| name == lost),
            "the Machines are {machines:?}"
        );
        for name in &machines {
            let member = container(bed, handle, name).await?;
            keys.are_all_on(&member).await?;
            let list = members(&member).await?;
            let voters = list.lines().filter(|line| line.contains(", started, ") && line.ends_with(", false")).count();
            ensure!(
                voters == replicas && list.lines().count() == replicas && !list.contains(&format!(", {lost},")),
                "{list}"
            );
        }
        Ok(Some(()))
    })
    .await?;
    handle.until_ready(PATIENCE).await.map(drop)
}

/// The container of an etcd Machine, as a host from which data can be removed.
pub(crate) async fn container<'a>(bed: &'a DockerBed, handle: &ClusterHandle, name: &str) -> Result<Container<'a>> {
    bed.container(name, &handle.secret(name, "value").await?)
}

/// The member list, as etcdctl prints it.
async fn members(host: &impl Host) -> Result<String> {
    said(host, &["/opt/bin/etcdctl.sh", "member", "list"]).await
}
