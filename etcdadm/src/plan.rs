//! Decides the next step from an observation. It is pure, without a clock or I/O, so that each possible interruption is
//! a row in a test. Between steps, only `member.json` and the epochs remember anything: after a crash at any point, the
//! next run observes the same state and continues.

use etcd_values::INIT_NOT_AFTER;
use time::OffsetDateTime;

use crate::endpoint::same_url;
use crate::etcd::{Member, Membership};
use crate::guard::Data;
use crate::init_system::UnitState;
use crate::member::MemberRecord;
use crate::wal::Owner;

/// The state of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// What the data directory holds, compared with what is remembered of it.
    pub data: Data,
    /// The member that the write-ahead log belongs to, if there is a log.
    pub owner: Option<Owner>,
    /// Whether the init system keeps etcd running.
    pub unit: UnitState,
    /// The membership that the machine remembers.
    pub record: Option<MemberRecord>,
}

impl Local {
    /// Why the existing data must not be used, whatever the cluster says.
    fn unusable(&self) -> Option<String> {
        if self.data == Data::Outdated {
            return Some(
                "the data of this machine is not what its member had when it last ran: it is an older copy, or \
                 restored. Put the latest data back; or remove the member from the cluster, then the data directory, \
                 /etc/etcd/epoch and member.json, to join as a new member. Only if this data is known to be the latest, \
                 or the whole cluster was restored: remove /etc/etcd/epoch and member.json"
                    .to_owned(),
            );
        }
        let (owner, record) = (self.owner?, self.record.as_ref()?);
        let same = (owner.cluster_id, owner.member_id) == (record.cluster_id, record.member_id);
        (!same).then(|| {
            format!(
                "the data of this machine is that of member {:x} of cluster {:x}, but the machine is recorded as member \
                 {:x} of cluster {:x} in member.json. Put the right data back, or remove member.json if the data is right",
                owner.member_id, owner.cluster_id, record.member_id, record.cluster_id
            )
        })
    }

    /// Whether the machine is a member. A member whose data is gone or not mounted counts too.
    pub fn is_member(&self) -> bool {
        self.owner.is_some() || matches!(self.data, Data::Lost | Data::Forgotten | Data::Outdated)
    }

    /// Why nothing about this member may change: the others know it under another URL than `own_url`.
    pub fn moved(&self, own_url: &str) -> Option<String> {
        let record = self.record.as_ref().filter(|_| self.is_member())?;
        let same = same_url(&record.peer_url, own_url);
        let owner = Owner { cluster_id: record.cluster_id, member_id: record.member_id };
        (!same).then(|| moved(owner, &record.peer_url, own_url))
    }
}

fn moved(owner: Owner, known: &str, own_url: &str) -> String {
    format!(
        "this machine is member {:x} of cluster {:x} under {known}, but its address gives {own_url}; give its old address \
         with --bind-address, or change the member's peer URL with `etcdctl member update` and remove \
         /var/lib/etcdadm/member.json",
        owner.member_id, owner.cluster_id
    )
}

/// Next step of `init`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitStep {
    /// Make sure that etcd is starting as the first member of a new cluster.
    StartNew,
    /// Start the member that this machine already is.
    StartAgain,
    /// Wait until the member is healthy. Then `init` is done.
    AwaitHealth,
    /// No step is safe.
    Refuse(String),
}

/// The deadline for a machine that is not a member to start a new cluster. A machine that was reinstalled remembers
/// nothing, and its bootstrap data, which once made it the first member, still says the same as on the first day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The last moment.
    pub not_after: OffsetDateTime,
    /// When this run began.
    pub now: OffsetDateTime,
}

impl Deadline {
    fn refusal(self) -> Option<String> {
        let Self { not_after, now } = self;
        (now > not_after).then(|| {
            format!(
                "this machine is not a member, and could start a new etcd cluster until {not_after} ({INIT_NOT_AFTER}, \
                 --not-after); its clock says {now}. Either it was reinstalled, or it boots very late, or its clock is \
                 wrong. If the etcd cluster has members already, init would start a second, empty one under the address of \
                 this machine: delete the Machine, and another one joins; without Machines, remove this member with \
                 `etcdctl member remove` and run etcdadm join. If the etcd cluster has never run, delete the Machine too, \
                 and another one initializes it; without Machines, run init with a later --not-after"
            )
        })
    }
}

