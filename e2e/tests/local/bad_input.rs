//! Bad input that only a controller can detect. A condition says what is wrong and what would be right, and nothing is
//! made. Once the input is corrected, the cluster comes up without further action.
//!
//! What the API server itself refuses is tested in `tests/api`. The cases of a scenario run side by side, each in a
//! namespace of its own.

mod case;
mod claims;
mod control_planes;
mod pauses;
mod secrets;
mod templates;
mod thousands;

use anyhow::Result;
use e2e::bed::Bed;
use futures::try_join;

/// References to templates, kinds and Clusters that do not exist, or that are not for this object.
pub(crate) async fn references(bed: &mut Bed) -> Result<()> {
    try_join!(
        templates::kind_that_does_not_exist(bed),
        templates::name_that_does_not_exist(bed),
        templates::another_namespace(bed),
        claims::cluster_that_does_not_exist(bed),
        claims::two_etcds_for_one_cluster(bed),
        claims::two_clusters_for_one_etcd(bed),
        claims::kinds_that_are_no_etcd(bed),
    )?;
    Ok(())
}

/// Control planes that cannot use external etcd, Secrets that people make, and pauses.
pub(crate) async fn contents(bed: &mut Bed) -> Result<()> {
    try_join!(
        control_planes::made_for_local_etcd(bed),
        secrets::authority_of_the_user(bed),
        secrets::authority_that_is_none(bed),
        secrets::file_without_its_secret(bed),
        pauses::of_the_cluster(bed),
        pauses::of_etcd(bed),
        pauses::of_the_control_plane(bed),
    )?;
    Ok(())
}

/// All malformed documents of a generator that the API server accepts.
pub(crate) async fn thousands_stored(bed: &mut Bed) -> Result<()> {
    thousands::stored(bed).await
}
