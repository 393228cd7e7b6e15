//! Makes the [`Observation`] that the shipped planner takes from a [`View`], and facts from the status that the shipped
//! code returns.

use crate::set::{SEATS, Set};
use crate::state::{Etcd, Health, Kind, List, Machine, Member, Operation, Probe, Record, Removal, State, Status, View};
use api::endpoints::EndpointLists;
use api::etcd_cluster::{
    self as shipped, EtcdClusterStatus, MachineDeletion, MemberStatus, RemovedMember, RollingUpdate,
};
use api::{EtcdCluster, names};
use controller_support::external::{ClusterView, MachineView};
use etcd_cluster_controller::observation::probe::{ListFault, MemberFault, OurFault, Run, RunKind};
use etcd_cluster_controller::observation::{
    Certificates, ClusterLink, Member as Entry, Membership, Observation, Outcome, Probe as Probed, Report, Snapshot,
    TargetKey, Template,
};
use etcd_cluster_controller::plan::{Decision, Plan, called_off, is_fenced, plan};
use etcd_cluster_controller::status::status;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const NOW: i64 = 100_000;
/// `unhealthyAfterSeconds`, and the start-up grace with one second more.
const LONG: i64 = 60;
const GRACE: i64 = 601;
/// Six graces, which is the most that a Machine has, plus one second.
const ALL_GRACES: i64 = 3_601;
const CLUSTER_ID: u64 = 0xc;
/// The infrastructure template of the spec.
const TEMPLATE: &str = "etcd";

pub fn name(seat: usize) -> String {
    format!("demo-etcd-{seat}")
}

/// The seat of a Machine's name.
pub fn seat_of(name: &str) -> usize {
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(SEATS)
}

pub fn id(seat: usize) -> u64 {
    0x100 + seat as u64
}

/// The seat of a member's ID.
pub fn seat_of_id(id: u64) -> usize {
    usize::try_from(id - 0x100).unwrap_or(SEATS)
}

fn uid(seat: usize) -> String {
    format!("uid-{seat}")
}

fn address(seat: usize) -> String {
    format!("10.0.0.{}", seat + 1)
}

fn client_url(seat: usize) -> String {
    names::client_url(&address(seat))
}

/// The seats of client URLs.
pub fn seats_of_urls(urls: &str) -> Set {
    (0..SEATS).filter(|seat| urls.split(',').any(|url| url == client_url(*seat))).fold(Set::default(), Set::with)
}

/// The seats of the UIDs in the init Secret.
pub fn seats_of_uids(admitted: &str) -> Set {
    let admitted = api::admission::decode(admitted);
    (0..SEATS).filter(|seat| admitted.contains_key(&uid(*seat))).fold(Set::default(), Set::with)
}

fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW - seconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A decision, made once for each view.
pub struct Decided {
    pub view: View,
    pub decision: Decision,
    /// The status that goes with the decision, and the status if the step has failed.
    pub status: Status,
    pub status_if_failed: Status,
    /// The status if the live state has called the step off.
    pub status_if_off: Status,
}

/// The shipped planner, with its answers for each view.
pub struct Book {
    base: Observation,
    numbers: HashMap<View, u32>,
    decided: Vec<Decided>,
}

impl Book {
    pub fn new() -> Self {
        Self { base: base(), numbers: HashMap::new(), decided: Vec::new() }
    }

    /// Views so far.
    pub fn len(&self) -> usize {
        self.decided.len()
    }

    /// About how much memory the book takes, including the texts of decisions, and the room that lists keep for more.
    pub fn bytes(&self) -> usize {
        self.decided.len() * (2 * size_of::<Decided>() + 2 * size_of::<View>() + 512)
    }

    pub fn page(&self, number: u32) -> &Decided {
        &self.decided[number as usize]
    }

