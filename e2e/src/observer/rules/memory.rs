//! No member forgets what it knew. A member that comes back under its ID with an older log, or with none, would vote
//! again on what it has already voted on.
//!
//! While a member runs, it reports how far its log is committed. While it does not run, its disk shows how far its log
//! goes. etcd answers only after the others have brought it up to date, so its answers alone would come too late.

use super::{Finding, Moment, Rule};
use crate::observer::names::client_url;
use crate::observer::record::{Answer, Event, Member, Status};
use crate::observer::state::machine_at;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the rule.
pub const NAME: &str = "forgetful voter";

/// What a member reported at least this long before it fell silent is on its disk. It may report an entry a moment
/// before it has written it, and its silence is known a second later at most.
const WRITTEN: SignedDuration = SignedDuration::from_secs(2);
/// How long a member that has a leader may be behind what it knew: after a restart, it learns again what is committed.
const CATCHES_UP: SignedDuration = SignedDuration::from_secs(2);

/// How long a member of another cluster may answer at an address before its Machine is seen to have that address.
const EXPLAINED: SignedDuration = SignedDuration::from_secs(5);

/// A cluster and the ID of a member.
type Id = (String, String);
/// A cluster, one of its URLs, and the ID of the cluster that answers there.
type Stranger = (String, String, String);

#[derive(Default)]
pub(super) struct Memory {
    /// The indexes that each member knew, and when: the newest index that is old enough to be on its disk, and all
    /// later ones.
    known: BTreeMap<Id, Vec<(Timestamp, u64)>>,
    /// The ID of the member that answered last at a cluster's URL.
    ids: BTreeMap<(String, String), String>,
    /// Members whose disk has less than they knew: the last index on the disk, and the index that they knew.
    lost: BTreeMap<Id, (u64, u64)>,
    /// Members that answer with less than they knew: since when, and the index that they knew.
    behind: BTreeMap<Id, (Timestamp, u64)>,
    removed: BTreeSet<Id>,
    /// Members of other clusters that answer: since when, and whether this was reported.
    strangers: BTreeMap<Stranger, (Timestamp, bool)>,
}

impl Rule for Memory {
    fn name(&self) -> &'static str {
        NAME
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let mut findings = self.still_behind(moment);
        findings.extend(self.still_strange(moment));
        match &moment.line.event {
            Event::Gone { what, name } if what == "etcd" => self.forget(name),
            Event::Disk(disk) => {
                let Some(id) = self.ids.get(&(disk.etcd.clone(), disk.url.clone())) else { return findings };
                let id = (disk.etcd.clone(), id.clone());
                let knew = self.known_at(&id, moment.now());
                if disk.last < knew {
                    self.lost.insert(id, (disk.last, knew));
                } else {
                    self.lost.remove(&id);
                }
            }
            _ => {}
        }
        let Some((member, before, after)) = moment.answer() else { return findings };
        let Answer::Status(status) = &member.answer else {
            self.falls_silent(moment.now(), member);
            return findings;
        };
        let machine = after.seats.get(&member.url).map_or("", |seat| &seat.machine);
        if status.cluster_id != after.id {
            if moment.after.is_let_go(machine) {
                return findings;
            }
            let stranger = (member.etcd.clone(), member.url.clone(), status.cluster_id.clone());
            self.strangers.entry(stranger).or_insert((moment.now(), false));
            return findings;
        }
        findings.extend(self.answers(moment.now(), member, status, machine));
        if before.list != after.list {
            let id = |listed: &String| (member.etcd.clone(), listed.clone());
            let has = |list: &[super::Listed], id: &String| list.iter().any(|listed| listed.id == *id);
            let left = before.list.iter().filter(|listed| !has(&after.list, &listed.id));
            self.removed.extend(left.map(|listed| id(&listed.id)));
            for listed in after.list.iter().filter(|listed| !has(&before.list, &listed.id)) {
                if self.removed.contains(&id(&listed.id)) {
                    let what = format!("member {} was removed, and is a member again", listed.id);
                    findings.push(Finding::about(&member.etcd, &after.machine_of(listed), what));
                }
            }
        }
        findings
    }
}

