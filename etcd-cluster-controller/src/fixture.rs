//! Observations for tests, built like a story.

use crate::build::version;
use crate::observation::probe::{Alarm, ListFault, MemberFault, OurFault, Run, RunKind, voters_answer_since};
use crate::observation::{
    Certificates, ClusterLink, Member, Membership, Observation, Outcome, Probe, Report, Template,
};
use crate::plan::{Plan, View, plan};
use crate::roster::Seat;
use crate::status::status;
use api::etcd_cluster::{MachineDeletion, RollingUpdate};
use api::etcdadm_config::{EtcdFlag, EtcdSettings};
use api::names;
use api::version::DEFAULT_ETCD_VERSION;
use api::{EtcdCluster, EtcdClusterStatus, EtcdadmConfigSpec};
use controller_support::Cached;
use controller_support::external::{ClusterView, MachineView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) const CLUSTER_ID: u64 = 0xc;

/// A small world, of which an [`Observation`] can be taken at any time.
#[derive(Clone)]
pub(crate) struct Story {
    pub(crate) observation: Observation,
}

impl Story {
    /// An EtcdCluster that has its Cluster, finalizer, certificates and template, and no Machine yet.
    pub(crate) fn new(replicas: i32) -> Self {
        let etcd: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
            "metadata": {"name": "demo-etcd", "namespace": "default", "uid": "etcd-uid", "generation": 1,
                         "finalizers": [names::ETCD_CLUSTER_FINALIZER], "annotations": {
                             names::PINNED_VERSION_ANNOTATION: DEFAULT_ETCD_VERSION, names::MAX_LEARNERS_ANNOTATION: "3"}},
            "spec": {"replicas": replicas, "infrastructureTemplate":
                {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LocalMachineTemplate", "name": "etcd"}}
        }))
        .unwrap();
        let template: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "LocalMachineTemplate",
            "metadata": {"name": "etcd", "namespace": "default", "ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "demo", "uid": "cluster-uid"}]},
            "spec": {"template": {"metadata": {"labels": {"disk": "fast"}}, "spec": {"size": "big"}}}
        }))
        .unwrap();
        Self {
            observation: Observation {
                certificates: certificates(),
                template: Template::Found { template: Arc::new(template), clones: local_machine() },
                ..Observation::new(
                    Timestamp::from_second(1_000).unwrap(),
                    Arc::new(etcd),
                    ClusterLink::One(Box::new(cluster())),
                )
            },
        }
    }

    /// Like `new`, with `count` healthy voters, and a status that reports them.
    pub(crate) fn with_voters(replicas: i32, count: usize) -> Self {
        let mut story = Self::new(replicas);
        for index in 0..count {
            story.machine(index);
            story.voter(index);
        }
        story.publish();
        story.settle();
        story
    }

    pub(crate) fn etcd(&mut self) -> &mut EtcdCluster {
        Arc::make_mut(&mut self.observation.etcd)
    }

    pub(crate) fn cluster(&mut self) -> &mut ClusterView {
        match &mut self.observation.cluster {
            ClusterLink::One(cluster) => cluster,
            other => panic!("no Cluster but {other:?}"),
        }
    }

    /// Makes a Machine now, with bootstrap data and an address.
    pub(crate) fn machine(&mut self, index: usize) -> &mut MachineView {
        let name = name(index);
        self.failing(index, "");
        self.bootstrap(index);
        let now = self.observation.now;
        let etcd = &self.observation.etcd;
        let config =
            EtcdadmConfigSpec { version: Some(version(etcd).to_owned()), ..etcd.spec.etcdadm_config_spec.clone() };
        self.observation.configs.insert(name.clone(), config);
        let limit = etcd.metadata.annotations.as_ref().and_then(|all| all.get(names::MAX_LEARNERS_ANNOTATION));
        self.observation.learner_limits.extend(limit.map(|limit| (name.clone(), limit.clone())));
        let template = &etcd.spec.infrastructure_template;
        let annotations = BTreeMap::from([
            (names::PRE_TERMINATE_HOOK_ANNOTATION.to_owned(), names::PRE_TERMINATE_HOOK_OWNER.to_owned()),
            (names::CLONED_FROM_NAME_ANNOTATION.to_owned(), template.name.clone()),
        ]);
        self.observation.machines.entry(name.clone()).or_insert(MachineView {
            name,
            namespace: "default".to_owned(),
            uid: format!("uid-{index}"),
            resource_version: "7".to_owned(),
            cluster: "demo".to_owned(),
            labels: BTreeMap::new(),
            annotations,
            created: Some(Time(now)),
            deleting: false,
            deleted: None,
            finalizers: vec![names::MACHINE_FINALIZER.to_owned()],
            controller: None,
            bootstrap_config: None,
            failure_domain: None,
            data_secret: None,
            infrastructure: None,
            infrastructure_ready_since: None,
            infrastructure_ready: true,
            addresses: vec![("InternalIP".to_owned(), address(index))],
            marked: None,
            version: None,
            up_to_date: None,
            ready: None,
            deletion_timeouts: MachineDeletion::default(),
        })
    }

    /// Makes a Machine now, without bootstrap data and address. It is held back, unless it is the first Machine.
    pub(crate) fn held_back(&mut self, index: usize) {
        self.machine(index).addresses.clear();
        self.observation.bootstrapped.remove(&name(index));
        self.observation.probes.remove(&name(index));
    }

    /// A person deletes the Machine, and our hook holds up the deletion.
    pub(crate) fn delete(&mut self, index: usize) {
        let machine = self.observation.machines.get_mut(&name(index)).unwrap();
        (machine.deleting, machine.deleted) = (true, Some(Time(self.observation.now)));
    }

    /// A person deletes the Machine, and nothing holds up the deletion.
    pub(crate) fn delete_at_once(&mut self, index: usize) {
        self.delete(index);
        self.observation.machines.get_mut(&name(index)).unwrap().annotations.clear();
    }

    /// A person marks the Machine for remediation.
    pub(crate) fn mark(&mut self, index: usize) {
        self.observation.machines.get_mut(&name(index)).unwrap().marked = Some("somebody".to_owned());
    }

    /// The Machine is gone, with its objects.
    pub(crate) fn gone(&mut self, index: usize) {
        self.observation.machines.remove(&name(index));
        self.observation.bootstrapped.remove(&name(index));
        self.observation.probes.remove(&name(index));
        self.observation.configs.remove(&name(index));
        self.observation.learner_limits.remove(&name(index));
    }

    pub(crate) fn annotate(&mut self, key: &str, value: &str) {
        self.etcd().metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    }

    /// Sets the learner limit to that of etcd up to 3.5.
    pub(crate) fn takes_one_learner(&mut self) {
        self.takes_learners("1");
    }

    /// Sets the recorded learner limit, and the limit that all Machines were made with.
    pub(crate) fn takes_learners(&mut self, limit: &str) {
        self.annotate(names::MAX_LEARNERS_ANNOTATION, limit);
        self.observation.learner_limits.values_mut().for_each(|made_with| limit.clone_into(made_with));
    }

    /// The spec has this flag of etcd, and no other.
    pub(crate) fn with_flag(&mut self, name: &str, value: &str) {
        let flag = EtcdFlag { name: name.to_owned(), value: value.to_owned() };
        let settings = EtcdSettings { extra_flags: vec![flag], ..EtcdSettings::default() };
        self.etcd().spec.etcdadm_config_spec.etcd = Some(settings);
    }

    /// Sets how many Machines more than wanted a rollout may make.
    pub(crate) fn surges(&mut self, most: i32) {
        self.etcd().spec.rollout_strategy.rolling_update = Some(RollingUpdate { max_surge: Some(most) });
    }

    pub(crate) fn admit(&mut self, index: usize) {
        let uid = self.observation.machines[&name(index)].uid.clone();
        self.observation.admitted.get_or_insert_default().insert(uid, self.observation.now);
    }

    /// The bootstrap provider makes the Machine's bootstrap data.
    pub(crate) fn bootstrap(&mut self, index: usize) {
        self.observation.bootstrapped.insert(name(index), self.observation.now);
    }

    pub(crate) fn address(&mut self, index: usize) {
        let addresses = vec![("InternalIP".to_owned(), address(index))];
        self.observation.machines.get_mut(&name(index)).unwrap().addresses = addresses;
    }

    pub(crate) fn member(&mut self, index: usize, learner: bool) {
        if !matches!(self.observation.membership, Membership::Known { .. }) {
            self.observation.membership =
                Membership::Known { cluster_id: CLUSTER_ID, members: BTreeMap::new(), at: self.observation.now };
        }
        // The controller records the cluster ID when it has read the first list.
        self.annotate(names::CLUSTER_ID_ANNOTATION, "c");
        if let Membership::Known { members, .. } = &mut self.observation.membership {
            members.insert(
                id(index),
                Member {
                    name: name(index),
                    peer_urls: vec![names::peer_url(&address(index))],
                    client_urls: vec![names::client_url(&address(index))],
                    learner,
                },
            );
        }
    }

    pub(crate) fn voter(&mut self, index: usize) {
        self.member(index, false);
        self.healthy(index);
    }

    pub(crate) fn healthy(&mut self, index: usize) {
        let learner = self.observation.members().is_some_and(|all| all.get(&id(index)).is_some_and(|m| m.learner));
        let report = Report { leader: id(0), learner, ..Report::of_one_that_is_well(CLUSTER_ID, id(index)) };
        self.probe(index, Outcome::Answered(report));
    }

    /// Every member that answers says that this one leads.
    pub(crate) fn led_by(&mut self, member: u64) {
        for probe in self.observation.probes.values_mut() {
            if let Outcome::Answered(report) = &mut probe.outcome {
                report.leader = member;
            }
        }
    }

    /// Raises these alarms: each member that answers reports them. They replace the alarms of an earlier call.
    pub(crate) fn alarms(&mut self, alarms: &[(usize, &str)]) {
        let alarm = |(index, kind): &(usize, &str)| Alarm { member_id: id(*index), kind: (*kind).to_owned() };
        self.reports().for_each(|report| report.alarms = alarms.iter().map(alarm).collect());
    }

    /// The database has this size on every member that answers.
    pub(crate) fn sized(&mut self, bytes: i64) {
        self.reports().for_each(|report| report.database_size = bytes);
    }

    /// What the members that answer have reported.
    fn reports(&mut self) -> impl Iterator<Item = &mut Report> {
        self.observation.probes.values_mut().filter_map(|probe| match &mut probe.outcome {
            Outcome::Answered(report) => Some(report),
            _ => None,
        })
    }

    /// The member's checks fail from now on. `message` is only for readers.
    pub(crate) fn failing(&mut self, index: usize, message: &str) {
        self.probe(index, Outcome::MemberFault(MemberFault::Closed(message.to_owned())));
    }

    /// It cannot be checked.
    pub(crate) fn unknown(&mut self, index: usize) {
        self.observation.probes.remove(&name(index));
        self.probe(index, Outcome::OurFault(OurFault::FileDescriptors));
    }

    pub(crate) fn probe(&mut self, index: usize, outcome: Outcome) {
        let (now, interval) = (self.observation.now, self.observation.interval());
        let kind = outcome.kind();
        let listed = self.observation.members().is_some_and(|members| members.contains_key(&id(index)));
        let before = self.observation.probes.get(&name(index));
        let known = listed || self.observation.recorded(id(index)).is_some();
        let expected = before.and_then(|probe| probe.expected).or(known.then(|| id(index)));
        let run = before.filter(|probe| probe.expected == expected).map(|probe| probe.run);
        let run = run.map_or_else(|| Run::new(kind, now), |run| run.next(kind, now, interval));
        let machine = self.observation.machines.get(&name(index));
        let url = machine.and_then(|machine| self.observation.address(machine)).map(names::client_url);
        let url = url.unwrap_or_else(|| names::client_url(&address(index)));
        let answered = matches!(outcome, Outcome::Answered(_)).then_some(now);
        let answered = answered.or(before.and_then(|probe| probe.answered));
        self.observation.probes.insert(name(index), Probe { url, at: now, outcome, run, answered, expected });
        self.note_voters(kind);
    }

    /// Updates `voters_answer_since` as the prober does.
    fn note_voters(&mut self, kind: RunKind) {
        let observation = &mut self.observation;
        let probes = observation.probes.values().chain(observation.strangers.values());
        let before = observation.voters_answer_since;
        observation.voters_answer_since = voters_answer_since(before, probes, kind, observation.now);
    }

    /// Probes a stranger, with this outcome.
    pub(crate) fn probe_stranger(&mut self, index: usize, outcome: Outcome) {
        let (now, interval, kind) = (self.observation.now, self.observation.interval(), outcome.kind());
        let run = self.observation.strangers.get(&id(index)).map(|probe| probe.run.next(kind, now, interval));
        let (url, run) = (names::client_url(&address(index)), run.unwrap_or_else(|| Run::new(kind, now)));
        self.observation
            .strangers
            .insert(id(index), Probe { url, at: now, outcome, run, answered: None, expected: Some(id(index)) });
        self.note_voters(kind);
    }

    /// The member list cannot be read.
    pub(crate) fn unlisted(&mut self) {
        self.observation.membership = Membership::Unknown(ListFault::NoQuorum(None));
    }

    /// The etcd of a member has not started: the member list has its peer URL alone.
    pub(crate) fn unstarted(&mut self, index: usize) {
        let Membership::Known { members, .. } = &mut self.observation.membership else { unreachable!() };
        let member = members.get_mut(&id(index)).unwrap();
        member.name.clear();
        member.client_urls.clear();
    }

    /// A member disappears from the member list: a person has removed it.
    pub(crate) fn unlist(&mut self, index: usize) {
        if let Membership::Known { members, .. } = &mut self.observation.membership {
            members.remove(&id(index));
        }
    }

    /// Marks a Machine as made to replace the member that `lastRemediation` in the status names.
    pub(crate) fn made_for_the_last_remediation(&mut self, index: usize) {
        let last = self.observation.etcd.status.as_ref().and_then(|status| status.last_remediation.as_ref());
        let made_for = serde_json::to_string(&last).unwrap();
        let machine = self.observation.machines.get_mut(&name(index)).unwrap();
        machine.annotations.insert(names::REMEDIATION_FOR_ANNOTATION.to_owned(), made_for);
    }

    /// Updates the init Secret to the present voters.
    pub(crate) fn publish(&mut self) {
        // A member that no Machine carries stays in the Secret with its client URL.
        let url = |seat: &Seat<'_>| match seat.machine {
            Some(machine) => self.observation.client_url(machine),
            None => seat.member.as_ref()?.1.client_urls.first().cloned(),
        };
        let mut urls: Vec<String> = View::new(&self.observation).roster.voters().filter_map(url).collect();
        urls.sort();
        self.observation.init_urls = Some(urls.join(","));
        self.observation.init_cluster_id = self.observation.recorded_cluster_id().map(str::to_owned);
        self.observation.init_version = Some("1".to_owned());
        self.observation.admitted.get_or_insert_default();
    }

    pub(crate) fn plan(&self) -> Plan {
        plan(&self.observation).next
    }

    /// Writes the status that follows from the present observation, so that the next observation has it.
    pub(crate) fn settle(&mut self) -> EtcdClusterStatus {
        let status = status(&self.observation, &plan(&self.observation), None);
        self.etcd().status = Some(status.clone());
        status
    }

    /// Lets time pass, in which the checks go on with the same results.
    pub(crate) fn pass(&mut self, seconds: i64) {
        let interval = self.observation.interval();
        let mut left = seconds;
        while left != 0 {
            let step = left.min(i64::try_from(interval.as_secs()).unwrap());
            left -= step;
            let now = Timestamp::from_second(self.observation.now.as_second() + step).unwrap();
            self.observation.now = now;
            for probe in self.observation.probes.values_mut().chain(self.observation.strangers.values_mut()) {
                probe.run = probe.run.next(probe.outcome.kind(), now, interval);
                probe.at = now;
                if matches!(probe.outcome, Outcome::Answered(_)) {
                    probe.answered = Some(now);
                }
            }
        }
    }
}

