//! What must hold: the rules for etcd, stated in terms of what is true, and not of what the controller knows. Only the
//! order of the controller's steps is judged by what it knows.

use crate::in_use::InUse;
use crate::manager::is_recorded;
use crate::set::{SEATS, Set};
use crate::state::{Etcd, Kind, Lag, List, Machine, Member, Probe, Process, Removal, State, Status, View, World};
use crate::view::{Decided, id, reason, seat_of_id};
use api::conditions::reasons;
use api::etcd_cluster::{Operation, OperationKind};
use etcd_cluster_controller::plan::{Plan, WhyDeleted};
use etcd_cluster_controller::quorum::survives;

/// A rule is broken.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken(pub String);

fn rule(holds: bool, says: &str) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken(says.to_owned())) }
}

/// For a removal, at the moment when etcd does it.
pub fn removal(now: &State, view: &View, seat: usize, changed_since: bool) -> Result<(), Broken> {
    rule(is_recorded(view, Kind::RemoveMember, seat), "a removal is written down before it is done")?;
    let entry = |member: Member| (member.is_listed(), member == Member::Voter);
    let is_as_observed = (0..SEATS).all(|seat| entry(view.probes.members[seat]) == entry(now.world.members[seat]));
    rule(is_as_observed, "nothing is removed by an old member list")?;
    let is_gone = now.machines.is[seat] == Machine::Gone;
    rule(now.machines.deleting.has(seat) || is_gone, "nobody is removed whose Machine stays")?;
    // A Machine that was being deleted when the removal was decided may be gone by now.
    let voters = view.probes.members.iter().filter(|member| **member == Member::Voter).count();
    let may_go = view.machines.deleting.has(seat) || view.probes.members[seat] != Member::Voter || voters % 2 == 0;
    rule(
        may_go || has_failed(view, seat),
        "rule 4: of an odd number, no voter is removed for a Machine that is gone before it has failed",
    )?;
    let is_orphaned = view.machines.is[seat] == Machine::Gone && view.probes.members[seat] == Member::Voter;
    let boots = |other: usize| {
        let stays = view.machines.is[other].boots() && !view.machines.deleting.has(other);
        stays && view.probes.members[other] != Member::Voter
    };
    let is_there = || (0..SEATS).filter(|other| stays_well(view, *other)).count() >= usize::from(view.etcd.replicas);
    let is_time = || voters % 2 == 0 || removes_first(&view.etcd) || (0..SEATS).any(boots) || is_there();
    rule(
        !is_orphaned || is_time(),
        "rule 2: of an odd number, a voter without a Machine stays until its replacement boots",
    )?;
    let is_let_go = |other: usize| {
        let goes = view.machines.deleting.has(other) && !view.machines.hook.has(other);
        goes || view.etcd.status.released.has(other)
    };
    let takes_nothing = view.probes.members[seat] != Member::Voter || has_failed(view, seat);
    let stays = |other: usize| other != seat && is_well(view, other) && !is_let_go(other);
    rule(takes_nothing || (0..SEATS).any(stays), "rule 1: nobody goes before those that are let go")?;
    let answers =
        |other: usize| view.probes.members[other] == Member::Voter && view.probes.seats[other] == Probe::Healthy;
    let is_last = is_orphaned && !has_failed(view, seat) && is_last_endpoint(view.etcd.in_use, seat, answers);
    rule(!is_last, "rule 5: no list in use loses its last live endpoint with a member without a Machine")?;
    let mut without = now.world;
    without.members[seat] = Member::Removed;
    // The decision did not know of replicas that a user has raised since.
    let replicas = i64::from(now.etcd.replicas.min(view.etcd.replicas));
    let wanted = (replicas - 1) / 2;
    let (before, after) = (now.world.tolerance(), without.tolerance());
    // The exception: a member leaves before its replacement joins, all other members were well, and without it there
    // are as many as wanted, less one.
    let voters = (0..SEATS).filter(|other| without.members[*other] == Member::Voter);
    let all_well = voters.clone().all(|other| is_well(view, other));
    let goes_first = removes_first(&view.etcd) && all_well && voters.count() + 1 >= usize::from(now.etcd.replicas);
    let kept = (goes_first || after >= before.min(wanted)) && (after >= 0 || before < 0);
    rule(kept || changed_since, "rule 1: no removal lowers the tolerance")?;
    let survives = |world: &World, come| survives_coming(now, world, None, come);
    let spared =
        (0..=coming(now, Some(seat))).all(|come| survives(&without, come) >= survives(&now.world, come).min(0));
    rule(spared || changed_since, "rule 1: nobody is removed while the quorum hangs on machines that are let go")?;
    for list in now.etcd.in_use.lists().into_iter().filter(|list| list.has(seat) && is_well(view, seat)) {
        let alive = list.iter().filter(|other| *other != seat && is_well(view, *other)).count();
        rule(alive > list.len() / 2 || changed_since, "rule 5: of every list in use f + 1 endpoints stay alive")?;
        let stays = is_doubling(&now.etcd) && now.etcd.outdated.has(seat);
        rule(!stays || changed_since, "rule 5: where there is room, every endpoint in use stays alive")?;
    }
    rule(is_no_rest(view, seat) || changed_since, "rule 5: an even number of voters is not a place to stay at")?;
    rule(without.voters() > 0, "the last voter is never removed")
}

