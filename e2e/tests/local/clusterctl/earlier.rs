//! An upgrade with clusterctl from an earlier state of this project: its release, its manager and its etcdadm.

use super::upgrade::{Before, apply, later_version};
use super::{TAG, all_is_gone, configure, generated, manager_image};
use crate::bring_up::released;
use crate::upgrades::{WATCHED, is_looked_at};
use anyhow::{Result, ensure};
use e2e::bed::Bed;
use e2e::clusterctl::{Setup, stand_in_for_cert_manager};
use e2e::tools::Earlier;

/// The first commit with a release that clusterctl installs.
pub(crate) const FIRST_RELEASE: &str = "6057534b7247fedc17c9b817c24af7262b02bfe8";

/// The earlier release is installed, and a cluster is made from its template, with its manager and its etcdadm. The
/// release of the present state is the next version: clusterctl installs it while no manager runs. The new manager then
/// writes what only the new CRDs keep, changes nothing of the cluster, and deletes it in the end.
pub(crate) async fn from_the_first_release(bed: &mut Bed) -> Result<()> {
    let setup = Setup::new(bed.world())?;
    setup.release_earlier(&Earlier::ensure(FIRST_RELEASE)?).await?;
    configure(&setup, TAG)?;
    stand_in_for_cert_manager(&bed.client()).await?;
    setup.init(bed.plane.kubeconfig()?, bed.client(), &[]).await?;
    let image = manager_image(&bed.plane).await?;
    ensure!(image.ends_with(TAG), "the earlier release has installed {image}");
    let handle = generated(bed, &setup).await?;
    released(&handle).await?;
    let machines = handle.etcd_machines().await?;

    let later = later_version(&setup)?;
    setup.release_as(&later).await?;
    let before = Before::of(&setup, bed, &handle, &later).await?;
    bed.end_manager(0).await?;
    apply(&setup, bed, &later).await?;
    bed.start_manager_with_lease(1).await?;
    // With the earlier CRDs, the API server would drop this field of the status.
    is_looked_at(&handle, machines.len()).await?;
    tokio::time::sleep(WATCHED).await;
    before.is_kept(bed, &handle).await?;
    let status = handle.status().await?;
    ensure!(status.ready && status.up_to_date_replicas == 3, "{status:?}");

    handle.delete("Cluster", &handle.cluster).await?;
    all_is_gone(&handle).await
}
