//! A Cluster is deleted in the middle of a rollout or a repair. From then on our manager is killed before a write,
//! killed after it, or loses the answer. Each time everything goes, without an unexpected warning.

use super::{PATIENCE, Told, gone, strikes};
use crate::bring_up::released;
use crate::deletion::all_is_gone;
use crate::records::warnings;
use crate::repair::{self, dies};
use crate::rolls::{another_spec, changed};
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::faults::{FaultyManager, How, Place, Sweep};
use e2e::until::until;
use kube::ResourceExt;

/// Clusters side by side, of up to six members each.
const AT_ONCE: usize = 2;

/// What is going on when the Cluster is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Middle {
    /// A new member of a rollout has joined three old members that a control plane uses.
    Rollout,
    /// The machine of one of three members is dead, and its replacement is being made.
    Repair,
}

/// Runs one life without a fault, to count the places. Then it runs one life for each place of a sample, or for every
/// place if `E2E_EVERY_PLACE` is set.
pub(super) async fn sweep(bed: &mut Bed, middle: Middle) -> Result<()> {
    bed.kill_manager(0).await?;
    let name = middle.name();
    let counted = tell(bed, middle, &format!("{name}-counted"), None).await.context("without a fault")?.writes;
    let told = async |place: Place| {
        anyhow::Ok(tell(bed, middle, &format!("{name}-{}", place.slug()), Some(place)).await?.ending())
    };
    let sweep = Sweep { name, writes: counted, at_once: AT_ONCE };
    sweep.run_wanted(&How::DEATHS, told).await?;
    bed.start_manager(0).await
}

/// Runs one life. Returns the writes from the deletion on, and the call that the fault struck.
async fn tell(bed: &Bed, middle: Middle, namespace: &str, place: Option<Place>) -> Result<Told> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manager = FaultyManager::start(bed, namespace, Some(namespace), Vec::new()).await?;
    let manifests = middle.manifests(namespace)?;
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    middle.begins(bed, &handle).await?;
    let up = strikes(&manager, place.as_ref());
    handle.delete("Cluster", &handle.cluster).await?;
    gone(&handle).await?;
    all_is_gone(bed, &handle).await.context("the deletion")?;
    let warnings = warnings(&client, namespace).await?;
    let unexpected: Vec<&String> = warnings.iter().filter(|warning| !middle.explains(warning)).collect();
    ensure!(unexpected.is_empty(), "{} warnings: {unexpected:#?}", unexpected.len());
    let told = Told::until_now(&manager, up);
    manager.stop().await?;
    Ok(told)
}

impl Middle {
    fn name(self) -> &'static str {
        match self {
            Self::Rollout => "rollout-deleted",
            Self::Repair => "repair-deleted",
        }
    }

    /// A rollout keeps the default health checks. With shorter ones, a member that waits to start while another one
    /// is promoted would be reported.
    fn manifests(self, namespace: &str) -> Result<Manifests> {
        match self {
            Self::Rollout => Ok(Manifests::new(namespace, "demo")?.replicas(3)),
            Self::Repair => repair::manifests(namespace, 3),
        }
    }

    /// Whether a warning is about what has happened before the deletion.
    fn explains(self, warning: &str) -> bool {
        self == Self::Repair && warning.starts_with("MemberUnhealthy")
    }

    /// Begins the rollout or the repair, and waits until it is under way.
    async fn begins(self, bed: &Bed, handle: &ClusterHandle) -> Result<()> {
        let etcd = handle.etcds().get(&handle.etcd).await?;
        let in_use = etcd.annotations().get(api::names::ENDPOINTS_IN_USE_ANNOTATION);
        ensure!(in_use.is_some_and(|lists| !lists.is_empty()), "no list of endpoints is in use: {in_use:?}");
        match self {
            Self::Rollout => {
                changed(handle, &another_spec()).await?;
                until("a new member has joined", PATIENCE, async || {
                    let members = handle.status().await?.members;
                    Ok((members.len() > 3).then_some(()))
                })
                .await
            }
            Self::Repair => {
                dies(bed, handle, &handle.member_names(3)[1]).await?;
                until("a Machine is made in its place", PATIENCE, async || {
                    let (machines, status) = (handle.etcd_machines().await?, handle.status().await?);
                    Ok((machines.len() == 4 && status.last_remediation.is_some()).then_some(()))
                })
                .await
            }
        }
    }
}
