//! What was known at a moment, from the record up to that moment.

use super::names::{PRE_TERMINATE_HOOK, client_url};
use super::record::{
    Answer, ApiServer, Cluster, ControlPlane, Disk, Etcd, Event, Fault, Line, Listed, Machine, Member, Status,
    namespace,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long a member must have answered again before a fault with a time limit counts as over.
const RECOVERED: SignedDuration = SignedDuration::from_secs(2);
/// How long a slow answer may take.
const A_MOMENT: SignedDuration = SignedDuration::from_secs(2);

/// Everything that is known. Clones share what they have in common.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Clusters, by name.
    pub clusters: BTreeMap<String, Arc<Cluster>>,
    /// EtcdClusters and their members, by name.
    pub etcds: BTreeMap<String, Arc<EtcdView>>,
    /// Machines, by name.
    pub machines: BTreeMap<String, Arc<Machine>>,
    /// Control planes, by name.
    pub control_planes: BTreeMap<String, Arc<ControlPlane>>,
    /// API servers, by name.
    pub api_servers: BTreeMap<String, Arc<ApiServer>>,
    excuses: BTreeMap<String, Excuse>,
    /// When the observer was last held up. It may have missed any answer until then.
    late: Option<Timestamp>,
}

/// One etcd cluster.
#[derive(Clone, Debug, Default)]
pub struct EtcdView {
    /// The EtcdCluster.
    pub object: Etcd,
    /// The members that were asked, by client URL.
    pub seats: BTreeMap<String, Seat>,
    /// The cluster ID of the first member that answered on a Machine that stays; empty before.
    pub id: String,
    /// The newest member list that any member reported, by ID.
    pub list: Vec<Listed>,
    /// The raft index of that list.
    pub list_at: u64,
    /// When each voter was first seen to vote, by ID.
    pub votes_since: BTreeMap<String, Timestamp>,
}

/// A member that is asked.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Its Machine; empty if none has its address.
    pub machine: String,
    /// Its last answer.
    pub answer: Arc<Answer>,
    /// Since when it answers as a member of its cluster, or gives no sign of life.
    pub since: Timestamp,
    /// How far the log on its disk went when it was last read.
    pub disk: Option<u64>,
}

/// A scenario's permission for a member to be silent.
#[derive(Clone, Debug)]
struct Excuse {
    until: Option<Timestamp>,
    /// It was silent after the fault.
    was_silent: bool,
    /// Since when it has answered again after that.
    back_since: Option<Timestamp>,
    /// The scenario removes it from etcd itself.
    removed_by_hand: bool,
}

impl Excuse {
    /// Updates the excuse after the member was asked once more. Once the member has answered for a while, a fault with
    /// a time limit is over for good.
    fn goes_on(&mut self, now: Timestamp, is_live: bool, since: Timestamp) {
        if let (Some(until), Some(back)) = (self.until, self.back_since)
            && now.duration_since(back) >= RECOVERED
        {
            self.until = Some(until.min(back + RECOVERED));
        }
        self.was_silent |= !is_live;
        self.back_since = (is_live && self.was_silent).then_some(since);
    }
}

impl Seat {
    /// Its status, if it answers.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match &*self.answer {
            Answer::Status(status) => Some(status),
            Answer::Silent(_) => None,
        }
    }
}

impl EtcdView {
    /// Members that vote.
    pub fn voters(&self) -> impl Iterator<Item = &Listed> {
        self.list.iter().filter(|member| !member.learner)
    }

    /// Whether a member votes, by its ID.
    #[must_use]
    pub fn votes(&self, id: &str) -> bool {
        self.voters().any(|voter| voter.id == id)
    }

    /// The seat of a listed member.
    #[must_use]
    pub fn seat(&self, member: &Listed) -> Option<&Seat> {
        member.urls.iter().find_map(|url| self.seats.get(url))
    }

    /// Whether the member on this seat answers as a member of this cluster.
    #[must_use]
    pub fn is_live(&self, seat: &Seat) -> bool {
        seat.status().is_some_and(|status| status.cluster_id == self.id)
    }

    /// Name of a listed member's Machine.
    #[must_use]
    pub fn machine_of(&self, member: &Listed) -> String {
        match self.seat(member) {
            Some(seat) if !seat.machine.is_empty() => seat.machine.clone(),
            _ => format!("{}/{}", namespace(&self.object.name), member.name),
        }
    }
}

