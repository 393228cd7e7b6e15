//! What to do next, decided from what is there. Pure: no clock, no I/O, so that every way of being interrupted is a row
//! in a test. Nothing is remembered between steps but what `member.json` says: after a crash at any point, the next run
//! sees the same things and goes on.

use crate::endpoint::same_url;
use crate::etcd::{Member, Membership};
use crate::init_system::UnitState;
use crate::member::MemberRecord;

/// What is found on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Whether etcd has data here: it was a member once.
    pub has_data: bool,
    /// Whether something keeps etcd running.
    pub unit: UnitState,
    /// What the machine remembers.
    pub record: Option<MemberRecord>,
}

/// Next step of `init`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitStep {
    /// Write the files of a new cluster and start it.
    StartNew,
    /// Start the member that this machine already is.
    StartAgain,
    /// Wait until it is healthy; then done.
    AwaitHealth,
    /// Nothing safe can be done.
    Refuse(String),
}

/// Decides the next step of `init`.
pub fn init(local: &Local) -> InitStep {
    match (local.has_data, local.unit, &local.record) {
        (_, UnitState::Up, _) => InitStep::AwaitHealth,
        (true, UnitState::Down, _) => InitStep::StartAgain,
        (false, UnitState::Down, None) => InitStep::StartNew,
        (false, UnitState::Down, Some(record)) => InitStep::Refuse(format!(
            "this machine was member {:x} of cluster {:x}, and its data is gone; init would start another, empty \
             cluster under the same address. Bring the data back, or remove member.json if the cluster is given up",
            record.member_id, record.cluster_id
        )),
    }
}

/// Everything that decides the next step of `join`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The peer URL that this machine announces.
    pub own_url: String,
    /// What is found on this machine.
    pub local: Local,
    /// What the cluster says, linearizably.
    pub membership: Membership,
    /// Whether this version of etcd joins as a learner.
    pub as_learner: bool,
}

/// Next step of `join`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinStep {
    /// Ask the cluster to take this machine.
    Add {
        /// As a learner, else as a voter.
        learner: bool,
    },
    /// This machine's learner ran before and its data is gone: take it out, so that it can be added anew.
    RemoveOwnLearner(u64),
    /// Start etcd as this member.
    Start(u64),
    /// Wait until it has made itself known.
    AwaitStart(u64),
    /// Ask the cluster to make it a voter.
    Promote(u64),
    /// It is a voter; done as soon as it is healthy.
    AwaitHealth(u64),
    /// Nothing safe can be done.
    Refuse(String),
}

/// Decides the next step of `join`.
pub fn join(seen: &Observation) -> JoinStep {
    let local = &seen.local;
    let cluster = seen.membership.cluster_id;
    if let Some(record) = local.record.as_ref().filter(|record| local.has_data && record.cluster_id != cluster) {
        return JoinStep::Refuse(format!(
            "this machine is member {:x} of cluster {:x}, but the endpoints belong to cluster {cluster:x}; give \
             endpoints of its own cluster, or remove its data and member.json to join the other one",
            record.member_id, record.cluster_id
        ));
    }
    let own = seen.membership.members.iter().find(|m| m.peer_urls.iter().any(|url| same_url(url, &seen.own_url)));
    match own {
        Some(own) if local.has_data => with_data(own, local.unit),
        Some(own) => without_data(own, local.unit),
        None if local.has_data => JoinStep::Refuse(not_listed(seen)),
        None => JoinStep::Add { learner: seen.as_learner },
    }
}

fn with_data(own: &Member, unit: UnitState) -> JoinStep {
    match (unit, own.has_started(), own.learner) {
        (UnitState::Down, _, _) => JoinStep::Start(own.id),
        (UnitState::Up, false, _) => JoinStep::AwaitStart(own.id),
        (UnitState::Up, true, true) => JoinStep::Promote(own.id),
        (UnitState::Up, true, false) => JoinStep::AwaitHealth(own.id),
    }
}

fn without_data(own: &Member, unit: UnitState) -> JoinStep {
    match (unit, own.learner) {
        // etcd is about to make its data.
        (UnitState::Up, _) => JoinStep::AwaitStart(own.id),
        // The leader counts on what it had acknowledged, so it must not start as this member again.
        (UnitState::Down, true) if own.has_started() => JoinStep::RemoveOwnLearner(own.id),
        (UnitState::Down, true) => JoinStep::Start(own.id),
        (UnitState::Down, false) if own.has_started() => JoinStep::Refuse(format!(
            "the cluster has this machine as its voter {:x} ({}), but the data of that member is gone; it must be \
             removed from the cluster, while the others are healthy, before this machine can join anew",
            own.id, own.name
        )),
        (UnitState::Down, false) => JoinStep::Start(own.id),
    }
}

fn not_listed(seen: &Observation) -> String {
    let cluster = seen.membership.cluster_id;
    let recorded = seen.local.record.as_ref().map(|record| record.member_id);
    match seen.membership.members.iter().find(|member| Some(member.id) == recorded) {
        Some(moved) => format!(
            "this machine is member {:x} of cluster {cluster:x} under {}, but its address gives {}; give its old \
             address with --bind-address, or change the member's peer URL with `etcdctl member update`",
            moved.id,
            moved.peer_urls.join(","),
            seen.own_url
        ),
        None => format!(
            "this machine has etcd data, but cluster {cluster:x} has no member with the peer URL {}: the member was \
             removed, or belongs to another cluster. Remove the data directory to join as a new member",
            seen.own_url
        ),
    }
}

#[cfg(test)]
mod tests;
