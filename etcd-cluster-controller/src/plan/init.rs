//! The init Secret: where joining members find the voters, and which Machines may join.

use super::Step;
use crate::observation::Observation;
use controller_support::loose::{ClusterView, MachineView};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;

/// The live Machines that are admitted, each with the time of its admission, by UID.
type Admitted<'a> = BTreeMap<&'a str, Timestamp>;

/// Joining members find the voters in the init Secret: it follows the membership, not the health of the moment.
pub(super) fn publish(seen: &Observation, cluster: &ClusterView) -> Option<Step> {
    let (_, first) = seen.healthy_voters().next()?;
    let address = first.to_owned();
    let mut voters: Vec<String> = seen
        .live_machines()
        .filter(|machine| seen.member_on(&machine.name).is_some_and(|(_, member)| !member.learner))
        .filter_map(|machine| client_url(seen, machine))
        .collect();
    voters.sort();
    voters.dedup();
    let client_urls = voters.join(",");
    // Without a list it would admit everybody.
    let outdated = seen.init_urls.as_deref() != Some(&client_urls) || seen.admitted.is_none();
    outdated.then(|| Step::PublishInit {
        cluster: cluster.name.clone(),
        address,
        client_urls,
        admitted: as_text(&still_admitted(seen)),
    })
}

/// Where a voter is said to be. One that does not answer stays where it is published: its Machine may have been given an
/// address at which it does not serve, or that of another.
fn client_url(seen: &Observation, machine: &MachineView) -> Option<String> {
    let published = |url: &&String| seen.init_urls.iter().flat_map(|urls| urls.split(',')).any(|known| known == *url);
    let last = || seen.last_on(machine).map(|member| &member.client_url).filter(published).cloned();
    if seen.is_healthy(&machine.name) { seen.client_url(machine) } else { last().or_else(|| seen.client_url(machine)) }
}

/// All that are admitted together with one more, in the form of the init Secret. Those that are gone are left out, so it
/// has to be made sure that the Machines are those that were seen.
pub(super) fn with(seen: &Observation, one_more: &MachineView) -> String {
    let mut all = admitted(seen);
    all.insert(&one_more.uid, seen.now);
    as_text(&all)
}

fn admitted(seen: &Observation) -> Admitted<'_> {
    let since = |machine: &MachineView| seen.admitted_since(machine).unwrap_or(seen.now);
    let admitted = seen.live_machines().filter(|machine| seen.is_admitted(machine));
    admitted.map(|machine| (machine.uid.as_str(), since(machine))).collect()
}

/// The same with those that the Secret names and no Machine has: nobody looks whether the watch of Machines lags behind
/// just for telling where the voters are, and an admission is not revoked.
fn still_admitted(seen: &Observation) -> Admitted<'_> {
    let mut all = admitted(seen);
    let unseen = |uid: &str| seen.machines.values().all(|machine| machine.uid != uid);
    let named = seen.admitted.iter().flatten().filter(|(uid, _)| unseen(uid));
    all.extend(named.map(|(uid, since)| (uid.as_str(), *since)));
    all
}

fn as_text(admitted: &Admitted<'_>) -> String {
    admitted.iter().map(|(uid, since)| format!("{uid}@{since}")).collect::<Vec<_>>().join(",")
}
