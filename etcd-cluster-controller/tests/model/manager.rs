//! The manager: one reconcile with the shipped planner, and what its step does to the state. The checks that `execute/`
//! makes before a write are made here as well. If `execute/` asks shipped code, so does this module.

use crate::rules::{self, Broken};
use crate::set::{SEATS, Set};
use crate::state::{Budget, Kind, Lag, Machine, Machines, Member, Paused, Probe, Secrets, State, View};
use crate::view::{Book, id, seat_of, seat_of_id, seats_of_uids, seats_of_urls};
use etcd_cluster_controller::plan::{Plan, Step, called_off, is_fenced};
use etcd_cluster_controller::quorum::{MayGo, MayRemove};
use std::collections::BTreeSet;

/// How a reconcile ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The step is done, and the status is written.
    Done,
    /// etcd has done it, and the answer is lost.
    AnswerLost,
    /// Like `AnswerLost`. In addition, none of the other voters answers for a while, and the prober still has the
    /// member list from before.
    Stalled,
    /// etcd has not done it, and the answer is lost.
    NotDone,
    /// The manager is killed before it writes the status.
    Killed,
    /// The manager is killed between the writes of the step.
    KilledBetween,
}

/// What a manager has decided: the page in the book, whether the decision was made again from live state, and whether
/// that has called the step off.
struct Choice {
    page: u32,
    /// The decision was made again from live state.
    live: bool,
    off: bool,
}

/// Plans, and plans again from live state if the step is dangerous.
fn choose(state: &State, book: &mut Book) -> Choice {
    let cached = book.number(&state.cached());
    if !is_fenced(&book.page(cached).decision.next) {
        return Choice { page: cached, live: false, off: false };
    }
    let live = book.number(&state.live());
    let off = called_off(&book.page(cached).decision.next, &book.page(live).decision.next).is_some();
    Choice { page: live, live: true, off }
}

/// How else than `Done` a reconcile may end in this state.
pub fn bad_endings(state: &State, book: &mut Book) -> &'static [Ending] {
    let choice = choose(state, book);
    match &book.page(choice.page).decision.next {
        _ if choice.off => &[],
        Plan::Do(Step::RemoveMember(_)) => &[Ending::AnswerLost, Ending::Stalled, Ending::NotDone, Ending::Killed],
        Plan::Do(Step::MoveLeader { .. }) => &[Ending::AnswerLost, Ending::NotDone, Ending::Killed],
        Plan::Do(Step::CreateMachine { .. }) => &[Ending::Killed, Ending::KilledBetween],
        // These steps write only the status.
        Plan::Do(Step::BeginRemediation(_) | Step::Begin(_) | Step::Finish(_) | Step::NoteRelease { .. }) => &[],
        Plan::Do(_) => &[Ending::Killed],
        Plan::Steady | Plan::Wait(_) | Plan::Block(_) => &[],
    }
}

/// A manager that has decided, also from live state if the step is dangerous, and is paused before it acts.
pub fn pause(state: &State, book: &mut Book) -> Option<State> {
    let choice = choose(state, book);
    let does = match &book.page(choice.page).decision.next {
        Plan::Do(Step::BeginRemediation(_) | Step::Begin(_) | Step::Finish(_) | Step::NoteRelease { .. }) => false,
        Plan::Do(_) => !choice.off,
        Plan::Steady | Plan::Wait(_) | Plan::Block(_) => false,
    };
    let paused =
        Paused { view: choice.page, secret_written: false, changed_since: false, joined_since: Set::default() };
    does.then(|| State { paused: Some(paused), ..looked(state, &choice) })
}

/// The live read probes every member, so from then on the prober knows what the members answered.
fn looked(state: &State, choice: &Choice) -> State {
    let is_known = choice.live && matches!(state.lag, Lag::Probes(_) | Lag::List(_));
    State { lag: if is_known { Lag::None } else { state.lag }, ..*state }
}

/// One reconcile.
pub fn reconcile(state: &State, book: &mut Book, ending: Ending) -> Result<State, Broken> {
    let choice = choose(state, book);
    let state = looked(state, &choice);
    let (removal, paused) = (Removal::Done, None);
    Reconcile { book, choice, ending, paused, removal, before: state, after: state }.run()
}

/// The rest of the reconcile of a manager that was paused.
pub fn resume(state: &State, book: &mut Book) -> Result<Option<State>, Broken> {
    let Some(paused) = state.paused else { return Ok(None) };
    let choice = Choice { page: paused.view, live: true, off: false };
    let after = State { paused: None, ..*state };
    let (ending, paused, removal) = (Ending::Done, Some(paused), Removal::Done);
    Reconcile { book, choice, ending, paused, removal, before: after, after }.run().map(Some)
}

/// How the removal that a step asks for has ended. Only a removal that etcd has confirmed is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    Done,
    /// The member list has changed.
    Outdated,
    Failed,
}

