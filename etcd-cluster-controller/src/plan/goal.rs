//! The goal of the cluster. The rules take one step at a time; the goal is the state that all steps lead to.

use super::View;
use crate::roster::Seat;
use std::collections::BTreeSet;

/// The state when nothing is left to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Goal {
    /// Healthy voters, each on a Machine that stays.
    pub voters: usize,
    /// Machines whose members leave etcd, by name.
    pub retiring: BTreeSet<String>,
}

impl Goal {
    /// Whether a seat's Machine is to go. A member without a Machine stays until something else decides on it.
    pub(super) fn retires(&self, seat: &Seat<'_>) -> bool {
        seat.machine.is_some_and(|machine| self.retiring.contains(&machine.name))
    }
}

pub(super) fn goal(view: &View<'_>) -> Goal {
    let retiring = view.observation.machines.values().filter(|machine| machine.deleting);
    Goal { voters: view.wanted(), retiring: retiring.map(|machine| machine.name.clone()).collect() }
}