/// Whether a list in use would have no live endpoint without that of a member.
fn is_last_endpoint(in_use: InUse, seat: usize, answers: impl Fn(usize) -> bool) -> bool {
    let lists = in_use.lists().into_iter();
    lists.filter(|list| list.has(seat)).any(|list| !list.iter().any(|other| other != seat && answers(other)))
}

/// Whether the next member may follow immediately if one leaves an even number of voters behind, and more are to go, by
/// what the controller knows. Otherwise etcd would survive one failure less for as long as the control plane takes.
fn is_no_rest(view: &View, seat: usize) -> bool {
    let voters = || (0..SEATS).filter(|other| view.probes.members[*other] == Member::Voter && *other != seat);
    let left = voters().count();
    let takes = view.probes.members[seat] == Member::Voter && !has_failed(view, seat);
    if !takes || left % 2 == 1 || left <= usize::from(view.etcd.replicas) {
        return true;
    }
    let goes = |other: &usize| view.machines.is[*other].exists() && view.machines.deleting.has(*other);
    let spares = |list: Set, next: usize| {
        let alive = list.iter().filter(|other| *other != seat && *other != next && is_well(view, *other)).count();
        !list.has(next) || has_failed(view, next) || alive > list.len() / 2
    };
    let follows = |next: usize| view.etcd.in_use.lists().into_iter().all(|list| spares(list, next));
    voters().filter(goes).count() == 0 || voters().filter(goes).any(follows)
}

/// For a Machine that is released, at that moment.
pub fn release(now: &State, seat: usize, is_late: bool, changed_since: bool) -> Result<(), Broken> {
    if !now.is_known_to_have_begun() {
        return Ok(());
    }
    // The machine may have joined after the decision, if a manager that was paused releases it.
    let carries = now.world.members[seat].is_listed();
    rule(!carries || is_late, "no Machine is let go while it carries a member")?;
    let had = now.world.has_quorum();
    let coming = coming(now, Some(seat));
    let kept = (0..=coming).all(|come| survives_coming(now, &now.world, Some(seat), come) >= 0);
    // A machine that never had bootstrap data takes nothing with it, whatever happens to the machines that were
    // released before.
    let has_data = now.machines.is[seat].boots();
    rule(!had || kept || changed_since || !has_data, "whoever is let go does not take the quorum with it")
}