    /// The number of a view.
    pub fn number(&mut self, view: &View) -> u32 {
        if let Some(number) = self.numbers.get(view) {
            return *number;
        }
        let observation = self.observation(view);
        let decision = plan(&observation);
        let of = |decision: &Decision, failed| read(&status(&observation, decision, failed));
        let now = of(&decision, None);
        let (mut status_if_failed, mut status_if_off) = (now, now);
        if is_fenced(&decision.next) {
            status_if_failed = of(&decision, Some("no answer"));
            if let Some(next) = called_off(&Plan::Steady, &decision.next) {
                let (publish, goal) = (decision.publish.clone(), decision.goal.clone());
                status_if_off = of(&Decision { next, publish, goal }, None);
            }
        }
        let number = u32::try_from(self.decided.len()).unwrap_or(u32::MAX);
        self.decided.push(Decided { view: *view, decision, status: now, status_if_failed, status_if_off });
        self.numbers.insert(*view, number);
        number
    }

    pub fn decide(&mut self, view: &View) -> &Decided {
        let number = self.number(view);
        self.page(number)
    }

    /// The observation that the shipped planner is given.
    pub fn observation(&self, view: &View) -> Observation {
        let mut observation = self.base.clone();
        let etcd = Arc::make_mut(&mut observation.etcd);
        etcd.spec.replicas = i32::from(view.etcd.replicas);
        let max_surge = view.etcd.max_surge.map(i32::from);
        etcd.spec.rollout_strategy.rolling_update = Some(RollingUpdate { max_surge });
        let annotations = etcd.metadata.annotations.get_or_insert_default();
        let max_learners = view.etcd.max_learners().to_string();
        annotations.insert(names::MAX_LEARNERS_ANNOTATION.to_owned(), max_learners.clone());
        if let Some(number) = view.etcd.last_number {
            annotations.insert(names::LAST_NAME_NUMBER_ANNOTATION.to_owned(), number.to_string());
        }
        if view.etcd.cluster_id {
            annotations.insert(names::CLUSTER_ID_ANNOTATION.to_owned(), format!("{CLUSTER_ID:x}"));
        }
        if !view.etcd.in_use.is_empty() {
            let lists = view.etcd.in_use.lists().map(|list| list.iter().map(client_url).collect());
            let lists = EndpointLists::from_iter(lists).to_string();
            annotations.insert(names::ENDPOINTS_IN_USE_ANNOTATION.to_owned(), lists);
        }
        etcd.status = Some(written(&view.etcd));
        for seat in (0..SEATS).filter(|seat| view.machines.is[*seat].exists()) {
            observation.machines.insert(name(seat), machine(view, seat));
            observation.learner_limits.insert(name(seat), max_learners.clone());
            if view.secrets.data.has(seat) {
                observation.bootstrapped.insert(name(seat), could_boot(view, seat));
            }
        }
        if view.secrets.init {
            let mut urls: Vec<String> = view.secrets.urls.iter().map(client_url).collect();
            urls.sort();
            observation.init_urls = Some(urls.join(","));
            observation.init_cluster_id = observation.recorded_cluster_id().map(str::to_owned);
            (observation.init_version, observation.init_uid) = (Some("1".to_owned()), Some("init-uid".to_owned()));
            let admitted = view.secrets.admitted.iter().map(|seat| (uid(seat), could_boot(view, seat)));
            observation.admitted = Some(admitted.collect());
        }
        let membership = match view.probes.list {
            List::NotAsked => Membership::NotAsked,
            List::NoQuorum => Membership::Unknown(ListFault::NoQuorum(None)),
            List::Known => Membership::Known { cluster_id: CLUSTER_ID, members: members(view), at: ago(0) },
        };
        let key = |seat: usize| match view.machines.is[seat] {
            Machine::Absent => None,
            Machine::Gone => Some(TargetKey::Stranger(id(seat))),
            _ => Some(TargetKey::Machine(name(seat))),
        };
        let probes = (0..SEATS).filter_map(|seat| Some((key(seat)?, probe(view, seat)?))).collect();
        let answers =
            |seat: usize| view.probes.seats[seat] == Probe::Healthy && view.probes.members[seat] == Member::Voter;
        let voters_answer_since = (0..SEATS).any(answers).then(|| ago(ALL_GRACES));
        let heard = Some(view.probes.heard.iter().map(id).collect());
        observation.take(Snapshot { probes, membership, heard, voters_answer_since });
        observation
    }
}

