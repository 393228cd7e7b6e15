//! At every write of a cluster's life our manager is killed before it, killed after it, or loses the answer: each time the
//! cluster comes up as if nothing had happened, goes when it is deleted, and nobody is warned.

use crate::bring_up::{PATIENCE, released};
use crate::deletion::all_is_gone;
use crate::kills::made_once;
use crate::records::warnings;
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, Look, Manifests};
use e2e::faults::{ApiCall, Ending, FaultyManager, How, Place, Rule, Snapshot, Sweep, Writes};
use e2e::until::until;
use std::time::Duration;

/// Clusters side by side. Each has a manager of its own, which sees no other's.
const AT_ONCE: usize = 6;
/// Every so many-th place of a cluster of one is in the sample.
const SAMPLE: usize = 2;
/// How long everything has to stay as it is to be taken for the end.
const SETTLED: Duration = Duration::from_secs(3);
/// How long the last trace of a fault may take: longer than the longest delay after one error.
const SETTLES: Duration = Duration::from_secs(60);

/// One member: a sample of all places, or all of them with `E2E_FULL` set.
pub(crate) async fn life_of_one(bed: &mut Bed) -> Result<()> {
    let full = std::env::var_os("E2E_FULL").is_some();
    sweep(bed, "life-of-one", 1, |writes| match full {
        true => Place::all(writes, &How::DEATHS),
        false => Place::sample(writes, &How::DEATHS, 1, SAMPLE),
    })
    .await
}

/// Three members: all places.
pub(crate) async fn life_of_three(bed: &mut Bed) -> Result<()> {
    sweep(bed, "life-of-three", 3, |writes| Place::all(writes, &How::DEATHS)).await
}

/// Three members: every write is answered once as an API server does now and then, by turns: somebody else was quicker, there
/// are too many requests, it is in trouble itself.
pub(crate) async fn refusals(bed: &mut Bed) -> Result<()> {
    sweep(bed, "refusals", 3, |writes| Place::all(writes, &How::REFUSALS)).await
}

/// Lives once without a fault, which says how many places there are and what the end looks like; then once for each place.
async fn sweep(bed: &mut Bed, name: &str, replicas: usize, places: impl FnOnce(usize) -> Vec<Place>) -> Result<()> {
    bed.kill_manager(0).await?;
    let story = Story { bed, replicas, wanted: None };
    let (wanted, writes) = story.live(&format!("{name}-counted"), Vec::new()).await.context("without a fault")?;
    let story = Story { wanted: Some(wanted), ..story };
    let sweep = Sweep { name, writes: writes.len(), places: places(writes.len()), at_once: AT_ONCE };
    sweep
        .run(async |place| {
            let rules = vec![Rule::at_write(place.write, place.how.fault())];
            let (_, writes) = story.live(&format!("{name}-{}-{}", place.write, place.how), rules).await?;
            let reached = writes.iter().nth(place.write - 1);
            Ok(reached.map_or(Ending::NotReached, |write| Ending::AfterFault(write.call.to_string())))
        })
        .await?;
    bed.start_manager(0).await
}

/// A cluster comes up and is deleted.
struct Story<'a> {
    bed: &'a Bed,
    replicas: usize,
    /// What there is when it is up. `None`: whatever there is in the end.
    wanted: Option<Snapshot>,
}

impl Story<'_> {
    /// Gives what there was when it was up, and all that the manager has written.
    async fn live(&self, namespace: &str, rules: Vec<Rule<ApiCall>>) -> Result<(Snapshot, Writes<ApiCall>)> {
        let (bed, client) = (self.bed, self.bed.client());
        Look::make_namespace(&client, namespace).await?;
        let manager = FaultyManager::start(bed, namespace, Some(namespace), rules).await?;
        let before = bed.plane.mark();
        let manifests = Manifests::new(namespace, "demo")?.replicas(i64::try_from(self.replicas)?);
        let look = Look::at(&client, &manifests);
        manifests.apply(&client).await?;
        look.until_ready(PATIENCE).await?;
        released(&look).await?;
        bed.exactly(&[(&look, self.replicas)]).await?;
        let up = self.settled(&look).await?;
        made_once(bed, namespace, before)?;
        look.delete("Cluster", &look.cluster).await?;
        all_is_gone(bed, &look).await.context("the deletion")?;
        let warnings = warnings(&client, namespace).await?;
        ensure!(warnings.is_empty(), "{} warnings: {warnings:#?}", warnings.len());
        Ok((up, manager.stop().await?))
    }

    async fn settled(&self, look: &Look) -> Result<Snapshot> {
        let mut last = Snapshot::of(look).await?;
        until(format!("nothing of {} changes any more", look.namespace), SETTLES, async || {
            if let Some(wanted) = &self.wanted {
                last = Snapshot::of(look).await?;
                let differences = last.differences(wanted);
                ensure!(differences.is_empty(), "{}", differences.join("; "));
                return Ok(Some(last.clone()));
            }
            tokio::time::sleep(SETTLED).await;
            let now = Snapshot::of(look).await?;
            let differences = now.differences(&last);
            last = now;
            ensure!(differences.is_empty(), "{}", differences.join("; "));
            Ok(Some(last.clone()))
        })
        .await
    }
}
