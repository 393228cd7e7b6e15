//! The members of one simulated etcd cluster, and what they agree on.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Instant;
use tokio::sync::watch;

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It answers.
    Answers,
    /// It accepts connections, and does not answer.
    Frozen,
    /// Its process is gone.
    Ended,
}

/// One entry of the member list.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
    pub(super) learner: bool,
    /// The member's server follows this, and ends with the entry.
    state: watch::Sender<State>,
}

/// Why etcd refuses a request: a gRPC code, and the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) u32, pub(super) &'static str);

const NOT_FOUND: Refusal = Refusal(5, "etcdserver: member not found");
const NOT_LEADER: Refusal = Refusal(9, "etcdserver: not leader");
const BAD_TRANSFEREE: Refusal = Refusal(9, "etcdserver: bad leader transferee");
const TOO_FEW_STARTED: Refusal = Refusal(2, "etcdserver: re-configuration failed due to not enough started members");

/// One etcd cluster.
pub(super) struct Ensemble {
    cluster_id: u64,
    members: BTreeMap<u64, Member>,
    leader: Option<u64>,
    term: u64,
    changes: u64,
    begun: Instant,
}

impl Ensemble {
    /// A new etcd cluster, without a member.
    pub(super) fn new() -> Self {
        let (members, begun) = (BTreeMap::new(), Instant::now());
        Self { cluster_id: rand::random(), members, leader: None, term: 1, changes: 3, begun }
    }

    /// Adds a member that has started. Returns its ID, and the state that its server follows.
    pub(super) fn add(&mut self, name: &str, address: Ipv4Addr, learner: bool) -> (u64, watch::Receiver<State>) {
        let (state, follows) = watch::channel(State::Answers);
        let id = rand::random();
        self.members.insert(id, Member { name: name.to_owned(), address, learner, state });
        self.change();
        (id, follows)
    }

    /// Makes a learner a voter, if it exists.
    pub(super) fn promote(&mut self, id: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.learner = false;
            self.change();
        }
    }

    /// Removes a member. Its process then ends. As etcd does, refuses if too few running voters would be left.
    pub(super) fn remove(&mut self, id: u64) -> Result<(), Refusal> {
        if !self.members.contains_key(&id) {
            return Err(NOT_FOUND);
        }
        let left = || self.members.iter().filter(|(left, member)| **left != id && !member.learner);
        let running = left().filter(|(_, member)| member.answers()).count();
        if !self.members[&id].learner && running <= left().count() / 2 {
            return Err(TOO_FEW_STARTED);
        }
        self.members.remove(&id);
        self.change();
        Ok(())
    }

    /// Makes another member the leader, if `asked` is the leader now.
    pub(super) fn move_leader(&mut self, asked: u64, to: u64) -> Result<(), Refusal> {
        if self.leader != Some(asked) {
            return Err(NOT_LEADER);
        }
        if !self.members.get(&to).is_some_and(|member| !member.learner && member.answers()) {
            return Err(BAD_TRANSFEREE);
        }
        self.leader = Some(to);
        self.term += 1;
        Ok(())
    }

    /// Changes the state of a member.
    pub(super) fn set(&mut self, id: u64, state: State) {
        let Some(member) = self.members.get(&id) else { return };
        if member.state.send_replace(state) != state {
            self.elect();
        }
    }

    pub(super) fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// The member list.
    pub(super) fn members(&self) -> &BTreeMap<u64, Member> {
        &self.members
    }

    /// The leader, as long as a quorum answers.
    pub(super) fn leader(&self) -> Option<u64> {
        self.leader
    }

    pub(super) fn term(&self) -> u64 {
        self.term
    }

    /// Index of the last entry of the log. It grows as if a client wrote once a second.
    pub(super) fn index(&self) -> u64 {
        self.changes + self.term + self.begun.elapsed().as_secs()
    }

    /// The other members, and whether a member hears them.
    pub(super) fn heard_by(&self, id: u64) -> impl Iterator<Item = (u64, bool)> {
        self.members.iter().filter(move |(other, _)| **other != id).map(|(other, member)| (*other, member.answers()))
    }

    fn change(&mut self) {
        self.changes += 1;
        self.elect();
    }

    /// The leader stays the leader if it answers. Otherwise, a voter that answers becomes the leader. Both require that
    /// a quorum of the voters answers.
    fn elect(&mut self) {
        let voters = || self.members.iter().filter(|(_, member)| !member.learner);
        let mut able = voters().filter(|(_, member)| member.answers()).map(|(id, _)| *id).peekable();
        let quorum = voters().count() / 2 + 1;
        let leader = match self.leader {
            _ if voters().filter(|(_, member)| member.answers()).count() < quorum => None,
            Some(present) if voters().any(|(id, member)| *id == present && member.answers()) => Some(present),
            _ => able.next(),
        };
        if leader.is_some() && leader != self.leader {
            self.term += 1;
        }
        self.leader = leader;
    }
}

impl Member {
    fn answers(&self) -> bool {
        *self.state.borrow() == State::Answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> (Ensemble, [u64; 3]) {
        let mut ensemble = Ensemble::new();
        let mut add = |number| {
            let (id, _) = ensemble.add(&format!("m{number}"), Ipv4Addr::new(10, 78, 0, number), number > 0);
            ensemble.promote(id);
            id
        };
        let ids = [add(0), add(1), add(2)];
        (ensemble, ids)
    }

    #[test]
    fn a_leader_leads_until_it_is_gone_and_without_a_quorum_there_is_none() {
        let (mut ensemble, ids) = three();
        assert_eq!(ensemble.leader(), Some(ids[0]));
        let term = ensemble.term();
        ensemble.set(ids[0], State::Frozen);
        let second = ensemble.leader().unwrap();
        assert!(second != ids[0] && ensemble.term() > term);
        assert!(ensemble.heard_by(second).any(|heard| heard == (ids[0], false)));
        ensemble.set(second, State::Ended);
        assert_eq!(ensemble.leader(), None);
        ensemble.set(ids[0], State::Answers);
        assert!(ensemble.leader().is_some());
    }

    #[test]
    fn a_removal_ends_the_member_and_never_the_quorum() {
        let (mut ensemble, ids) = three();
        assert_eq!(ensemble.remove(1), Err(NOT_FOUND));
        ensemble.set(ids[1], State::Ended);
        assert_eq!(ensemble.remove(ids[2]), Err(TOO_FEW_STARTED));
        assert_eq!(ensemble.remove(ids[1]), Ok(()));
        let follows = ensemble.members()[&ids[2]].state.subscribe();
        assert_eq!(ensemble.remove(ids[2]), Ok(()));
        assert!(follows.has_changed().is_err(), "its server is told");
    }

    #[test]
    fn only_the_leader_hands_over_and_only_to_a_voter() {
        let (mut ensemble, ids) = three();
        assert_eq!(ensemble.move_leader(ids[1], ids[2]), Err(NOT_LEADER));
        let (learner, _) = ensemble.add("m3", Ipv4Addr::new(10, 78, 0, 3), true);
        assert_eq!(ensemble.move_leader(ids[0], learner), Err(BAD_TRANSFEREE));
        assert_eq!(ensemble.move_leader(ids[0], ids[1]), Ok(()));
        assert_eq!(ensemble.leader(), Some(ids[1]));
    }
}
