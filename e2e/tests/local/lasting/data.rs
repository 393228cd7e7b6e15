//! Two of three members lose their data, or all three: no quorum has what was acknowledged. It is told, and nothing is
//! removed or made, as what is left is all that there is. Where the disks come back, so do the members.

use super::{AT_ONCE, TOLD, etcd, is_as_before, is_told_and_left_alone, up};
use crate::deletion::all_is_gone;
use crate::during::{CORRUPTED, Fault, OLDER, ROBBED};
use crate::ill::copies_are_saved;
use crate::rolls::{FOLLOWERS, nothing_is_lost};
use crate::scale::data_of;
use anyhow::{Context, Result, ensure};
use e2e::bed::data::{DataLoss, on};
use e2e::bed::{Bed, ClusterHandle};
use e2e::history::History;
use e2e::observer::Silence;
use e2e::until::until;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use local_infrastructure::machine::{Machine, Result as Done};
use std::time::Duration;

/// In this time the observer has seen what lies on a disk.
const SEEN: Duration = Duration::from_secs(3);

/// What happens to the data of so many, and what it is by which it can be told that no etcd has begun with it.
static LOST: [(&Fault, usize, Option<DataLoss>); 4] = [
    (&ROBBED, 2, Some(DataLoss::RobbedDisk)),
    (&OLDER, 2, Some(DataLoss::OlderCopy)),
    (&CORRUPTED, 2, None),
    (&AWAY, 3, Some(DataLoss::RobbedDisk)),
];
/// Its disk is away when it starts again, and comes back.
const AWAY: Fault = Fault::new("without-disk", disk_goes, Some(disk_comes_back));

/// Two of three lose their disks, get older data back, or have other logs than they have written: it is told, and
/// nothing is done, as the third has all that there is. Neither of them begins again. When the Cluster is deleted, all
/// of it goes. All three lose their disks: that is told too, and when they have them back, all is as it was.
pub(crate) async fn of_a_quorum_that_loses_its_data(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let stories = stream::iter(LOST).map(async |(fault, number, loss)| {
        lose_their_data(bed, fault, number, loss).await.with_context(|| format!("{number} of three are {}", fault.name))
    });
    stories.buffer_unordered(AT_ONCE).try_collect().await
}

async fn lose_their_data(bed: &Bed, fault: &Fault, number: usize, loss: Option<DataLoss>) -> Result<()> {
    let handle = up(bed, &format!("lasting-{}-{number}", fault.name)).await?;
    let names = handle.etcd_machines().await?;
    let machines = bed.machines_of(&handle.namespace, &names[..number])?;
    if let Some(loss) = loss.filter(|loss| loss.is_by_a_copy()) {
        copies_are_saved(bed, &handle, &machines, loss).await?;
    }
    let before = etcd(bed, &handle, &names).await?;
    let writers =
        History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
    let theirs: Vec<&Machine> = machines.iter().collect();
    bed.fault(&format!("{number} of {} are {}", handle.namespace, fault.name), &theirs, Silence::Lasting);
    try_join_all(machines.iter().map(|machine| on(machine, fault.begins))).await?;
    is_told_and_left_alone(&handle, &names).await?;
    is_explained(&handle, &names).await?;
    for machine in &machines {
        if let Some(loss) = loss {
            loss.has_left_no_trace(machine).await.with_context(|| machine.spec().name.clone())?;
        }
    }
    if let Some(ends) = fault.ends {
        try_join_all(machines.iter().map(|machine| on(machine, ends))).await?;
        tokio::time::sleep(SEEN).await;
        bed.fault_is_over(&format!("{number} of {}: that is over", handle.namespace), &theirs);
        try_join_all(machines.iter().map(|machine| on(machine, Machine::power_on))).await?;
        is_as_before(bed, &handle, &names, &before).await?;
        nothing_is_lost(&handle, writers, &data_of(bed, &handle, &names)?).await?;
    }
    handle.delete("Cluster", &handle.cluster).await?;
    all_is_gone(bed, &handle).await
}

/// It is told how many are healthy and what a quorum is, who fails, what is not done for that, and why nobody is
/// replaced.
async fn is_explained(handle: &ClusterHandle, names: &[String]) -> Result<()> {
    until("it is told that the quorum is lost", TOLD, async || {
        let conditions = handle.status().await?.conditions;
        let told = |type_: &str, reason: &str| {
            let found = conditions.iter().find(|condition| condition.type_ == type_);
            let found = found.with_context(|| format!("no condition {type_}"))?;
            ensure!(found.status == "False" && found.reason == reason, "{found:?}");
            anyhow::Ok(&found.message)
        };
        let (available, ready) = (told("Available", "QuorumLost")?, told("Ready", "WaitingForHealthyMembers")?);
        ensure!(available.starts_with("0 of 3 voters are healthy, a quorum is 2: "), "it says: {available}");
        ensure!(names.iter().all(|name| available.contains(&format!("{name}: "))), "it says: {available}");
        ensure!(available.contains(". Nothing is removed; "), "it says: {available}");
        let why = "Nothing is added before it is healthy; it is not replaced now: ";
        ensure!(ready.contains(why), "it says: {ready}");
        Ok(Some(()))
    })
    .await
}

/// The machine loses its power, and has none of its data when it starts again. What was there is kept elsewhere.
fn disk_goes(machine: &Machine) -> Done<()> {
    machine.kill()?;
    machine.save_data()?;
    machine.delete_data()?;
    machine.power_on()
}

/// The machine is off, and has all of it again.
fn disk_comes_back(machine: &Machine) -> Done<()> {
    machine.kill()?;
    machine.put_back_data()
}
