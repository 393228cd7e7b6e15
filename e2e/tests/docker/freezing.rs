//! A fault that scenarios rely on: a machine freezes whatever its processes do.

use crate::clusters::up;
use anyhow::{Context, Result};
use e2e::bed::ClusterHandle;
use e2e::docker::DockerBed;

/// Four processes that nearly always wait for the disk.
const WRITERS: &str = "for i in 1 2 3 4; do
    (while :; do dd if=/dev/zero of=/var/lib/busy-$i bs=1M count=200 conv=fsync; done) >/dev/null 2>&1 &
done";
/// Without the bed's patience, one attempt in five would fail.
const TIMES: usize = 20;

/// A machine whose processes wait for the disk freezes, time after time.
pub(crate) async fn of_a_busy_machine(bed: &mut DockerBed) -> Result<()> {
    let namespace = "freezing";
    ClusterHandle::make_namespace(&bed.client(), namespace).await?;
    // From here on, nothing else may run commands in it: docker cannot handle one at the same moment.
    let machine = &up(bed, namespace, namespace, 1).await?.member_names(1)[0];
    bed.exec(machine, &["sh", "-c", WRITERS]).await?;
    for time in 1..=TIMES {
        bed.pause(machine).await.with_context(|| format!("for the {time}th time"))?;
        bed.unpause(machine).await?;
    }
    Ok(())
}
