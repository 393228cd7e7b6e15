//! Replaces Machines that a MachineHealthCheck or a person has marked for remediation, and Machines that are stuck. A
//! marked Machine is replaced although its member answers, because a mark reports what no probe sees. The Machine is
//! deleted, and its member leaves like that of every deleted Machine: a healthy voter leaves when its replacement
//! votes.
//!
//! A voter that fails is left to `repair`, whether it is marked or not: that rule knows when a failed voter may go.
//! Nothing here is urgent, so a healthy voter is replaced only when nothing else is to be done.

use super::growth::{is_late, missing_since};
use super::repair::{self, RETRY_PERIOD, is_paused, recovers};
use super::rollout::{is_outdated, may_go_first, obstacle_to_replacing};
use super::step::WhyDeleted;
use super::{Hold, Plan, Step, View, corrupt, retire, stuck, upgrade};
use crate::roster::{Seat, Verdict};
use api::conditions::reasons;
use api::names;
use controller_support::external::MachineView;
use std::time::Duration;

/// A Machine that is to be replaced, and why.
struct Wanted<'v, 'a> {
    seat: &'v Seat<'a>,
    machine: &'a MachineView,
    mark: Mark<'a>,
}

/// Why a Machine is to be replaced.
#[derive(Clone, Copy)]
enum Mark<'a> {
    /// It is marked for remediation, and by whom.
    Marked(&'a str),
    /// It will not become a voter, and why.
    Stuck(&'static str),
}

impl Mark<'_> {
    fn why_deleted(self) -> WhyDeleted {
        match self {
            Self::Marked(_) => WhyDeleted::Marked,
            Self::Stuck(_) => WhyDeleted::Stuck,
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Marked(by) => format!("is marked for remediation ({by})"),
            Self::Stuck(why) => format!("is stuck ({why})"),
        }
    }
}

/// Deletes a marked or stuck Machine. The replacement of a voter is recorded first, as for a voter that has failed. The
/// new Machine then says what it was made for, which slows down a MachineHealthCheck that marks every new Machine.
pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let free = wanted(view).filter(|wanted| hold(view, wanted).is_none());
    let Wanted { seat, machine, mark } = free.min_by_key(|wanted| (wanted.seat.is_voter(), wanted.seat.leads()))?;
    if seat.is_voter() && !is_begun(view, seat, machine) {
        return Some(repair::record(view.observation, machine));
    }
    Some(Plan::Do(Step::DeleteMachine { name: machine.name.clone(), why: mark.why_deleted() }))
}

/// Machines that are to be replaced, and what each of them waits for.
pub(crate) fn waiting(view: &View<'_>) -> Vec<Hold> {
    let one = |wanted: Wanted<'_, '_>| {
        let next = || Hold::new(reasons::REPLACING_MEMBER, "it is replaced next");
        let hold = hold(view, &wanted).unwrap_or_else(next);
        let message = format!("Machine {} {}: {}", wanted.machine.name, wanted.mark.describe(), hold.message);
        Hold { message, ..hold }
    };
    wanted(view).map(one).collect()
}

/// How long until the next of them may be replaced. `None`: only an event changes that.
pub(super) fn due(view: &View<'_>) -> Option<Duration> {
    waiting(view).into_iter().filter_map(|hold| hold.again).min()
}

/// Machines that are stuck or marked. A Machine that is both counts as stuck, because a mark alone does not limit the
/// time of a learner.
fn wanted<'v, 'a>(view: &'v View<'a>) -> impl Iterator<Item = Wanted<'v, 'a>> {
    view.roster.seats.iter().filter_map(|seat| {
        let machine = seat.machine.filter(|machine| !machine.deleting)?;
        let mark = match stuck::now(view, seat, machine) {
            Some(why) => Mark::Stuck(why),
            None => Mark::Marked(machine.marked.as_deref()?),
        };
        Some(Wanted { seat, machine, mark })
    })
}

/// Whether a Machine's replacement is recorded, and its member has been healthy ever since.
fn is_begun(view: &View<'_>, seat: &Seat<'_>, machine: &MachineView) -> bool {
    let begun = repair::last(view.observation).filter(|last| last.machine_uid == machine.uid);
    begun.is_some_and(|last| matches!(&seat.verdict, Verdict::Healthy { since } if *since <= last.time.0))
}

/// Why a Machine that is to be replaced is not deleted now.
fn hold(view: &View<'_>, wanted: &Wanted<'_, '_>) -> Option<Hold> {
    let Wanted { seat, machine, mark } = wanted;
    let waits = |message| Hold::new(reasons::WAITING_FOR_REMEDIATION, message);
    if let Some(hold) = obstacle(view, wanted).map(waits) {
        return Some(hold);
    }
    // A member that serves can wait. Unless a person has set `retryPeriodSeconds`, it waits for as long as its Machine
    // counts as a replacement.
    let period = match view.observation.etcd.spec.remediation.retry_period_seconds {
        0 => (i32::MAX, "minHealthyPeriodSeconds"),
        seconds => (seconds, RETRY_PERIOD),
    };
    let what = format!("{}: its Machine {}", seat.name(), mark.describe());
    repair::limit(view.observation, machine, &what, period).filter(|_| seat.is_voter())
}