/// How many of the machines that are released, with one more, may become voters in their last moments.
fn coming(now: &State, one_more: Option<usize>) -> usize {
    let goes = |seat: &usize| now.is_released(*seat) || one_more == Some(*seat);
    let may_vote = |seat: &usize| !matches!(now.world.members[*seat], Member::Voter | Member::Removed);
    (0..SEATS).filter(goes).filter(may_vote).filter(|seat| now.machines.is[*seat].boots()).count()
}

/// How many failures etcd survives after `come` of these machines have become voters, and all released machines are
/// destroyed.
fn survives_coming(now: &State, world: &World, one_more: Option<usize>, come: usize) -> i64 {
    let goes = |seat: usize| now.is_released(seat) || one_more == Some(seat);
    let voters = || (0..SEATS).filter(|seat| world.members[*seat] == Member::Voter);
    let up = voters().filter(|seat| world.is_up(*seat) && !goes(*seat)).count();
    survives(voters().count() + come, up)
}

/// For an operation that begins, by what the controller knows.
pub fn beginning(view: &View, operation: &Operation) -> Result<(), Broken> {
    let seat = seat_of_id(u64::from_str_radix(&operation.member_id, 16).unwrap_or_else(|_| id(SEATS)));
    // A member that no Machine carries hands over leadership too, as long as it answers.
    let is_orphaned = seat < SEATS && view.machines.is[seat] == Machine::Gone;
    let answers = is_orphaned && view.probes.seats[seat] == Probe::Healthy;
    let leads = (is_well(view, seat) || answers) && view.probes.leader == Some(seat);
    let another_can = (0..SEATS).any(|other| other != seat && is_well(view, other));
    let has_failed = view.etcd.status.operation.is_some_and(|before| before.attempt > 0);
    let moves = operation.kind == OperationKind::MoveLeader;
    rule(moves || !leads || !another_can || has_failed, "rule 2: the leader moves before it is removed")
}

/// For an operation that is called off, at that moment.
pub fn calling_off(now: &State, view: &View) -> Result<(), Broken> {
    let removal = view.etcd.status.operation.filter(|operation| operation.kind == Kind::RemoveMember);
    let is_there = removal.is_none_or(|operation| now.world.members[operation.seat].is_listed());
    rule(is_there, "rule 3: no removal is called off that etcd has carried out")
}

/// For a move of leadership, by what the controller knows.
pub fn leadership(view: &View, to: usize) -> Result<(), Broken> {
    let stays = |seat: usize| is_well(view, seat) && !view.machines.deleting.has(seat);
    let is_best = stays(to) || (is_well(view, to) && !(0..SEATS).any(stays));
    rule(is_best, "rule 2: leadership moves to a member that is well, and that stays")
}

/// Whether a seat has a voter that has just answered.
fn is_well(view: &View, seat: usize) -> bool {
    let votes = seat < SEATS && view.machines.is[seat].exists() && view.probes.members[seat] == Member::Voter;
    votes && view.probes.seats[seat] == Probe::Healthy
}

/// Whether a seat has a voter that has just answered, on a Machine that stays.
fn stays_well(view: &View, seat: usize) -> bool {
    is_well(view, seat) && !view.machines.deleting.has(seat)
}

/// For a replacement that begins, by what the controller knows.
pub fn remediation(view: &View, seat: usize) -> Result<(), Broken> {
    rule(has_failed(view, seat), "rule 4: nobody is replaced who has not failed for long enough")?;
    rule(view.probes.list == List::Known, "rule 4: nobody is replaced without a quorum")
}

