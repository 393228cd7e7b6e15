//! The roster: one seat for each Machine and each member, with a verdict on the member. Pure. Both the plan and the
//! status read it, so that they agree on which members are healthy.

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
    /// The Machine. `None`: it is gone, or was never a Machine of this EtcdCluster.
    pub machine: Option<&'a MachineView>,
    /// The member and its ID. `None`: the Machine has not become a member, or is not a member any more.
    pub member: Option<(u64, Member)>,
    /// The latest probe.
    pub probe: Option<&'a Probe>,
    /// The health of the member. If the Machine is not a member, it says how far the Machine has got.
    pub verdict: Verdict,
    /// The member counts as healthy in the status: it is healthy, or it was healthy and has not failed for long enough.
    pub counts: bool,
    /// The Machine may become a member, or is one.
    pub admitted: bool,
    /// The Machine is admitted, within its grace and not a member yet: it may become a member at any moment.
    pub joining: bool,
    /// The member had a Machine, and that is gone.
    pub orphaned: bool,
    /// The member runs on no Machine, and does not belong to a Machine on its way either. A watch may show the address
    /// of such a Machine late.
    pub stray: bool,
    /// The seat does not vote, but may come to vote: its member is a learner, or its Machine has bootstrap data and may
    /// still add itself to etcd.
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

    /// The member's etcd has started: it has published its name. By then its machine has a record of the member.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.member.as_ref().is_some_and(|(_, member)| !member.name.is_empty())
    }

    /// The member answers its checks right now.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        matches!(self.verdict, Verdict::Healthy { .. })
    }

    /// The member is healthy, and the latest check itself found it healthy in its present role. A healthy run lasts for
    /// a while after this controller can no longer ask, and a voter that was a learner at its latest check has not
    /// shown yet that it serves as a voter.
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

    /// The member is known to be healthy or unhealthy, and is not in between.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_healthy() || self.is_unhealthy()
    }

    /// Nothing is known about the member's health.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self.verdict, Verdict::Unknown { .. })
    }

    /// The Machine had no address at the latest probe.
    #[must_use]
    pub fn was_without_address(&self) -> bool {
        self.probe.is_some_and(|probe| probe.outcome == Outcome::NoAddress)
    }

    /// The member is not known to run on a Machine, and is not orphaned: it may belong to any Machine.
    fn is_unplaced(&self) -> bool {
        self.member.is_some() && self.machine.is_none() && !self.orphaned
    }

    /// No Machine carries the member or will carry it: its Machine is gone, or it never had one.
    #[must_use]
    pub fn is_stranger(&self) -> bool {
        self.orphaned || self.stray
    }

    /// The member is named after its Machine, so it does not belong to another Machine.
    pub(crate) fn is_namesake(&self) -> bool {
        self.machine.is_some_and(|machine| self.member.as_ref().is_some_and(|(_, member)| member.name == machine.name))
    }

    /// The Machine is being deleted.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.machine.is_some_and(|machine| machine.deleting)
    }

    /// The member reports that it leads. A member that no Machine carries may lead too, and may hand over leadership,
    /// as long as it answers.
    #[must_use]
    pub fn leads(&self) -> bool {
        let answers = |probe: &&Probe| self.machine.is_none() && probe.outcome.kind() == RunKind::Healthy;
        let probe = self.probe.filter(|probe| self.is_healthy() || answers(probe));
        probe.and_then(Probe::report).is_some_and(|report| report.leader == report.member_id)
    }

    /// The name for people: that of the member, otherwise that of the Machine, otherwise the ID.
    #[must_use]
    pub fn name(&self) -> String {
        let member = self.member.as_ref().map(|(_, member)| member.name.clone()).filter(|name| !name.is_empty());
        let machine = || self.machine.map(|machine| machine.name.clone());
        member.or_else(machine).unwrap_or_else(|| self.id().map(hex).unwrap_or_default())
    }

    /// Why the member is not healthy. Empty if it is.
    #[must_use]
    pub fn why(&self) -> &str {
        match &self.verdict {
            Verdict::Healthy { .. } => "",
            Verdict::Failing { why, .. } | Verdict::Unhealthy { why, .. } | Verdict::Unknown { why } => why,
        }
    }

    /// The same as `why`, with the time since when, if that is known.
    #[must_use]
    pub fn why_since(&self) -> String {
        let since = match &self.verdict {
            Verdict::Healthy { .. } => None,
            Verdict::Failing { since, .. } | Verdict::Unhealthy { since, .. } => Some(*since),
            Verdict::Unknown { .. } => self.unknown_since(),
        };
        since.map_or_else(|| self.why().to_owned(), |since| format!("{} (since {since:.0})", self.why()))
    }

    /// Since when nothing is known about the member, by its checks. `None` for a member that is starting: its run
    /// begins again when it is known which member to expect.
    fn unknown_since(&self) -> Option<Timestamp> {
        let probe = self.probe.filter(|probe| probe.run.kind != RunKind::Healthy && probe.expected == self.id())?;
        let starts = [NEW, UNPLACED].iter().any(|why| self.why().starts_with(why));
        (!starts).then_some(probe.run.since)
    }

    /// The same as `why_since`, after the member's name.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}: {}", self.name(), self.why_since())
    }

    /// Why the latest check of the member does not show that it is well, even while the member counts as healthy: see
    /// [`Seat::is_well`]. With the time, if that is known.
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
    /// Seats with a Machine, by the number in its name, and then seats of members without one.
    pub seats: Vec<Seat<'a>>,
    listed: bool,
}

