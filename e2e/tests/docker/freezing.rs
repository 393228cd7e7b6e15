//! A fault that scenarios rely on: a machine is frozen whatever it does.

use crate::clusters::up;
use anyhow::{Context, Result};
use e2e::bed::ClusterHandle;
use e2e::docker::DockerBed;

/// Four processes that wait for the disk nearly all the time.
const WRITERS: &str = "for i in 1 2 3 4; do
    (while :; do dd if=/dev/zero of=/var/lib/busy-$i bs=1M count=200 conv=fsync; done) >/dev/null 2>&1 &
done";
/// Without patience, one attempt in five fails.
const TIMES: usize = 20;

/// A machine whose processes wait for the disk is frozen, time after time.
pub(crate) async fn of_a_busy_machine(bed: &mut DockerBed) -> Result<()> {
    let namespace = "freezing";
    ClusterHandle::make_namespace(&bed.client(), namespace).await?;
    // Nobody runs commands in it any more: docker does not get over one in the same moment.
    let machine = &up(bed, namespace, namespace, 1).await?.member_names(1)[0];
    bed.exec(machine, &["sh", "-c", WRITERS]).await?;
    for time in 1..=TIMES {
        bed.pause(machine).await.with_context(|| format!("for the {time}th time"))?;
        bed.unpause(machine).await?;
    }
    Ok(())
}