/// For a Machine that we delete, at that moment.
pub fn deletion(now: &State, view: &View, seat: usize, why: WhyDeleted) -> Result<(), Broken> {
    let stays = |seat: &usize| now.machines.is[*seat].exists() && !now.machines.deleting.has(*seat);
    rule(stays(&seat), "nothing is deleted twice")?;
    let is_replaced = now.etcd.status.remediation == Some(seat) && has_failed(view, seat);
    let too_many = (0..SEATS).filter(stays).count() > usize::from(view.etcd.replicas);
    match why {
        WhyDeleted::Unhealthy => {
            rule(is_replaced, "rule 2: nobody is deleted for a failure that is not written down")?;
            let boots = |seat: usize| view.machines.is[seat].boots() && view.probes.members[seat] != Member::Voter;
            let comes = (0..SEATS).any(|seat| boots(seat) && !view.machines.deleting.has(seat));
            let voters = view.probes.members.iter().filter(|member| **member == Member::Voter).count();
            let stays = |other: &usize| is_well(view, *other) && !view.machines.deleting.has(*other);
            let is_there = (0..SEATS).filter(stays).count() >= usize::from(view.etcd.replicas);
            let says = "rule 2: with an odd number of voters, the replacement boots first";
            rule(comes || is_there || voters % 2 == 0 || removes_first(&view.etcd), says)
        }
        WhyDeleted::Marked => rule(false, "nobody marks a Machine here"),
        WhyDeleted::Stuck => {
            let votes = view.probes.members[seat] == Member::Voter;
            rule(!votes, "rule 2: no voter is deleted as one that does not become one")?;
            rule(view.machines.is[seat] == Machine::Overdue, "no Machine is deleted that still has time to join")
        }
        WhyDeleted::Surplus => rule(too_many, "no Machine is deleted that is wanted"),
        WhyDeleted::Outdated => {
            rule(view.etcd.outdated.has(seat), "no Machine is replaced that matches the spec")?;
            let stays = |other: &usize| *other != seat && is_well(view, *other) && !view.machines.deleting.has(*other);
            let others: Vec<usize> = (0..SEATS).filter(stays).collect();
            let votes = view.probes.members[seat] == Member::Voter;
            let wanted = usize::from(view.etcd.replicas);
            let most = if removes_first(&view.etcd) { wanted - 1 } else { wanted };
            rule(!votes || others.len() >= most, "rule 2: the new member comes first")?;
            let leaves = (0..SEATS).any(|other| view.machines.deleting.has(other) && view.machines.is[other].exists());
            rule(others.len() >= wanted || !votes || !leaves, "rule 2: without room, one leaves at a time")?;
            let new = others.iter().filter(|other| !view.etcd.outdated.has(**other)).count();
            let lists = view.etcd.in_use.lists().into_iter().filter(|list| votes && list.has(seat));
            for list in lists.filter(|_| new < wanted) {
                rule(!is_doubling(&view.etcd), "rule 5: where there is room, all the new members come first")?;
                let alive = list.iter().filter(stays).count();
                rule(
                    alive > list.len() / 2,
                    "rule 5: f + 1 endpoints of every list stay until all the new ones are there",
                )?;
            }
            Ok(())
        }
    }
}

/// For a Machine that is held back and deleted, at that moment.
pub fn held_back(now: &State, seat: usize) -> Result<(), Broken> {
    rule(now.etcd.outdated.has(seat), "no Machine is made again that matches the spec")?;
    rule(!now.world.members[seat].is_listed(), "nobody is made again who is a member")
}

/// Whether a member leaves before its replacement joins.
fn removes_first(etcd: &Etcd) -> bool {
    etcd.max_surge == Some(0) && etcd.replicas > 1
}

/// How many Machines more than wanted a rollout makes.
fn surge(etcd: &Etcd) -> usize {
    if removes_first(etcd) {
        return 0;
    }
    let needed = if etcd.replicas > 3 { etcd.replicas / 2 + 1 } else { etcd.replicas };
    if etcd.in_use.is_empty() { 1 } else { usize::from(etcd.max_surge.unwrap_or(needed)) }
}

fn is_doubling(etcd: &Etcd) -> bool {
    surge(etcd) >= usize::from(etcd.replicas)
}