impl<'a> Roster<'a> {
    /// Whether the members come from etcd's member list, and not from the status.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Seats of voters.
    pub fn voters(&self) -> impl Iterator<Item = &Seat<'a>> {
        self.seats.iter().filter(|seat| seat.is_voter())
    }

    /// Since when no voter answers its checks. `None`: a voter answers, or has not been probed.
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

    /// The member that answers at the address of a seat's Machine, if it may belong to that Machine. A member that is
    /// named after its own Machine does not: the address has passed to another machine.
    #[must_use]
    pub fn answering_at(&self, seat: &Seat<'_>) -> Option<&Seat<'a>> {
        let report = seat.probe.and_then(Probe::report)?;
        self.by_member(report.member_id).filter(|other| !other.is_namesake())
    }

    /// The first member that is not known to run on a Machine, and that never had one: it may belong to any Machine.
    #[must_use]
    pub fn unseated(&self) -> Option<&Seat<'a>> {
        self.seats.iter().find(|seat| seat.is_unplaced())
    }

    /// Members that no Machine carries or will carry.
    #[must_use]
    pub fn strangers(&self) -> Vec<&Seat<'a>> {
        self.seats.iter().filter(|seat| seat.is_stranger()).collect()
    }
}

#[cfg(test)]
impl<'a> Roster<'a> {
    /// A roster of made-up seats, with members as if from etcd's member list.
    pub(crate) fn listed(seats: Vec<Seat<'a>>) -> Self {
        Self { seats, listed: true }
    }
}

/// Makes the roster.
#[must_use]
pub fn roster(observation: &Observation) -> Roster<'_> {
    let remembered = || observation.etcd.status.iter().flat_map(|status| &status.members).filter_map(remembered);
    let (mut members, listed): (Vec<(u64, Member)>, bool) = match observation.members() {
        Some(members) => (members.iter().map(|(id, member)| (*id, member.clone())).collect(), true),
        None => (remembered().collect(), false),
    };
    // Members that are known to belong to a Machine come before members that only have its address, and members that
    // answer come before dead ones. The same holds for two members that are named after one Machine, because that
    // Machine was made again under its old name: the one that answers there comes first.
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
    // Booting Machines whose members may be listed before a watch shows the Machines' addresses.
    let expected = seats.iter().filter(booting).count();
    // A member that is unhealthy has failed for longer than any of these Machines has been booting, so it does not
    // belong to one of them.
    let may_be_theirs = |seat: &&Seat<'_>| seat.is_unplaced() && !seat.is_unhealthy();
    let is_too_many = seats.iter().filter(may_be_theirs).count() > expected;
    for seat in seats.iter_mut().filter(|seat| seat.is_unplaced()) {
        seat.stray = is_too_many || seat.is_unhealthy();
        // A reason that names the member's Machine says more, and stays.
        if !seat.stray && seat.why().starts_with(NO_MACHINE) {
            seat.verdict = Verdict::Unknown { why: UNPLACED.to_owned() };
        }
    }
    Roster { seats, listed }
}

/// Whether this controller has removed the member of a Machine, and the machine has a record of that member. Such a
/// machine does not add itself again.
pub(crate) fn has_left(observation: &Observation, machine: &MachineView) -> bool {
    let record = observation.removal_of(machine);
    record.is_some_and(|record| record.state == RemovalState::Removed && !record.never_started)
}

/// The sort key that puts Machines in the order in which they were made: `x-9` before `x-10`.
fn number_and_name(name: &str) -> (u64, String) {
    (number(name).unwrap_or(u64::MAX), name.to_owned())
}

/// The number at the end of a Machine's name.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// A member as the status has it. `None`: its ID cannot be read.
pub(crate) fn remembered(status: &MemberStatus) -> Option<(u64, Member)> {
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
