//! No room is left: on the disk of one machine, or in etcd's database.

use crate::boots::look_again;
use crate::bring_up::PATIENCE;
use crate::departures::{only_theirs, replaced};
use crate::ill::{CRASH, IMPATIENT, PATIENT, STALL, all_are_well, checked, unhealthy_after};
use crate::repair;
use crate::rolls::{nothing_is_lost, used};
use crate::scale::{LOAD, data_of};
use anyhow::{Result, ensure};
use e2e::bed::data::{Keys, on, said};
use e2e::bed::illness::{fill_disk, free_disk, small_disk};
use e2e::bed::{Bed, Manifests};
use e2e::history::History;
use e2e::observer::Silence;
use serde_json::json;

/// The machine that has a small disk, or that dies.
const DOOMED: &str = "demo-etcd-2";

/// The smallest quota that the API allows.
const SMALLEST_QUOTA: i64 = 16 * 1024 * 1024;
const QUOTA: i64 = 2 * SMALLEST_QUOTA;
/// Writes values of a megabyte until etcd refuses one, and fails if it never does.
const FILL: &str = r"
for i in $(seq 60); do
    head -c 1000000 /dev/zero | tr '\0' x | /opt/bin/etcdctl.sh put /filler/$i --command-timeout=5s || exit 0
done
exit 1
";
/// What the documentation says about the alarm. First it deletes what has filled the database.
const MAKE_ROOM: &str = r#"
set -e
etcdctl() { /opt/bin/etcdctl.sh --command-timeout=20s "$@"; }
etcdctl del /filler/ --prefix
etcdctl compact $(etcdctl endpoint status --write-out=json | grep -o '"revision":[0-9]*' | head -n 1 | cut -d : -f 2)
etcdctl defrag --cluster
etcdctl alarm disarm
"#;

/// The disk of one machine is full, and its etcd does not start any more. When room is made in time, the member comes
/// back and stays. When the disk is full again, for longer, the member is replaced. No acknowledged write is lost.
pub(crate) async fn disk(bed: &mut Bed) -> Result<()> {
    let manifests = Manifests::new("full-disk", "demo")?.with("EtcdCluster", |etcd| {
        etcd["spec"]["etcdadmConfigSpec"]["preEtcdadmCommands"] = json!([small_disk(DOOMED)]);
    });
    let handle = used(bed, checked(manifests, PATIENT)).await?;
    let old = handle.etcd_machines().await?;
    let before = (handle.membership(&bed.machines, &old).await?, handle.status().await?.endpoints);
    let writers = History::begin(bed.world(), &handle.namespace, &handle.etcd_access().await?, LOAD).await?;
    let machine = bed.machines.get(&handle.namespace, DOOMED)?;
    let is_full = async || {
        bed.fault(&format!("{DOOMED}: its disk is full"), &[&machine], Silence::Lasting);
        on(&machine, fill_disk).await?;
        // Without room, etcd does not start again.
        on(&machine, |machine| machine.exec(&["sh", "-c", CRASH]).map(drop)).await?;
        let message = handle.until_condition("MembersHealthy", "False", "MemberUnhealthy", PATIENCE).await?;
        ensure!(message.contains(DOOMED), "it says: {message}");
        anyhow::Ok(())
    };
    is_full().await?;
    bed.fault_is_over(&format!("{DOOMED}: there is room again"), &[&machine]);
    on(&machine, free_disk).await?;
    all_are_well(&handle).await?;
    let after = (handle.membership(&bed.machines, &old).await?, handle.status().await?.endpoints);
    ensure!(after == before, "etcd was {before:?}, and is {after:?}");

    unhealthy_after(&handle, IMPATIENT).await?;
    is_full().await?;
    let machines = replaced(bed, &handle, DOOMED).await?;
    only_theirs(bed, &handle, &machines).await?;
    let figures = nothing_is_lost(&handle, writers, &data_of(bed, &handle, &machines)?).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    Ok(())
}

/// The database has reached its quota, and etcd refuses writes. When a machine dies, its member is still replaced, with
/// everything that was written. A smaller quota is refused. When there is room again, etcd accepts writes.
pub(crate) async fn database(bed: &mut Bed) -> Result<()> {
    let manifests = Manifests::new("full-database", "demo")?.with("EtcdCluster", |etcd| {
        etcd["spec"]["etcdadmConfigSpec"]["etcd"] = json!({"quotaBackendBytes": QUOTA});
    });
    let handle = used(bed, checked(manifests, IMPATIENT)).await?;
    let names = handle.etcd_machines().await?;
    let mut keys = Keys::default();
    let first = bed.machines.get(&handle.namespace, &names[0])?;
    keys.write(&first, 20).await?;
    said(&first, &["sh", "-c", FILL]).await?;
    handle.until_condition("NoAlarms", "False", "NoSpace", PATIENCE).await?;
    ensure!(keys.write(&first, 1).await.is_err(), "etcd takes writes: nothing is shown");

    repair::dies(bed, &handle, DOOMED).await?;
    let machines = replaced(bed, &handle, DOOMED).await?;
    only_theirs(bed, &handle, &machines).await?;
    for name in &machines {
        keys.are_all_on(&bed.machines.get(&handle.namespace, name)?).await?;
    }
    handle.until_condition("NoAlarms", "False", "NoSpace", PATIENCE).await?;

    // With a quota below the size of the database, new members would be full again when the alarm is ended.
    let quota = |bytes: i64| json!({"spec": {"etcdadmConfigSpec": {"etcd": {"quotaBackendBytes": bytes}}}});
    look_again(&handle, &quota(SMALLEST_QUOTA)).await?;
    let refused = "UnsupportedVersionChange";
    let message = handle.until_condition("MachinesUpToDate", "False", refused, PATIENCE).await?;
    let says = format!("quotaBackendBytes: {SMALLEST_QUOTA} is not more than the database has");
    ensure!(message.contains(&says) && !message.contains("no Machine is made"), "it says: {message}");
    look_again(&handle, &quota(QUOTA)).await?;
    handle.until_condition("MachinesUpToDate", "True", "UpToDate", PATIENCE).await?;
    ensure!(handle.etcd_machines().await? == machines, "a Machine was replaced");

    said(&first, &["sh", "-c", MAKE_ROOM]).await?;
    handle.until_condition("NoAlarms", "True", "NoAlarms", PATIENCE).await?;
    keys.write(&bed.machines.get(&handle.namespace, &machines[2])?, 1).await
}