/// Decides the next step of `init`.
pub fn init(local: &Local, deadline: Option<Deadline>) -> InitStep {
    if let Some(why) = local.unusable() {
        return InitStep::Refuse(why);
    }
    match (local.owner, local.unit, &local.record) {
        (Some(_), UnitState::Up, _) => InitStep::AwaitHealth,
        (Some(_), UnitState::Down, _) => InitStep::StartAgain,
        (None, _, Some(record)) => InitStep::Refuse(format!(
            "this machine was member {:x} of cluster {:x}, and its data is gone; init would start another, empty \
             cluster under the same address. Bring the data back; or, if the cluster is given up, remove /etc/etcd/epoch, \
             /etc/etcd/etcd.env and /var/lib/etcdadm/member.json",
            record.member_id, record.cluster_id
        )),
        (None, _, None) if matches!(local.data, Data::Lost | Data::Forgotten) => InitStep::Refuse(
            "etcd has run on this machine, and its data is gone; init would start another, empty cluster under the same \
             address. Bring the data back; or, if the cluster is given up, remove /etc/etcd/epoch and /etc/etcd/etcd.env"
                .to_owned(),
        ),
        (None, _, None) => deadline.and_then(Deadline::refusal).map_or(InitStep::StartNew, InitStep::Refuse),
    }
}

/// All that the next step of `join` depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The name of this machine's member.
    pub own_name: String,
    /// The peer URL that this machine announces.
    pub own_url: String,
    /// The state of this machine.
    pub local: Local,
    /// The member list, from a linearizable read.
    pub membership: Membership,
}

/// Next step of `join`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinStep {
    /// Ask the cluster to add this machine.
    Add,
    /// Wait until another member, which is listed at this machine's address, has been removed. The text says which
    /// member, and why.
    AwaitRemoval(String),
    /// Remove this machine's learner, which ran before and has lost its data. Then the machine can be added again.
    RemoveOwnLearner(u64),
    /// Make sure that etcd is starting as this member, with the current members of the cluster.
    Start(u64),
    /// Wait until the member has published its name.
    AwaitStart(u64),
    /// Ask the cluster to promote the learner.
    Promote(u64),
    /// Wait until the member, which is a voter, is healthy. Then `join` is done.
    AwaitHealth(u64),
    /// No step is safe.
    Refuse(String),
}

/// Decides the next step of `join`.
pub fn join(observation: &Observation) -> JoinStep {
    let local = &observation.local;
    if let Some(why) = local.unusable() {
        return JoinStep::Refuse(why);
    }
    let members = &observation.membership.members;
    let at_own_url = members.iter().find(|member| is_at(member, &observation.own_url));
    match (local.owner, at_own_url) {
        (Some(owner), _) => with_data(observation, owner),
        (None, Some(listed)) if may_be_own(listed, observation) => without_data(listed, local),
        (None, at_own_url) => match (was_removed(observation), at_own_url) {
            (Some(why), _) => JoinStep::Refuse(why),
            (None, Some(other)) => JoinStep::AwaitRemoval(occupied(other, observation)),
            (None, None) => JoinStep::Add,
        },
    }
}

/// Whether a member that is listed at this machine's address may be the member on this machine. If the address was
/// reused, the listed member belongs to another machine until it is removed: it has another name, and this machine has
/// no record of it. A member that has never started has no name: this machine, or somebody on its behalf, may have
/// added it.
fn may_be_own(listed: &Member, observation: &Observation) -> bool {
    let record = observation.local.record.as_ref();
    let is_recorded = record.is_some_and(|record| record.member_id == listed.id);
    is_recorded || !listed.has_started() || listed.name == observation.own_name
}

fn occupied(other: &Member, observation: &Observation) -> String {
    let Observation { own_name, own_url, .. } = observation;
    format!(
        "the peer URL of this machine, {own_url}, is also that of member {:x} ({}), and this machine is {own_name}. \
         This machine joins when that member, which had the address before, has been removed. If the machine of that \
         member still runs, two machines have one address: give one of them another address",
        other.id, other.name
    )
}

