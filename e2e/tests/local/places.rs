//! Our manager is killed before a write, killed after it, or loses the answer, at every write in the life of a
//! cluster. Each time the cluster comes up as if nothing had happened, and goes when it is deleted, without a
//! warning.

mod middle;

use crate::bring_up::released;
use crate::deletion::all_is_gone;
use crate::kills::made_once;
use crate::load::LowLoad;
use crate::records::warnings;
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::faults::{ApiCall, Ending, Fault, FaultyManager, How, Place, Snapshot, Strike, Sweep, Writes};
use e2e::until::until;
use middle::Middle;
use std::time::Duration;

/// How many members come up side by side. Each cluster has its own manager, which does not see the other clusters.
/// Most of a life is spent waiting for Cluster API.
const MEMBERS_AT_ONCE: usize = 10;
/// How long a cluster may take to come up beside so many others.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long nothing may change before the state counts as final.
const SETTLED: Duration = Duration::from_secs(3);
/// Time between two expensive reads of a cluster, while several clusters are read side by side.
const CALM: Duration = Duration::from_millis(300);
/// How long the last trace of a fault may last: longer than the longest delay after one error.
const SETTLES: Duration = Duration::from_secs(60);

/// The answer to a write that we are not permitted to make, and the words of the test bed that come with it.
const FORBIDDEN: Fault = Fault::Answer(403);
const ANSWER: &str = "the test bed answers 403";

/// One member.
pub(crate) async fn life_of_one(bed: &mut Bed) -> Result<()> {
    sweep(bed, "life-of-one", 1, &How::DEATHS).await
}

/// Three members.
pub(crate) async fn life_of_three(bed: &mut Bed) -> Result<()> {
    sweep(bed, "life-of-three", 3, &How::DEATHS).await
}

/// Writes get the errors that an API server returns now and then: we have no permission, as when a quota is used up
/// (403); another writer was faster (409); there are too many requests (429); the API server itself has failed (500).
/// A missing permission is reported, and the write is tried again.
pub(crate) async fn refusals(bed: &mut Bed) -> Result<()> {
    sweep(bed, "refusals", 1, &How::REFUSALS).await
}

/// The Cluster is deleted in the middle of a rollout, while a control plane uses the old members.
pub(crate) async fn deletion_in_a_rollout(bed: &mut Bed) -> Result<()> {
    middle::sweep(bed, Middle::Rollout).await
}

/// The Cluster is deleted while a member that has died is being replaced.
pub(crate) async fn deletion_in_a_repair(bed: &mut Bed) -> Result<()> {
    middle::sweep(bed, Middle::Repair).await
}

/// Runs one life without a fault, to count the places and record the final state. Then it runs one life for each
/// place of a sample, or for every place if `E2E_EVERY_PLACE` is set.
async fn sweep(bed: &mut Bed, name: &str, replicas: usize, ways: &[How]) -> Result<()> {
    bed.kill_manager(0).await?;
    let story = Story { bed, replicas, wanted: None };
    let counted = story.live(&format!("{name}-counted"), None).await.context("without a fault")?;
    let story = Story { wanted: Some(counted.up), ..story };
    let told = async |place: Place| {
        let lived = story.live(&format!("{name}-{}", place.slug()), Some(place)).await?;
        Ok(lived.strikes.first().map_or(Ending::NotReached, |strike| Ending::AfterFault(strike.call.to_string())))
    };
    let sweep = Sweep { name, writes: counted.writes.names(), at_once: MEMBERS_AT_ONCE / replicas };
    sweep.run_wanted(ways, told).await?;
    bed.start_manager(0).await
}

/// The result of a story whose places are counted from some moment in its middle.
pub(crate) struct Told {
    /// What our manager has written from that moment on.
    pub(crate) writes: Vec<String>,
    /// The call that the fault struck.
    struck: Option<String>,
}

impl Told {
    /// The result so far, for a manager that had made `earlier` writes before.
    pub(crate) fn until_now(manager: &FaultyManager, earlier: usize) -> Self {
        Self {
            writes: manager.writes().names().split_off(earlier),
            struck: manager.strikes().first().map(|strike| strike.call.to_string()),
        }
    }

    pub(crate) fn ending(self) -> Ending {
        self.struck.map_or(Ending::NotReached, Ending::AfterFault)
    }
}

/// Lets the fault of `place`, which is counted from now on, strike this manager. Returns how many writes the manager
/// has made so far.
pub(crate) fn strikes(manager: &FaultyManager, place: Option<&Place>) -> usize {
    let earlier = manager.writes().len();
    if let Some(place) = place {
        manager.add(place.rule(earlier));
    }
    earlier
}

