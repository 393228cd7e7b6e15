//! Makes one state of all states that are the same to the planner: it derives again what follows from other facts, and
//! leaves out what no longer matters. Without this there would be no end to the states.

use crate::set::{SEATS, Set};
use crate::state::{Lag, List, Machine, Member, Probe, Process, Removal, State};

impl State {
    /// Derives again what follows from other facts, and leaves out what no longer matters.
    pub fn tidy(&mut self) {
        for seat in 0..SEATS {
            let member = self.world.members[seat];
            if member == Member::Voter && matches!(self.machines.is[seat], Machine::Booting | Machine::Overdue) {
                self.machines.is[seat] = Machine::Booted;
            }
            if self.machines.is[seat] == Machine::Gone {
                // A machine that runs on without its Machine still matters, because of its vote.
                if !self.is_left_behind(seat) {
                    self.world.processes[seat] = Process::Off;
                }
                self.secrets.data.put(seat, false);
                self.machines.deleting.put(seat, false);
                self.machines.hook.put(seat, false);
                self.machines.no_address.put(seat, false);
                self.world.unasked.put(seat, false);
                self.world.cut_off.put(seat, false);
                if member == Member::Removed {
                    self.world.members[seat] = Member::None;
                } else if member.is_listed() && !self.is_known_to_have_begun() {
                    // It is the first member alone, and nobody has used its etcd: another Machine initializes etcd
                    // again.
                    (self.world.members[seat], self.world.begun) = (Member::None, false);
                }
                if self.world.first == Some(seat) {
                    self.world.first = None;
                }
            }
        }
        self.elect();
        if self.paused.is_none() {
            self.settle_removals();
        }
        let probes = self.probes();
        for seat in 0..SEATS {
            // A run of failures begins when the prober knows which member to expect, and ends with an answer.
            let failing = matches!(
                probes.seats[seat],
                Probe::Failing | Probe::LongFailing | Probe::NoLeader | Probe::LongNoLeader
            );
            let long = self.world.long.has(seat) && failing && self.is_expected(seat);
            self.world.long.put(seat, long);
        }
        let current = match self.lag {
            Lag::None => true,
            Lag::Machines(machines) => machines == self.machines,
            Lag::Secrets(secrets) => secrets == self.secrets,
            Lag::Etcd(etcd) => etcd == self.etcd,
            Lag::Probes(old) => old == probes,
            Lag::List(members) => (List::Known, members) == (probes.list, probes.members),
        };
        if self.world.disturbed {
            self.world.tells = 0;
        }
        if current && self.paused.is_none() {
            self.lag = Lag::None;
        }
        if self.lag == Lag::None && self.paused.is_none() {
            self.forget();
            if self.symmetric {
                self.sort();
            }
        }
    }

    /// Leaves out the records of removals that were called off, as long as their members exist. In the model, only a
    /// manager that was paused carries out such a removal later.
    fn settle_removals(&mut self) {
        let status = &mut self.etcd.status;
        for (seat, removed) in status.removed.iter_mut().enumerate() {
            let is_under_way = status.operation.is_some_and(|operation| operation.seat == seat);
            let is_there = self.world.members[seat].is_listed();
            if *removed == Some(Removal::Removing) && !is_under_way && is_there {
                *removed = None;
                status.never_started.put(seat, false);
            }
        }
    }

    /// If the leader cannot lead, the first voter that can lead is elected.
    fn elect(&mut self) {
        let able = |seat: usize| self.world.members[seat] == Member::Voter && self.world.is_up(seat);
        if !self.world.has_quorum() {
            self.world.leader = None;
        } else if self.world.leader.is_none_or(|leader| !able(leader)) {
            self.world.leader = (0..SEATS).find(|seat| able(*seat));
        }
    }

    /// Leaves out seats of which nothing is left. The planner depends on the order of the Machines' numbers, and not on
    /// the numbers, so nothing changes for the planner. Without this there would be no end to the states.
    fn forget(&mut self) {
        for seat in (0..SEATS).rev() {
            if self.machines.is[seat] == Machine::Gone {
                // The UID of a Machine that is gone admits nobody.
                self.secrets.admitted.put(seat, false);
                self.etcd.outdated.put(seat, false);
            }
            let is_left = self.machines.is[seat] == Machine::Gone
                && self.world.members[seat] == Member::None
                && self.etcd.status.members[seat].is_none()
                && self.etcd.status.removed[seat].is_none()
                && (!self.etcd.status.released.has(seat) || !self.is_known_to_have_begun())
                && self.etcd.status.operation.is_none_or(|operation| operation.seat != seat)
                && !self.etcd.status.endpoints.has(seat)
                && !self.etcd.in_use.has(seat)
                && !self.secrets.urls.has(seat);
            // The seats behind it move up, and the highest number that was used is one less.
            if is_left {
                self.drop(seat);
            }
        }
    }

