//! At every write of a cluster's life our manager is killed before it, killed after it, or loses the answer: each time the
//! cluster comes up as if nothing had happened, goes when it is deleted, and nobody is warned.

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

/// Members that come up side by side, in clusters that each have a manager of their own, which sees no other's. Most of a life
/// is waiting for Cluster API.
const MEMBERS_AT_ONCE: usize = 10;
/// How long a cluster may take to come up beside so many others.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long everything has to stay as it is to be taken for the end.
const SETTLED: Duration = Duration::from_secs(3);
/// Between two looks that cost much where several clusters are looked at side by side.
const CALM: Duration = Duration::from_millis(300);
/// How long the last trace of a fault may take: longer than the longest delay after one error.
const SETTLES: Duration = Duration::from_secs(60);

/// A write that we are not permitted, and what the test bed says with it.
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

/// Every write is answered as an API server does now and then: we are not permitted to do it, as where a quota is used up;
/// somebody else was quicker; there are too many requests; it is in trouble itself. That we may not do something is said, and
/// tried again.
pub(crate) async fn refusals(bed: &mut Bed) -> Result<()> {
    sweep(bed, "refusals", 1, &How::REFUSALS).await
}

/// The Cluster is deleted while members are being replaced by others, and a control plane uses the old ones.
pub(crate) async fn deletion_in_a_rollout(bed: &mut Bed) -> Result<()> {
    middle::sweep(bed, Middle::Rollout).await
}

/// The Cluster is deleted while a member that has died is being replaced.
pub(crate) async fn deletion_in_a_repair(bed: &mut Bed) -> Result<()> {
    middle::sweep(bed, Middle::Repair).await
}

/// Lives once without a fault, which says how many places there are and what the end looks like; then once for each place of
/// a sample, or with `E2E_EVERY_PLACE` set for all of them.
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

/// What a story tells a sweep whose places are counted from somewhere in its middle.
pub(crate) struct Told {
    /// What our manager has written from there on.
    pub(crate) writes: Vec<String>,
    /// What the fault happened to.
    struck: Option<String>,
}

impl Told {
    /// Until now, of a manager that had made so many writes before.
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

/// Has a fault happen at a place that is counted from now on. Gives how many writes there were before.
pub(crate) fn strikes(manager: &FaultyManager, place: Option<&Place>) -> usize {
    let earlier = manager.writes().len();
    if let Some(place) = place {
        manager.add(place.rule(earlier));
    }
    earlier
}

/// One life of a cluster.
struct Lived {
    /// What there was when it was up.
    up: Snapshot,
    writes: Writes<ApiCall>,
    strikes: Vec<Strike<ApiCall>>,
}

/// A cluster comes up and is deleted.
struct Story<'a> {
    bed: &'a Bed,
    replicas: usize,
    /// What there is when it is up. `None`: whatever there is in the end.
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
        load.judged().await?;
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

/// How the event begins that says that the infrastructure template has no owner.
const NOT_OWNED: &str = "TemplateNotOwned ";

/// Whether we were not permitted to make the Cluster an owner of the infrastructure template. Nothing depends on that before
/// the Cluster goes, so that it is tried again only after minutes.
fn is_template_not_owned(strikes: &[Strike<ApiCall>]) -> bool {
    strikes.iter().any(|strike| strike.fault == FORBIDDEN && strike.call.resource == "localmachinetemplates")
}

/// Warnings without those that say what we were not permitted to do, once that has happened.
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

/// Waits until the Cluster is gone, which is what is left last.
async fn gone(handle: &ClusterHandle) -> Result<()> {
    until(format!("Cluster {} of {} is gone", handle.cluster, handle.namespace), PATIENCE, async || {
        tokio::time::sleep(CALM).await;
        Ok(handle.names("Cluster", "").await?.is_empty().then_some(()))
    })
    .await
}
