//! How soon the replacement of a member that no longer answers begins, beside many other clusters.

use super::clusters::{AT_ONCE, PATIENT, SETTLES, until_all_are_ready};
use super::table::Table;
use crate::bed::{Bed, ClusterHandle, first_address};
use crate::packet_filter::FilterRule;
use crate::percentile::percentile;
use crate::until::until;
use anyhow::{Context, Result, bail, ensure};
use api::EtcdCluster;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// After how many seconds of failing checks a member is replaced.
const THRESHOLD: i64 = 60;
/// One of this many members is lost: 5 %.
const DYING: usize = 20;
/// The index of the first one in the list of machines. With these numbers, at most one member of each cluster of three
/// is lost.
const FIRST: usize = 5;
/// How long it may take until the last replacement has begun, and then until the last lost machine is gone.
const PATIENCE: Duration = Duration::from_secs(600);
/// Time between two looks whether they are gone.
const LOOKS: Duration = Duration::from_secs(5);

/// A lost member, and what is known of it so far.
struct Death {
    machine: String,
    address: Ipv4Addr,
    died: Timestamp,
    /// Since when its checks fail.
    failing: Option<Timestamp>,
    begun: Option<Timestamp>,
}

/// Loses 5 % of the members of this many clusters, all of which are healthy. Adds how long after [`THRESHOLD`] their
/// replacements have begun. Afterwards, the clusters are as patient as before.
pub(super) async fn measure(bed: &Bed, number: usize, table: &mut Table) -> Result<()> {
    let etcds: Api<EtcdCluster> = Api::all(bed.client());
    replace_after(bed, &etcds, THRESHOLD).await?;
    sleep(SETTLES).await;
    until_all_are_ready(bed, number).await?;
    let (deaths, silences) = begun(bed, &etcds).await?;
    let (failed, died) = (seconds(&deaths, |death| death.failing), seconds(&deaths, |death| Some(death.died)));
    ensure!(failed.len() == deaths.len(), "of {} deaths, {} were seen to fail", deaths.len(), failed.len());
    let what = format!("{number} clusters of three, {} members dead: replacement begun", deaths.len());
    for (percent, goal) in [(50, ""), (99, "≤ 2 s")] {
        let figure = format!("{:.1} s", percentile(&failed, percent).unwrap_or_default());
        table.row(&format!("{what}, after {THRESHOLD} s of failing checks, p{percent}"), figure, goal, "");
    }
    for percent in [50, 99] {
        let figure = format!("{:.1} s", percentile(&died, percent).unwrap_or_default());
        table.row(&format!("{what}, after the death and {THRESHOLD} s, p{percent}"), figure, "", "");
    }
    until_they_are_gone(bed, &deaths).await?;
    drop(silences);
    replace_after(bed, &etcds, PATIENT).await
}

/// Waits until no lost machine is left: a member that answered again would call its replacement off, and the new member
/// would stay for a while. Afterwards, a new machine may have the address of a lost one.
async fn until_they_are_gone(bed: &Bed, deaths: &[Death]) -> Result<()> {
    let machines = ClusterHandle::anywhere(&bed.client()).everywhere("LocalMachine");
    let lost: BTreeSet<&String> = deaths.iter().map(|death| &death.machine).collect();
    until("the lost machines are gone", PATIENCE, async || {
        sleep(LOOKS).await;
        let there = machines.list_metadata(&ListParams::default()).await?;
        let left = there.iter().filter(|machine| lost.contains(&machine.name_any())).count();
        ensure!(left == 0, "{left} are left");
        Ok(Some(()))
    })
    .await?;
    let frozen = bed.frozen().context("machines are simulated")?;
    deaths.iter().try_for_each(|death| frozen.thaw(death.address))
}