/// An EtcdCluster with its Cluster, certificates and template, which the model is not about.
fn base() -> Observation {
    let etcd: EtcdCluster = serde_json::from_value(json!({
        "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
        "metadata": {"name": "demo-etcd", "namespace": "default", "uid": "etcd-uid", "generation": 1,
                     "finalizers": [names::ETCD_CLUSTER_FINALIZER], "annotations": {
                         names::PINNED_VERSION_ANNOTATION: api::version::DEFAULT_ETCD_VERSION}},
        "spec": {"replicas": 3, "infrastructureTemplate":
            {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LocalMachineTemplate", "name": TEMPLATE}}
    }))
    .expect("an EtcdCluster");
    let template: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "LocalMachineTemplate",
        "metadata": {"name": TEMPLATE, "namespace": "default"}, "spec": {"template": {"spec": {}}}
    }))
    .expect("a template");
    let clones = GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", "v1alpha1", "LocalMachine");
    let cluster: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "demo", "namespace": "default", "uid": "cluster-uid"},
        "status": {"initialization": {"infrastructureProvisioned": true}}
    }))
    .expect("a Cluster");
    Observation {
        certificates: Certificates::Ca { control_plane_ca: true, staged_client: true, expires: None, ca_expires: None },
        template: Template::Found { template: Arc::new(template), clones: ApiResource::from_gvk(&clones) },
        ..Observation::new(ago(0), Arc::new(etcd), ClusterLink::One(Box::new(ClusterView::read(&cluster))))
    }
}

fn could_boot(view: &View, seat: usize) -> Timestamp {
    ago(match view.machines.is[seat] {
        Machine::Booted | Machine::NeverBoots => GRACE,
        Machine::Overdue => ALL_GRACES,
        Machine::Absent | Machine::HeldBack | Machine::Booting | Machine::Gone => 0,
    })
}

fn machine(view: &View, seat: usize) -> MachineView {
    let boots = view.machines.is[seat].boots();
    let shown = boots && !view.machines.no_address.has(seat);
    let hook = (names::PRE_TERMINATE_HOOK_ANNOTATION.to_owned(), names::PRE_TERMINATE_HOOK_OWNER.to_owned());
    let template = if view.etcd.outdated.has(seat) { "earlier" } else { TEMPLATE };
    let template = (names::CLONED_FROM_NAME_ANNOTATION.to_owned(), template.to_owned());
    let deleting = view.machines.deleting.has(seat);
    MachineView {
        name: name(seat),
        namespace: "default".to_owned(),
        uid: uid(seat),
        resource_version: String::new(),
        cluster: "demo".to_owned(),
        labels: BTreeMap::new(),
        annotations: view.machines.hook.has(seat).then_some(hook).into_iter().chain([template]).collect(),
        created: Some(Time(could_boot(view, seat))),
        deleting,
        deleted: deleting.then(|| Time(ago(0))),
        finalizers: vec![names::MACHINE_FINALIZER.to_owned()],
        controller: None,
        bootstrap_config: None,
        infrastructure: None,
        failure_domain: None,
        data_secret: boots.then(|| name(seat)),
        infrastructure_ready_since: None,
        infrastructure_ready: true,
        addresses: shown.then(|| ("InternalIP".to_owned(), address(seat))).into_iter().collect(),
        marked: None,
        version: None,
        up_to_date: None,
        ready: None,
        deletion_timeouts: MachineDeletion::default(),
    }
}

