//! What to do next. Total and pure: everything it depends on is in the [`Observation`].
//!
//! The rules are asked in their order, and the first that has an answer decides. A rule may rely on all that the rules
//! before it let pass: after `link`, for example, there is a Cluster, and it is not being deleted.

mod begun;
mod beside;
mod certificates;
mod corrupt;
mod deletion;
mod docker;
mod domains;
mod due;
mod fence;
mod goal;
mod growth;
mod hooks;
mod identity;
mod in_use;
mod init;
mod link;
mod marked;
mod metrics_client;
mod moved;
mod operation;
mod ownership;
mod publish;
mod record;
mod repair;
mod retire;
mod rollout;
mod step;
mod stuck;
mod surplus;
mod template;
#[cfg(test)]
mod tests;
mod upgrade;

use crate::build;
use crate::observation::Observation;
use crate::roster::{Roster, roster};
use api::conditions::reasons;
use api::endpoints::EndpointLists;
use controller_support::external::{ClusterView, MachineView, pause_of};
use std::cell::OnceCell;
use std::collections::BTreeSet;

pub(crate) use begun::drops_begun;
pub use controller_support::plan::{Hold, block, wait};
pub(crate) use corrupt::hold as corruption_holds;
pub use due::due;
pub(crate) use fence::outdated;
pub use fence::{called_off, is_fenced};
pub use goal::Goal;
pub(crate) use marked::waiting as marked_waits_for;
pub(crate) use metrics_client::is_due as metrics_client_is_due;
pub(crate) use moved::{Loss, loss as move_loss};
pub use publish::Publish;
pub(crate) use repair::{made_for, under_way as replacement_under_way};
pub(crate) use retire::{describe as describe_leaving, lets_one_go, waiting as leaving_waits_for};
pub(crate) use rollout::{is_outdated, waits_for as rollout_waits_for};
pub use step::{Plan, Step, WhyDeleted};
pub(crate) use template::owns_template;
pub(crate) use upgrade::refusal as version_refusal;

/// The rules, in the order in which they are asked.
const RULES: &[fn(&View<'_>) -> Option<Plan>] = &[
    paused,
    deletion::plan,
    link::plan,
    record::plan,
    identity::plan,
    certificates::plan,
    operation::plan,
    hooks::plan,
    surplus::plan,
    repair::at_once,
    rollout::plan,
    retire::plan,
    ownership::plan,
    init::plan,
    docker::plan,
    repair::plan,
    marked::plan,
    growth::plan,
    identity::tidy,
];

/// What was decided.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is done next.
    pub next: Plan,
    /// What the control plane is told.
    pub publish: Publish,
    /// What all of it leads to.
    pub goal: Goal,
}

/// What the rules look at.
pub(crate) struct View<'a> {
    pub(crate) observation: &'a Observation,
    pub(crate) roster: Roster<'a>,
    /// Names of Machines that match the spec, once somebody has asked: comparing them costs more than the rest of a plan.
    up_to_date: OnceCell<BTreeSet<String>>,
    /// The lists of endpoints in use, once somebody has asked: several rules do, for each member.
    in_use: OnceCell<EndpointLists>,
}

impl<'a> View<'a> {
    pub(crate) fn new(observation: &'a Observation) -> Self {
        Self { observation, roster: roster(observation), up_to_date: OnceCell::new(), in_use: OnceCell::new() }
    }

    /// The Cluster that the EtcdCluster is for.
    pub(crate) fn cluster(&self) -> Option<&'a ClusterView> {
        self.observation.cluster.one()
    }

    /// Whether a Machine matches the spec.
    pub(crate) fn is_up_to_date(&self, machine: &MachineView) -> bool {
        let all = || {
            let machines = self.observation.machines.values();
            let matching = machines.filter(|machine| build::is_up_to_date(self.observation, machine));
            matching.map(|machine| machine.name.clone()).collect()
        };
        self.up_to_date.get_or_init(all).contains(&machine.name)
    }

    /// Whether etcd has come up once. A new CA or a second "first" member would then mean a second, empty etcd.
    pub(crate) fn has_begun(&self) -> bool {
        self.observation.init_urls.is_some() || self.observation.etcd.has_begun()
    }

    /// Whether a member leaves before its replacement joins, as there is no room for both.
    pub(crate) fn removes_first(&self) -> bool {
        self.observation.etcd.spec.removes_first()
    }

    /// Whether there may be another Machine. Where there is no room for more than are wanted, those on their way out
    /// take it until they are gone.
    pub(crate) fn has_room(&self) -> bool {
        !self.removes_first() || self.observation.machines.len() < self.wanted()
    }

    /// Members that are wanted.
    pub(crate) fn wanted(&self) -> usize {
        usize::try_from(self.observation.etcd.spec.replicas).unwrap_or(0)
    }
}

/// Decides what to do next.
#[must_use]
pub fn plan(observation: &Observation) -> Decision {
    decide(&View::new(observation))
}

pub(crate) fn decide(view: &View<'_>) -> Decision {
    let next = RULES.iter().find_map(|rule| rule(view).filter(|plan| *plan != Plan::Steady)).unwrap_or(Plan::Steady);
    let goal = goal::goal(view);
    Decision { publish: publish::publish(view, &goal, &next), next, goal }
}

/// A pause stops everything, a deletion too, as everywhere in Cluster API. So does the mark of what clusterctl has
/// moved away. That is not reported as a pause: the admission policy lets an object go that is marked and paused, and
/// then the mark alone would be enough.
fn paused(view: &View<'_>) -> Option<Plan> {
    let pause = pause(view.observation).map(|what| wait(reasons::PAUSED, what));
    pause.or_else(|| moved::away(view.observation).map(|what| wait(reasons::MOVED_AWAY, what)))
}

/// Whether nothing is changed, by a pause or by the mark of a move.
pub(crate) fn is_left_alone(observation: &Observation) -> bool {
    pause(observation).is_some() || moved::away(observation).is_some()
}

/// What is paused, if anything is.
fn pause(observation: &Observation) -> Option<String> {
    pause_of(observation.etcd.as_ref(), observation.cluster.one())
}