impl Memory {
    /// Handles an answer from a member of the right cluster.
    fn answers(&mut self, now: Timestamp, member: &Member, status: &Status, machine: &str) -> Option<Finding> {
        let id = (member.etcd.clone(), status.id.clone());
        self.ids.insert((member.etcd.clone(), member.url.clone()), status.id.clone());
        let lost = self.lost.remove(&id).map(|(last, knew)| {
            let end = if last == 0 { "with no log".to_owned() } else { format!("with a log that ended at {last}") };
            let what = format!("member {} knew index {knew}, started again {end}, and takes part under its ID", id.1);
            Finding::about(&member.etcd, machine, what)
        });
        let knew = self.known_at(&id, now);
        if status.index >= knew {
            self.behind.remove(&id);
            let known = self.known.entry(id).or_default();
            known.push((now, status.index));
            let written = known.iter().rposition(|(at, _)| now.duration_since(*at) >= WRITTEN).unwrap_or(0);
            known.drain(..written);
        } else if !status.leader.is_empty() {
            self.behind.entry(id).or_insert((now, knew));
        }
        lost
    }

    /// Forgets the last indexes that the member reported, because they may not have reached its disk.
    fn falls_silent(&mut self, now: Timestamp, member: &Member) {
        let Some(id) = self.ids.get(&(member.etcd.clone(), member.url.clone())) else { return };
        let id = (member.etcd.clone(), id.clone());
        self.behind.remove(&id);
        if let Some(known) = self.known.get_mut(&id) {
            known.retain(|(at, _)| now.duration_since(*at) >= WRITTEN);
        }
    }

    /// The index up to which a member's disk must have its log.
    fn known_at(&self, id: &Id, now: Timestamp) -> u64 {
        let known = self.known.get(id).map(Vec::as_slice).unwrap_or_default();
        let written = known.iter().filter(|(at, _)| now.duration_since(*at) >= WRITTEN);
        written.map(|(_, index)| *index).max().unwrap_or(0)
    }

    fn still_behind(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let now = moment.now();
        let machine = |etcd: &String, id: &String| {
            let mut seats = moment.before.etcds.get(etcd).into_iter().flat_map(|view| view.seats.values());
            let seat = seats.find(|seat| seat.status().is_some_and(|status| status.id == *id));
            seat.map_or_else(String::new, |seat| seat.machine.clone())
        };
        let (due, waiting): (BTreeMap<_, _>, _) = std::mem::take(&mut self.behind)
            .into_iter()
            .partition(|(_, (since, _))| now.duration_since(*since) >= CATCHES_UP);
        self.behind = waiting;
        let finding = |((etcd, id), (since, knew)): (Id, (Timestamp, u64))| {
            let what = format!("member {id} knew index {knew}, has a leader, and is behind that");
            Finding::about(&etcd, &machine(&etcd, &id), what).since(since)
        };
        due.into_iter().map(finding).collect()
    }

    /// Finds members of other clusters that answer at a cluster's URL. That is allowed if such a member has got the
    /// address of a machine that is gone, or if a Machine of another cluster is reported with the same address.
    /// Otherwise the etcd at this URL has started as a new cluster.
    fn still_strange(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let (now, state) = (moment.now(), moment.after);
        let ends = matches!(moment.line.event, Event::Ended);
        let is_due = |since: Timestamp| ends || now.duration_since(since) >= EXPLAINED;
        let of_another = |(etcd, url, id): &Stranger| {
            let is_known = state.etcds.iter().any(|(other, view)| other != etcd && view.id == *id);
            is_known
                || state.machines.values().any(|machine| {
                    let has = |address: &String| client_url(address) == *url;
                    machine.etcd != *etcd && !machine.etcd.is_empty() && machine.addresses.iter().any(has)
                })
        };
        self.strangers.retain(|stranger, (_, told)| *told || !of_another(stranger));
        let due = self.strangers.iter_mut().filter(|(_, (since, told))| !*told && is_due(*since));
        let finding = |((etcd, url, other), (since, told)): (&Stranger, &mut (Timestamp, bool))| {
            *told = true;
            let id = state.etcds.get(etcd).map_or("", |view| view.id.as_str());
            let what = format!("{url} is a member of cluster {other}, not of {id}: etcd has begun again");
            let machine = machine_at(&state.machines, etcd, url).unwrap_or_default();
            Finding::about(etcd, &machine, what).since(*since)
        };
        due.map(finding).collect()
    }

    /// Forgets an EtcdCluster that is gone, because another one of the same name starts from the beginning.
    fn forget(&mut self, etcd: &str) {
        self.known.retain(|(of, _), _| of != etcd);
        self.ids.retain(|(of, _), _| of != etcd);
        self.lost.retain(|(of, _), _| of != etcd);
        self.behind.retain(|(of, _), _| of != etcd);
        self.strangers.retain(|(of, _, _), _| of != etcd);
    }
}
