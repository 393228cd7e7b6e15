//! The states of the model: one seat for each Machine, with what is true about it, and what the controller can read
//! about it.
//!
//! Times and texts are left out. If the planner asks something about a time (whether a grace is over, whether a member
//! has failed for long enough), the answer is a fact in the state, and a move lets the time pass.

mod starts;

use crate::in_use::InUse;
use crate::set::{SEATS, Set};

/// A Machine, as Cluster API has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Machine {
    /// Not made yet.
    #[default]
    Absent,
    /// It has no bootstrap data.
    HeldBack,
    /// It has bootstrap data, and is within its grace.
    Booting,
    /// Its grace is over, or it carries a voter.
    Booted,
    /// Every grace that a Machine can have is over, and it carries no voter.
    Overdue,
    /// Deleted when it was admitted and had no bootstrap data, and its grace is over.
    NeverBoots,
    /// Deleted, and gone with its machine.
    Gone,
}

impl Machine {
    pub fn exists(self) -> bool {
        !matches!(self, Self::Absent | Self::Gone)
    }

    /// It has bootstrap data.
    pub fn boots(self) -> bool {
        matches!(self, Self::Booting | Self::Booted | Self::Overdue)
    }
}

/// What the watch of Machines shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Machines {
    pub is: [Machine; SEATS],
    pub deleting: Set,
    /// Those with our pre-terminate hook.
    pub hook: Set,
    /// Those that boot, and whose address is not shown yet.
    pub no_address: Set,
}

/// What the watch of Secrets shows: the init Secret, and which Machines have bootstrap data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Secrets {
    /// There is an init Secret.
    pub init: bool,
    /// Members whose client URLs the init Secret has.
    pub urls: Set,
    pub admitted: Set,
    /// Machines that have bootstrap data.
    pub data: Set,
}

/// What the status has about a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub learner: bool,
    pub health: Health,
    /// The status has a time since when it fails.
    pub failing: bool,
    /// It has never answered.
    pub silent: bool,
    /// Its etcd has not started.
    pub unnamed: bool,
    /// The status names its Machine.
    pub housed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    Healthy,
    Unhealthy,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removal {
    Removing,
    Removed,
    Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    MoveLeader,
    RemoveMember,
}

/// `status.operation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    pub kind: Kind,
    pub seat: usize,
    /// It names a Machine.
    pub housed: bool,
    pub attempt: u8,
}

/// The part of `status` that the planner reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status {
    pub initialized: bool,
    pub creation_complete: bool,
    pub ready: bool,
    pub members: [Option<Record>; SEATS],
    pub removed: [Option<Removal>; SEATS],
    pub operation: Option<Operation>,
    /// The seat of `lastRemediation`.
    pub remediation: Option<usize>,
    /// Those in `removed` whose etcd had not started.
    pub never_started: Set,
    /// The seats of `releasedMachineUIDs`.
    pub released: Set,
    pub endpoints: Set,
}

/// The EtcdCluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Etcd {
    pub replicas: u8,
    /// The highest number that was used in a Machine's name.
    pub last_number: Option<u8>,
    /// The cluster ID is recorded.
    pub cluster_id: bool,
    /// Machines that do not match the spec.
    pub outdated: Set,
    /// `maxSurge`, where it is given.
    pub max_surge: Option<u8>,
    /// The cluster's `max-learners` is 1, as of one that was made with etcd 3.5.
    pub one_learner: bool,
    /// The endpoints that API servers use, as the Cluster hook's annotation has them.
    pub in_use: InUse,
    pub status: Status,
}

impl Etcd {
    /// The cluster's `max-learners`.
    pub fn max_learners(&self) -> usize {
        if self.one_learner { 1 } else { 3 }
    }
}

/// What a probe of a seat finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Probe {
    /// It is not probed: the Machine may not join.
    #[default]
    None,
    Healthy,
    /// Nothing answers, for less than `unhealthyAfterSeconds`.
    Failing,
    /// Nothing has answered for `unhealthyAfterSeconds`.
    LongFailing,
    /// It answers, but has no leader: for less than `unhealthyAfterSeconds`, or for longer.
    NoLeader,
    LongNoLeader,
    /// This controller cannot ask.
    Unknown,
    /// The Machine has no address.
    NoAddress,
}

/// An entry of etcd's member list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Member {
    #[default]
    None,
    /// It was added as a learner, and its etcd has not started.
    Unstarted,
    Learner,
    Voter,
    /// It was a member, and was removed. Its machine does not add itself again (see `docs/etcdadm.md`).
    Removed,
}

impl Member {
    pub fn is_listed(self) -> bool {
        matches!(self, Self::Unstarted | Self::Learner | Self::Voter)
    }
}

/// What the prober knows about the member list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum List {
    #[default]
    NotAsked,
    NoQuorum,
    Known,
}

/// What the prober knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Probes {
    pub seats: [Probe; SEATS],
    pub list: List,
    pub members: [Member; SEATS],
    pub leader: Option<usize>,
    /// Members that do not answer this controller, and that the leader hears.
    pub heard: Set,
}