/// How many rollouts of the control plane a rollout of etcd causes: one, two if there is room for fewer than f + 1 more
/// Machines, and three if there is no room at all.
pub fn rollouts_of_the_control_plane(etcd: &Etcd) -> u8 {
    match surge(etcd) {
        0 => 3,
        most if most > usize::from(etcd.replicas / 2) => 1,
        _ => 2,
    }
}

/// For a control plane that is given other endpoints.
pub fn adoption(now: &State) -> Result<(), Broken> {
    rule(now.world.tells > 0 || now.world.disturbed, "rule 5: one rollout of etcd, one of the control plane")
}

/// Whether a seat has a voter that has not answered for long enough.
fn has_failed(view: &View, seat: usize) -> bool {
    let votes = seat < SEATS && view.probes.members[seat] == Member::Voter;
    votes && matches!(view.probes.seats[seat], Probe::LongFailing | Probe::LongNoLeader)
}

/// For an admission, at the moment when it is written.
pub fn admission(now: &State, view: &View, seat: usize, admitted: Set) -> Result<(), Broken> {
    let mut voters = (0..SEATS).filter(|seat| view.probes.members[*seat] == Member::Voter);
    let leaves = |seat: usize| view.machines.is[seat].exists() && view.machines.deleting.has(seat);
    // A voter that has failed makes way for a new member if its replacement is recorded, or if it has no Machine.
    let makes_way = |seat: usize| view.etcd.status.remediation.is_some() || view.machines.is[seat] == Machine::Gone;
    let goes = |seat: usize| leaves(seat) || (makes_way(seat) && has_failed(view, seat));
    let all_well = view.probes.list == List::Known && voters.all(|seat| is_well(view, seat) || goes(seat));
    rule(all_well, "nobody is admitted beside a voter that is not well and stays, or without a member list")?;
    rule(!now.secrets.admitted.has(seat), "nobody is admitted twice")?;
    let coming = |seat: &usize| {
        matches!(now.machines.is[*seat], Machine::HeldBack | Machine::Booting)
            && now.world.members[*seat] != Member::Voter
    };
    let coming = admitted.iter().filter(coming).count();
    // A voter that has recovered is not replaced any more, so the Machine that was made for it is a Machine like any
    // other.
    let is_replacement = now.replaced().is_some_and(|of| !is_well(view, of));
    let most = if is_replacement { 1 } else { now.etcd.max_learners() };
    rule(
        coming <= most,
        "rule 2: no more Machines are on their way than learners may catch up, and a replacement comes alone",
    )?;
    rule(
        coming <= 1 || outvotes_nobody(view, admitted),
        "rule 1: those that come side by side do not take the quorum with them if all of them vote and fail",
    )
}

/// Whether the voters that are well and stay are a quorum if all admitted Machines vote, and none of those answers. Two
/// Machines beside a single voter are not worse than one.
fn outvotes_nobody(view: &View, admitted: Set) -> bool {
    let member = |seat: &usize| view.probes.members[*seat];
    let may_vote = |seat: &usize| !matches!(member(seat), Member::Voter | Member::Removed);
    let come = admitted.iter().filter(|seat| view.machines.is[*seat].exists()).filter(may_vote).count();
    let voters = (0..SEATS).filter(|seat| member(seat) == Member::Voter).count();
    let stay = (0..SEATS).filter(|seat| stays_well(view, *seat)).count();
    survives(voters + come, stay) >= 0 || ((voters, stay) == (1, 1) && come <= 2)
}

/// For every change of the admitted Machines.
pub fn admissions(now: &State, admitted: Set) -> Result<(), Broken> {
    let kept = now.secrets.admitted.iter().filter(|seat| now.machines.is[*seat].exists());
    let kept = kept.filter(|seat| !now.machines.deleting.has(*seat)).all(|seat| admitted.has(seat));
    rule(kept, "no admission is revoked")
}