/// One life of a cluster.
struct Lived {
    /// The state when the cluster was up.
    up: Snapshot,
    writes: Writes<ApiCall>,
    strikes: Vec<Strike<ApiCall>>,
}

/// A cluster comes up and is deleted.
struct Story<'a> {
    bed: &'a Bed,
    replicas: usize,
    /// The state that the cluster has to reach. `None`: whatever state it settles in.
    wanted: Option<Snapshot>,
}

impl Story<'_> {
    async fn live(&self, namespace: &str, place: Option<Place>) -> Result<Lived> {
        let (bed, client) = (self.bed, self.bed.client());
        ClusterHandle::make_namespace(&client, namespace).await?;
        let rules = place.iter().map(|place| place.rule(0)).collect();
        let manager = FaultyManager::start(bed, namespace, Some(namespace), rules).await?;
        let before = bed.plane.mark();
        let manifests = Manifests::new(namespace, "demo")?.replicas(i64::try_from(self.replicas)?);
        let handle = ClusterHandle::new(&client, &manifests);
        manifests.apply(&client).await?;
        let load = LowLoad::begin_early(bed, &handle).await?;
        handle.until_ready(PATIENCE).await?;
        released(&handle).await?;
        bed.exactly(&[(&handle, self.replicas)]).await?;
        let up = self.settled(&handle, &manager).await?;
        made_once(bed, namespace, before)?;
        load.judged_of(bed, self.replicas).await?;
        handle.delete("Cluster", &handle.cluster).await?;
        gone(&handle).await?;
        if is_template_not_owned(&manager.strikes()) {
            handle.delete("LocalMachineTemplate", &handle.etcd).await.context("a template without an owner stays")?;
        }
        all_is_gone(bed, &handle).await.context("the deletion")?;
        let strikes = manager.strikes();
        let warnings = unexpected(warnings(&client, namespace).await?, &strikes)?;
        ensure!(warnings.is_empty(), "{} warnings: {warnings:#?}", warnings.len());
        Ok(Lived { up, writes: manager.stop().await?, strikes })
    }

    async fn settled(&self, handle: &ClusterHandle, manager: &FaultyManager) -> Result<Snapshot> {
        let template = format!("LocalMachineTemplate {} ", handle.etcd);
        let mut last = Snapshot::of(handle).await?;
        until(format!("nothing of {} changes any more", handle.namespace), SETTLES, async || {
            if let Some(wanted) = &self.wanted {
                tokio::time::sleep(CALM).await;
                last = Snapshot::of(handle).await?;
                let mut differences = last.differences(wanted);
                if is_template_not_owned(&manager.strikes()) {
                    differences.retain(|difference| !difference.starts_with(&template));
                }
                ensure!(differences.is_empty(), "{}", differences.join("; "));
                return Ok(Some(last.clone()));
            }
            tokio::time::sleep(SETTLED).await;
            let now = Snapshot::of(handle).await?;
            let differences = now.differences(&last);
            last = now;
            ensure!(differences.is_empty(), "{}", differences.join("; "));
            Ok(Some(last.clone()))
        })
        .await
    }
}

/// Beginning of the warning that the infrastructure template has no owner.
const NOT_OWNED: &str = "TemplateNotOwned ";

/// Whether we were not permitted to make the Cluster an owner of the infrastructure template. Nothing depends on the
/// owner until the Cluster is deleted, so the manager tries again only after minutes.
fn is_template_not_owned(strikes: &[Strike<ApiCall>]) -> bool {
    strikes.iter().any(|strike| strike.fault == FORBIDDEN && strike.call.resource == "localmachinetemplates")
}

/// Filters out the warnings about a missing permission, if a write was refused for that.
fn unexpected(mut warnings: Vec<String>, strikes: &[Strike<ApiCall>]) -> Result<Vec<String>> {
    if is_template_not_owned(strikes) {
        let told = warnings.iter().any(|warning| warning.starts_with(NOT_OWNED));
        ensure!(told, "nobody says that the template has no owner: {warnings:#?}");
    }
    if strikes.iter().any(|strike| strike.fault == FORBIDDEN) {
        warnings.retain(|warning| !warning.contains(ANSWER));
    }
    Ok(warnings)
}

/// Waits until the Cluster is gone: it is the last object to go.
async fn gone(handle: &ClusterHandle) -> Result<()> {
    until(format!("Cluster {} of {} is gone", handle.cluster, handle.namespace), PATIENCE, async || {
        tokio::time::sleep(CALM).await;
        Ok(handle.names("Cluster", "").await?.is_empty().then_some(()))
    })
    .await
}