/// A machine and the etcd on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Process {
    /// The machine does not run yet, or does not run any more.
    #[default]
    Off,
    Up,
    /// Down, and it may come back.
    Down,
    /// The data is gone: the guard does not let etcd start, so the member never comes back.
    Lost,
    /// The data is gone, and `etcdadm` runs again on the machine: a learner removes itself and joins once more. A voter
    /// never comes back.
    Forgetful,
}

/// What is true, whether the controller knows it or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct World {
    pub processes: [Process; SEATS],
    pub members: [Member; SEATS],
    pub leader: Option<usize>,
    /// Members that have failed for `unhealthyAfterSeconds` without a gap.
    pub long: Set,
    /// Those that this controller cannot ask.
    pub unasked: Set,
    /// Those that do not answer this controller, and that the other members hear.
    pub cut_off: Set,
    /// The Machine that has the bootstrap data of the first member.
    pub first: Option<usize>,
    /// The first member has come up: etcd has begun.
    pub begun: bool,
    /// How often the control plane may still be given other endpoints. Each change of the spec adds the number of
    /// rollouts of the control plane that it may cause.
    pub tells: u8,
    /// Something other than a change of the spec has happened since the start.
    pub disturbed: bool,
}

impl World {
    pub fn voters(&self) -> usize {
        self.members.iter().filter(|member| **member == Member::Voter).count()
    }

    pub fn is_up(&self, seat: usize) -> bool {
        self.processes[seat] == Process::Up
    }

    /// How many failures the voters survive. It counts like `quorum::survives`, but from what is true.
    pub fn tolerance(&self) -> i64 {
        let up = (0..SEATS).filter(|seat| self.members[*seat] == Member::Voter && self.is_up(*seat)).count();
        i64::try_from(up).unwrap_or(0) - i64::try_from(self.voters() / 2 + 1).unwrap_or(0)
    }

    pub fn has_quorum(&self) -> bool {
        self.voters() > 0 && self.tolerance() >= 0
    }
}

/// All that a decision of the controller depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    pub machines: Machines,
    pub secrets: Secrets,
    pub etcd: Etcd,
    pub probes: Probes,
}

/// A watch or a prober that lags: what it still shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lag {
    None,
    Machines(Machines),
    Secrets(Secrets),
    Etcd(Etcd),
    Probes(Probes),
    /// The prober lags with the member list alone: the list is still being read, while each member has been probed
    /// since.
    List([Member; SEATS]),
}

/// A second manager, or one that has lost its lease. It has decided, and has not acted on the decision yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Paused {
    /// What it decided on: the number of the view in the book of decisions.
    pub view: u32,
    /// The init Secret has been written since the decision.
    pub secret_written: bool,
    /// A machine or a network has failed or recovered since the decision, so the manager is not at fault for what the
    /// step then does.
    pub changed_since: bool,
    /// Machines that have become members since the decision. Their IDs are other than all IDs that the manager knows.
    pub joined_since: Set,
}

/// How many faults may still happen, and how many actions of users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Members that die or lose data, networks that fail, managers that are killed or paused, calls without an answer.
    pub faults: u8,
    /// Watches that lag, and addresses that are shown late.
    pub lags: u8,
    /// Machines that a user deletes.
    pub deletions: u8,
    /// Members that forget their data while their machines run.
    pub forgets: u8,
    /// Machines of voters that a user strips of the hook and the finalizers while the machines run on.
    pub strips: u8,
    /// How often a user raises or lowers `replicas`, by two.
    pub edits: u8,
    /// How often a user changes the spec so that no Machine matches it, or takes such a change back.
    pub rolls: u8,
}

/// A state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub machines: Machines,
    pub secrets: Secrets,
    pub etcd: Etcd,
    pub world: World,
    pub lag: Lag,
    pub paused: Option<Paused>,
    pub budget: Budget,
    /// States that differ only in the order of like members are one state: see [`State::by_symmetry`].
    pub symmetric: bool,
}

impl State {
    /// Whether the controller knows that etcd has begun. Before that there is nothing to lose.
    pub fn is_known_to_have_begun(&self) -> bool {
        self.secrets.init || self.etcd.cluster_id || self.etcd.status.initialized
    }

    /// Whether a Machine goes without waiting for us.
    pub fn is_released(&self, seat: usize) -> bool {
        self.machines.is[seat].exists() && self.machines.deleting.has(seat) && !self.machines.hook.has(seat)
    }

    /// Whether the status names a member for the Machine, so that this member is expected there.
    pub fn is_known(&self, seat: usize) -> bool {
        self.etcd.status.members[seat].is_some_and(|record| record.housed)
    }

    /// Whether the prober expects the member of this seat: the status names it, or no Machine carries it.
    pub fn is_expected(&self, seat: usize) -> bool {
        self.is_known(seat) || self.is_orphaned(seat)
    }

