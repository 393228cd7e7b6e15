//! States that a search starts with.

use super::{Budget, Etcd, Health, Lag, Machine, Machines, Member, Process, Record, Secrets, State, World};
use crate::in_use::InUse;

impl State {
    /// An EtcdCluster without Machines.
    pub fn empty(replicas: u8, budget: Budget) -> Self {
        let etcd = Etcd { replicas, ..Etcd::default() };
        let (machines, secrets) = (Machines::default(), Secrets::default());
        let (world, lag, paused, symmetric) = (World::default(), Lag::None, None, false);
        Self { machines, secrets, etcd, world, lag, paused, budget, symmetric }
    }

    /// A cluster with this many healthy voters, of which the first leads. Nothing is to be done.
    pub fn healthy(replicas: u8, budget: Budget) -> Self {
        let mut state = Self::empty(replicas, budget);
        for seat in 0..usize::from(replicas) {
            state.machines.is[seat] = Machine::Booted;
            state.machines.hook.put(seat, true);
            for set in [&mut state.secrets.urls, &mut state.secrets.admitted, &mut state.secrets.data] {
                set.put(seat, true);
            }
            state.world.members[seat] = Member::Voter;
            state.world.processes[seat] = Process::Up;
            let (health, failing, silent, unnamed) = (Health::Healthy, false, false, false);
            state.etcd.status.members[seat] =
                Some(Record { learner: false, health, failing, silent, unnamed, housed: true });
            state.etcd.status.endpoints.put(seat, true);
        }
        state.secrets.init = true;
        (state.world.leader, state.world.begun) = (Some(0), true);
        (state.etcd.last_number, state.etcd.cluster_id) = (Some(replicas - 1), true);
        let status = &mut state.etcd.status;
        (status.initialized, status.creation_complete, status.ready) = (true, true, true);
        state
    }

    /// Like `healthy`, with one voter that has been down for long.
    pub fn with_one_down(replicas: u8, budget: Budget) -> Self {
        let mut state = Self::healthy(replicas, budget);
        let seat = usize::from(replicas) - 1;
        state.world.processes[seat] = Process::Down;
        state.world.long.put(seat, true);
        state.etcd.status.ready = false;
        state.world.disturbed = true;
        if let Some(record) = &mut state.etcd.status.members[seat] {
            (record.health, record.failing) = (Health::Unhealthy, true);
        }
        state
    }

    /// Like `healthy`, with the first Machine being deleted, and a replacement that boots or is a learner.
    pub fn replacing(replicas: u8, is_learner: bool, budget: Budget) -> Self {
        let mut state = Self::healthy(replicas, budget);
        let seat = usize::from(replicas);
        state.machines.deleting.put(0, true);
        state.machines.hook.put(seat, true);
        state.machines.is[seat] = Machine::Booting;
        state.secrets.admitted.put(seat, true);
        state.secrets.data.put(seat, true);
        state.world.processes[seat] = Process::Up;
        if is_learner {
            state.world.members[seat] = Member::Learner;
            let (health, failing, silent, unnamed) = (Health::Healthy, false, false, false);
            state.etcd.status.members[seat] =
                Some(Record { learner: true, health, failing, silent, unnamed, housed: true });
        }
        state.etcd.last_number = Some(replicas);
        state
    }

    /// The state with API servers that use the endpoints of all members.
    pub fn used(mut self) -> Self {
        self.etcd.in_use = InUse::only(self.etcd.status.endpoints);
        self
    }

    /// The state with room for `most` Machines more than wanted.
    pub fn surging(mut self, most: u8) -> Self {
        self.etcd.max_surge = Some(most);
        self
    }

    /// The state of a cluster that has begun, and whose `max-learners` is 1.
    pub fn with_one_learner(mut self) -> Self {
        self.etcd.one_learner = true;
        self
    }

    /// The state with a Machine whose address is not shown yet.
    pub fn without_address(mut self, seat: usize) -> Self {
        self.machines.no_address.put(seat, true);
        self
    }

    /// The state with symmetry: states that differ only in the order of the Machines' numbers are one state. If the
    /// planner takes the lowest number among several Machines that it regards as alike, it is asked about one order of
    /// them only. Searches with fewer members cover the other orders.
    pub fn by_symmetry(mut self) -> Self {
        self.symmetric = true;
        self
    }
}
