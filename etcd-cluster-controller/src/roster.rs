//! The roster: one seat for each Machine and each member, with a verdict on the member. Pure. The plan and the status both
//! read it, so that they cannot disagree on who is well.

mod excuse;
pub(crate) mod strangers;
mod verdict;

pub use verdict::Verdict;

use crate::observation::probe::RunKind;
use crate::observation::{Member, Observation, Outcome, Probe, Report, hex};
use api::etcd_cluster::{Health, MemberRole, MemberStatus, RemovalState};
use controller_support::external::MachineView;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;
use strangers::NO_MACHINE;
use verdict::{NEW, UNPLACED, explain, explain_no_member, verdict};

/// A Machine, a member, or both.
#[derive(Clone, Debug)]
pub struct Seat<'a> {
    /// The Machine. `None`: it is gone, or was never ours.
    pub machine: Option<&'a MachineView>,
    /// The member with its ID. `None`: the Machine has not become one, or no longer is one.
    pub member: Option<(u64, Member)>,
    /// The latest probe.
    pub probe: Option<&'a Probe>,
    /// How the member is. Of a Machine that is not a member it says how far it has got.
    pub verdict: Verdict,
    /// The member counts as healthy in the status: it is, or was and has not failed for long enough.
    pub counts: bool,
    /// The Machine may become a member, or is one.
    pub admitted: bool,
    /// The Machine boots, and may become a member at any moment.
    pub joining: bool,
    /// The member had a Machine, and that is gone.
    pub orphaned: bool,
    /// The member runs on no Machine, and none on its way can be its own, whose address a watch may show late.
    pub stray: bool,
    /// It does not vote, and nothing keeps it from doing so: its Machine has bootstrap data.
    pub may_vote: bool,
    /// The Machine goes without waiting for us, or is about to.
    pub released: bool,
}

