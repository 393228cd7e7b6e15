//! Two of three members, or all three, lose their data: no quorum has the acknowledged writes. This is reported, and
//! nothing is removed or made, because the data that is left is all that there is. If the disks come back, so do the
//! members.

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

/// How long the observer may take to see what is on a disk.
const SEEN: Duration = Duration::from_secs(3);

/// The fault, the number of members that it strikes, and the kind of loss, by which the scenario can check that no etcd
/// has begun with the data.
static LOST: [(&Fault, usize, Option<DataLoss>); 4] = [
    (&ROBBED, 2, Some(DataLoss::RobbedDisk)),
    (&OLDER, 2, Some(DataLoss::OlderCopy)),
    (&CORRUPTED, 2, None),
    (&AWAY, 3, Some(DataLoss::RobbedDisk)),
];
/// Its disk is missing when the machine starts again, and comes back.
const AWAY: Fault = Fault::new("without-disk", disk_goes, Some(disk_comes_back));

/// Two of three members lose their disks, get older data back, or have logs that differ from what they have written.
/// This is reported, and nothing is done, because the third member has all data that there is. Neither of the two
/// begins again. When the Cluster is deleted, all of it goes. If all three members lose their disks, this is reported
/// too, and when the disks are back, everything is as before.
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
    is_told_and_left_alone(&handle, &names, &names).await?;
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

/// Waits until conditions say how many voters are healthy and what a quorum is, which members fail, what is not done
/// because of that, and why no member is replaced.
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

/// The machine loses its power, and its data is missing when it starts again. The data is kept elsewhere.
fn disk_goes(machine: &Machine) -> Done<()> {
    machine.kill()?;
    machine.save_data()?;
    machine.delete_data()?;
    machine.power_on()
}

/// Turns the machine off, and puts all its data back.
fn disk_comes_back(machine: &Machine) -> Done<()> {
    machine.kill()?;
    machine.put_back_data()
}
