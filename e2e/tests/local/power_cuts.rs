//! Power cuts that lose what was not synced: of one machine, also while its member starts, and of all machines at
//! once.

use crate::bring_up::PATIENCE;
use crate::departures::only_theirs;
use crate::ill::{all_are_well, checked};
use crate::rolls::{nothing_is_lost, used};
use anyhow::{Context, Result, ensure};
use e2e::bed::data::on;
use e2e::bed::illness::etcd_data;
use e2e::bed::lossy_disk::{can_be_made, cut_power, has_lost, is_mounted, on_every_machine};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::history::{History, Load, MemberData};
use e2e::observer::Silence;
use e2e::scenarios::skip;
use e2e::until::until;
use futures::future::try_join_all;
use local_infrastructure::machine::Machine;
use std::time::Duration;

/// Seconds until a member counts as unhealthy: more than all the power cuts of one machine take.
const UNHEALTHY: i64 = 90;
/// When a machine that starts loses its power again, counted from the moment its disk is mounted: before the guard
/// has checked the data, while the guard writes the epochs, and while etcd starts.
const WHILE_IT_STARTS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_millis(1_000),
];
/// How long clients write before the power is cut, so that there is something to lose.
const LOADED: Duration = Duration::from_secs(5);

/// Under a dense load, the leader's machine loses its power, again and again while it starts; then all machines do at
/// once. Every member comes back under its member ID with everything that was acknowledged, and none is replaced.
pub(crate) async fn lose_what_was_not_synced(bed: &mut Bed) -> Result<()> {
    if !can_be_made()? {
        skip("without root there are no loop devices, and no disk that can lose anything");
        return Ok(());
    }
    let manifests = Manifests::new("power-cuts", "demo")?
        .with("EtcdCluster", |etcd| on_every_machine(&mut etcd["spec"]["etcdadmConfigSpec"]));
    let handle = used(bed, checked(manifests, UNHEALTHY)).await?;
    let names = handle.etcd_machines().await?;
    let machines = bed.machines_of(&handle.namespace, &names)?;
    let before = (handle.membership(&bed.machines, &names).await?, handle.status().await?.endpoints);
    let writers = History::begin(bed.world(), &handle.namespace, &handle.etcd_access().await?, Load::default()).await?;

    tokio::time::sleep(LOADED).await;
    let leader = handle.status().await?.members.into_iter().find(|member| member.leader).context("nobody leads")?;
    let leader = vec![bed.machines.get(&handle.namespace, &leader.machine)?];
    loses_power(bed, &handle, &leader, &WHILE_IT_STARTS).await.context("the leader's machine")?;
    tokio::time::sleep(LOADED).await;
    loses_power(bed, &handle, &machines, &[]).await.context("all machines")?;
    tokio::time::sleep(LOADED).await;

    let after = until("every member answers", PATIENCE, async || {
        Ok(Some((handle.membership(&bed.machines, &names).await?, handle.status().await?.endpoints)))
    })
    .await?;
    ensure!(after == before, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &handle, &names).await?;
    let data = machines.iter().map(|machine| {
        let data = etcd_data(machine).with_context(|| format!("no disk on {}", machine.spec().name))?;
        anyhow::Ok(MemberData { name: machine.spec().name.clone(), data })
    });
    nothing_is_lost(&handle, writers, &data.collect::<Result<Vec<_>>>()?).await?;
    bed.exactly(&[(&handle, 3)]).await
}

/// Cuts the power of these machines at the same time, and again at each of the moments in `again` while they start.
/// Then they start for good, and all members become healthy.
async fn loses_power(bed: &Bed, handle: &ClusterHandle, machines: &[Machine], again: &[Duration]) -> Result<()> {
    let theirs: Vec<&Machine> = machines.iter().collect();
    let names: Vec<&str> = theirs.iter().map(|machine| machine.spec().name.as_str()).collect();
    bed.fault(&format!("{names:?} lose their power"), &theirs, Silence::Lasting);
    try_join_all(machines.iter().map(|machine| on(machine, cut_power))).await?;
    until("it is seen that somebody does not answer", PATIENCE, async || {
        let conditions = handle.status().await?.conditions;
        let healthy = conditions.into_iter().find(|condition| condition.type_ == "MembersHealthy");
        let healthy = healthy.context("no condition")?;
        Ok((healthy.status != "True").then_some(()))
    })
    .await?;
    for moment in again {
        try_join_all(machines.iter().map(async |machine| {
            starts(machine).await?;
            tokio::time::sleep(*moment).await;
            on(machine, cut_power).await
        }))
        .await
        .with_context(|| format!("{} ms after the disk was there", moment.as_millis()))?;
    }
    bed.fault_is_over(&format!("{names:?} have power again"), &theirs);
    try_join_all(machines.iter().map(starts)).await?;
    all_are_well(handle).await?;
    for machine in machines {
        on(machine, has_lost).await.context("what was not synced is there: nothing is shown")?;
    }
    Ok(())
}

/// Starts a machine, and waits until its disk is mounted.
async fn starts(machine: &Machine) -> Result<()> {
    on(machine, Machine::power_on).await?;
    until(format!("{} has its disk", machine.spec().name), PATIENCE, async || {
        Ok(on(machine, is_mounted).await?.then_some(()))
    })
    .await
}