    /// Whether the member is in etcd, and its Machine is gone.
    pub fn is_orphaned(&self, seat: usize) -> bool {
        self.machines.is[seat] == Machine::Gone && self.world.members[seat].is_listed()
    }

    /// Whether the seat has a voter whose Machine was stripped, and whose machine runs on.
    pub fn is_left_behind(&self, seat: usize) -> bool {
        let is_gone = self.machines.is[seat] == Machine::Gone;
        is_gone && self.world.members[seat] == Member::Voter && self.world.is_up(seat)
    }

    /// The voter that the status says is being replaced, if its Machine is not deleted yet.
    pub fn replaced(&self) -> Option<usize> {
        let stays = |seat: &usize| self.machines.is[*seat].exists() && !self.machines.deleting.has(*seat);
        self.etcd.status.remediation.filter(stays)
    }

    /// Whether a Machine that is not being deleted has used up its grace, and carries no voter.
    pub fn is_late(&self, seat: usize) -> bool {
        let is_late = self.machines.is[seat] == Machine::Booted && !self.machines.deleting.has(seat);
        is_late && self.world.members[seat] != Member::Voter
    }

    /// What a probe finds of a member that can be asked: whether it answers, and whether it has a leader.
    fn check(&self, seat: usize, answers: bool) -> Probe {
        let is_served = self.world.members[seat] == Member::Learner || self.world.has_quorum();
        match (answers, self.world.long.has(seat)) {
            (false, false) => Probe::Failing,
            (false, true) => Probe::LongFailing,
            (true, _) if is_served => Probe::Healthy,
            (true, false) => Probe::NoLeader,
            (true, true) => Probe::LongNoLeader,
        }
    }

    /// What the prober would find now. [`World::long`] has the members that have failed for long without a gap.
    pub fn probes(&self) -> Probes {
        let world = &self.world;
        let mut probes = Probes { members: world.members, ..Probes::default() };
        let mut answers = false;
        for seat in 0..SEATS {
            let may_join = self.machines.is[seat].boots() || self.secrets.admitted.has(seat);
            let has_list = |answers: bool| answers && world.members[seat] == Member::Voter && world.has_quorum();
            // A member without a Machine is probed at its last address.
            if self.is_orphaned(seat) {
                let serves = self.is_left_behind(seat);
                probes.seats[seat] = self.check(seat, serves);
                answers |= serves;
                if has_list(serves) {
                    probes.list = List::Known;
                }
            }
            if !self.machines.is[seat].exists() || !may_join {
                continue;
            }
            let serves = matches!(world.members[seat], Member::Learner | Member::Voter) && world.is_up(seat);
            let (answers_us, is_known) = (serves && !world.cut_off.has(seat), self.is_known(seat));
            probes.seats[seat] = match () {
                () if !self.machines.is[seat].boots() => Probe::NoAddress,
                // A member that was seen before is probed at its last address.
                () if self.machines.no_address.has(seat) && !is_known => Probe::NoAddress,
                () if world.unasked.has(seat) => Probe::Unknown,
                () => self.check(seat, answers_us),
            };
            let answered = !matches!(probes.seats[seat], Probe::NoAddress | Probe::Unknown) && answers_us;
            answers |= answered;
            if has_list(answered) {
                probes.list = List::Known;
            }
        }
        if answers && probes.list != List::Known {
            probes.list = List::NoQuorum;
        }
        probes.leader = world.leader;
        if probes.list != List::Known {
            probes.members = [Member::None; SEATS];
        }
        // The prober knows the leader only from members that answer.
        if !answers {
            probes.leader = None;
        }
        if world.leader.is_some_and(|leader| probes.seats[leader] == Probe::Healthy) {
            let heard = |seat: &usize| world.cut_off.has(*seat) && world.is_up(*seat);
            let listed = (0..SEATS).filter(|seat| world.members[*seat].is_listed());
            probes.heard = listed.filter(heard).fold(Set::default(), Set::with);
        }
        for member in &mut probes.members {
            if *member == Member::Removed {
                *member = Member::None;
            }
        }
        probes
    }

    /// What a reconcile begins with: the caches.
    pub fn cached(&self) -> View {
        let mut view = View { machines: self.machines, secrets: self.secrets, etcd: self.etcd, probes: self.probes() };
        match self.lag {
            Lag::None => {}
            Lag::Machines(machines) => view.machines = machines,
            Lag::Secrets(secrets) => view.secrets = secrets,
            Lag::Etcd(etcd) => view.etcd = etcd,
            Lag::Probes(probes) => view.probes = probes,
            Lag::List(members) => (view.probes.list, view.probes.members) = (List::Known, members),
        }
        view
    }

    /// What is read before a dangerous step. Everything is live but the Secrets, which come from the watch.
    pub fn live(&self) -> View {
        let secrets = if let Lag::Secrets(secrets) = self.lag { secrets } else { self.secrets };
        View { machines: self.machines, secrets, etcd: self.etcd, probes: self.probes() }
    }
}
