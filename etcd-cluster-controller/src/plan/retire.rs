//! Machines that are being deleted. Our pre-terminate hook makes Cluster API keep them running. The member leaves etcd
//! when rule 1 allows it, and only then does the Machine go.

use super::growth::is_late;
use super::in_use::InUse;
use super::{Plan, Step, View, block, corrupt, deletion, operation, repair, rollout};
use crate::observation::{has_hook, hex};
use crate::quorum::{MayGo, MayRemove, Refusal, may_remove, member_gone, never_member};
use crate::roster::strangers::patience;
use crate::roster::{Seat, Verdict};
use api::conditions::reasons;
use api::etcd_cluster::OperationKind;
use api::names;
use controller_support::external::MachineView;

/// How long a member has to be connected to the others, in seconds, before etcd removes a voter that it is asked to
/// remove through this member (`HealthInterval` in etcd's server/etcdserver/server.go, 3.5 to 3.7: five seconds). We ask
/// through the leader.
const CONNECTED_SECONDS: i64 = 5;

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let leaving = || view.roster.seats.iter().filter(|seat| is_wanted(seat));
    for seat in leaving() {
        if let Some((machine, proof)) = seat.machine.and_then(|machine| Some((machine, may_go(view, seat, machine)?))) {
            return Some(Plan::Do(release(view, seat, machine, proof)));
        }
    }
    // A failed member goes first, then one that is not healthy, and the leader last.
    let mut members: Vec<&Seat<'_>> = view.roster.seats.iter().filter(|seat| leaves(view, seat)).collect();
    members.sort_by_key(|seat| (!seat.is_unhealthy(), seat.is_healthy(), seat.leads()));
    let begin = |kind, seat: &Seat<'_>, id| Some(Plan::Do(operation::begin(view, kind, seat, id)));
    for seat in members {
        let (Some(id), Ok(_)) = (seat.id(), may_leave(view, seat)) else { continue };
        let moves = seat.leads() && next_leader(view, id).is_some();
        let kind = if moves { OperationKind::MoveLeader } else { OperationKind::RemoveMember };
        return begin(kind, seat, id);
    }
    if let Some(seat) = view.roster.voters().find(|seat| corrupt::leads_no_longer(view, seat)) {
        return begin(OperationKind::MoveLeader, seat, seat.id()?);
    }
    let only = leaving().find_map(|seat| would_lose_data(view, seat));
    only.map(|message| block(reasons::WOULD_LOSE_DATA, message))
}

/// Lets a Machine go. If its machine may initialize etcd in its last moments, or join it, the release is recorded
/// first: a manager, this one or another, that finds the member or counts the voters that would be left must know that
/// this machine goes.
fn release(view: &View<'_>, seat: &Seat<'_>, machine: &MachineView, proof: MayGo) -> Step {
    let may_come = seat.may_vote || (seat.admitted && matches!(proof, MayGo::NeverMember(_)));
    if may_come && !view.observation.release_is_noted(machine) {
        return Step::NoteRelease { machine_uid: machine.uid.clone() };
    }
    Step::ReleaseHook { machine: machine.name.clone(), proof }
}

/// Whether the Machine of a seat waits for us to let it go.
fn is_wanted(seat: &Seat<'_>) -> bool {
    seat.machine.is_some_and(|machine| machine.deleting && has_hook(machine))
}

/// Whether a member is to leave etcd: its Machine is being deleted, even if the Machine was released before the member
/// showed up; or it is a stranger that is to leave.
pub(super) fn leaves(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let goes = || seat.is_leaving() && !is_starting(view, seat);
    seat.member.is_some() && (goes() || stranger_leaves(view, seat))
}

/// Whether a stranger is to leave etcd.
///
/// - Immediately: an orphaned member that adds nothing to etcd. That is a learner; or one of an even number of voters,
///   because one voter fewer survives as many failures, and with it the quorum may depend on a machine that goes with
///   its infrastructure at any moment. A voter does not leave this way while etcd reports that copies differ, because
///   its copy may be the right one.
/// - When it has failed for long enough: every other stranger, except a stray if failures are only reported. One of an
///   odd number of voters also waits until the machine of its replacement is up, unless an alarm of etcd names the
///   voter.
/// - Never: a stray that answers, because it may belong to someone else; and a voter while there are Machines of an
///   earlier EtcdCluster of this name, because it may run on one of them.
fn stranger_leaves(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let is_even = view.roster.voters().count().is_multiple_of(2);
    let gives_nothing = seat.orphaned && (!seat.is_voter() || (is_even && !corrupt::holds(view)));
    let is_time = || !seat.is_voter() || corrupt::is_named(view, seat) || repair::is_time_without_a_machine(view, seat);
    let goes = gives_nothing || (stranger_has_failed(view, seat) && is_time());
    goes && (!seat.is_voter() || view.observation.not_owned.is_empty())
}

