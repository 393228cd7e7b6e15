//! Members on machines with systemd lose their data: they never vote again, the others keep what they have, and a person who
//! deletes the Machine gets another member.

use crate::clusters::{PATIENCE, look_closely, up};
use anyhow::{Context, Result, ensure};
use e2e::bed::Look;
use e2e::bed::data::{DataLoss, Host, Keys, never_comes_back, said};
use e2e::docker::{Container, DockerBed};
use e2e::until::until;
use std::time::{Duration, Instant};

/// How long a member is watched that is to stay down: a few times what a restart takes.
const WATCHED: Duration = Duration::from_secs(8);

/// Of three: the one that initialized, then those that joined, each in another way.
pub(crate) async fn of_one_of_three(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    Look::make_namespace(&bed.client(), "lost").await?;
    let look = up(bed, "lost", "lost", 3).await?;
    look_closely(&look).await?;
    let mut keys = Keys::default();
    let losses = [DataLoss::RobbedDisk, DataLoss::OlderCopy, DataLoss::DeletedDirectory];
    for (lost, loss) in look.member_names(3).iter().zip(losses) {
        let begun = Instant::now();
        loses(bed, &look, lost, loss, &mut keys).await.with_context(|| format!("{lost}: {loss}"))?;
        println!("  {lost}: {loss}: {:.1} s", begun.elapsed().as_secs_f32());
        replaced(bed, &look, lost, keys).await.with_context(|| format!("{lost} is deleted"))?;
        println!("  {lost}: replaced after {:.1} s", begun.elapsed().as_secs_f32());
    }
    Ok(())
}

async fn loses(bed: &DockerBed, look: &Look, name: &str, loss: DataLoss, keys: &mut Keys) -> Result<()> {
    let lost = container(bed, look, name).await?;
    let machines = look.etcd_machines().await?;
    keys.write(&lost, 5).await?;
    loss.prepare(&lost).await?;
    keys.write(&lost, 5).await?;
    look.until_ready(PATIENCE).await?;
    let before = members(&lost).await?;
    loss.strike(&lost).await?;
    never_comes_back(&lost, loss, WATCHED).await?;

    let message = look.until_condition("MembersHealthy", "False", "MemberUnhealthy", PATIENCE).await?;
    ensure!(message.contains(name), "the member is named: {message}");
    let status = look.status().await?;
    ensure!(!status.ready, "the cluster is said to be ready: {:?}", status.conditions);
    let now = look.etcd_machines().await?;
    ensure!(now == machines, "the Machines were {machines:?}, and are {now:?}");
    for other in machines.iter().filter(|other| *other != name) {
        let other = container(bed, look, other).await?;
        keys.are_all_on(&other).await?;
        keys.write(&other, 1).await?;
        let list = members(&other).await?;
        ensure!(list == before, "the members were\n{before}and are\n{list}");
    }
    Ok(())
}

/// The Machine is deleted: another comes in its place, with everything that was written.
async fn replaced(bed: &DockerBed, look: &Look, lost: &str, keys: Keys) -> Result<()> {
    look.delete("Machine", lost).await?;
    until(format!("another member is there in place of {lost}"), PATIENCE, async || {
        let machines = look.etcd_machines().await?;
        ensure!(machines.len() == 3 && !machines.iter().any(|name| name == lost), "the Machines are {machines:?}");
        for name in &machines {
            let member = container(bed, look, name).await?;
            keys.are_all_on(&member).await?;
            let list = members(&member).await?;
            let voters = list.lines().filter(|line| line.contains(", started, ") && line.ends_with(", false")).count();
            ensure!(voters == 3 && list.lines().count() == 3 && !list.contains(&format!(", {lost},")), "{list}");
        }
        Ok(Some(()))
    })
    .await?;
    look.until_ready(PATIENCE).await.map(drop)
}

async fn container<'a>(bed: &'a DockerBed, look: &Look, name: &str) -> Result<Container<'a>> {
    bed.container(name, &look.secret(name, "value").await?)
}

/// The list of members, as etcdctl prints it.
async fn members(host: &impl Host) -> Result<String> {
    said(host, &["/opt/bin/etcdctl.sh", "member", "list"]).await
}
