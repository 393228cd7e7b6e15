//! Adds members. Machines are created as soon as they are wanted, and held back: what Cluster API and the
//! infrastructure do before a machine can boot takes longer than an etcd member needs to join. A Machine is admitted
//! when every voter is healthy, and no more Machines are on their way than may catch up side by side.
//!
//! A member whose Machine is being deleted or replaced counts as a voter, but its Machine does not count: its
//! replacement joins, or at least boots, first.

mod side_by_side;
mod waits;

use super::{
    Hold, Plan, Step, View, beside, block, corrupt, deletion, domains, init, repair, retire, rollout, upgrade, wait,
};
use crate::observation::{Membership, Observation, Template, hex};
use crate::quorum::never_member;
use crate::roster::{Seat, has_left, number};
use api::conditions::reasons;
use api::etcd_cluster::RemovalState;
use controller_support::external::{ClusterView, MachineView};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use waits::{
    not_booting, waiting_for, waiting_for_a_person, waiting_for_infrastructure, waiting_for_room, without_template,
};

/// How far a Machine is on its way to being a healthy voter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Voter,
    HeldBack,
    NoAddress,
    NoMember,
    Learner,
    NotHealthy,
    /// It is not known to fail, and the member list cannot be read.
    NotListed,
    /// Its grace is over, and it has never become a member. It no longer delays others.
    NotBooting,
    /// It was a member, and something other than this controller removed the member from etcd.
    Missing,
    /// It is being deleted and is not a member. It may still become one.
    Leaving,
    /// The same after its grace, once etcd has begun. It no longer delays others.
    GivenUp,
    /// It is being deleted, and its member has left etcd, or it was never admitted to etcd that has begun. It never
    /// joins, and it delays no one.
    Left,
}

impl Progress {
    /// States of a Machine that is on its way to become a voter. The next Machine waits for it, or is admitted beside
    /// it.
    const COMING: &[Self] = &[Self::NoAddress, Self::NoMember, Self::Learner, Self::Missing];

    /// Whether it does not vote, and nothing keeps it from doing so. A late Machine may still join.
    fn may_vote(self) -> bool {
        Self::COMING.contains(&self) || matches!(self, Self::NotBooting | Self::Leaving | Self::GivenUp)
    }
}

/// All Machines with their progress.
struct Machines<'v, 'a>(Vec<(&'v Seat<'a>, &'a MachineView, Progress)>);

impl<'v, 'a> Machines<'v, 'a> {
    fn of(view: &'v View<'a>) -> Self {
        let seats = view.roster.seats.iter().filter_map(|seat| Some((seat, seat.machine?)));
        Self(seats.map(|(seat, machine)| (seat, machine, progress(view, seat, machine))).collect())
    }

    fn names(&self, wanted: Progress) -> Vec<&'a str> {
        self.0.iter().filter(|(_, _, state)| *state == wanted).map(|(_, machine, _)| machine.name.as_str()).collect()
    }

    fn find(&self, wanted: &[Progress]) -> Option<&(&'v Seat<'a>, &'a MachineView, Progress)> {
        self.0.iter().find(|(_, _, state)| wanted.contains(state))
    }

    /// Whether any Machine stays.
    fn any_is_kept(&self, view: &View<'_>) -> bool {
        self.0.iter().any(|(seat, _, _)| repair::is_kept(view, seat))
    }
}

/// Decides on the next Machine and the next member. If the plan waits for a replacement, the message says so.
pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let makes_way = || view.roster.voters().find(|seat| retire::makes_way(view, seat));
    match (grow(view)?, repair::replaced(view).or_else(makes_way)) {
        (Plan::Wait(hold), Some(failed)) if !view.removes_first() => {
            let then = match failed.machine.is_some_and(repair::is_paused) {
                true => "It stays while its Machine is paused",
                false => "Its replacement has to boot or join first",
            };
            let message = format!("member {}. {then}: {}", failed.describe(), hold.message);
            Some(Plan::Wait(Hold { message, ..hold }))
        }
        (next, _) => Some(next),
    }
}