    fn drop(&mut self, seat: usize) {
        fn shift<T: Default + Copy>(list: &mut [T; SEATS], seat: usize) {
            list.copy_within(seat + 1.., seat);
            list[SEATS - 1] = T::default();
        }
        shift(&mut self.machines.is, seat);
        shift(&mut self.world.processes, seat);
        shift(&mut self.world.members, seat);
        shift(&mut self.etcd.status.members, seat);
        shift(&mut self.etcd.status.removed, seat);
        for set in self.sets() {
            *set = set.without(seat);
        }
        self.etcd.in_use = self.etcd.in_use.without(seat);
        for other in [&mut self.world.leader, &mut self.world.first].into_iter().flatten() {
            *other -= usize::from(*other > seat);
        }
        if let Some(operation) = &mut self.etcd.status.operation {
            operation.seat -= usize::from(operation.seat > seat);
        }
        // The record of a Machine that is gone does not matter any more: the model has no limits for replacements.
        let remediation = self.etcd.status.remediation.filter(|other| *other != seat);
        self.etcd.status.remediation = remediation.map(|other| other - usize::from(other > seat));
        self.etcd.last_number = self.etcd.last_number.and_then(|last| last.checked_sub(1));
    }

    /// Every set of seats but the lists in use.
    fn sets(&mut self) -> [&mut Set; 13] {
        [
            &mut self.etcd.outdated,
            &mut self.machines.deleting,
            &mut self.machines.hook,
            &mut self.machines.no_address,
            &mut self.secrets.urls,
            &mut self.secrets.admitted,
            &mut self.secrets.data,
            &mut self.world.long,
            &mut self.world.unasked,
            &mut self.world.cut_off,
            &mut self.etcd.status.endpoints,
            &mut self.etcd.status.released,
            &mut self.etcd.status.never_started,
        ]
    }

    /// Sorts the Machines by what is true about them, and by what the status has about them: old ones first, and the
    /// leader before the others.
    fn sort(&mut self) {
        let there: Vec<usize> = (0..SEATS).filter(|seat| self.machines.is[*seat].exists()).collect();
        for (at, seat) in there.iter().enumerate() {
            let first = there[at..].iter().copied().min_by_key(|other| (self.key(*other), *other));
            if let Some(first) = first.filter(|first| first != seat) {
                self.swap(*seat, first);
            }
        }
    }

    /// All that a seat has but its number.
    fn key(&mut self, seat: usize) -> (u64, [u8; 4], u8) {
        let status = &self.etcd.status;
        let operation = status.operation.is_some_and(|operation| operation.seat == seat);
        let others = [self.world.leader != Some(seat), self.world.first == Some(seat), operation];
        let others = others.into_iter().chain([status.remediation == Some(seat)]);
        let in_use = self.etcd.in_use.lists().map(|list| list.has(seat));
        let record = status.members[seat].map_or(0, |record| {
            let facts = [record.learner, record.failing, record.silent, record.unnamed, record.housed];
            facts.into_iter().fold(1 + record.health as u8, |bits, fact| (bits << 1) | u8::from(fact))
        });
        let removed = status.removed[seat].map_or(0, |removed| 1 + removed as u8);
        let (process, member) = (self.world.processes[seat] as u8, self.world.members[seat] as u8);
        let kinds = [self.machines.is[seat] as u8, process, member, removed];
        let sets = self.sets().map(|set| set.has(seat));
        // Old ones first.
        let is_new = !sets[0];
        let bits = [is_new].into_iter().chain(others).chain(in_use).chain(sets);
        (bits.fold(0, |bits, bit| (bits << 1) | u64::from(bit)), kinds, record)
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.machines.is.swap(one, other);
        self.world.processes.swap(one, other);
        self.world.members.swap(one, other);
        self.etcd.status.members.swap(one, other);
        self.etcd.status.removed.swap(one, other);
        for set in self.sets() {
            set.swap(one, other);
        }
        self.etcd.in_use.swap(one, other);
        let moved = |seat: usize| {
            if seat == one {
                other
            } else if seat == other {
                one
            } else {
                seat
            }
        };
        self.world.leader = self.world.leader.map(moved);
        self.world.first = self.world.first.map(moved);
        self.etcd.status.remediation = self.etcd.status.remediation.map(moved);
        if let Some(operation) = &mut self.etcd.status.operation {
            operation.seat = moved(operation.seat);
        }
    }
}