/// A watch that shows these EtcdClusters.
pub(crate) fn watched(etcds: &[Value]) -> Cached {
    let etcds = etcds.iter().map(|etcd| serde_json::from_value(etcd.clone()).unwrap());
    Cached::fixed(&ApiResource::erase::<EtcdCluster>(&()), etcds.collect())
}

/// All certificates that there have to be.
pub(crate) fn certificates() -> Certificates {
    certificates_of_ca_until(None)
}

/// All certificates that there have to be, with a CA that expires at this time.
pub(crate) fn certificates_of_ca_until(ca_expires: Option<Timestamp>) -> Certificates {
    Certificates::Ca { control_plane_ca: true, staged_client: true, expires: None, ca_expires }
}

pub(crate) fn name(index: usize) -> String {
    format!("demo-etcd-{index}")
}

pub(crate) fn address(index: usize) -> String {
    format!("10.0.0.{}", index + 1)
}

pub(crate) fn id(index: usize) -> u64 {
    0x100 + index as u64
}

pub(crate) fn local_machine() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", "v1alpha1", "LocalMachine"))
}

pub(crate) fn cluster() -> ClusterView {
    ClusterView {
        name: "demo".to_owned(),
        namespace: "default".to_owned(),
        uid: "cluster-uid".to_owned(),
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        created: Some(Time(Timestamp::UNIX_EPOCH)),
        deleting: false,
        paused_by: None,
        infrastructure: None,
        infrastructure_ready: true,
        failure_domains: BTreeSet::new(),
        control_plane: None,
        etcd: None,
    }
}