fn grow(view: &View<'_>) -> Option<Plan> {
    let (observation, cluster) = (view.observation, view.cluster()?);
    let machines = Machines::of(view);
    // Voters that go do not delay their replacements, as long as a healthy voter is there that they can join. Voters
    // that have failed are replaced one at a time.
    let joinable = view.roster.is_listed() && machines.find(&[Progress::Voter]).is_some();
    let replacing = repair::replaced(view).is_some();
    let goes = |seat: &Seat<'_>| joinable && (seat.is_leaving() || (replacing && seat.is_unhealthy()));
    for unwell in [Progress::NotHealthy, Progress::NotListed] {
        let mut unwell = machines.0.iter().filter(|(_, _, state)| *state == unwell);
        if let Some((seat, machine, state)) = unwell.find(|(seat, _, _)| !goes(seat)) {
            return Some(waiting_for(view, cluster, seat, machine, *state));
        }
    }
    if let Some(stranger) = stranger(view) {
        return Some(stranger);
    }
    if let Some(step) = make_again(view, &machines) {
        return Some(Plan::Do(step));
    }
    let coming = machines.find(Progress::COMING);
    let coming = coming.map(|(seat, machine, state)| waiting_for(view, cluster, seat, machine, *state));
    // One that is paused and outdated is left alone: it is made again later, and its member would be outdated.
    let admissible = |machine: &MachineView| !(repair::is_paused(machine) && no_longer_fits(view, machine));
    let (held_back, left_alone): (Vec<_>, Vec<_>) =
        machines.0.iter().filter(|(_, _, state)| *state == Progress::HeldBack).partition(|(_, it, _)| admissible(it));
    let held_back = held_back.first().copied();
    let lacking = rollout::is_lacking(view);
    let missing = lacking && view.has_room();
    if !missing && held_back.is_none() {
        let few = machines.names(Progress::Voter).len() < view.wanted();
        let left_alone = left_alone.first().filter(|_| few).map(|(_, machine, _)| waiting_for_a_person(machine));
        let waits = || not_booting(view, &machines).or_else(|| leaving(view)).or(left_alone);
        let rest = || waits().unwrap_or_else(|| if lacking { waiting_for_room(view) } else { Plan::Steady });
        return Some(coming.unwrap_or_else(rest));
    }
    if let Some(obstacle) = obstacle(view, &machines) {
        return Some(coming.unwrap_or(obstacle));
    }
    let begun = view.has_begun();
    Some(match held_back {
        Some((_, next, _)) if begun && side_by_side::takes_another(view, &machines) => {
            Plan::Do(Step::Admit { name: next.name.clone(), admitted: init::with(observation, next) })
        }
        // The other Machines are created when it is settled which Machine initializes etcd.
        _ if missing
            && (begun || !machines.any_is_kept(view) || machines.0.iter().any(|(seat, _, _)| seat.admitted)) =>
        {
            create(view, cluster, coming)
        }
        _ => coming.unwrap_or(Plan::Steady),
    })
}

/// Waits for Machines that are being deleted. `None`: there are none.
fn leaving(view: &View<'_>) -> Option<Plan> {
    let waiting = retire::waiting(view);
    if waiting.is_empty() {
        return None;
    }
    let message = retire::describe(view, &waiting);
    let waits_for_us = waiting.iter().any(|(_, why)| !why.is_empty());
    Some(wait(if waits_for_us { reasons::WAITING_FOR_SAFE_REMOVAL } else { reasons::DELETING }, message))
}

/// Deletes a Machine that has not been admitted, and that was made from an earlier spec or with another learner limit
/// than the others. Nothing is lost with it. It stays if it is paused, if no other can be made from the template or
/// would start etcd, or if it is not known which Machines are admitted.
fn make_again(view: &View<'_>, machines: &Machines<'_, '_>) -> Option<Step> {
    let observation = view.observation;
    if !matches!(observation.template, Template::Found { .. })
        || (view.has_begun() && observation.init_version.is_none())
        || upgrade::why_none_is_made(view).is_some()
    {
        return None;
    }
    let waits = [Progress::HeldBack, Progress::NoAddress, Progress::NoMember];
    let mut waiting = machines.0.iter().filter(|(seat, _, state)| waits.contains(state) && !seat.admitted);
    let (seat, machine, _) =
        waiting.find(|(_, machine, _)| no_longer_fits(view, machine) && !repair::is_paused(machine))?;
    let proof = never_member(&view.roster, seat, observation.etcd.status.as_ref(), view.has_begun())?;
    Some(Step::DeleteHeldBack { name: machine.name.clone(), proof })
}