/// For a Machine that is made, at that moment.
pub fn creation(now: &State, seat: usize) -> Result<(), Broken> {
    rule(now.machines.is[seat] == Machine::Absent, "no name is used twice")?;
    let live = (0..SEATS).filter(|seat| now.machines.is[*seat].exists() && !now.machines.deleting.has(*seat)).count();
    let replaced = usize::from(now.replaced().is_some());
    let is_old = |seat: &usize| now.machines.is[*seat].exists() && now.etcd.outdated.has(*seat);
    let surge = match (0..SEATS).filter(is_old).count() {
        0 => 0,
        _ => surge(&now.etcd),
    };
    let most = usize::from(now.etcd.replicas) + replaced + surge;
    rule(live < most, "never more Machines than wanted, one for a replacement, and those of a rollout")?;
    let there = (0..SEATS).filter(|seat| now.machines.is[*seat].exists()).count();
    let has_room = !removes_first(&now.etcd) || there < usize::from(now.etcd.replicas);
    rule(has_room, "without room, no Machine is made before another one is gone")
}

/// For a status, at the moment when it is written.
pub fn status(now: &State, status: &Status) -> Result<(), Broken> {
    let learners =
        status.endpoints.iter().filter(|seat| matches!(now.world.members[*seat], Member::Unstarted | Member::Learner));
    rule(learners.count() == 0, "rule 5: no learner is published")?;
    let stays = |seat: &usize| {
        now.world.members[*seat] == Member::Voter
            && now.machines.is[*seat].exists()
            && !now.machines.deleting.has(*seat)
    };
    let dropped = now.etcd.status.endpoints.iter().filter(stays).any(|seat| !status.endpoints.has(seat));
    // If the watch does not show a Machine yet, the Machine counts as gone. The cluster is not ready during that time,
    // so the control plane is not told.
    let unseen = matches!(now.lag, Lag::Machines(_));
    rule(!dropped || unseen, "rule 5: endpoints follow the membership, and not health")?;
    let is_ours = |seat: &usize| now.world.members[*seat] == Member::Removed;
    let blames = (0..SEATS).filter(is_ours).any(|seat| status.removed[seat] == Some(Removal::Missing));
    rule(!blames, "rule 3: whom this controller has removed is not said to be missing")?;
    let was_published = !now.etcd.status.endpoints.is_empty();
    rule(!was_published || !status.endpoints.is_empty(), "rule 5: the endpoints are never empty again")
}

/// For the first member, at the moment when it comes up.
pub fn first(now: &State) -> Result<(), Broken> {
    let others = (0..SEATS).any(|seat| now.world.members[seat].is_listed() && now.machines.is[seat].exists());
    rule(!others && !now.is_known_to_have_begun(), "rule 9: a second, empty etcd")
}

/// For every state.
pub fn always(state: &State) -> Result<(), Broken> {
    let first = state.world.first.filter(|seat| state.is_released(*seat));
    let votes = first.is_some_and(|seat| state.world.members[seat] == Member::Voter);
    rule(!votes || !state.is_known_to_have_begun(), "the etcd of a first Machine that was let go is not taken for ours")
}

/// Whether everything is as wanted, and nothing is left to do.
fn is_as_wanted(state: &State, decided: &Decided) -> bool {
    let status = &state.etcd.status;
    let wanted = (0..SEATS).filter(|seat| state.machines.is[*seat].exists()).collect::<Vec<_>>();
    decided.decision.next == Plan::Steady
        && decided.decision.publish.ready
        && wanted.len() == usize::from(state.etcd.replicas)
        && wanted.iter().all(|seat| {
            state.world.members[*seat] == Member::Voter && state.world.is_up(*seat) && status.endpoints.has(*seat)
        })
        && state.machines.deleting.is_empty()
        && state.world.voters() == wanted.len()
        && state.world.members.iter().filter(|member| member.is_listed()).count() == wanted.len()
        && status.operation.is_none()
        && status.removed.iter().all(Option::is_none)
        && status.endpoints.len() == wanted.len()
        && wanted.iter().all(|seat| !state.etcd.outdated.has(*seat))
        && (state.etcd.in_use.is_empty() || state.etcd.in_use == InUse::only(status.endpoints))
}