/// The Machine of a cluster that has the address in a client URL.
pub(super) fn machine_at(machines: &BTreeMap<String, Arc<Machine>>, etcd: &str, url: &str) -> Option<String> {
    let has = |address: &String| client_url(address) == url;
    let mut ours = machines.values().filter(|machine| machine.etcd == etcd);
    ours.find(|machine| machine.addresses.iter().any(has)).map(|machine| machine.name.clone())
}

impl State {
    /// Applies the next line.
    pub fn apply(&mut self, line: &Line) {
        match &line.event {
            Event::Cluster(cluster) => drop(self.clusters.insert(cluster.name.clone(), Arc::new(cluster.clone()))),
            Event::Machine(machine) => drop(self.machines.insert(machine.name.clone(), Arc::new(machine.clone()))),
            Event::ControlPlane(new) => drop(self.control_planes.insert(new.name.clone(), Arc::new(new.clone()))),
            Event::ApiServer(server) => drop(self.api_servers.insert(server.name.clone(), Arc::new(server.clone()))),
            Event::Etcd(etcd) => self.etcd(etcd),
            Event::Gone { what, name } => self.gone(what, name),
            Event::Member(member) => self.member(line.at, member),
            Event::Disk(disk) => self.disk(line.at, disk),
            Event::Fault(fault) => self.fault(fault),
            Event::Late { .. } => self.late = Some(line.at),
            _ => {}
        }
    }

    fn etcd(&mut self, etcd: &Etcd) {
        let view = Arc::make_mut(self.etcds.entry(etcd.name.clone()).or_default());
        if view.object.uid != etcd.uid {
            *view = EtcdView::default();
        }
        view.object.clone_from(etcd);
    }

    fn gone(&mut self, what: &str, name: &str) {
        match what {
            // What is left of the Cluster ends too, when the garbage collector gets to it.
            "cluster" => {
                let gone = Cluster { name: name.to_owned(), deleting: true, ..Cluster::default() };
                self.clusters.insert(name.to_owned(), Arc::new(gone));
            }
            "etcd" => drop(self.etcds.remove(name)),
            "machine" => drop(self.machines.remove(name)),
            "controlPlane" => drop(self.control_planes.remove(name)),
            "apiServer" => drop(self.api_servers.remove(name)),
            "member" => {
                if let Some((etcd, url)) = name.split_once(' ')
                    && let Some(view) = self.etcds.get_mut(etcd)
                {
                    Arc::make_mut(view).seats.remove(url);
                }
            }
            _ => {}
        }
    }

    /// Whether a Machine is being deleted and no longer has our pre-terminate hook. An etcd cluster whose only member
    /// it has ends with it.
    #[must_use]
    pub fn is_let_go(&self, machine: &str) -> bool {
        let hook = PRE_TERMINATE_HOOK;
        self.machines.get(machine).is_some_and(|found| found.deleting && !found.annotations.contains_key(hook))
    }

    fn member(&mut self, at: Timestamp, member: &Member) {
        let before = self.etcds.get(&member.etcd).and_then(|view| view.seats.get(&member.url));
        let machine = match before.filter(|seat| !seat.machine.is_empty()) {
            Some(seat) => seat.machine.clone(),
            None => machine_at(&self.machines, &member.etcd, &member.url).unwrap_or_default(),
        };
        let is_let_go = self.is_let_go(&machine);
        let Some(view) = self.etcds.get_mut(&member.etcd) else { return };
        let view = Arc::make_mut(view);
        let before = view.seats.get(&member.url);
        let was_live = before.map(|seat| view.is_live(seat));
        let since = before.map_or(at, |seat| seat.since);
        if let Answer::Status(status) = &member.answer {
            if view.id.is_empty() && !is_let_go {
                view.id.clone_from(&status.cluster_id);
            }
            let is_newer = view.list.is_empty() || status.list_at > view.list_at;
            if status.cluster_id == view.id && is_newer && !status.list.is_empty() && view.list != status.list {
                view.list.clone_from(&status.list);
                view.list_at = status.list_at;
                for voter in view.list.iter().filter(|listed| !listed.learner) {
                    view.votes_since.entry(voter.id.clone()).or_insert(at);
                }
            }
        }
        let disk = before.and_then(|seat| seat.disk);
        let mut seat = Seat { machine, answer: Arc::new(member.answer.clone()), since, disk };
        let is_live = view.is_live(&seat);
        if was_live != Some(is_live) {
            seat.since = at;
        }
        if let Some(excuse) = self.excuses.get_mut(&seat.machine) {
            excuse.goes_on(at, is_live, seat.since);
        }
        view.seats.insert(member.url.clone(), seat);
    }