impl Seat<'_> {
    /// The member's ID.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        self.member.as_ref().map(|(id, _)| *id)
    }

    /// The member votes.
    #[must_use]
    pub fn is_voter(&self) -> bool {
        self.member.as_ref().is_some_and(|(_, member)| !member.learner)
    }

    /// The member's etcd has started: it has told its name. By then its machine has a record of it.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.member.as_ref().is_some_and(|(_, member)| !member.name.is_empty())
    }

    /// The member answers its checks right now.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        matches!(self.verdict, Verdict::Healthy { .. })
    }

    /// It is healthy, and the latest check itself has found it so. A healthy run goes on for a while where this controller
    /// cannot ask; and of a voter that was a learner at that check nothing says that it serves as a voter.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let now = self.probe.filter(|probe| probe.outcome.kind() == RunKind::Healthy).and_then(Probe::report);
        self.is_healthy() && now.is_some_and(|report| report.learner != self.is_voter())
    }

    /// The member has failed for long enough.
    #[must_use]
    pub fn is_unhealthy(&self) -> bool {
        matches!(self.verdict, Verdict::Unhealthy { .. })
    }

    /// The member's checks fail, for long enough or not.
    #[must_use]
    pub fn fails(&self) -> bool {
        matches!(self.verdict, Verdict::Failing { .. } | Verdict::Unhealthy { .. })
    }

    /// It is known how the member is, and that does not change any moment.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_healthy() || self.is_unhealthy()
    }

    /// Nothing is known of the member.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self.verdict, Verdict::Unknown { .. })
    }

    /// The Machine had no address at the latest look at its member.
    #[must_use]
    pub fn was_without_address(&self) -> bool {
        self.probe.is_some_and(|probe| probe.outcome == Outcome::NoAddress)
    }

    /// No Machine is known to carry the member, and none that is gone did: it may be that of any Machine.
    fn is_unplaced(&self) -> bool {
        self.member.is_some() && self.machine.is_none() && !self.orphaned
    }

    /// No Machine carries the member, nor will: the one that did is gone, or none ever did.
    #[must_use]
    pub fn is_stranger(&self) -> bool {
        self.orphaned || self.stray
    }

    /// The member is called after its Machine, so that it is no other Machine's.
    pub(crate) fn is_namesake(&self) -> bool {
        self.machine.is_some_and(|machine| self.member.as_ref().is_some_and(|(_, member)| member.name == machine.name))
    }

    /// The Machine is being deleted.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.machine.is_some_and(|machine| machine.deleting)
    }

    /// The member leads, by its own word. One that no Machine carries may lead too, and hand over, as long as it answers.
    #[must_use]
    pub fn leads(&self) -> bool {
        let answers = |probe: &&Probe| self.machine.is_none() && probe.outcome.kind() == RunKind::Healthy;
        let probe = self.probe.filter(|probe| self.is_healthy() || answers(probe));
        probe.and_then(Probe::report).is_some_and(|report| report.leader == report.member_id)
    }

    /// What people call it: the member's name, the Machine's, or the ID.
    #[must_use]
    pub fn name(&self) -> String {
        let member = self.member.as_ref().map(|(_, member)| member.name.clone()).filter(|name| !name.is_empty());
        let machine = || self.machine.map(|machine| machine.name.clone());
        member.or_else(machine).unwrap_or_else(|| self.id().map(hex).unwrap_or_default())
    }

    /// Why the member is not well. Empty if it is.
    #[must_use]
    pub fn why(&self) -> &str {
        match &self.verdict {
            Verdict::Healthy { .. } => "",
            Verdict::Failing { why, .. } | Verdict::Unhealthy { why, .. } | Verdict::Unknown { why } => why,
        }
    }

    /// The same with the time, where that is known.
    #[must_use]
    pub fn why_since(&self) -> String {
        let since = match &self.verdict {
            Verdict::Healthy { .. } => None,
            Verdict::Failing { since, .. } | Verdict::Unhealthy { since, .. } => Some(*since),
            Verdict::Unknown { .. } => self.unknown_since(),
        };
        since.map_or_else(|| self.why().to_owned(), |since| format!("{} (since {since:.0})", self.why()))
    }

    /// Since when nothing is known of the member, by its checks. Not of one that is starting: its run begins anew when it
    /// is known which member to expect.
    fn unknown_since(&self) -> Option<Timestamp> {
        let probe = self.probe.filter(|probe| probe.run.kind != RunKind::Healthy && probe.expected == self.id())?;
        let starts = [NEW, UNPLACED].iter().any(|why| self.why().starts_with(why));
        (!starts).then_some(probe.run.since)
    }

    /// The same as a sentence, with the member's name.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}: {}", self.name(), self.why_since())
    }

    /// Why the latest check of the member says nothing, also while it counts as healthy: see [`Seat::is_well`]. With the
    /// time, where that is known.
    #[must_use]
    pub fn describe_check(&self) -> String {
        match self.probe {
            Some(probe) if self.is_healthy() && probe.report().is_some() => {
                format!("{}: {} did not vote yet when it last answered", self.name(), probe.url)
            }
            Some(probe) if self.is_healthy() => {
                format!("{}: {} (it last answered at {:.0})", self.name(), explain(probe), probe.run.last)
            }
            Some(probe) if self.is_unknown() && probe.run.kind != RunKind::Healthy => {
                format!("{}: {} (since {:.0})", self.name(), self.why(), probe.run.since)
            }
            _ => self.describe(),
        }
    }
}

/// All seats.
#[derive(Clone, Debug)]
pub struct Roster<'a> {
    /// By Machine, then members without one.
    pub seats: Vec<Seat<'a>>,
    listed: bool,
}