/// Whether a Machine is kept for good. The controller did not see the member start before it removed it, so it is not
/// known whether the machine joins again. If it does, its failure could cost the quorum, and no other member is to
/// come.
fn is_kept_for_good(state: &State, seat: usize) -> bool {
    let (machines, status) = (&state.machines, &state.etcd.status);
    let is_kept = machines.is[seat].exists() && machines.deleting.has(seat) && machines.hook.has(seat);
    let come = coming(state, Some(seat)) + usize::from(state.world.members[seat] == Member::Removed);
    let wanted = usize::from(state.etcd.replicas);
    let there = || (0..SEATS).filter(|seat| machines.is[*seat].exists());
    let stays = |seat: &usize| !machines.deleting.has(*seat);
    let votes = |seat: usize| state.world.members[seat] == Member::Voter && state.world.is_up(seat);
    let is_complete = there().filter(stays).count() == wanted && there().filter(stays).all(votes);
    let is_full = removes_first(&state.etcd) && there().count() >= wanted;
    is_kept
        && status.never_started.has(seat)
        && survives_coming(state, &state.world, Some(seat), come) < 0
        && (is_complete || is_full)
}

/// Whether there is trouble that only a person, or luck, can end. The reasons in `TOLD` report it.
fn has_trouble(state: &State) -> bool {
    // A member that is left in etcd without a Machine is removed without a person, as long as there is a quorum.
    let is_lost = |seat: usize| state.world.members[seat] == Member::Voter && !state.world.has_quorum();
    // A Machine without a voter is replaced when its time is over.
    let is_needed = |seat: usize| state.world.members[seat] == Member::Voter || !state.is_known_to_have_begun();
    let dead = |seat: usize| {
        let is_off = matches!(state.world.processes[seat], Process::Down | Process::Lost | Process::Forgetful);
        let down = is_off && is_needed(seat);
        (state.machines.is[seat].exists() && down) || (state.machines.is[seat] == Machine::Gone && is_lost(seat))
    };
    // A member without a Machine that answers stays as long as its vote is worth something. Among an even number of
    // voters it is not. Then the member stays only if API servers would have no live endpoint without it, or if the
    // status never showed it on a Machine.
    let serves = |seat: usize| state.world.members[seat] == Member::Voter && state.world.is_up(seat);
    let is_last = |seat: usize| is_last_endpoint(state.etcd.in_use, seat, serves);
    let is_left_alone = |seat: usize| {
        state.is_left_behind(seat) && (state.world.voters() % 2 == 1 || !state.is_known(seat) || is_last(seat))
    };
    (0..SEATS).any(|seat| dead(seat) || is_kept_for_good(state, seat) || is_left_alone(seat))
}

/// Reasons of holds that do not end by themselves.
const TOLD: &[&str] = &[
    reasons::WAITING_FOR_HEALTHY_MEMBERS,
    reasons::WAITING_FOR_PROMOTION,
    reasons::WAITING_FOR_SAFE_REMOVAL,
    reasons::MACHINE_NOT_BOOTING,
    reasons::MEMBERSHIP_UNKNOWN,
    reasons::QUORUM_LOST,
    reasons::WOULD_LOSE_DATA,
];

/// Whether a run may end in this state: either everything is as wanted, or a person is told about trouble that no rule
/// of ours may end.
pub fn may_end(state: &State, decided: &Decided) -> bool {
    let is_quiet = state.lag == Lag::None && state.paused.is_none();
    let told = !matches!(decided.decision.next, Plan::Do(_)) && TOLD.contains(&reason(&decided.decision.next));
    let is_written = decided.status == state.etcd.status;
    is_quiet && is_written && (is_as_wanted(state, decided) || (told && has_trouble(state)))
}
