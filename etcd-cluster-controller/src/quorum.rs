//! What may be taken away from an etcd cluster. Only this module makes the tokens that are required to remove a member
//! and to let its Machine go. So no other code can do this in an unsafe order.

use crate::observation::{Membership, hex};
use crate::roster::{Roster, Seat};
use api::etcd_cluster::{EtcdClusterSpec, EtcdClusterStatus, RemovalState, RemovedMember};
use controller_support::external::MachineView;
use std::collections::BTreeSet;

/// How many more failures the voters survive: the number of healthy voters minus the quorum. Negative: the quorum is
/// lost.
#[must_use]
pub fn survives(voters: usize, healthy: usize) -> i64 {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    number(healthy) - number(voters / 2 + 1)
}

/// Permission to remove one member, made from one member list.
///
/// Invariant: when the permission was made, the cluster would have survived at least as many failures without the
/// member as with it, or as many as a healthy cluster of the wanted size does. With `maxSurge: 0`, it was enough that
/// at least as many voters as wanted, less one, would have been left, each of them well. Not `Clone`: one permission,
/// one removal.
#[derive(Debug, PartialEq, Eq)]
pub struct MayRemove {
    member_id: u64,
    /// Each member, and whether it is a learner: a promotion changes what a removal does.
    list: BTreeSet<(u64, bool)>,
}

impl MayRemove {
    /// The member that may be removed.
    #[must_use]
    pub fn member_id(&self) -> u64 {
        self.member_id
    }

    /// Whether a member list is the one that the permission was made from.
    #[must_use]
    pub fn was_made_from(&self, list: &BTreeSet<(u64, bool)>) -> bool {
        self.list == *list
    }
}

/// Why a member may not be removed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The member list is not known.
    ListUnknown,
    /// It is not in the member list.
    NotListed,
    /// It is the only voter: the data would go with it.
    OnlyVoter,
    /// The cluster would survive too few failures afterwards.
    TooFewWouldBeLeft {
        /// How many failures the cluster survives now.
        now: i64,
        /// How many failures the cluster would survive without the member.
        after: i64,
        /// How many healthy voters would be left, and how many voters in all.
        left: (usize, usize),
    },
    /// All other voters that are well are let go, and take their data with them.
    NobodyStays,
    /// The quorum would depend on machines that are let go, and that may vote in their last moments.
    HangsOnReleased,
}

/// Whether a member may be removed. Afterwards the cluster has to survive at least min(what it survives now, f)
/// failures, where f is what a healthy cluster of `replicas` survives. A voter that is not known to be healthy counts
/// as unhealthy, with one exception: unless it is known to be unhealthy, the member itself may be one that the quorum
/// depends on, so its vote counts as lost by the removal.
///
/// The quorum also has to stay, however many released machines vote in their last moments. If it would not stay with
/// the member either, the removal must not bring the quorum nearer to being lost. Whatever happens to the quorum, a
/// voter that may have the data does not go before the released ones: a voter that is well and not released has to be
/// left.
///
/// With `maxSurge: 0`, there is no room for a replacement before the member is gone. So a member may leave if all the
/// others are well, and are at most one fewer than wanted. Then a quorum is left, and no second member leaves before
/// the replacement votes.
///
/// # Errors
/// Why not.
pub fn may_remove(roster: &Roster<'_>, member_id: u64, spec: &EtcdClusterSpec) -> Result<MayRemove, Refusal> {
    if !roster.is_listed() {
        return Err(Refusal::ListUnknown);
    }
    let Some(target) = roster.by_member(member_id) else { return Err(Refusal::NotListed) };
    let list = roster.members().map(|(id, seat)| (id, !seat.is_voter())).collect();
    let voters = roster.voters().count();
    let healthy = roster.voters().filter(|seat| seat.is_well()).count();
    let votes = target.is_voter();
    let doubtful = votes && !target.is_well() && !target.is_unhealthy();
    let now = survives(voters, healthy + usize::from(doubtful));
    if votes && voters == 1 {
        return Err(Refusal::OnlyVoter);
    }
    let left_voters = voters - usize::from(votes);
    let left_healthy = healthy - usize::from(votes && target.is_well());
    let after = survives(left_voters, left_healthy);
    let wanted = usize::try_from(spec.replicas).unwrap_or(0);
    let is_as_safe = after >= now.min(survives(wanted, wanted));
    let goes_first = spec.removes_first() && left_healthy == left_voters && left_voters + 1 >= wanted;
    if after < 0 || !(is_as_safe || goes_first) {
        return Err(Refusal::TooFewWouldBeLeft { now, after, left: (left_healthy, left_voters) });
    }
    let is_other = |seat: &Seat<'_>| seat.id() != Some(member_id);
    let mut others = roster.voters().filter(|seat| is_other(seat));
    if votes && !target.is_unhealthy() && !others.any(|seat| seat.is_well() && !seat.released) {
        return Err(Refusal::NobodyStays);
    }
    let gives = i64::from(doubtful && !target.released);
    let endangers = |come| {
        let now = survives_coming(roster, |_| true, come) + gives;
        survives_coming(roster, is_other, come) < now.min(0)
    };
    if (0..=coming(roster, is_other)).any(endangers) {
        return Err(Refusal::HangsOnReleased);
    }
    Ok(MayRemove { member_id, list })
}