impl<'a> Roster<'a> {
    /// Whether the members are those of etcd's list, and not those that the status remembers.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Seats of voters.
    pub fn voters(&self) -> impl Iterator<Item = &Seat<'a>> {
        self.seats.iter().filter(|seat| seat.is_voter())
    }

    /// Since when no voter answers its checks. `None`: one does, or it is not known of each.
    #[must_use]
    pub fn silent_since(&self) -> Option<Timestamp> {
        let since = |seat: &Seat<'_>| {
            seat.probe.filter(|probe| probe.run.kind != RunKind::Healthy).map(|probe| probe.run.since)
        };
        self.voters().map(since).collect::<Option<Vec<Timestamp>>>()?.into_iter().max()
    }

    /// Members by ID.
    pub fn members(&self) -> impl Iterator<Item = (u64, &Seat<'a>)> {
        self.seats.iter().filter_map(|seat| Some((seat.id()?, seat)))
    }

    /// The seat of a member.
    #[must_use]
    pub fn by_member(&self, id: u64) -> Option<&Seat<'a>> {
        self.seats.iter().find(|seat| seat.id() == Some(id))
    }

    /// The seat of a Machine.
    #[must_use]
    pub fn by_machine(&self, name: &str) -> Option<&Seat<'a>> {
        self.seats.iter().find(|seat| seat.machine.is_some_and(|machine| machine.name == name))
    }

    /// The member that answers at the address of a seat's Machine, if it may be that one's: one that is called after
    /// another Machine is that Machine's, at an address that has changed hands.
    #[must_use]
    pub fn answering_at(&self, seat: &Seat<'_>) -> Option<&Seat<'a>> {
        let report = seat.probe.and_then(Probe::report)?;
        self.by_member(report.member_id).filter(|other| !other.is_namesake())
    }

    /// The first member that no Machine is known to carry, and that never had one: it may be that of any Machine.
    #[must_use]
    pub fn unseated(&self) -> Option<&Seat<'a>> {
        self.seats.iter().find(|seat| seat.is_unplaced())
    }

    /// Members that no Machine carries, nor will.
    #[must_use]
    pub fn strangers(&self) -> Vec<&Seat<'a>> {
        self.seats.iter().filter(|seat| seat.is_stranger()).collect()
    }
}

#[cfg(test)]
impl<'a> Roster<'a> {
    /// Made-up seats, of members as in etcd's list.
    pub(crate) fn listed(seats: Vec<Seat<'a>>) -> Self {
        Self { seats, listed: true }
    }
}