/// Whether a Machine was made from an earlier spec or with another learner limit than the others.
fn no_longer_fits(view: &View<'_>, machine: &MachineView) -> bool {
    let (observation, recorded) = (view.observation, view.observation.recorded_learner_limit());
    !view.is_up_to_date(machine) || observation.learner_limit(machine).is_some_and(|limit| limit != recorded)
}

/// Why neither a Machine nor a member can be added now. If there is a voter, the member list is known.
fn obstacle(view: &View<'_>, machines: &Machines<'_, '_>) -> Option<Plan> {
    if !machines.names(Progress::Leaving).is_empty() {
        return leaving(view);
    }
    let beside = view.roster.voters().filter(|seat| beside::is_agreed(view, seat)).count();
    let voters = machines.names(Progress::Voter).len() + beside;
    if voters == 0 && view.has_begun() {
        let message = format!(
            "the Machines of all members are gone, and the data with them; no new Machine is made in their place. To start over, run this command and then delete the EtcdCluster: {}",
            deletion::confirm(&view.observation.etcd)
        );
        return Some(block(reasons::QUORUM_LOST, message));
    }
    // Only the first member initializes etcd. Without it, there is nothing to join.
    if voters == 0 { not_booting(view, machines) } else { corrupt::obstacle_to_joining(view) }
}

/// Creates the next Machine. If the template cannot be read just now, the wait for Machines that are on their way is
/// reported first. A template that does not exist is reported at any time. Before etcd has begun, the plan waits for
/// the Cluster's infrastructure, because it reports failure domains, and a Machine keeps its domain. Later, a
/// replacement matters more. A Machine that would not start etcd is not made: its place would be taken until its grace
/// is over, also if the spec is corrected at once.
fn create(view: &View<'_>, cluster: &ClusterView, coming: Option<Plan>) -> Plan {
    if let Some(why) = upgrade::why_none_is_made(view) {
        return block(reasons::UNSUPPORTED_VERSION_CHANGE, format!("no Machine is made: {why}"));
    }
    match &view.observation.template {
        Template::NotFound(message) => without_template(view.observation, message),
        Template::Unknown(message) => {
            let later = view.observation.interval();
            coming.unwrap_or_else(|| wait(reasons::TEMPLATE_NOT_FOUND, message)).again(later)
        }
        Template::Found { .. } if domains::reported(view).is_none() && !view.has_begun() => {
            coming.unwrap_or_else(|| waiting_for_infrastructure(cluster))
        }
        Template::Found { .. } => Plan::Do(Step::CreateMachine {
            number: next_number(view.observation),
            failure_domain: domains::next(view),
            expected: view.observation.machines.keys().cloned().collect(),
        }),
    }
}

/// Only an admitted Machine can be late. A Machine that is held back may be of any age.
pub(super) fn is_late(observation: &Observation, machine: &MachineView) -> bool {
    observation.is_admitted(machine) && !observation.is_in_grace(machine)
}