fn probe(view: &View, seat: usize) -> Option<Probed> {
    let report = |linearizable| {
        Outcome::Answered(Report {
            leader: view.probes.leader.map_or(0, id),
            learner: view.probes.members[seat] == Member::Learner,
            linearizable,
            ..Report::of_one_that_is_well(CLUSTER_ID, id(seat))
        })
    };
    let is_gone = view.machines.is[seat] == Machine::Gone;
    let (outcome, lasted) = match view.probes.seats[seat] {
        Probe::None => return None,
        Probe::Healthy if view.probes.members[seat] == Member::Learner => (report(Ok(())), LONG),
        Probe::Healthy => (report(Ok(())), ALL_GRACES),
        Probe::Failing => (Outcome::MemberFault(MemberFault::Refused), 0),
        // A member that no Machine carries may have a grace in addition. Then a Machine that takes its place has one as
        // well.
        Probe::LongFailing if is_gone => (Outcome::MemberFault(MemberFault::Refused), LONG + 2 * GRACE),
        Probe::LongFailing => (Outcome::MemberFault(MemberFault::Refused), LONG),
        Probe::NoLeader => (report(Err(MemberFault::NoLeader)), 0),
        Probe::LongNoLeader => (report(Err(MemberFault::NoLeader)), LONG),
        Probe::Unknown => (Outcome::OurFault(OurFault::FileDescriptors), 0),
        Probe::NoAddress => (Outcome::NoAddress, 0),
    };
    let kind = outcome.kind();
    let run =
        if kind == RunKind::Unknown { Run::new(kind, ago(0)) } else { Run { kind, since: ago(lasted), last: ago(0) } };
    let is_recorded = view.etcd.status.members[seat].is_some_and(|record| record.housed);
    let expected = (is_recorded || is_gone).then(|| id(seat));
    Some(Probed { url: client_url(seat), at: ago(0), outcome, run, answered: None, expected })
}

fn members(view: &View) -> BTreeMap<u64, Entry> {
    let listed = (0..SEATS).filter(|seat| view.probes.members[*seat].is_listed());
    let entry = |seat: usize| {
        let member = view.probes.members[seat];
        let started = member != Member::Unstarted;
        Entry {
            name: if started { name(seat) } else { String::new() },
            peer_urls: vec![names::peer_url(&address(seat))],
            client_urls: started.then(|| client_url(seat)).into_iter().collect(),
            learner: member != Member::Voter,
        }
    };
    listed.map(|seat| (id(seat), entry(seat))).collect()
}

/// The status as the API server would return it.
fn written(etcd: &Etcd) -> EtcdClusterStatus {
    let facts = &etcd.status;
    let member = |seat: usize| {
        let record = facts.members[seat]?;
        let started = !record.silent;
        Some(MemberStatus {
            name: if record.unnamed { String::new() } else { name(seat) },
            id: format!("{:x}", id(seat)),
            machine: if record.housed { name(seat) } else { String::new() },
            failure_domain: String::new(),
            peer_url: names::peer_url(&address(seat)),
            client_url: client_url(seat),
            role: if record.learner { shipped::MemberRole::Learner } else { shipped::MemberRole::Voter },
            leader: false,
            version: if started { "3.6.16".to_owned() } else { String::new() },
            health: match record.health {
                Health::Healthy => shipped::Health::Healthy,
                Health::Unhealthy => shipped::Health::Unhealthy,
                Health::Unknown => shipped::Health::Unknown,
            },
            healthy_since: None,
            unhealthy_since: record.failing.then(|| Time(ago(0))),
            message: String::new(),
            database_size_bytes: None,
            certificate_expires: None,
        })
    };
    let removed = |seat: usize| {
        let state = match facts.removed[seat]? {
            Removal::Removing => shipped::RemovalState::Removing,
            Removal::Removed => shipped::RemovalState::Removed,
            Removal::Missing => shipped::RemovalState::Missing,
        };
        let (machine, machine_uid) = (name(seat), uid(seat));
        let (id, never_started) = (format!("{:x}", id(seat)), facts.never_started.has(seat));
        Some(RemovedMember { id, machine, machine_uid, state, never_started, since: Time(ago(0)) })
    };
    let operation = facts.operation.map(|operation| shipped::Operation {
        kind: match operation.kind {
            Kind::MoveLeader => shipped::OperationKind::MoveLeader,
            Kind::RemoveMember => shipped::OperationKind::RemoveMember,
        },
        member_id: format!("{:x}", id(operation.seat)),
        machine_uid: if operation.housed { uid(operation.seat) } else { String::new() },
        since: Time(ago(0)),
        attempt: i32::from(operation.attempt),
    });
    let last_remediation = facts.remediation.map(|seat| shipped::LastRemediation {
        machine: name(seat),
        machine_uid: uid(seat),
        time: Time(ago(0)),
        retry_count: 0,
    });
    let mut endpoints: Vec<String> = facts.endpoints.iter().map(client_url).collect();
    endpoints.sort();
    EtcdClusterStatus {
        initialized: facts.initialized,
        creation_complete: facts.creation_complete,
        ready: facts.ready,
        endpoints: endpoints.join(","),
        cluster_id: if etcd.cluster_id { format!("{CLUSTER_ID:x}") } else { String::new() },
        members: (0..SEATS).filter_map(member).collect(),
        removed_members: (0..SEATS).filter_map(removed).collect(),
        operation,
        last_remediation,
        released_machine_uids: facts.released.iter().map(uid).collect(),
        ..EtcdClusterStatus::default()
    }
}