/// Whether a stranger has failed for long enough, and is ours to remove. A stray is only reported if failures are only
/// reported.
fn stranger_has_failed(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let only_tells = || repair::why_only_reported(view.observation, seat.is_voter()).is_some();
    let is_ours = seat.orphaned || (seat.stray && !only_tells());
    is_ours && seat.is_unhealthy() && view.observation.not_owned.is_empty()
}

/// Whether a stranger that votes has failed, and leaves as soon as its replacement's machine is up.
pub(super) fn makes_way(view: &View<'_>, seat: &Seat<'_>) -> bool {
    seat.is_voter() && stranger_has_failed(view, seat) && may_leave(view, seat).is_ok()
}

/// A message about what happens to a stranger.
pub(super) fn what_becomes_of(view: &View<'_>, seat: &Seat<'_>) -> String {
    if leaves(view, seat) || stranger_has_failed(view, seat) {
        let why = may_leave(view, seat).err().unwrap_or_default();
        return format!("It is removed as soon as etcd can do without it: {why}");
    }
    if let Some(why) = repair::why_only_reported(view.observation, seat.is_voter()).filter(|_| !seat.orphaned) {
        return format!("It is not removed by itself ({why})");
    }
    let after = patience(view.observation, seat.id().unwrap_or_default()).as_secs();
    let until = seat.excused_until(view.observation);
    let until =
        until.map(|until| format!(" (failures while there was no quorum do not count, so this is at {until:.0})"));
    let until = until.unwrap_or_default();
    format!("It is left alone while it answers, and is removed once its checks have failed for {after} s{until}")
}

/// Whether a learner was added just now, and its etcd is about to start. Once etcd has started, the machine knows that
/// it was a member, and does not join again. If the learner were removed before that, its machine might join again, and
/// its Machine would be kept for as long as that is possible.
fn is_starting(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let is_new = seat.member.is_some() && !seat.is_voter() && !seat.has_started() && !seat.is_unhealthy();
    is_new && !seat.released && seat.machine.is_some_and(|machine| view.observation.is_in_grace(machine))
}

/// Whether a Machine or a member is on its way out and waits for us. A late Machine does not count, because it may wait
/// for other Machines to join.
pub(super) fn is_under_way(view: &View<'_>) -> bool {
    view.roster.seats.iter().any(|seat| (is_wanted(seat) && !has_not_joined(view, seat)) || leaves(view, seat))
}

/// How many late Machines are being deleted and are kept, because they may take the quorum with them.
pub(super) fn late_ones(view: &View<'_>) -> usize {
    view.roster.seats.iter().filter(|seat| is_wanted(seat) && has_not_joined(view, seat)).count()
}

/// Whether a Machine has not become a member within its grace.
fn has_not_joined(view: &View<'_>, seat: &Seat<'_>) -> bool {
    seat.member.is_none() && seat.machine.is_some_and(|machine| is_late(view.observation, machine))
}

fn may_go(view: &View<'_>, seat: &Seat<'_>, machine: &MachineView) -> Option<MayGo> {
    let status = view.observation.etcd.status.as_ref();
    let records = status.map(|status| status.removed_members.as_slice()).unwrap_or_default();
    member_gone(&view.roster, records, machine).or_else(|| never_member(&view.roster, seat, status, view.has_begun()))
}

/// The voter that leads in place of a member that goes. Voters that stay are preferred, then voters whose data is not
/// in doubt, then those whose Machine matches the spec, and then the newest, because the oldest are most likely to be
/// replaced next. In a rollout, the newest may be a voter for a moment only. Then it is the newest of those through which
/// etcd lets the old member go at once.
pub(super) fn next_leader(view: &View<'_>, from: u64) -> Option<u64> {
    let able = view.roster.voters().filter(|seat| seat.id() != Some(from) && seat.is_well());
    let place = |seat: &Seat<'_>| view.roster.seats.iter().position(|other| other.id() == seat.id());
    let is_outdated = |seat: &Seat<'_>| rollout::is_superseded(view, seat);
    let rolls = view.roster.by_member(from).is_some_and(is_outdated);
    able.max_by_key(|seat| {
        let stays = (!seat.is_leaving(), !corrupt::is_named(view, seat), !is_outdated(seat));
        (stays, rolls && is_connected(view, seat), place(seat))
    })?
    .id()
}

