//! Members are spread over the failure domains that the infrastructure reports.

use crate::departures::replaced;
use crate::load::LowLoad;
use crate::repair::{self, dies};
use crate::rolls::{ROLLOUT, another_spec, changed, up_to_date};
use crate::shrinks::{alone, are_well, wanted};
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle};
use e2e::until::until;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Three members are in three domains. The replacement of a deleted Machine is in the same domain. Five members are
/// spread two, two and one.
pub(crate) async fn members_are_spread(bed: &mut Bed) -> Result<()> {
    let (handle, before) = in_three(bed, "domains").await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let doomed = before.keys().nth(1).context("no second Machine")?;
    handle.delete("Machine", doomed).await?;
    same_domain(bed, &handle, &before, doomed).await?;

    wanted(&handle, 5).await?;
    are_well(bed, &handle, 5).await?;
    let five = places(&handle).await?;
    ensure!(sizes(&five) == [1, 2, 2], "five members are spread like this: {five:?}");
    let status = handle.status().await?;
    let shown = status.members.into_iter().map(|member| (member.machine, member.failure_domain));
    ensure!(shown.collect::<BTreeMap<_, _>>() == five, "the status differs from {five:?}");
    load.judged().await
}

/// The replacement of a member that dies is in the same domain. After a rollout, each domain has one member again.
pub(crate) async fn replacements_are_spread(bed: &mut Bed) -> Result<()> {
    let (handle, before) = in_three(bed, "domains-replaced").await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let doomed = before.keys().next().context("no first Machine")?;
    dies(bed, &handle, doomed).await?;
    let before = same_domain(bed, &handle, &before, doomed).await?;

    changed(&handle, &another_spec()).await?;
    until("all members are replaced", ROLLOUT, async || {
        let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
        let stayed = machines.iter().any(|name| before.contains_key(name));
        ensure!(!stayed && up_to_date(&status)?.0 == "True", "{machines:?}: {:?}", status.conditions);
        Ok(Some(()))
    })
    .await?;
    are_well(bed, &handle, 3).await?;
    let rolled = places(&handle).await?;
    ensure!(sizes(&rolled) == [1, 1, 1], "after a rollout, they are spread like this: {rolled:?}");
    load.judged().await
}

/// A cluster of three members on infrastructure with three failure domains, and where its Machines are.
async fn in_three(bed: &Bed, namespace: &str) -> Result<(ClusterHandle, BTreeMap<String, String>)> {
    let domains = |cluster: &mut Value| cluster["spec"]["failureDomains"] = json!(["a", "b", "c"]);
    let handle = alone(bed, repair::manifests(namespace, 3)?.with("LocalCluster", domains)).await?;
    let places = places(&handle).await?;
    ensure!(sizes(&places) == [1, 1, 1], "three members are spread like this: {places:?}");
    Ok((handle, places))
}

/// Waits until `doomed` is replaced, and checks that its replacement is in the same domain. Returns where all are then.
async fn same_domain(
    bed: &Bed,
    handle: &ClusterHandle,
    before: &BTreeMap<String, String>,
    doomed: &str,
) -> Result<BTreeMap<String, String>> {
    replaced(bed, handle, doomed).await?;
    let (domain, after) = (&before[doomed], places(handle).await?);
    let (new, its) = after.iter().find(|(name, _)| !before.contains_key(*name)).context("no new Machine")?;
    ensure!(its == domain, "{doomed} was in {domain}, and {new} in its place is in {its}");
    Ok(after)
}

/// Failure domains of the etcd Machines, by name of the Machine.
async fn places(handle: &ClusterHandle) -> Result<BTreeMap<String, String>> {
    let ours = ListParams::default().labels(&format!("{}={}", api::names::ETCD_CLUSTER_LABEL, handle.etcd));
    let machines = handle.api("Machine").list(&ours).await?.items;
    let domain = |data: &Value| data.pointer("/spec/failureDomain").and_then(Value::as_str).map(str::to_owned);
    let place = |machine: &kube::api::DynamicObject| {
        let name = machine.name_any();
        Ok((name.clone(), domain(&machine.data).with_context(|| format!("{name} is in no failure domain"))?))
    };
    machines.iter().map(place).collect()
}

/// How many Machines are in each domain, sorted.
fn sizes(places: &BTreeMap<String, String>) -> Vec<usize> {
    let mut domains: BTreeMap<&String, usize> = BTreeMap::new();
    places.values().for_each(|domain| *domains.entry(domain).or_default() += 1);
    let mut sizes: Vec<usize> = domains.into_values().collect();
    sizes.sort_unstable();
    sizes
}