/// The facts in a status that the planner reads again.
fn read(status: &EtcdClusterStatus) -> Status {
    let mut facts = Status { initialized: status.initialized, ready: status.ready, ..Status::default() };
    facts.creation_complete = status.creation_complete;
    facts.remediation = status.last_remediation.as_ref().map(|record| seat_of(&record.machine));
    facts.endpoints = seats_of_urls(&status.endpoints);
    facts.released = status.released_machine_uids.iter().map(|uid| seat_of(uid)).fold(Set::default(), Set::with);
    let seat = |id: &str| seat_of_id(u64::from_str_radix(id, 16).unwrap_or_default());
    for member in &status.members {
        facts.members[seat(&member.id)] = Some(Record {
            learner: member.role == shipped::MemberRole::Learner,
            health: match member.health {
                shipped::Health::Healthy => Health::Healthy,
                shipped::Health::Unhealthy => Health::Unhealthy,
                shipped::Health::Unknown => Health::Unknown,
            },
            failing: member.unhealthy_since.is_some(),
            silent: member.version.is_empty(),
            unnamed: member.name.is_empty(),
            housed: !member.machine.is_empty(),
        });
    }
    for record in &status.removed_members {
        facts.never_started.put(seat(&record.id), record.never_started);
        facts.removed[seat(&record.id)] = Some(match record.state {
            shipped::RemovalState::Removing => Removal::Removing,
            shipped::RemovalState::Removed => Removal::Removed,
            shipped::RemovalState::Missing => Removal::Missing,
        });
    }
    facts.operation = status.operation.as_ref().map(|operation| Operation {
        kind: match operation.kind {
            shipped::OperationKind::MoveLeader => Kind::MoveLeader,
            shipped::OperationKind::RemoveMember => Kind::RemoveMember,
        },
        seat: seat(&operation.member_id),
        housed: !operation.machine_uid.is_empty(),
        attempt: u8::try_from(operation.attempt).unwrap_or(u8::MAX),
    });
    facts
}

/// The reason of a plan, in one word.
pub fn reason(plan: &Plan) -> &'static str {
    match plan {
        Plan::Wait(hold) | Plan::Block(hold) => hold.reason,
        Plan::Steady => "Steady",
        Plan::Do(_) => "Do",
    }
}

/// The decision for a state, for people.
pub fn explain(book: &mut Book, state: &State) -> String {
    format!("{:?}", book.decide(&state.cached()).decision.next)
}