fn obstacle(view: &View<'_>, wanted: &Wanted<'_, '_>) -> Option<String> {
    let (Wanted { seat, machine, mark }, observation) = (wanted, view.observation);
    let (only_reported, corruption) = (repair::why_only_reported(observation, seat.is_voter()), corrupt::hold(view));
    match () {
        () if only_reported.is_some() => Some(format!(
            "it is not replaced automatically ({}): delete Machine {} to have it replaced",
            only_reported.unwrap_or_default(),
            machine.name
        )),
        () if is_paused(machine) => Some(format!(
            "it is paused, and replaced once Machine {} no longer has the annotation {}",
            machine.name,
            names::PAUSED_ANNOTATION
        )),
        () if corruption.is_some() => corruption,
        () if !view.roster.is_listed() => {
            Some(format!("nothing is replaced until the member list can be read: {}", observation.why_not_listed()))
        }
        () if !observation.not_owned.is_empty() => {
            Some(format!("these Machines are not controlled by this EtcdCluster: {}", observation.not_owned.join(", ")))
        }
        () if observation.template.problem().is_some() => {
            let why = observation.template.problem().unwrap_or_default();
            Some(format!("no other Machine can be made until the infrastructure template is there: {why}"))
        }
        () if !view.cluster().is_some_and(|cluster| cluster.infrastructure_ready) => {
            Some("no other machine would boot until the infrastructure of the Cluster is provisioned".to_owned())
        }
        () if seat.is_voter() => obstacle_of_a_voter(view),
        // Otherwise one Machine after the other would be created, marked and kept. A Machine whose member has started
        // is not kept, because its member leaves etcd.
        () if !seat.has_started() && is_to_wait(view, wanted) => Some(
            "another Machine that has not become a member in its time is kept, because it could take the quorum with it; it goes when another member has joined, or when you release it by hand as MachinesDeleting says"
                .to_owned(),
        ),
        // Otherwise every replacement would add one more Machine, if the infrastructure or a person keeps those that
        // were let go.
        () if matches!(mark, Mark::Stuck(_)) && lingers(view) => {
            Some("another Machine that was let go is not gone yet".to_owned())
        }
        () if matches!(mark, Mark::Stuck(_)) => None,
        // A Machine that has not become a member within its grace serves no one, and neither does a learner that has
        // failed by then. So each Machine has at least its grace, however often it is marked.
        () if (seat.member.is_none() || seat.is_unhealthy()) && is_late(observation, machine) => None,
        () => {
            let until = observation.end_of_grace(machine).filter(|_| observation.is_in_grace(machine));
            let until = until.map(|until| format!(", until {until:.0}")).unwrap_or_default();
            Some(format!("it may become a voter yet{until}"))
        }
    }
}

/// Whether a Machine that was let go is still there, without a member.
fn lingers(view: &View<'_>) -> bool {
    view.roster.seats.iter().any(|seat| seat.is_leaving() && seat.member.is_none() && seat.released)
}

/// Whether a Machine has to wait, because another late Machine is kept and Machines that may still join would free it,
/// or because as many late Machines are kept as members are wanted. A Machine that is held back may not join while the
/// one to be replaced is a learner or its member is missing, so it does not count then: the one to be replaced would
/// wait for itself.
fn is_to_wait(view: &View<'_>, wanted: &Wanted<'_, '_>) -> bool {
    let holds_back = wanted.seat.member.is_some() || missing_since(view.observation, wanted.machine).is_some();
    let stays = |seat: &&Seat<'_>| seat.machine.is_some_and(|machine| !machine.deleting);
    let may_come = |seat: &Seat<'_>| seat.member.is_none() && (seat.joining || !seat.admitted && !holds_back);
    let kept = retire::late_ones(view);
    kept > 0 && (kept >= view.wanted() || view.roster.seats.iter().filter(stays).any(may_come))
}

/// Why a healthy voter is not replaced now. It goes only if everything else is well, so that nothing is begun that a
/// second fault would halt.
fn obstacle_of_a_voter(view: &View<'_>) -> Option<String> {
    let (voters, wanted) = (view.roster.voters().count(), view.wanted());
    let unwell = view.roster.voters().find(|other| !other.is_healthy());
    let unmade = upgrade::why_none_is_made(view);
    match unwell {
        Some(only) if voters == 1 => Some(format!(
            "its member is the only one and is not healthy ({}). Its data would go with it: bring the member back",
            only.why_since()
        )),
        Some(other) => {
            Some(format!("every voter has to be healthy first, and one is not: member {}", other.describe()))
        }
        None if retire::is_under_way(view) => Some("another Machine is on its way out, and goes first".to_owned()),
        None if unmade.is_some() => unmade.map(|why| format!("no other Machine can be made: {why}")),
        None if view.removes_first() && !may_go_first(view) => {
            Some("there is no room for another Machine before those on their way out are gone".to_owned())
        }
        None if view.roster.seats.iter().any(|other| is_outdated(view, other)) => {
            Some("Machines that do not match the spec are replaced first".to_owned())
        }
        None if voters != wanted => {
            Some(format!("there are {voters} voters, and no other is begun before there are {wanted}"))
        }
        None if recovers(view).is_some() => Some(
            "its member, or one that has recovered, has to stay healthy for unhealthyAfterSeconds first".to_owned(),
        ),
        None => obstacle_to_replacing(view),
    }
}
