//! No more Machines are on their way than the voters of now bear: should all of them vote and fail at once, those of now
//! have to be a quorum. Two beside a single voter are not worse than one, and get over that sooner.

use super::spells::Spells;
use super::{Finding, Moment, Rule};
use crate::observer::state::{EtcdView, State};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

/// That a member has been promoted is seen so soon.
const SEEN: SignedDuration = SignedDuration::from_secs(1);
/// Phases of a Machine that has its bootstrap data, and with it all that it takes to become a member.
const BOOTS: [&str; 3] = ["Provisioning", "Provisioned", "Running"];

#[derive(Default)]
pub(super) struct Coming {
    /// Clusters that too many are on their way to.
    crowds: Spells,
}

impl Rule for Coming {
    fn name(&self) -> &'static str {
        "too many on their way"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let now = moment.now();
        let crowds = moment.answered_clusters().filter_map(|(name, view)| {
            let what = crowd(moment.before, view, now)?;
            Some((name, move || what))
        });
        // While the observer was held up, promotions may have been missed.
        self.crowds.look(now, moment.before.held_up(), SEEN, crowds)
    }
}

/// Who is on the way, if that is more than the voters bear. Where a scenario has made a fault, one that did not come in
/// its time may come beside the one in its place.
fn crowd(state: &State, view: &EtcdView, now: Timestamp) -> Option<String> {
    let voters: BTreeSet<String> = view.voters().map(|voter| view.machine_of(voter)).collect();
    let machines: Vec<_> = state.machines.values().filter(|machine| machine.etcd == view.object.name).collect();
    let boots = machines.iter().filter(|machine| !machine.deleting && BOOTS.contains(&machine.phase.as_str()));
    let coming: Vec<&str> = boots.map(|machine| machine.name.as_str()).filter(|name| !voters.contains(*name)).collect();
    let bears = match voters.len() {
        0 => return None,
        1 => 2,
        voters => voters - 1,
    };
    if coming.len() <= bears || machines.iter().any(|machine| state.is_excused(&machine.name, now)) {
        return None;
    }
    Some(format!("[{}] are on their way beside {} voters, which bear {bears}", coming.join(", "), voters.len()))
}