/// Whether a member has been healthy for so long that etcd lets another member go through it.
fn is_connected(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let Verdict::Healthy { since } = seat.verdict else { return false };
    view.observation.now.duration_since(since).as_secs() >= CONNECTED_SECONDS
}

/// Whether a member may leave etcd now, by rules 1 and 5. They are checked when a removal begins, and again when it
/// continues. `Err`: what the member waits for.
pub(super) fn may_leave(view: &View<'_>, seat: &Seat<'_>) -> Result<MayRemove, String> {
    let id = seat.id().unwrap_or_default();
    let permission = may_remove(&view.roster, id, &view.observation.etcd.spec);
    let permission = permission.map_err(|refusal| explain(view, &refusal))?;
    corrupt::lets_go(view, seat)?;
    keeps_copies(view, seat)?;
    keeps_endpoints(view, seat)?;
    Ok(permission)
}

/// Whether a voter may not leave before another member has joined or recovered.
pub(super) fn waits_for_another(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let id = seat.id().unwrap_or_default();
    may_remove(&view.roster, id, &view.observation.etcd.spec).is_err() || keeps_copies(view, seat).is_err()
}

/// Whether a member is on its way out, takes the room of another one, and is kept only by its endpoint. For what the
/// control plane is told, it counts as a member that stays, because only a rollout of the control plane frees it.
pub(super) fn is_held_by_its_endpoint(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let is_enough = || view.roster.voters().filter(|voter| voter.is_well()).count() >= view.wanted();
    !view.has_room()
        && seat.is_voter()
        && seat.is_leaving()
        && is_enough()
        && !waits_for_another(view, seat)
        && corrupt::lets_go(view, seat).is_ok()
        && is_spared(view, seat, None).is_err()
}

/// Two voters do not become one unless one is wanted: one voter survives as many failures as two, but it has the only
/// copy of the data. This holds as long as our hook keeps the Machine.
fn keeps_copies(view: &View<'_>, seat: &Seat<'_>) -> Result<(), String> {
    let is_one_of_two = seat.is_voter() && view.roster.voters().count() == 2 && view.wanted() > 1;
    let is_kept = seat.machine.is_some_and(has_hook);
    let why = "the other one would have the only copy of the data: it goes when another member has joined";
    if is_one_of_two && is_kept { Err(why.to_owned()) } else { Ok(()) }
}

/// Rule 5: a member leaves only if API servers can do without it. If its removal leaves an even number of voters and
/// more members are to go, API servers have to be able to do without the next one too. That even number survives one
/// failure fewer than with this member, and no more than without the next one, so etcd does not stay there while the
/// control plane rolls out. A member that has failed does not count for the tolerance, and need not wait for the next
/// one.
pub(super) fn keeps_endpoints(view: &View<'_>, seat: &Seat<'_>) -> Result<(), String> {
    leaves_an_endpoint(view, seat)?;
    is_spared(view, seat, None)?;
    let is_other = |other: &&Seat<'_>| other.id() != seat.id();
    let left = view.roster.voters().filter(is_other).count();
    if !seat.is_voter() || seat.is_unhealthy() || left <= view.wanted() || !left.is_multiple_of(2) {
        return Ok(());
    }
    let mut next = view.roster.voters().filter(is_other).filter(|other| other.is_leaving()).peekable();
    if next.peek().is_none() || next.any(|other| is_spared(view, other, Some(seat)).is_ok()) {
        return Ok(());
    }
    Err(format!(
        "API servers still use the endpoint of the next member to leave. If only this member left now, the {left} voters in between would survive one failure less. Both leave when the control plane has rolled out with the new endpoints"
    ))
}

