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

/// Publishes the init Secret, in which joining members find the voters. It follows the membership, not the health of
/// the moment.
pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let observation = view.observation;
    // Without the member list, the members that the status remembers may be older than the published ones.
    if !view.roster.is_listed() && observation.init_urls.is_some() && observation.admitted.is_some() {
        return None;
    }
    // Members without a Machine come last in the roster, so a stranger is the last choice.
    let address = view.roster.voters().filter_map(|seat| host_of(&serves_at(observation, seat)?)).next()?;
    let mut voters: Vec<String> = view.roster.voters().filter_map(|seat| client_url(observation, seat)).collect();
    voters.sort();
    voters.dedup();
    let client_urls = voters.join(",");
    // The ID has been recorded: the rule `record` comes before this one.
    let cluster_id = observation.recorded_cluster_id()?.to_owned();
    let outdated = observation.init_urls.as_deref() != Some(&client_urls)
        || observation.init_cluster_id.as_deref() != Some(&cluster_id)
        // Without this list, the Secret would admit every Machine.
        || observation.admitted.is_none();
    let admitted = || encode(still_admitted(observation));
    outdated.then(|| Plan::Do(Step::PublishInit { address, client_urls, cluster_id, admitted: admitted() }))
}

/// The client URL of a voter. A voter that does not answer keeps its published URL: its Machine may have got an address
/// at which the member does not serve, or the address of another member. A voter that no Machine carries any more keeps
/// its published URL too, as long as it is a voter: new members may have no other voter to ask.
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

/// All admitted Machines together with one more, in the form of the init Secret. Machines that are gone are left out,
/// so the caller has to make sure that the Machines are those of the observation.
pub(super) fn with(observation: &Observation, one_more: &MachineView) -> String {
    let mut all = admitted(observation);
    all.insert(&one_more.uid, observation.now);
    encode(all)
}

fn admitted(observation: &Observation) -> Admitted<'_> {
    // If the record of an admission is lost, as with the Secret, the Machine's time must not begin again.
    let since = |machine: &MachineView| {
        let bootstrapped = || observation.bootstrapped_since(machine);
        observation.admitted_since(machine).or_else(bootstrapped).unwrap_or(observation.now)
    };
    let admitted = observation.live_machines().filter(|machine| observation.is_admitted(machine));
    admitted.map(|machine| (machine.uid.as_str(), since(machine))).collect()
}

/// The same, together with the UIDs that the Secret names and no Machine has. To publish the voters, nothing checks
/// whether the watch of Machines lags behind, and an admission is never revoked.
fn still_admitted(observation: &Observation) -> Admitted<'_> {
    let mut all = admitted(observation);
    let unknown = |uid: &str| observation.machines.values().all(|machine| machine.uid != uid);
    let named = observation.admitted.iter().flatten().filter(|(uid, _)| unknown(uid));
    all.extend(named.map(|(uid, since)| (uid.as_str(), *since)));
    all
}