/// Lets every cluster replace a member after this many seconds of failing checks.
async fn replace_after(bed: &Bed, etcds: &Api<EtcdCluster>, seconds: i64) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"healthCheck": {"unhealthyAfterSeconds": seconds}}}));
    stream::iter(etcds.list(&ListParams::default()).await?.items)
        .map(async |etcd| {
            let namespace = etcd.namespace().context("an EtcdCluster without namespace")?;
            let etcds: Api<EtcdCluster> = Api::namespaced(bed.client(), &namespace);
            etcds.patch(&etcd.name_any(), &PatchParams::default(), &patch).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// Loses members, and waits until the replacement of each has begun. Also returns what silences them.
async fn begun(bed: &Bed, etcds: &Api<EtcdCluster>) -> Result<(Vec<Death>, Vec<FilterRule>)> {
    let version = etcds.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    let mut events = etcds.watch(&WatchParams::default(), &version).await?.boxed();
    let (mut deaths, silences) = lost(bed).await?;
    let deadline = Instant::now() + PATIENCE;
    while deaths.values().any(|death| death.begun.is_none()) {
        let left = || deaths.values().filter(|death| death.begun.is_none()).count();
        let event = timeout_at(deadline, events.try_next()).await;
        let event = event.with_context(|| format!("{} replacements have not begun", left()))??;
        let etcd = match event.context("the watch has ended")? {
            WatchEvent::Added(etcd) | WatchEvent::Modified(etcd) => etcd,
            WatchEvent::Error(error) => bail!("{error}"),
            _ => continue,
        };
        let Some(death) = deaths.get_mut(&etcd.name_any()) else { continue };
        let Some(status) = etcd.status else { continue };
        if death.begun.is_some() {
            continue;
        }
        let member = status.members.iter().find(|member| member.machine == death.machine);
        if let Some(since) = member.and_then(|member| member.unhealthy_since.as_ref()) {
            death.failing = Some(since.0);
        }
        if status.last_remediation.is_some_and(|last| last.machine == death.machine) {
            death.begun = Some(now());
        }
    }
    Ok((deaths.into_values().collect(), silences))
}

/// Loses one of [`DYING`] members, each in another cluster, as if its machine had no power: the other members do not
/// hear it, and what is sent to it gets no answer. Returns them by the name of their EtcdCluster, with what silences
/// them.
async fn lost(bed: &Bed) -> Result<(BTreeMap<String, Death>, Vec<FilterRule>)> {
    let frozen = bed.frozen().context("machines are simulated")?;
    let machines =
        ClusterHandle::anywhere(&bed.client()).everywhere("LocalMachine").list(&ListParams::default()).await?;
    let (mut deaths, mut silences) = (BTreeMap::new(), Vec::new());
    for machine in machines.items.iter().skip(FIRST).step_by(DYING) {
        let name = machine.name_any();
        let (etcd, _) = name.rsplit_once('-').context("a name without a number")?;
        let address: Ipv4Addr = first_address(machine).context("no address")?.parse()?;
        frozen.freeze(address)?;
        let to = address.to_string();
        silences.push(FilterRule::append("filter", "INPUT", &["--destination", &to, "--jump", "DROP"])?);
        let death = Death { machine: name.clone(), address, died: now(), failing: None, begun: None };
        ensure!(deaths.insert(etcd.to_owned(), death).is_none(), "two members of {etcd} are lost");
    }
    ensure!(!deaths.is_empty(), "there are too few members");
    Ok((deaths, silences))
}

/// For each death, the seconds from `THRESHOLD` after a moment until the replacement has begun, sorted.
fn seconds(deaths: &[Death], from: impl Fn(&Death) -> Option<Timestamp>) -> Vec<f64> {
    let late = |death: &Death| {
        let threshold = from(death)? + SignedDuration::from_secs(THRESHOLD);
        Some(death.begun?.duration_since(threshold).as_secs_f64())
    };
    let mut late: Vec<f64> = deaths.iter().filter_map(late).collect();
    late.sort_by(f64::total_cmp);
    late
}

#[expect(clippy::disallowed_methods, reason = "what is measured is told with the time of day")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_counted_from_the_threshold_on() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let death = |failing, begun| Death {
            machine: String::new(),
            address: Ipv4Addr::LOCALHOST,
            died: at(0),
            failing,
            begun,
        };
        let deaths = [death(Some(at(9)), Some(at(71))), death(Some(at(5)), Some(at(66))), death(None, Some(at(80)))];
        assert_eq!(seconds(&deaths, |death| death.failing), [1.0, 2.0]);
        assert_eq!(seconds(&deaths, |death| Some(death.died)), [6.0, 11.0, 20.0]);
    }
}