/// Why a machine without data, which the cluster does not list, must not be added: it was a member, and was removed.
fn was_removed(observation: &Observation) -> Option<String> {
    match &observation.local.record {
        // A record of another cluster does not matter any more.
        Some(record) if record.cluster_id == observation.membership.cluster_id => Some(format!(
            "this machine was member {:x} of cluster {:x}, which does not have it any longer: it was removed, and is not \
             added again by itself. To join as a new member, remove the data directory, /etc/etcd/epoch and \
             /var/lib/etcdadm/member.json",
            record.member_id, record.cluster_id
        )),
        Some(record) if record.is_in_doubt() => Some(format!(
            "this machine has lost the data of its learner {:x}, and was about to remove this learner from its \
             cluster. The cluster no longer lists the learner, and has not confirmed to this machine that it has \
             removed it. Somebody else may have removed it to keep it out, so this machine is not added again by \
             itself. To join as a new member, remove the data directory, /etc/etcd/epoch and \
             /var/lib/etcdadm/member.json",
            record.member_id
        )),
        // The cluster of the lost member is unknown. It may be this one, which may have removed the member.
        None if observation.local.data == Data::Lost => Some(format!(
            "this machine has been a member, its data and its /var/lib/etcdadm/member.json are gone, and the cluster does \
             not list a member {} at {}: it may have been removed, and is not added again by itself. To join as a new \
             member, remove the data directory and /etc/etcd/epoch",
            observation.own_name, observation.own_url
        )),
        _ => None,
    }
}

fn is_at(member: &Member, url: &str) -> bool {
    member.peer_urls.iter().any(|own| same_url(own, url))
}

/// The ID in the data identifies a member; its URL alone never does. A member that was removed and added again under
/// the same URL has another ID.
fn with_data(observation: &Observation, owner: Owner) -> JoinStep {
    let cluster = observation.membership.cluster_id;
    if owner.cluster_id != cluster {
        return JoinStep::Refuse(format!(
            "this machine has the data of member {:x} of cluster {:x}, but the endpoints belong to cluster {cluster:x}; \
             give endpoints of its own cluster, or remove the data directory, /etc/etcd/epoch and member.json to join \
             the other one",
            owner.member_id, owner.cluster_id
        ));
    }
    let Some(own) = observation.membership.members.iter().find(|member| member.id == owner.member_id) else {
        return JoinStep::Refuse(format!(
            "this machine has the data of member {:x}, which cluster {cluster:x} does not have any longer: it was \
             removed. To join as a new member, remove the data directory, /etc/etcd/epoch and \
             /var/lib/etcdadm/member.json",
            owner.member_id
        ));
    };
    if !is_at(own, &observation.own_url) {
        return JoinStep::Refuse(moved(owner, &own.peer_urls.join(","), &observation.own_url));
    }
    match (observation.local.unit, own.has_started(), own.learner) {
        (UnitState::Down, _, _) => JoinStep::Start(own.id),
        (UnitState::Up, false, _) => JoinStep::AwaitStart(own.id),
        (UnitState::Up, true, true) => JoinStep::Promote(own.id),
        (UnitState::Up, true, false) => JoinStep::AwaitHealth(own.id),
    }
}

/// The decision ignores whether the unit is up: a unit that cannot start is restarted again and again.
fn without_data(own: &Member, local: &Local) -> JoinStep {
    let record = local.record.as_ref();
    let is_recorded = record.is_some_and(|record| record.member_id == own.id);
    let lost = match local.data {
        // Without a record, the missing data may be this member's.
        Data::Lost => is_recorded || record.is_none(),
        Data::Forgotten => is_recorded,
        _ => false,
    };
    let lost = lost || own.has_started();
    match (lost, own.learner) {
        (false, _) => JoinStep::Start(own.id),
        // The leader counts on what the learner has acknowledged, so the learner must not start again under this ID.
        (true, true) => JoinStep::RemoveOwnLearner(own.id),
        (true, false) => JoinStep::Refuse(format!(
            "the cluster has this machine as its voter {:x} ({}), but the data of that member is gone; it must be \
             removed from the cluster, while the others are healthy, before this machine can join again",
            own.id, own.name
        )),
    }
}

#[cfg(test)]
mod tests;
