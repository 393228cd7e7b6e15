//! No more Machines are on their way than the present voters bear: if all these Machines vote and then fail together,
//! the present voters must still be a quorum. Two Machines beside a single voter are allowed: two are not worse than
//! one, and that state is over sooner.

use super::spells::Spells;
use super::{Finding, Moment, Rule};
use crate::observer::state::{EtcdView, State};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

/// How soon a promotion is seen.
const SEEN: SignedDuration = SignedDuration::from_secs(1);
/// Phases of a Machine that has its bootstrap data, and so has everything that it needs to become a member.
const BOOTS: [&str; 3] = ["Provisioning", "Provisioned", "Running"];

#[derive(Default)]
pub(super) struct Coming {
    /// Clusters with too many Machines on their way.
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

/// The Machines on their way, if there are more than the voters bear. While there is a Machine of which a scenario has
/// made a fault, any number is allowed: a late Machine may come beside its replacement, and a voter that has failed
/// leaves while others come.
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
    if coming.len() <= bears || state.any_is_excused(&view.object.name, now) {
        return None;
    }
    Some(format!("[{}] are on their way beside {} voters, which bear {bears}", coming.join(", "), voters.len()))
}