/// How many of the released machines may still vote in their last moments, among the seats that `counts` accepts.
fn coming(roster: &Roster<'_>, counts: impl Fn(&Seat<'_>) -> bool) -> usize {
    roster.seats.iter().filter(|seat| counts(seat) && seat.released && seat.may_vote).count()
}

/// How many more failures the voters survive when `come` of these machines have become voters and all released machines
/// are destroyed.
fn survives_coming(roster: &Roster<'_>, counts: impl Fn(&Seat<'_>) -> bool, come: usize) -> i64 {
    let voters = || roster.voters().filter(|seat| counts(seat));
    survives(voters().count() + come, voters().filter(|seat| !seat.released && seat.is_well()).count())
}

/// Proof that a Machine may go. Not `Clone`.
#[derive(Debug, PartialEq, Eq)]
pub enum MayGo {
    /// Its member has left etcd.
    MemberGone(MemberGone),
    /// It has never been a member, and etcd survives if it becomes one in its last moments.
    NeverMember(NeverMember),
}

/// Proof that the member of a Machine has left etcd.
#[derive(Debug, PartialEq, Eq)]
pub struct MemberGone {
    machine_uid: String,
}

/// Proof that a Machine is not and has never been a member, and that etcd survives if it becomes one in its last
/// moments.
#[derive(Debug, PartialEq, Eq)]
pub struct NeverMember {
    machine_uid: String,
}

/// Proof that the EtcdCluster is being deleted.
#[derive(Debug, PartialEq, Eq)]
pub struct ClusterGoing(());

impl MayGo {
    /// Whether the proof is about the Machine of this UID.
    #[must_use]
    pub fn is_about(&self, uid: &str) -> bool {
        let (Self::MemberGone(MemberGone { machine_uid }) | Self::NeverMember(NeverMember { machine_uid })) = self;
        machine_uid == uid
    }
}

/// Proof that the member of a Machine has left etcd, whoever removed it, and that a linearizable list has no member of
/// that Machine. A machine may add its member once more if the member had not started, or if the machine has removed
/// its own learner because it had lost its data. Then its Machine goes under the conditions for one that has never been
/// a member.
#[must_use]
pub fn member_gone(roster: &Roster<'_>, records: &[RemovedMember], machine: &MachineView) -> Option<MayGo> {
    let record = records.iter().find(|record| record.machine_uid == machine.uid)?;
    let seat = roster.by_machine(&machine.name);
    let is_past_joining = || seat.is_none_or(|seat| !seat.joining);
    let stays_out = match record.state {
        RemovalState::Removing => false,
        RemovalState::Removed if !record.never_started => true,
        RemovalState::Removed | RemovalState::Missing => {
            is_past_joining() && seat.is_none_or(|seat| goes_safely(roster, seat, machine))
        }
    };
    let gone = roster.is_listed()
        && stays_out
        && roster.members().all(|(id, _)| hex(id) != record.id)
        && seat.is_none_or(|seat| seat.member.is_none());
    gone.then(|| MayGo::MemberGone(MemberGone { machine_uid: machine.uid.clone() }))
}