    /// Records how far the log on a disk goes. A log that grows is a sign of life: the member takes part, but its
    /// answers do not reach the observer, or not in time.
    fn disk(&mut self, at: Timestamp, disk: &Disk) {
        let Some(view) = self.etcds.get_mut(&disk.etcd) else { return };
        let Some(seat) = Arc::make_mut(view).seats.get_mut(&disk.url) else { return };
        if seat.status().is_none() && seat.disk.is_some_and(|before| before < disk.last) {
            seat.since = at;
        }
        seat.disk = Some(disk.last);
    }

    fn fault(&mut self, fault: &Fault) {
        let is_silent = |machine: &String| {
            let mut seats = self.etcds.values().flat_map(|view| view.seats.values());
            seats.any(|seat| seat.machine == *machine && seat.status().is_none())
        };
        let excuse = |machine: &String| Excuse {
            until: fault.until,
            was_silent: is_silent(machine),
            back_since: None,
            removed_by_hand: fault.removed_by_hand,
        };
        let new: Vec<_> = fault.machines.iter().map(|machine| (machine.clone(), excuse(machine))).collect();
        self.excuses.extend(new);
    }

    /// Whether a scenario allows the member on a machine to be silent.
    #[must_use]
    pub fn is_excused(&self, machine: &str, now: Timestamp) -> bool {
        self.excuse_ends(machine).is_some_and(|end| end.is_none_or(|end| now < end))
    }

    /// Whether a scenario removes the member on a machine from etcd itself: it leaves without our doing.
    #[must_use]
    pub fn is_removed_by_hand(&self, machine: &str) -> bool {
        self.excuses.get(machine).is_some_and(|excuse| excuse.removed_by_hand)
    }

    /// Whether a scenario allows any member of this etcd to be silent whose Machine is still there.
    #[must_use]
    pub fn any_is_excused(&self, etcd: &str, now: Timestamp) -> bool {
        let ours = self.machines.values().filter(|machine| machine.etcd == etcd);
        ours.map(|machine| &machine.name).any(|machine| self.is_excused(machine, now))
    }

    /// When the excuse of a machine ends or has ended. `None` if it never had an excuse, `Some(None)` if only the
    /// scenario knows the end.
    #[must_use]
    pub fn excuse_ends(&self, machine: &str) -> Option<Option<Timestamp>> {
        let excuse = self.excuses.get(machine)?;
        let Some(until) = excuse.until else { return Some(None) };
        let back = excuse.back_since.map(|since| since + RECOVERED);
        Some(Some(back.map_or(until, |back| back.min(until))))
    }

    /// Whether a member answers, or did until a moment ago: such a short silence may be a slow answer.
    #[must_use]
    pub fn was_live(&self, view: &EtcdView, member: &Listed, now: Timestamp) -> bool {
        let was_heard = |seat: &Seat| now.duration_since(self.late.map_or(seat.since, |late| late.max(seat.since)));
        view.seat(member).is_some_and(|seat| view.is_live(seat) || was_heard(seat) < A_MOMENT)
    }

    /// When the observer was last held up.
    #[must_use]
    pub fn held_up(&self) -> Option<Timestamp> {
        self.late
    }

    /// Since when a voter is silent without an excuse. `None` if it answers or is excused.
    #[must_use]
    pub fn silent_since(&self, view: &EtcdView, voter: &Listed, now: Timestamp) -> Option<Timestamp> {
        let seat = view.seat(voter);
        if seat.is_some_and(|seat| view.is_live(seat)) {
            return None;
        }
        // Silence before the member voted does not count, because the cluster did not depend on the member then.
        let votes = *view.votes_since.get(&voter.id)?;
        let since = seat.map_or(votes, |seat| seat.since.max(votes)).max(self.late.unwrap_or(votes));
        match self.excuse_ends(&view.machine_of(voter)) {
            None => Some(since),
            Some(None) => None,
            Some(Some(end)) => (end <= now).then(|| since.max(end)),
        }
    }

    /// Whether the cluster is being deleted. Rules must not object to what happens then.
    #[must_use]
    pub fn is_ending(&self, view: &EtcdView) -> bool {
        let cluster = self.clusters.get(&view.object.cluster);
        view.object.deleting || cluster.is_some_and(|cluster| cluster.deleting)
    }
}
