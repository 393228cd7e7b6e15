//! The init Secret: where joining members find the voters, and which Machines may join.

use super::{Plan, Step, View};
use crate::observation::Observation;
use crate::observation::host::host_of;
use crate::roster::Seat;
use crate::roster::strangers::serves_at;
use api::admission::encode;
use controller_support::external::MachineView;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;

/// The live Machines that are admitted, each with the time of its admission, by UID.
type Admitted<'a> = BTreeMap<&'a str, Timestamp>;

/// Joining members find the voters in the init Secret: it follows the membership, not the health of the moment.
pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let observation = view.observation;
    // What is remembered of the members may be older than what is published.
    if !view.roster.is_listed() && observation.init_urls.is_some() && observation.admitted.is_some() {
        return None;
    }
    // A stranger comes last.
    let address = view.roster.voters().filter_map(|seat| host_of(&serves_at(observation, seat)?)).next()?;
    let mut voters: Vec<String> = view.roster.voters().filter_map(|seat| client_url(observation, seat)).collect();
    voters.sort();
    voters.dedup();
    let client_urls = voters.join(",");
    // It is recorded before: `record` comes first.
    let cluster_id = observation.recorded_cluster_id()?.to_owned();
    let outdated = observation.init_urls.as_deref() != Some(&client_urls)
        || observation.init_cluster_id.as_deref() != Some(&cluster_id)
        // Without a list it would admit everybody.
        || observation.admitted.is_none();
    let admitted = || encode(still_admitted(observation));
    outdated.then(|| Plan::Do(Step::PublishInit { address, client_urls, cluster_id, admitted: admitted() }))
}

/// Where a voter is said to be. One that does not answer stays where it is published: its Machine may have been given an
/// address at which it does not serve, or that of another. One that no Machine carries any more stays there too, as long
/// as it is a voter: it may be all that new members can ask.
fn client_url(observation: &Observation, seat: &Seat<'_>) -> Option<String> {
    let published =
        |url: &&String| observation.init_urls.iter().flat_map(|urls| urls.split(',')).any(|known| known == *url);
    let Some(machine) = seat.machine else {
        let (_, member) = seat.member.as_ref()?;
        return member.client_urls.iter().find(|url| observation.init_urls.is_none() || published(url)).cloned();
    };
    let last = || observation.last_on(machine).map(|member| &member.client_url).filter(published).cloned();
    let present = || observation.client_url(machine);
    if seat.is_healthy() { present() } else { last().or_else(present) }
}

/// All that are admitted together with one more, in the form of the init Secret. Those that are gone are left out, so it
/// has to be made sure that the Machines are those of the observation.
pub(super) fn with(observation: &Observation, one_more: &MachineView) -> String {
    let mut all = admitted(observation);
    all.insert(&one_more.uid, observation.now);
    encode(all)
}

fn admitted(observation: &Observation) -> Admitted<'_> {
    let since = |machine: &MachineView| observation.admitted_since(machine).unwrap_or(observation.now);
    let admitted = observation.live_machines().filter(|machine| observation.is_admitted(machine));
    admitted.map(|machine| (machine.uid.as_str(), since(machine))).collect()
}

/// The same with those that the Secret names and no Machine has: nobody looks whether the watch of Machines lags behind
/// just for telling where the voters are, and an admission is not revoked.
fn still_admitted(observation: &Observation) -> Admitted<'_> {
    let mut all = admitted(observation);
    let unknown = |uid: &str| observation.machines.values().all(|machine| machine.uid != uid);
    let named = observation.admitted.iter().flatten().filter(|(uid, _)| unknown(uid));
    all.extend(named.map(|(uid, since)| (uid.as_str(), *since)));
    all
}