fn progress(view: &View<'_>, seat: &Seat<'_>, machine: &MachineView) -> Progress {
    let observation = view.observation;
    if let Some((_, member)) = &seat.member {
        return match &observation.membership {
            // The member list is not known. A Machine that has a member by the status counts as a member.
            Membership::Unknown(_) if seat.is_healthy() || seat.is_unknown() => Progress::NotListed,
            Membership::Unknown(_) | Membership::NotAsked => Progress::NotHealthy,
            Membership::Known { .. } if member.learner => Progress::Learner,
            Membership::Known { .. } if seat.is_healthy() => Progress::Voter,
            Membership::Known { .. } => Progress::NotHealthy,
        };
    }
    match () {
        () if machine.deleting && (has_left(observation, machine) || never_joins(view, seat)) => Progress::Left,
        () if machine.deleting && view.has_begun() && is_late(observation, machine) => Progress::GivenUp,
        () if machine.deleting => Progress::Leaving,
        () if missing_since(observation, machine).is_some() => Progress::Missing,
        () if is_held_back(view, seat, machine) => Progress::HeldBack,
        () if is_late(observation, machine) => Progress::NotBooting,
        // Or the Machine has just got its address, and the first answer from there is on its way.
        () if observation.address(machine).is_none() || seat.was_without_address() => Progress::NoAddress,
        () => Progress::NoMember,
    }
}

/// Whether a Machine that is being deleted is not admitted, and so never gets bootstrap data with which it could join.
/// Before etcd has begun, the bootstrap provider chooses a Machine without an admission.
fn never_joins(view: &View<'_>, seat: &Seat<'_>) -> bool {
    view.has_begun() && view.observation.init_version.is_some() && !seat.admitted
}

/// Whether it is another Machine's turn. Before etcd has begun, one Machine initializes it: the Machine that has
/// bootstrap data, which is the bootstrap provider's choice, or the first Machine that it can choose from.
fn is_held_back(view: &View<'_>, seat: &Seat<'_>, machine: &MachineView) -> bool {
    if seat.admitted {
        return false;
    }
    let mut live = view.observation.live_machines();
    let first = live.find(|other| view.observation.is_admitted(other));
    let first = first.or_else(|| view.observation.live_machines().next());
    view.has_begun() || first.is_some_and(|first| first.name != machine.name)
}

/// The ID of a Machine's member that is missing from etcd's list, and since when.
pub(super) fn missing_since<'a>(observation: &'a Observation, machine: &MachineView) -> Option<(&'a str, Timestamp)> {
    let record = observation.removal_of(machine).filter(|record| record.state == RemovalState::Missing)?;
    Some((record.id.as_str(), record.since.0))
}

/// Waits for strangers. A quorum may depend on a stranger, so nothing is added beside it unless a person allows it.
/// Strangers that have failed for long enough do not count: they are removed first, or make way for what is added.
fn stranger(view: &View<'_>) -> Option<Plan> {
    let mut strangers = if view.roster.is_listed() { view.roster.strangers() } else { Vec::new() };
    strangers.retain(|seat| !beside::is_agreed(view, seat) && !retire::makes_way(view, seat));
    let one = |seat: &&Seat<'_>| {
        let (id, member) = seat.member.as_ref()?;
        let urls = member.peer_urls.join(",");
        let loses = if member.learner { "it has no vote" } else { "it has a vote, so make sure that a quorum is left" };
        let (then, id) = (retire::what_becomes_of(view, seat), hex(*id));
        Some(format!(
            "member {id} ({urls}): {}. {then}. If its machine is gone for good, remove it ({loses}): etcdctl member remove {id}",
            seat.why_since()
        ))
    };
    let described: Vec<String> = strangers.iter().filter_map(one).collect();
    (!described.is_empty()).then(|| {
        let message = format!("{}. Nothing is added beside it{}", described.join("; "), beside::way_out(view));
        wait(reasons::WAITING_FOR_HEALTHY_MEMBERS, message)
    })
}

/// The number after the highest number that was ever used: a new Machine must not find the bootstrap data or the
/// infrastructure of an earlier Machine of its name. The names of members count too, because a member may be left
/// without its Machine.
fn next_number(observation: &Observation) -> u64 {
    let machines = observation.machines.keys().filter_map(|name| number(name));
    let base = format!("{}-", observation.etcd.name_any());
    let members = observation.members().into_iter().flatten().filter(|(_, member)| member.name.starts_with(&base));
    let members = members.filter_map(|(_, member)| number(&member.name));
    observation.last_name_number().into_iter().chain(machines).chain(members).max().map_or(0, |last| last + 1)
}