/// Proof that a Machine has never been a member. The Machine was never admitted; or it has not joined within its grace,
/// and neither the member list nor the status knows of its member, or of a member that may be its own, and no member of
/// the list answers at its address, except one that belongs to another Machine by its name.
///
/// Nothing keeps its machine from joining later, voting, and taking the quorum with it when it is destroyed. So the
/// Machine goes only if etcd survives that. Before etcd has begun, there is no member to lose.
#[must_use]
pub fn never_member(
    roster: &Roster<'_>,
    seat: &Seat<'_>,
    status: Option<&EtcdClusterStatus>,
    begun: bool,
) -> Option<MayGo> {
    let machine = seat.machine?;
    let recorded = status.is_some_and(|status| {
        status.members.iter().any(|member| member.machine == machine.name)
            || status.removed_members.iter().any(|record| record.machine_uid == machine.uid)
    });
    let has_not_joined =
        || roster.is_listed() && !seat.joining && roster.unseated().is_none() && roster.answering_at(seat).is_none();
    let certain = !seat.admitted || !begun || (has_not_joined() && goes_safely(roster, seat, machine));
    (seat.member.is_none() && !recorded && certain)
        .then(|| MayGo::NeverMember(NeverMember { machine_uid: machine.uid.clone() }))
}

/// Whether the quorum stays if the machine of a seat without a member votes in its last moments, as far as it can, and
/// is then destroyed.
fn goes_safely(roster: &Roster<'_>, seat: &Seat<'_>, machine: &MachineView) -> bool {
    let is_other = |seat: &Seat<'_>| seat.machine.is_none_or(|other| other.name != machine.name);
    !seat.may_vote || survives_coming(roster, is_other, coming(roster, is_other) + 1) >= 0
}

/// Proof for the rule that has found that the EtcdCluster is being deleted.
#[must_use]
pub fn cluster_going(etcd_deleting: bool) -> Option<ClusterGoing> {
    etcd_deleting.then_some(ClusterGoing(()))
}

/// Whether the member is missing from a list that was read.
#[must_use]
pub fn is_gone(membership: &Membership, member_id: &str) -> bool {
    matches!(membership, Membership::Known { members, .. } if members.keys().all(|id| hex(*id) != member_id))
}