/// A member that no Machine carries is not counted on, and may be destroyed at any moment, with its endpoint. So it
/// does not wait until there are enough other endpoints, but until there is one: as long as it answers, it is not
/// removed if a list would have no live endpoint without it.
fn leaves_an_endpoint(view: &View<'_>, seat: &Seat<'_>) -> Result<(), String> {
    if seat.machine.is_some() || seat.is_unhealthy() {
        return Ok(());
    }
    let in_use = InUse::of(view);
    let Some(list) = in_use.emptied_by(seat) else { return Ok(()) };
    let urls: Vec<&str> = list.iter().map(String::as_str).collect();
    Err(format!(
        "of the endpoints {}, some API servers have no other one that is alive: the member leaves when the control plane has rolled out with other endpoints",
        urls.join(", ")
    ))
}

/// Whether API servers can do without a member: of every list of endpoints that they use, f + 1 stay alive. An
/// unhealthy member serves none of them. A member that may be down does not count as alive, but may still serve. If all
/// the new members of a rollout are made first, the old members stay until no API server uses them. Under an alarm
/// CORRUPT they need not, because a person then gives up the data of a member. `before`: a member that has left by
/// then.
fn is_spared(view: &View<'_>, seat: &Seat<'_>, before: Option<&Seat<'_>>) -> Result<(), String> {
    let in_use = InUse::of(view);
    if seat.is_unhealthy() || !in_use.has(seat) {
        return Ok(());
    }
    let why = match in_use.endangered_by(seat, before) {
        Some((list, alive)) => {
            format!("some have a list of {} endpoints of which {alive} would be alive without it", list.len())
        }
        None if rollout::is_doubling(view) && rollout::is_superseded(view, seat) && !corrupt::holds(view) => {
            "the new members are there in its place".to_owned()
        }
        None => return Ok(()),
    };
    Err(format!(
        "API servers still use its endpoint, and {why}: it goes when the control plane has rolled out with the new endpoints"
    ))
}

fn explain(view: &View<'_>, refusal: &Refusal) -> String {
    match refusal {
        Refusal::ListUnknown => format!("the member list cannot be read: {}", view.observation.why_not_listed()),
        Refusal::NotListed => "it is not in the member list".to_owned(),
        Refusal::OnlyVoter => "it is the only member: a new one has to have its data first".to_owned(),
        Refusal::TooFewWouldBeLeft { now, after, left: (healthy, voters) } => format!(
            "with this member etcd {}, and without it etcd {}, with {healthy} of {voters} voters healthy; it goes when another member has joined or recovered",
            survives(*now),
            survives(*after)
        ),
        Refusal::NobodyStays => format!(
            "the Machines of all other healthy members go without waiting for this controller, and take their copies of the data with them ({}); this member leaves when another member has joined",
            let_go(view)
        ),
        Refusal::HangsOnReleased => format!(
            "Machines that no longer wait for this controller may still vote before they are destroyed ({}), and etcd would then lose its quorum without this member; it leaves when they are gone, or when another member has joined",
            let_go(view)
        ),
    }
}

/// Machines that go without waiting for us, and that have a vote, or may get one.
fn let_go(view: &View<'_>) -> String {
    let released = view.roster.seats.iter().filter(|seat| seat.released && (seat.may_vote || seat.is_voter()));
    let names: Vec<&str> = released.filter_map(|seat| Some(seat.machine?.name.as_str())).collect();
    names.join(", ")
}

/// How many more failures etcd survives, in words.
fn survives(failures: i64) -> String {
    match failures {
        ..0 => "has no quorum".to_owned(),
        0 => "survives no more failure".to_owned(),
        1 => "survives 1 more failure".to_owned(),
        more => format!("survives {more} more failures"),
    }
}

/// Why a Machine is kept whose member is the only voter and does not answer: no other member can copy its data.
fn would_lose_data(view: &View<'_>, seat: &Seat<'_>) -> Option<String> {
    let lost =
        is_wanted(seat) && seat.is_voter() && view.roster.voters().count() == 1 && !seat.is_healthy() && !seat.counts;
    let machine = seat.machine.filter(|_| lost)?;
    let at = deleted_at(machine);
    Some(format!(
        "Machine {} was deleted{at} and is kept, because its member is the only one and does not answer ({}). Bring the member back. To give up the data, delete the Cluster; or run this command and then delete the EtcdCluster: {}",
        machine.name,
        seat.why_since(),
        deletion::confirm(&view.observation.etcd)
    ))
}

