//! A member loses its data, or gets an older copy of it back. It never votes again, the other members keep their data,
//! and a person who deletes its Machine gets another member.

mod cluster;

use anyhow::{Context, Result};
use cluster::{Cluster, Loss};
use e2e::bed::data::DataLoss::{self, CopyFromBeforeStop, DeletedDirectory, DeletedWhileOff, OlderCopy, RobbedDisk};
use e2e::bed::{Bed, ClusterHandle};
use futures::future::try_join_all;

/// Side by side: each loss, in a cluster of its own with one member. No replacement is made.
pub(crate) async fn of_the_only_member(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    ClusterHandle::make_namespace(&bed.client(), "lost-one").await?;
    let names = ["robbed", "deleted", "off", "older", "stopped"];
    let stories = DataLoss::ALL.into_iter().zip(names).map(|(loss, name)| async move {
        let mut cluster = Cluster::up(bed, "lost-one", name, 1, false).await?;
        cluster.loses(Loss { member: 0, loss }).await.with_context(|| loss.to_string())
    });
    try_join_all(stories).await.map(drop)
}

/// For a while, an older copy is in place of the only member's data, and clients send requests all the time. The judge
/// says whether an answer came from the older data. In the end, the latest data is back, and all is well.
pub(crate) async fn beside_clients(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    ClusterHandle::make_namespace(&bed.client(), "lost-used").await?;
    Cluster::up(bed, "lost-used", "used", 1, true).await?.has_an_older_copy_for_a_while().await
}

/// Of three members, one that joined gets an older copy back, and then the one that initialized etcd loses its disk.
/// The bootstrap commands of a member ask the members that voted when it was admitted, and one of these has to be there
/// to answer.
pub(crate) async fn of_one_of_three(bed: &mut Bed) -> Result<()> {
    one_after_the_other(bed, "lost-three", 3, &[&[(2, OlderCopy), (0, RobbedDisk)]]).await
}

/// The other losses, with three members.
pub(crate) async fn of_one_of_three_in_other_ways(bed: &mut Bed) -> Result<()> {
    let clusters: [&[_]; 4] = [
        &[(1, DeletedDirectory), (0, OlderCopy)],
        &[(2, RobbedDisk), (0, DeletedDirectory)],
        &[(1, CopyFromBeforeStop), (0, DeletedWhileOff)],
        &[(2, DeletedWhileOff), (0, CopyFromBeforeStop)],
    ];
    one_after_the_other(bed, "lost-other", 3, &clusters).await
}

/// Losses of the member that initialized etcd, and of members that joined, with five members.
pub(crate) async fn of_one_of_five(bed: &mut Bed) -> Result<()> {
    let clusters: [&[_]; 4] = [
        &[(2, OlderCopy), (4, DeletedDirectory), (0, RobbedDisk)],
        &[(1, CopyFromBeforeStop), (0, DeletedDirectory)],
        &[(1, RobbedDisk), (0, OlderCopy)],
        &[(0, CopyFromBeforeStop)],
    ];
    one_after_the_other(bed, "lost-five", 5, &clusters).await
}

/// The first machine is installed again from its user-data, which still says `init`, within the day in which that starts
/// an etcd. While an empty etcd of another ID answers there, nothing is changed. A person deletes the Machine, and gets
/// another member.
pub(crate) async fn of_a_reinstalled_machine(bed: &mut Bed) -> Result<()> {
    ClusterHandle::make_namespace(&bed.client(), "lost-anew").await?;
    let mut cluster = Cluster::up(bed, "lost-anew", "anew", 3, false).await?;
    cluster.first_is_reinstalled().await?;
    cluster.gets_another_in_place_of(0).await
}

/// Brings up a cluster for each list. The cluster loses the data of one member after the other, and each time a person
/// deletes the member's Machine.
async fn one_after_the_other(
    bed: &Bed,
    namespace: &str,
    replicas: usize,
    clusters: &[&[(usize, DataLoss)]],
) -> Result<()> {
    ClusterHandle::make_namespace(&bed.client(), namespace).await?;
    for (number, losses) in clusters.iter().enumerate() {
        let mut cluster = Cluster::up(bed, namespace, &format!("lost-{number}"), replicas, true).await?;
        for (member, loss) in *losses {
            let what = || format!("member {member} of {replicas}: {loss}");
            cluster.loses(Loss { member: *member, loss: *loss }).await.with_context(what)?;
            cluster.gets_another_in_place_of(*member).await.with_context(what)?;
        }
        cluster.has_lost_nothing().await?;
        cluster.handle.delete("Cluster", &cluster.handle.cluster).await?;
    }
    Ok(())
}
