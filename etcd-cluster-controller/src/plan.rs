//! Decides what to do next. The plan is a total and pure function: everything that it depends on is in the
//! [`Observation`].
//!
//! The rules run in their order, and the first rule that has an answer decides. A rule may rely on everything that the
//! rules before it let pass: after `link`, for example, there is a Cluster, and it is not being deleted.

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
pub(crate) use repair::{is_paused, made_for, under_way as replacement_under_way};
pub(crate) use retire::{describe as describe_leaving, lets_one_go, waiting as leaving_waits_for};
pub(crate) use rollout::{is_outdated, waits_for as rollout_waits_for};
pub use step::{Plan, Step, WhyDeleted};
pub(crate) use template::owns_template;
pub(crate) use upgrade::refusal as version_refusal;

/// The rules, in the order in which they run.
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

/// What the plan has decided.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    /// The next step, or why there is none.
    pub next: Plan,
    /// What the control plane is told.
    pub publish: Publish,
    /// The state that the steps lead to.
    pub goal: Goal,
}

/// What the rules read.
pub(crate) struct View<'a> {
    pub(crate) observation: &'a Observation,
    pub(crate) roster: Roster<'a>,
    /// Names of the Machines that match the spec. Computed on first use, because comparing them costs more than the
    /// rest of a plan.
    up_to_date: OnceCell<BTreeSet<String>>,
    /// The lists of endpoints in use. Computed on first use, because several rules need them for each member.
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

    /// Whether etcd has begun: it is known to have been initialized. From then on, a new CA or another first member
    /// would mean a second, empty etcd.
    pub(crate) fn has_begun(&self) -> bool {
        self.observation.init_urls.is_some() || self.observation.etcd.has_begun()
    }

    /// Whether a member leaves before its replacement joins, because there is no room for both (`maxSurge: 0`).
    pub(crate) fn removes_first(&self) -> bool {
        self.observation.etcd.spec.removes_first()
    }

    /// Whether there is room for another Machine. With `maxSurge: 0` there may be no more Machines than wanted, and a
    /// Machine that is being deleted takes up room until it is gone.
    pub(crate) fn has_room(&self) -> bool {
        !self.removes_first() || self.observation.machines.len() < self.wanted()
    }

    /// The number of members that the spec wants.
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

/// A pause stops everything, including a deletion, as everywhere in Cluster API. So does the mark that clusterctl puts
/// on an object that it has moved away. The mark is not reported as a pause: the admission policy admits the deletion
/// of an object that is marked and reported as paused, so the mark alone would then be enough.
fn paused(view: &View<'_>) -> Option<Plan> {
    let pause = pause(view.observation).map(|what| wait(reasons::PAUSED, what));
    pause.or_else(|| moved::away(view.observation).map(|what| wait(reasons::MOVED_AWAY, what)))
}

/// Whether this controller changes nothing, because of a pause or because of the mark of a move.
pub(crate) fn is_left_alone(observation: &Observation) -> bool {
    pause(observation).is_some() || moved::away(observation).is_some()
}

/// What is paused, if anything is.
fn pause(observation: &Observation) -> Option<String> {
    pause_of(observation.etcd.as_ref(), observation.cluster.one())
}