/// Seats everybody.
#[must_use]
pub fn roster(observation: &Observation) -> Roster<'_> {
    let remembered = || observation.etcd.status.iter().flat_map(|status| &status.members).filter_map(remembered);
    let (mut members, listed): (Vec<(u64, Member)>, bool) = match observation.members() {
        Some(members) => (members.iter().map(|(id, member)| (*id, member.clone())).collect(), true),
        None => (remembered().collect(), false),
    };
    // One that only has a Machine's address comes after those that are known to be its member, and one that is dead after
    // the one that answers there: also of two that are called after a Machine, which was made again under its old name.
    members.sort_by_cached_key(|(id, member)| {
        let is_it = |report: &Report| report.member_id == *id;
        let named = observation.machines.contains_key(&member.name);
        let at_home = || observation.probes.get(&member.name).and_then(Probe::report).is_some_and(is_it);
        let recorded = observation.recorded(*id).is_some_and(|status| !status.machine.is_empty());
        let answers = observation.probes.values().filter_map(Probe::report).any(is_it);
        (!named, !(named && at_home()), !recorded, !answers, *id)
    });
    let mut seats: Vec<Seat<'_>> = Vec::with_capacity(members.len());
    let mut seated = BTreeSet::new();
    for (id, member) in members {
        let machine = observation.machine_of(id, &member).filter(|machine| seated.insert(machine.name.as_str()));
        let probe = match machine {
            Some(machine) => observation.probes.get(&machine.name),
            None => observation.strangers.get(&id),
        };
        let verdict = match machine {
            Some(machine) => verdict(observation, (id, &member), machine, probe),
            None => strangers::verdict(observation, id, probe),
        };
        let orphaned = machine.is_none() && strangers::is_orphaned(observation, id);
        let recorded = observation.recorded(id).map_or(Health::Unknown, |status| status.health);
        let counts = match verdict {
            Verdict::Healthy { .. } => true,
            Verdict::Failing { .. } => recorded == Health::Healthy,
            Verdict::Unhealthy { .. } | Verdict::Unknown { .. } => false,
        };
        let admitted = machine.is_some_and(|machine| observation.is_admitted(machine));
        let (joining, stray, may_vote) = (false, false, member.learner);
        let released = machine.is_some_and(|machine| observation.is_released(machine));
        let member = Some((id, member));
        seats.push(Seat {
            machine,
            member,
            probe,
            verdict,
            counts,
            admitted,
            joining,
            orphaned,
            stray,
            may_vote,
            released,
        });
    }
    for machine in observation.machines.values().filter(|machine| !seated.contains(machine.name.as_str())) {
        let probe = observation.probes.get(&machine.name);
        let verdict = Verdict::Unknown { why: probe.map(|p| explain_no_member(observation, p)).unwrap_or_default() };
        let admitted = observation.is_admitted(machine);
        let joining = admitted && observation.is_in_grace(machine);
        seats.push(Seat {
            machine: Some(machine),
            member: None,
            probe,
            verdict,
            counts: false,
            admitted,
            joining,
            orphaned: false,
            stray: false,
            may_vote: observation.has_data(machine) && !has_left(observation, machine),
            released: observation.is_released(machine),
        });
    }
    seats.sort_by(|a, b| {
        let key =
            |seat: &Seat<'_>| (seat.machine.is_none(), seat.machine.map(|machine| number_and_name(&machine.name)));
        key(a).cmp(&key(b))
    });
    let booting = |seat: &&Seat<'_>| {
        let machine = seat.machine.filter(|machine| !machine.deleting && machine.addresses.is_empty());
        seat.admitted && seat.member.is_none() && machine.is_some_and(|machine| observation.is_in_grace(machine))
    };
    // Machines whose members may show up any moment, before the Machines' addresses do.
    let expected = seats.iter().filter(booting).count();
    // One that has failed for longer than any of them has been booting is not one of theirs.
    let may_be_theirs = |seat: &&Seat<'_>| seat.is_unplaced() && !seat.is_unhealthy();
    let is_too_many = seats.iter().filter(may_be_theirs).count() > expected;
    for seat in seats.iter_mut().filter(|seat| seat.is_unplaced()) {
        seat.stray = is_too_many || seat.is_unhealthy();
        // Where the other members hear it, that is told instead.
        if !seat.stray && seat.why().starts_with(NO_MACHINE) {
            seat.verdict = Verdict::Unknown { why: UNPLACED.to_owned() };
        }
    }
    Roster { seats, listed }
}

/// Whether this controller has removed the member of a Machine, whose machine has a record of it: it does not add itself again.
pub(crate) fn has_left(observation: &Observation, machine: &MachineView) -> bool {
    let record = observation.removal_of(machine);
    record.is_some_and(|record| record.state == RemovalState::Removed && !record.never_started)
}

/// Machines in the order in which they were made: `x-9` before `x-10`.
fn number_and_name(name: &str) -> (u64, String) {
    (number(name).unwrap_or(u64::MAX), name.to_owned())
}

/// The number at the end of a Machine's name.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// A member as the status has it.
fn remembered(status: &MemberStatus) -> Option<(u64, Member)> {
    let urls = |url: &String| Some(url.clone()).filter(|url| !url.is_empty()).into_iter().collect();
    let member = Member {
        name: status.name.clone(),
        peer_urls: urls(&status.peer_url),
        client_urls: urls(&status.client_url),
        learner: status.role == MemberRole::Learner,
    };
    Some((u64::from_str_radix(&status.id, 16).ok()?, member))
}

#[cfg(test)]
mod tests;
