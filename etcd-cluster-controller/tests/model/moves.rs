//! Everything that can happen in a state.

use crate::in_use::InUse;
use crate::manager::{Ending, bad_endings, pause, reconcile, resume, spend};
use crate::rules::{self, Broken};
use crate::set::{SEATS, Set};
use crate::state::{Budget, Lag, Machine, Member, Probe, Process, State};
use crate::view::Book;

/// The most that an EtcdCluster may ask for.
const MOST_REPLICAS: u8 = 7;

/// What happens. The numbers are seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    Reconcile(Ending),
    /// A second manager decides, and is paused before it writes.
    Pause,
    /// The paused manager goes on.
    Resume,
    /// The bootstrap provider makes the bootstrap data of an admitted Machine, and the machine boots.
    Boot(usize),
    /// Like `Boot`, but the address of the Machine is not shown yet.
    BootUnseen(usize),
    /// Cluster API shows the address of a Machine.
    Address(usize),
    /// `etcdadm init`.
    Init(usize),
    /// `etcdadm join`: it adds its machine as a learner, starts it, and has it promoted.
    Join(usize),
    /// Like `Join`, in the last moments of the machine.
    JoinLate(usize),
    Start(usize),
    Promote(usize),
    /// Cluster API finishes the deletion of a released Machine.
    Vanish(usize),
    /// Time passes: every member that fails has failed for `unhealthyAfterSeconds`.
    Minute,
    /// Time passes: every Machine that boots, or was to boot, has used up its grace.
    Grace,
    /// Time passes: a Machine whose machine is off has no voter when every grace is over.
    Overdue(usize),
    /// Like `Overdue`, with a machine that is on, but slow.
    Dawdle(usize),
    /// The watch that lags has caught up.
    CatchUp,
    /// This controller can ask all members again, and they answer it.
    Ask,
    /// A member that was down comes back with its data.
    Recover(usize),
    Die(usize),
    LoseData(usize),
    /// A member's data is gone, and its machine runs on.
    Forget(usize),
    /// `etcdadm join` removes its own learner, whose data is gone, to join again.
    TakeOut(usize),
    /// This controller cannot ask a member.
    Unasked(usize),
    /// A member does not answer this controller. The other members hear it.
    CutOff(usize),
    /// A Machine and its machine are gone at the same moment, whatever hooks there are.
    Destroy(usize),
    /// etcd elects another leader.
    LeaderChanges(usize),
    /// A user deletes a Machine.
    Delete(usize),
    /// A user strips the Machine of a voter of its hook and its finalizers. The Machine is gone, and its machine runs
    /// on until it dies with its infrastructure.
    Strip(usize),
    /// A user raises `replicas` by two, or lowers it by two.
    Raise,
    Lower,
    /// A user changes the spec so that no Machine matches it.
    Roll,
    /// A user takes such a change of the spec back.
    RollBack,
    /// The Cluster hook gives the control plane other endpoints, and the control plane begins to roll out.
    Tell,
    /// The rollout of the control plane ends: all API servers use the new endpoints.
    RollOut,
}

impl Move {
    /// Whether the move happens some day if it can happen. Faults and actions of users need not happen, and no member
    /// needs to recover.
    pub fn is_fair(self) -> bool {
        matches!(
            self,
            Self::Reconcile(Ending::Done)
                | Self::Resume
                | Self::Boot(_)
                | Self::Address(_)
                | Self::Init(_)
                | Self::Join(_)
                | Self::Start(_)
                | Self::Promote(_)
                | Self::TakeOut(_)
                | Self::Vanish(_)
                | Self::Minute
                | Self::Grace
                | Self::Overdue(_)
                | Self::CatchUp
                | Self::Ask
                | Self::Tell
                | Self::RollOut
        )
    }
}

/// What follows from a state.
#[derive(Clone)]
pub struct Next {
    pub done: Move,
    pub state: State,
    /// The move happens some day.
    pub is_fair: bool,
}

/// All moves from a state, each with the state that follows.
pub fn moves(state: &State, book: &mut Book) -> Result<Vec<Next>, (Move, Broken)> {
    let mut found = Moves { state, found: Vec::new() };
    found.managers(book)?;
    found.machines()?;
    found.time();
    found.control_plane()?;
    found.faults();
    found.users();
    let mut all = Vec::with_capacity(found.found.len());
    for (done, next) in found.found {
        all.extend(unseen(state, &next).map(|state| Next { done, state, is_fair: false }));
        all.push(Next { done, state: next, is_fair: done.is_fair() });
    }
    for next in &mut all {
        let (left, before) = (next.state.budget, state.budget);
        // A change of the spec is a reason to give the control plane other endpoints, so it is not a disturbance.
        next.state.world.disturbed |= Budget { rolls: before.rolls, ..left } != before;
        next.state.tidy();
        rules::always(&next.state).map_err(|broken| (next.done, broken))?;
    }
    all.retain(|next| next.state != *state);
    Ok(all)
}