struct Reconcile<'a> {
    book: &'a Book,
    choice: Choice,
    ending: Ending,
    paused: Option<Paused>,
    removal: Removal,
    before: State,
    after: State,
}

impl Reconcile<'_> {
    fn view(&self) -> &View {
        &self.book.page(self.choice.page).view
    }

    fn run(mut self) -> Result<State, Broken> {
        let decided = self.book.page(self.choice.page);
        let no_answer = matches!(self.ending, Ending::AnswerLost | Ending::Stalled | Ending::NotDone);
        if let (Plan::Do(step), false) = (&decided.decision.next, self.choice.off) {
            self.step(step)?;
        }
        let status = match () {
            () if no_answer || self.removal == Removal::Failed => decided.status_if_failed,
            () if self.choice.off || self.removal == Removal::Outdated => decided.status_if_off,
            () => decided.status,
        };
        // The status is written only over the version from which it was derived.
        let is_killed = matches!(self.ending, Ending::Killed | Ending::KilledBetween);
        if !is_killed && self.view().etcd == self.before.etcd {
            rules::status(&self.before, &status)?;
            self.after.etcd.status = status;
        }
        Ok(self.after)
    }

    fn step(&mut self, step: &Step) -> Result<(), Broken> {
        match step {
            Step::Record { annotations, .. } => {
                if self.view().etcd == self.before.etcd {
                    self.after.etcd.cluster_id |= annotations.contains_key(api::names::CLUSTER_ID_ANNOTATION);
                }
            }
            Step::PublishInit { client_urls, admitted, .. } => {
                if self.secret_is_as_observed() {
                    self.write_secret(seats_of_uids(admitted))?;
                    (self.after.secrets.init, self.after.secrets.urls) = (true, seats_of_urls(client_urls));
                }
            }
            Step::CreateMachine { number, expected, .. } => self.create(*number, expected)?,
            Step::Admit { name, admitted, .. } => {
                if self.secret_is_as_observed() && self.machines_are_as_observed() {
                    let admitted = seats_of_uids(admitted);
                    rules::admission(&self.before, self.view(), seat_of(name), admitted)?;
                    self.write_secret(admitted)?;
                }
            }
            Step::DeleteHeldBack { name, .. } => {
                let seat = seat_of(name);
                let waits = self.before.machines.is[seat] == Machine::HeldBack;
                if waits && !self.before.machines.deleting.has(seat) && self.admission_is_as_observed(seat) {
                    rules::held_back(&self.before, seat)?;
                    self.after.machines.deleting.put(seat, true);
                }
            }
            Step::Begin(operation) => rules::beginning(self.view(), operation)?,
            Step::BeginRemediation(record) => rules::remediation(self.view(), seat_of(&record.machine))?,
            Step::DeleteMachine { name, why } => {
                let seat = seat_of(name);
                if self.machines_are_as_observed() && self.before.machines.hook.has(seat) {
                    rules::deletion(&self.before, self.view(), seat, *why)?;
                    self.after.machines.deleting.put(seat, true);
                }
            }
            Step::Finish(None) => rules::calling_off(&self.before, self.view())?,
            Step::Finish(Some(_)) | Step::NoteRelease { .. } => {}
            Step::MoveLeader { from, to } => {
                rules::leadership(self.view(), seat_of_id(*to))?;
                self.move_leader(seat_of_id(*from), seat_of_id(*to));
            }
            Step::RemoveMember(permission) => self.remove(permission)?,
            Step::ReleaseHook { machine, proof } => {
                let seat = seat_of(machine);
                let is_as_observed = matches!(proof, MayGo::MemberGone(_)) || self.admission_is_as_observed(seat);
                if self.before.machines.is[seat].exists() && is_as_observed {
                    let (paused, changed_since) = (self.paused.is_some(), self.changed_since());
                    rules::release(&self.before, seat, paused, changed_since)?;
                    self.after.machines.hook.put(seat, false);
                }
            }
            other => return Err(Broken(format!("the model does not know the step {other:?}"))),
        }
        Ok(())
    }

    /// Whether a machine or a network has failed or recovered since a paused manager decided.
    fn changed_since(&self) -> bool {
        self.paused.is_some_and(|paused| paused.changed_since)
    }

    fn secret_is_as_observed(&self) -> bool {
        let init = |secrets: &Secrets| (secrets.init, secrets.urls, secrets.admitted);
        init(&self.view().secrets) == init(&self.before.secrets)
            && !self.paused.is_some_and(|paused| paused.secret_written)
    }

    /// Whether the init Secret is as it was observed, and a Machine that had no bootstrap data still has none.
    fn admission_is_as_observed(&self, seat: usize) -> bool {
        let had_data = self.view().machines.is[seat].boots() || self.view().secrets.data.has(seat);
        self.secret_is_as_observed() && (had_data || !self.before.secrets.data.has(seat))
    }

    fn write_secret(&mut self, admitted: Set) -> Result<(), Broken> {
        rules::admissions(&self.before, admitted)?;
        self.after.secrets.admitted = admitted;
        if let Some(paused) = &mut self.after.paused {
            paused.secret_written = true;
        }
        Ok(())
    }

    fn machines_are_as_observed(&self) -> bool {
        let all = |machines: &Machines| {
            (0..SEATS).map(|seat| (machines.is[seat].exists(), machines.deleting.has(seat))).collect::<Vec<_>>()
        };
        all(&self.view().machines) == all(&self.before.machines)
    }

    /// Makes a Machine. Its number is written first. If a manager was killed right after that, the number is used now.
    fn create(&mut self, number: u64, expected: &[String]) -> Result<(), Broken> {
        let there: BTreeSet<usize> = (0..SEATS).filter(|seat| self.before.machines.is[*seat].exists()).collect();
        if there != expected.iter().map(|name| seat_of(name)).collect() {
            return Ok(());
        }
        let last = self.view().etcd.last_number.map(usize::from);
        let next = usize::try_from(number).unwrap_or(SEATS);
        let begun = last.filter(|last| last + 1 == next && self.before.machines.is[*last] == Machine::Absent);
        let seat = begun.unwrap_or(next);
        if seat >= SEATS {
            return Err(Broken("there are no seats left in the model".to_owned()));
        }
        if last.is_none_or(|last| last < seat) {
            if self.view().etcd != self.before.etcd {
                return Ok(());
            }
            self.after.etcd.last_number = u8::try_from(seat).ok();
        }
        if self.ending == Ending::KilledBetween {
            return Ok(());
        }
        rules::creation(&self.before, seat)?;
        self.after.machines.is[seat] = Machine::HeldBack;
        self.after.machines.hook.put(seat, true);
        Ok(())
    }

    /// Whether there is a healthy voter to ask, other than `but`, that can still be asked.
    fn asks(&self, but: usize) -> bool {
        let view = self.view();
        let able = |seat: usize| {
            seat != but
                && view.machines.is[seat].exists()
                && view.probes.seats[seat] == Probe::Healthy
                && view.probes.members[seat] == Member::Voter
                && self.before.world.members[seat] == Member::Voter
                && self.before.world.is_up(seat)
                && !self.before.world.unasked.has(seat)
                && !self.before.world.cut_off.has(seat)
        };
        self.before.world.has_quorum() && (0..SEATS).any(able)
    }

    fn move_leader(&mut self, from: usize, to: usize) {
        let world = &self.before.world;
        let can = world.leader == Some(from) && world.members[to] == Member::Voter && world.is_up(to);
        if can && self.ending != Ending::NotDone {
            self.after.world.leader = Some(to);
        }
    }

    fn remove(&mut self, permission: &MayRemove) -> Result<(), Broken> {
        let seat = seat_of_id(permission.member_id());
        if !self.asks(seat) || self.ending == Ending::NotDone {
            self.removal = Removal::Failed;
            return Ok(());
        }
        let members = &self.before.world.members;
        // The Machine of the member to be removed has joined again as another member. etcd does not know the old ID any
        // more.
        if self.paused.is_some_and(|paused| paused.joined_since.has(seat)) {
            self.removal = Removal::Outdated;
            return Ok(());
        }
        let listed = (0..SEATS).filter(|seat| members[*seat].is_listed());
        let list = listed.map(|seat| (id(seat), members[seat] != Member::Voter)).collect();
        if !permission.was_made_from(&list) || !members[seat].is_listed() {
            self.removal = Removal::Outdated;
            return Ok(());
        }
        rules::removal(&self.before, self.view(), seat, self.changed_since())?;
        // A machine that has not started its etcd has no record of the member, so it adds itself once more.
        let is_recorded = members[seat] != Member::Unstarted;
        self.after.world.members[seat] = if is_recorded { Member::Removed } else { Member::None };
        if self.ending == Ending::Stalled {
            let world = &self.before.world;
            let others = (0..SEATS).filter(|other| *other != seat && world.members[*other] == Member::Voter);
            others.filter(|other| world.is_up(*other)).for_each(|other| self.after.world.unasked.put(other, true));
            self.after.lag = Lag::List(self.view().probes.members);
        }
        Ok(())
    }
}

/// The state with less left in its budget.
pub fn spend(state: &State, what: impl FnOnce(&mut Budget) -> &mut u8) -> Option<State> {
    let mut next = *state;
    let left = what(&mut next.budget);
    *left = left.checked_sub(1)?;
    Some(next)
}

/// Whether an operation of this kind is recorded for a seat.
pub fn is_recorded(view: &View, kind: Kind, seat: usize) -> bool {
    view.etcd.status.operation.is_some_and(|operation| (operation.kind, operation.seat) == (kind, seat))
}