fn why_it_may_be_a_member(view: &View<'_>, seat: &Seat<'_>, machine: &MachineView) -> String {
    if !view.roster.is_listed() {
        return format!("whether it is a member is not known: {}", view.observation.why_not_listed());
    }
    if let Some(id) = view.roster.unseated().and_then(Seat::id) {
        return format!("member {id:x} runs on no known Machine, and may be its own");
    }
    // The record may assign that member to the wrong Machine, so the message does not advise removing the pre-terminate
    // hook.
    if let Some(other) = view.roster.answering_at(seat) {
        return format!("member {} answers at its address, and may be its own", other.name());
    }
    let until = view.observation.end_of_grace(machine).filter(|_| seat.joining);
    if let Some(until) = until {
        return format!(
            "it boots and may still become a member, which is then removed; if it has not by {until:.0}, the Machine goes as soon as etcd would survive that its machine joins later"
        );
    }
    let when = if view.has_room() {
        "The Machine goes when etcd has enough healthy members to survive that. If its machine is off for good, release the Machine by hand"
    } else {
        "With maxSurge 0, no other Machine is made before it is gone. When its machine is off for good, release the Machine by hand"
    };
    format!(
        "it has not become a member in its time. Its machine may still join and vote, and would then take the quorum with it when it is destroyed. {when}: kubectl annotate -n {} machines.cluster.x-k8s.io {} {}-",
        machine.namespace,
        machine.name,
        names::PRE_TERMINATE_HOOK_ANNOTATION
    )
}

/// Every Machine that is being deleted, and what it waits for. If the text is empty, it does not wait for us.
pub(crate) fn waiting(view: &View<'_>) -> Vec<(String, String)> {
    let leaving = view.roster.seats.iter().filter_map(|seat| Some((seat, seat.machine.filter(|m| m.deleting)?)));
    let one = |(seat, machine): (&Seat<'_>, &MachineView)| {
        let running = view.observation.etcd.status.as_ref().and_then(|status| status.operation.as_ref());
        let ours = running.filter(|operation| seat.id().map(hex).as_ref() == Some(&operation.member_id));
        let why = if !has_hook(machine) {
            String::new()
        } else if let Some(problem) = view.observation.cluster.problem() {
            // etcd is read only if exactly one Cluster names it.
            format!("it is not released before exactly one Cluster names this EtcdCluster: {problem}")
        } else if let Some(operation) = ours {
            format!("{operation} has been in progress since {:.0}", operation.since.0)
        } else if let Some(message) = would_lose_data(view, seat) {
            message
        } else if is_starting(view, seat) {
            "its member was added just now, and is removed when its etcd has started".to_owned()
        } else if seat.member.is_some() {
            may_leave(view, seat).err().unwrap_or_default()
        } else if may_go(view, seat, machine).is_none() {
            why_it_may_be_a_member(view, seat, machine)
        } else {
            String::new()
        };
        (machine.name.clone(), why)
    };
    leaving.map(one).collect()
}

/// Whether this controller is letting one of these Machines go: an operation is in progress, or a Machine waits only
/// for its next step.
pub(crate) fn lets_one_go(view: &View<'_>, waiting: &[(String, String)]) -> bool {
    let is_next =
        |(name, why): &(String, String)| why.is_empty() && view.observation.machines.get(name).is_some_and(has_hook);
    let status = view.observation.etcd.status.as_ref();
    status.is_some_and(|status| status.operation.is_some()) || waiting.iter().any(is_next)
}

/// These Machines and what each waits for, as a text.
pub(crate) fn describe(view: &View<'_>, waiting: &[(String, String)]) -> String {
    let one = |(name, why): &(String, String)| match view.observation.machines.get(name) {
        Some(machine) if why.is_empty() && has_hook(machine) => {
            format!("Machine {name} was deleted{}, and waits for this controller to let it go", deleted_at(machine))
        }
        Some(machine) if why.is_empty() => going(machine),
        _ => format!("Machine {name}: {why}"),
    };
    waiting.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn deleted_at(machine: &MachineView) -> String {
    machine.deleted.as_ref().map(|at| format!(" at {:.0}", at.0)).unwrap_or_default()
}

/// A message about a Machine that other finalizers keep.
pub(super) fn going(machine: &MachineView) -> String {
    let at = deleted_at(machine);
    let waits = match machine.finalizers.join(", ") {
        none if none.is_empty() => String::new(),
        finalizers => format!(" and waits for the finalizers {finalizers}: look at its conditions"),
    };
    format!("Machine {} was deleted{at}{waits}", machine.name)
}