/// The same state with a watch or a prober that does not show the change: it lags from then on.
fn unseen(before: &State, after: &State) -> impl Iterator<Item = State> {
    let spent = spend(after, |budget| &mut budget.lags).filter(|_| after.lag == Lag::None);
    let lags = [
        (before.machines != after.machines, Lag::Machines(before.machines)),
        (before.secrets != after.secrets, Lag::Secrets(before.secrets)),
        (before.etcd != after.etcd, Lag::Etcd(before.etcd)),
        (before.probes() != after.probes(), Lag::Probes(before.probes())),
    ];
    let missed = lags.into_iter().filter(|(has_changed, _)| *has_changed);
    spent.into_iter().flat_map(move |spent| missed.clone().map(move |(_, lag)| State { lag, ..spent }))
}

struct Moves<'a> {
    state: &'a State,
    found: Vec<(Move, State)>,
}

impl Moves<'_> {
    fn add(&mut self, done: Move, change: impl FnOnce(&mut State)) {
        let mut next = *self.state;
        change(&mut next);
        self.found.push((done, next));
    }

    fn fault(&mut self, done: Move, change: impl FnOnce(&mut State)) {
        if let Some(mut next) = spend(self.state, |budget| &mut budget.faults) {
            change(&mut next);
            if let Some(paused) = &mut next.paused {
                paused.changed_since = true;
            }
            self.found.push((done, next));
        }
    }

    fn managers(&mut self, book: &mut Book) -> Result<(), (Move, Broken)> {
        let done = Move::Reconcile(Ending::Done);
        let next = reconcile(self.state, book, Ending::Done).map_err(|broken| (done, broken))?;
        self.found.push((done, next));
        if let Some(next) = resume(self.state, book).map_err(|broken| (Move::Resume, broken))? {
            self.found.push((Move::Resume, next));
        }
        let Some(spent) = spend(self.state, |budget| &mut budget.faults) else { return Ok(()) };
        for ending in bad_endings(self.state, book) {
            let done = Move::Reconcile(*ending);
            self.found.push((done, reconcile(&spent, book, *ending).map_err(|broken| (done, broken))?));
        }
        if self.state.paused.is_none()
            && let Some(paused) = pause(&spent, book)
        {
            self.found.push((Move::Pause, paused));
        }
        Ok(())
    }

    fn machines(&mut self) -> Result<(), (Move, Broken)> {
        let state = self.state;
        let (machines, world) = (&state.machines, &state.world);
        for seat in 0..SEATS {
            let (is, deleting) = (machines.is[seat], machines.deleting.has(seat));
            let may_boot = if state.secrets.init {
                state.secrets.admitted.has(seat)
            } else {
                world.first.is_none() && !world.begun && !state.etcd.status.initialized
            };
            if is == Machine::HeldBack && !deleting && may_boot {
                let boot = |next: &mut State| {
                    next.machines.is[seat] = Machine::Booting;
                    next.secrets.data.put(seat, true);
                    next.world.processes[seat] = Process::Up;
                    if !next.secrets.init {
                        next.world.first = Some(seat);
                    }
                };
                self.add(Move::Boot(seat), boot);
                if let Some(mut next) = spend(state, |budget| &mut budget.lags) {
                    boot(&mut next);
                    next.machines.no_address.put(seat, true);
                    self.found.push((Move::BootUnseen(seat), next));
                }
            }
            if machines.no_address.has(seat) {
                self.add(Move::Address(seat), |next| next.machines.no_address.put(seat, false));
            }
            if is.exists() && deleting && !machines.hook.has(seat) {
                self.add(Move::Vanish(seat), |next| {
                    (next.machines.is[seat], next.world.processes[seat]) = (Machine::Gone, Process::Off);
                    if let Some(paused) = &mut next.paused {
                        paused.changed_since |= world.members[seat] == Member::Voter;
                    }
                });
            }
            if is.boots() && world.is_up(seat) {
                self.etcdadm(seat)?;
            } else if is.boots() && world.processes[seat] == Process::Forgetful {
                self.etcdadm_without_data(seat);
            }
        }
        Ok(())
    }

    /// What `etcdadm` does on a machine. See "What happens" in `docs/etcdadm.md`.
    fn etcdadm(&mut self, seat: usize) -> Result<(), (Move, Broken)> {
        let world = &self.state.world;
        let learners =
            world.members.iter().filter(|member| matches!(member, Member::Unstarted | Member::Learner)).count();
        match world.members[seat] {
            Member::None if world.first == Some(seat) => {
                rules::first(self.state).map_err(|broken| (Move::Init(seat), broken))?;
                self.add(Move::Init(seat), |next| {
                    next.world.members[seat] = Member::Voter;
                    next.world.begun = true;
                });
            }
            Member::None if world.has_quorum() && learners < self.state.etcd.max_learners() => {
                let join = |next: &mut State| {
                    next.world.members[seat] = Member::Unstarted;
                    if let Some(paused) = &mut next.paused {
                        paused.joined_since.put(seat, true);
                    }
                };
                // A machine that has not joined in its time seldom joins just when its Machine is released. So that
                // counts as a fault.
                let is_late = matches!(self.state.machines.is[seat], Machine::Booted | Machine::Overdue)
                    && self.state.machines.deleting.has(seat);
                if !is_late || (self.state.paused.is_none() && self.state.machines.hook.has(seat)) {
                    self.add(Move::Join(seat), join);
                } else if let Some(mut next) = spend(self.state, |budget| &mut budget.faults) {
                    join(&mut next);
                    self.found.push((Move::JoinLate(seat), next));
                }
            }
            Member::Unstarted => self.add(Move::Start(seat), |next| next.world.members[seat] = Member::Learner),
            Member::Learner if world.has_quorum() => {
                self.add(Move::Promote(seat), |next| next.world.members[seat] = Member::Voter);
            }
            Member::None | Member::Learner | Member::Voter | Member::Removed => {}
        }
        Ok(())
    }

    /// What `etcdadm` does on a machine whose data is gone. See "When data is gone" in `docs/etcdadm.md`: a voter is
    /// not started again, and a learner that has started removes itself, perhaps at the moment when we remove it. etcd
    /// confirms only one of the two removals: if it confirms ours, the machine does not join again.
    fn etcdadm_without_data(&mut self, seat: usize) {
        if self.state.world.members[seat] == Member::Learner && self.state.world.has_quorum() {
            self.add(Move::TakeOut(seat), |next| {
                next.world.members[seat] = Member::None;
                next.world.processes[seat] = Process::Up;
            });
        }
    }

    fn time(&mut self) {
        let state = self.state;
        let probes = state.probes();
        let failing = |seat: &usize| matches!(probes.seats[*seat], Probe::Failing | Probe::NoLeader);
        let failing: Vec<usize> = (0..SEATS).filter(failing).filter(|seat| state.is_expected(*seat)).collect();
        let minute = |next: &mut State| failing.iter().for_each(|seat| next.world.long.put(*seat, true));
        if !failing.is_empty() {
            self.add(Move::Minute, minute);
        }
        let at_the_end = |seat: usize| match state.machines.is[seat] {
            Machine::Booting => Some(Machine::Booted),
            Machine::HeldBack if state.machines.deleting.has(seat) && state.secrets.admitted.has(seat) => {
                Some(Machine::NeverBoots)
            }
            _ => None,
        };
        if (0..SEATS).any(|seat| at_the_end(seat).is_some()) {
            self.add(Move::Grace, |next| {
                minute(next);
                for (seat, machine) in next.machines.is.iter_mut().enumerate() {
                    *machine = at_the_end(seat).unwrap_or(*machine);
                }
            });
        }
        for seat in (0..SEATS).filter(|seat| state.is_late(*seat) && state.world.processes[*seat] != Process::Up) {
            self.add(Move::Overdue(seat), |next| next.machines.is[seat] = Machine::Overdue);
        }
        if state.lag != Lag::None {
            self.add(Move::CatchUp, |next| next.lag = Lag::None);
        }
        if !state.world.unasked.is_empty() || !state.world.cut_off.is_empty() {
            self.add(Move::Ask, |next| {
                next.world.unasked = Default::default();
                next.world.cut_off = Default::default();
            });
        }
    }

    fn control_plane(&mut self) -> Result<(), (Move, Broken)> {
        let (in_use, status) = (self.state.etcd.in_use, &self.state.etcd.status);
        if in_use.is_empty() {
            return Ok(());
        }
        if let Some(told) = in_use.told(status.endpoints).filter(|_| status.ready) {
            rules::adoption(self.state).map_err(|broken| (Move::Tell, broken))?;
            self.add(Move::Tell, |next| {
                next.etcd.in_use = told;
                next.world.tells = next.world.tells.saturating_sub(1);
            });
        }
        if let Some(list) = in_use.to_roll_out() {
            self.add(Move::RollOut, |next| next.etcd.in_use = InUse::only(list));
        }
        Ok(())
    }

    fn faults(&mut self) {
        let state = self.state;
        for seat in 0..SEATS {
            if !state.machines.is[seat].exists() {
                // Nothing keeps this machine, so its end does not count as a fault.
                if state.is_left_behind(seat) {
                    self.add(Move::Die(seat), |next| {
                        next.world.processes[seat] = Process::Off;
                        if let Some(paused) = &mut next.paused {
                            paused.changed_since = true;
                        }
                    });
                }
                continue;
            }
            let process = state.world.processes[seat];
            if process == Process::Down {
                self.add(Move::Recover(seat), |next| {
                    next.world.processes[seat] = Process::Up;
                    if let Some(paused) = &mut next.paused {
                        paused.changed_since = true;
                    }
                });
            }
            if process == Process::Up {
                self.fault(Move::Die(seat), |next| next.world.processes[seat] = Process::Down);
                self.fault(Move::LoseData(seat), |next| next.world.processes[seat] = Process::Lost);
                self.forget(seat);
                if !state.world.unasked.has(seat) {
                    self.fault(Move::Unasked(seat), |next| next.world.unasked.put(seat, true));
                }
                let serves = matches!(state.world.members[seat], Member::Learner | Member::Voter);
                if serves && !state.world.cut_off.has(seat) {
                    self.fault(Move::CutOff(seat), |next| next.world.cut_off.put(seat, true));
                }
            }
            if state.is_late(seat) && process == Process::Up {
                self.fault(Move::Dawdle(seat), |next| next.machines.is[seat] = Machine::Overdue);
            }
            self.fault(Move::Destroy(seat), |next| {
                (next.machines.is[seat], next.world.processes[seat]) = (Machine::Gone, Process::Off);
            });
            let can_lead = state.world.members[seat] == Member::Voter && state.world.is_up(seat);
            if can_lead && state.world.leader.is_some_and(|leader| leader != seat) {
                self.fault(Move::LeaderChanges(seat), |next| next.world.leader = Some(seat));
            }
        }
    }

    fn forget(&mut self, seat: usize) {
        if matches!(self.state.world.members[seat], Member::Learner | Member::Voter)
            && let Some(mut next) = spend(self.state, |budget| &mut budget.forgets)
        {
            next.world.processes[seat] = Process::Forgetful;
            if let Some(paused) = &mut next.paused {
                paused.changed_since = true;
            }
            self.found.push((Move::Forget(seat), next));
        }
    }

    fn users(&mut self) {
        let state = self.state;
        if let Some(spent) = spend(state, |budget| &mut budget.deletions) {
            for seat in (0..SEATS).filter(|seat| state.machines.is[*seat].exists()) {
                if !state.machines.deleting.has(seat) {
                    let mut next = spent;
                    next.machines.deleting.put(seat, true);
                    self.found.push((Move::Delete(seat), next));
                }
            }
        }
        if let Some(spent) = spend(state, |budget| &mut budget.strips).filter(|_| state.is_known_to_have_begun()) {
            let votes = |seat: &usize| state.world.members[*seat] == Member::Voter && state.world.is_up(*seat);
            for seat in (0..SEATS).filter(|seat| state.machines.is[*seat].exists()).filter(votes) {
                let mut next = spent;
                next.machines.is[seat] = Machine::Gone;
                self.found.push((Move::Strip(seat), next));
            }
        }
        if let Some(mut spent) = spend(state, |budget| &mut budget.edits) {
            if spent.etcd.replicas > 2 {
                let mut lowered = spent;
                lowered.etcd.replicas -= 2;
                self.found.push((Move::Lower, lowered));
            }
            if spent.etcd.replicas < MOST_REPLICAS {
                spent.etcd.replicas += 2;
                self.found.push((Move::Raise, spent));
            }
        }
        if let Some(spent) = spend(state, |budget| &mut budget.rolls) {
            let all = (0..SEATS).filter(|seat| state.machines.is[*seat].exists());
            let all = all.fold(Set::default(), Set::with);
            let mut rolled = spent;
            rolled.etcd.outdated = all;
            rolled.world.tells += rules::rollouts_of_the_control_plane(&rolled.etcd);
            self.found.push((Move::Roll, rolled));
            if !state.etcd.outdated.is_empty() {
                let mut back = spent;
                let new = all.iter().filter(|seat| !state.etcd.outdated.has(*seat));
                back.etcd.outdated = new.fold(Set::default(), Set::with);
                back.world.tells += rules::rollouts_of_the_control_plane(&back.etcd);
                self.found.push((Move::RollBack, back));
            }
        }
    }
}