#[cfg(test)]
mod exhaustive;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, id};
    use crate::observation::Outcome;
    use crate::observation::probe::OurFault;
    use crate::roster::roster;
    use proptest::prelude::*;

    #[test]
    fn survivable_failures() {
        let table =
            [(1, 1, 0), (2, 2, 0), (3, 3, 1), (3, 2, 0), (3, 1, -1), (4, 4, 1), (5, 5, 2), (6, 6, 2), (7, 7, 3)];
        for (voters, healthy, expected) in table {
            assert_eq!(survives(voters, healthy), expected, "{healthy} of {voters}");
        }
    }

    fn refusal(story: &Story, index: usize) -> Option<Refusal> {
        may_remove(&roster(&story.observation), id(index), &story.observation.etcd.spec).err()
    }

    #[test]
    fn a_healthy_voter_goes_only_after_its_replacement_votes() {
        let mut story = Story::with_voters(3, 3);
        assert_eq!(refusal(&story, 0), Some(Refusal::TooFewWouldBeLeft { now: 1, after: 0, left: (2, 2) }));
        story.machine(3);
        story.voter(3);
        assert_eq!(refusal(&story, 0), None);
    }

    #[test]
    fn an_unhealthy_voter_may_go_and_the_other_two_may_not() {
        let mut story = Story::with_voters(3, 3);
        story.failing(1, "down");
        assert!(refusal(&story, 1).is_some(), "it may be one that the cluster lives on");
        story.pass(60);
        assert_eq!(refusal(&story, 1), None, "two of two survive as much as two of three");
        assert!(refusal(&story, 0).is_some());
    }

    #[test]
    fn a_voter_that_could_not_be_asked_just_now_is_not_known_to_be_well() {
        let mut story = Story::with_voters(3, 4);
        let fault = || Outcome::OurFault(OurFault::FileDescriptors);
        story.probe(2, fault());
        assert_eq!(refusal(&story, 0), None, "three are left, and two of them are well");
        story.probe(3, fault());
        assert!(refusal(&story, 0).is_some(), "a healthy run goes on for a while where this controller cannot ask");
        let mut story = Story::with_voters(3, 3);
        story.probe(1, fault());
        assert!(refusal(&story, 1).is_some());
    }

    #[test]
    fn a_permission_is_off_when_a_learner_has_been_promoted() {
        let mut story = Story::with_voters(3, 3);
        story.machine(3);
        story.member(3, true);
        let permission = may_remove(&roster(&story.observation), id(3), &story.observation.etcd.spec).unwrap();
        let list = |promoted: bool| (0..4).map(|index| (id(index), index == 3 && !promoted)).collect();
        assert!(permission.was_made_from(&list(false)));
        assert!(!permission.was_made_from(&list(true)));
    }

    #[test]
    fn without_room_one_goes_before_its_replacement_where_all_others_are_well() {
        let mut story = Story::with_voters(5, 5);
        story.surges(0);
        assert_eq!(refusal(&story, 0), None);
        story.failing(1, "for a moment");
        assert!(refusal(&story, 0).is_some(), "etcd would survive no failure more");
        let mut story = Story::with_voters(7, 5);
        story.surges(0);
        assert!(refusal(&story, 0).is_some(), "one has left already");
        let mut story = Story::with_voters(1, 1);
        story.surges(0);
        assert_eq!(refusal(&story, 0), Some(Refusal::OnlyVoter));
    }

    #[test]
    fn the_only_voter_never_goes() {
        let mut story = Story::with_voters(1, 1);
        assert_eq!(refusal(&story, 0), Some(Refusal::OnlyVoter));
        story.failing(0, "down");
        assert!(refusal(&story, 0).is_some());
    }

    #[test]
    fn a_noted_release_counts_also_where_a_watch_does_not_show_the_deletion_yet() {
        let mut story = Story::with_voters(1, 2);
        story.machine(2);
        assert_eq!(refusal(&story, 1), None);
        story.etcd().status.get_or_insert_default().released_machine_uids = vec!["uid-2".to_owned()];
        assert_eq!(refusal(&story, 1), Some(Refusal::HangsOnReleased));
    }

    #[test]
    fn without_a_list_nothing_is_removed() {
        let mut story = Story::with_voters(3, 3);
        assert_eq!(refusal(&story, 9), Some(Refusal::NotListed));
        story.unlisted();
        assert_eq!(refusal(&story, 0), Some(Refusal::ListUnknown));
    }

    proptest! {
        /// Rule 1, for every cluster of up to eleven members in any state.
        #[test]
        fn no_permission_takes_away_what_is_needed(
            replicas in prop::sample::select(vec![1, 3, 5, 7]),
            // Of each member: whether it is a learner; and whether it is healthy, unhealthy, failing for a moment, not
            // known at all, or not asked just now.
            members in prop::collection::vec((any::<bool>(), 0..5_u8), 1..12),
            target in 0..11_usize,
            // Whether a member leaves before its replacement joins.
            removes_first in any::<bool>(),
            // Released machines that may join in their last moments.
            late in 0..3_usize,
        ) {
            let mut story = Story::with_voters(replicas, 0);
            if removes_first {
                story.surges(0);
            }
            for (index, (learner, health)) in members.iter().enumerate() {
                story.machine(index);
                story.member(index, *learner);
                match health {
                    1 => story.failing(index, "down"),
                    _ => story.healthy(index),
                }
            }
            story.pass(60);
            for (index, (_, health)) in members.iter().enumerate() {
                match health {
                    2 => story.failing(index, "for a moment"),
                    3 => story.unknown(index),
                    4 => story.probe(index, Outcome::OurFault(OurFault::FileDescriptors)),
                    _ => {}
                }
            }
            for index in 20..20 + late {
                story.machine(index);
                story.delete_at_once(index);
            }
            let seats = roster(&story.observation);
            if may_remove(&seats, id(target), &story.observation.etcd.spec).is_ok() {
                let voters: Vec<(usize, bool)> = members.iter().enumerate()
                    .filter(|(_, (learner, _))| !learner).map(|(index, (_, health))| (index, *health == 0)).collect();
                let healthy = |skip: Option<usize>| voters.iter().filter(|(i, well)| Some(*i) != skip && *well).count();
                let left = voters.iter().filter(|(index, _)| *index != target).count();
                let doubtful = usize::from(members.get(target).is_some_and(|(learner, health)| !learner && *health > 1));
                let now = survives(voters.len(), healthy(None) + doubtful);
                let after = survives(left, healthy(Some(target)));
                let f = i64::from((replicas - 1) / 2);
                let goes_first = removes_first && healthy(Some(target)) == left && left + 1 >= usize::try_from(replicas).unwrap();
                prop_assert!((goes_first || after >= now.min(f)) && after >= 0, "{now} -> {after}, f {f}");
                for come in 0..=late {
                    let (now, after) = (
                        survives(voters.len() + come, healthy(None) + doubtful),
                        survives(left + come, healthy(Some(target))),
                    );
                    prop_assert!(after >= now.min(0), "with {come} of {late}: {now} -> {after}");
                }
            }
        }
    }
}
