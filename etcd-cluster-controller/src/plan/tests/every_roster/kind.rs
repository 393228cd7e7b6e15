//! Kinds of seats: the role of the member, its health, and what happens to its Machine.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Voter,
    Learner,
    /// A Machine that is not a member yet. If the Machine is gone: the member that it has added and never started.
    Unstarted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It answers. If it has not started, its grace still runs.
    Healthy,
    /// It has failed for long enough. If it has not started, it is late.
    Down,
    /// It could not be asked.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    Present,
    Deleting,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) role: Role,
    pub(super) health: Health,
    pub(super) machine: Machine,
}

pub(super) const WELL: Kind = Kind { role: Role::Voter, health: Health::Healthy, machine: Machine::Present };
/// A healthy voter on its way out. If there is one, it leads, so that leadership has to move.
pub(super) const LEAVING: Kind = Kind { machine: Machine::Deleting, ..WELL };

impl Kind {
    pub(super) fn votes(self) -> bool {
        self.role == Role::Voter
    }

    /// A voter that is counted on. A voter whose Machine is gone is not, because nothing keeps it.
    pub(super) fn is_well(self) -> bool {
        self.votes() && self.health == Health::Healthy && self.machine != Machine::Gone
    }

    pub(super) fn has_failed(self) -> bool {
        self.role != Role::Unstarted && self.health == Health::Down
    }

    /// A voter whose health is not known.
    pub(super) fn is_doubtful(self) -> bool {
        self.votes() && !self.is_well() && !self.has_failed()
    }

    pub(super) fn stays(self) -> bool {
        self.machine == Machine::Present
    }

    /// It may become a member, or a voter, at any moment.
    pub(super) fn comes(self) -> bool {
        let boots = self.role == Role::Unstarted && self.health == Health::Healthy && self.machine != Machine::Gone;
        self.role == Role::Learner || boots
    }

    /// Whether it is not well, and the plan does not treat it like another kind.
    fn is_of_its_own(self) -> bool {
        match (self.role, self.health, self.machine) {
            // A member that no Machine carries is not counted on, whether it answers or could not be asked.
            (_, Health::Unknown, Machine::Gone) => false,
            // Before etcd has started, nothing answers. If the Machine is gone, no grace runs.
            (Role::Unstarted, Health::Unknown, _) | (Role::Unstarted, Health::Healthy, Machine::Gone) => false,
            _ => self != WELL,
        }
    }
}

/// Every kind of seat that is not well.
pub(super) fn kinds() -> Vec<Kind> {
    let mut all = Vec::new();
    for role in [Role::Voter, Role::Learner, Role::Unstarted] {
        for health in [Health::Healthy, Health::Down, Health::Unknown] {
            for machine in [Machine::Present, Machine::Deleting, Machine::Gone] {
                all.push(Kind { role, health, machine });
            }
        }
    }
    all.retain(|kind| kind.is_of_its_own());
    all
}
