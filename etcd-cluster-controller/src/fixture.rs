//! Observations for tests, built like a story.

use crate::build::spec_hash;
use crate::observation::{Certificates, Check, ClusterLink, Member, Membership, Observation, Report, Template};
use crate::plan::{Plan, plan};
use crate::status::status;
use api::names;
use api::{EtcdCluster, EtcdClusterStatus};
use controller_support::loose::{ClusterView, MachineView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const CLUSTER_ID: u64 = 0xc;

/// A small world, of which an [`Observation`] can be taken at any time.
#[derive(Clone)]
pub(crate) struct Story {
    pub(crate) seen: Observation,
}

impl Story {
    /// An EtcdCluster that has its Cluster, finalizer, certificates and template, and no Machine yet.
    pub(crate) fn new(replicas: i32) -> Self {
        let etcd: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
            "metadata": {"name": "demo-etcd", "namespace": "default", "uid": "etcd-uid", "generation": 1,
                         "finalizers": [names::ETCD_CLUSTER_FINALIZER]},
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
            seen: Observation {
                now: Timestamp::from_second(1_000).unwrap(),
                etcd: Arc::new(etcd),
                cluster: ClusterLink::One(Box::new(cluster())),
                certificates: Certificates::Ca { control_plane_ca: true, staged_client: true },
                init_urls: None,
                init_version: None,
                admitted: None,
                bootstrapped: BTreeMap::new(),
                template: Template::Found { template: Arc::new(template), clones: local_machine() },
                machines: BTreeMap::new(),
                docker_machines: BTreeMap::new(),
                checks: BTreeMap::new(),
                elsewhere: BTreeMap::new(),
                membership: Membership::NotAsked,
            },
        }
    }

    /// The same with `count` healthy voters, and a status that says so.
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
        Arc::make_mut(&mut self.seen.etcd)
    }

    pub(crate) fn cluster(&mut self) -> &mut ClusterView {
        match &mut self.seen.cluster {
            ClusterLink::One(cluster) => cluster,
            other => panic!("no Cluster but {other:?}"),
        }
    }

    /// A Machine of now, with bootstrap data and an address.
    pub(crate) fn machine(&mut self, index: usize) -> &mut MachineView {
        let name = name(index);
        self.seen.checks.insert(name.clone(), Check::Failing("Connection refused".to_owned()));
        self.bootstrap(index);
        let (now, hash) = (self.seen.now, spec_hash(&self.seen.etcd));
        self.seen.machines.entry(name.clone()).or_insert(MachineView {
            name,
            namespace: "default".to_owned(),
            uid: format!("uid-{index}"),
            cluster: "demo".to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::from([(names::SPEC_HASH_ANNOTATION.to_owned(), hash)]),
            created: Some(Time(now)),
            deleting: false,
            controller: None,
            bootstrap_config: None,
            infrastructure: None,
            data_secret: None,
            infrastructure_ready: true,
            addresses: vec![("InternalIP".to_owned(), address(index))],
            phase: None,
        })
    }

    /// A Machine of now, held back if it is not the first.
    pub(crate) fn held_back(&mut self, index: usize) {
        self.machine(index).addresses.clear();
        self.seen.bootstrapped.remove(&name(index));
        self.seen.checks.insert(name(index), Check::NoAddress);
    }

    pub(crate) fn admit(&mut self, index: usize) {
        let uid = self.seen.machines[&name(index)].uid.clone();
        self.seen.admitted.get_or_insert_default().insert(uid, self.seen.now);
    }

    /// The bootstrap provider has made its data.
    pub(crate) fn bootstrap(&mut self, index: usize) {
        self.seen.bootstrapped.insert(name(index), self.seen.now);
    }

    pub(crate) fn address(&mut self, index: usize) {
        let addresses = vec![("InternalIP".to_owned(), address(index))];
        self.seen.machines.get_mut(&name(index)).unwrap().addresses = addresses;
    }

    pub(crate) fn member(&mut self, index: usize, learner: bool) {
        if !matches!(self.seen.membership, Membership::Known { .. }) {
            self.seen.membership = Membership::Known { cluster_id: CLUSTER_ID, members: BTreeMap::new() };
        }
        if let Membership::Known { members, .. } = &mut self.seen.membership {
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
        let report = Report {
            member_id: id(index),
            cluster_id: CLUSTER_ID,
            leader: id(0),
            version: "3.6.16".to_owned(),
            database_size: 20_480,
        };
        self.seen.checks.insert(name(index), Check::Healthy { report });
    }

    pub(crate) fn failing(&mut self, index: usize, message: &str) {
        self.seen.checks.insert(name(index), Check::Failing(message.to_owned()));
    }

    /// Brings the init Secret up to the voters of now.
    pub(crate) fn publish(&mut self) {
        let mut urls: Vec<String> = self
            .seen
            .live_machines()
            .filter(|machine| self.seen.member_on(&machine.name).is_some_and(|(_, member)| !member.learner))
            .map(|machine| names::client_url(&machine.addresses[0].1))
            .collect();
        urls.sort();
        self.seen.init_urls = Some(urls.join(","));
        self.seen.init_version = Some("1".to_owned());
        self.seen.admitted.get_or_insert_default();
    }

    pub(crate) fn plan(&self) -> Plan {
        plan(&self.seen)
    }

    /// The status that is written now; the next observation has it.
    pub(crate) fn settle(&mut self) -> EtcdClusterStatus {
        let status = status(&self.seen, &self.plan(), &spec_hash(&self.seen.etcd));
        self.etcd().status = Some(status.clone());
        status
    }

    pub(crate) fn pass(&mut self, seconds: i64) {
        self.seen.now = Timestamp::from_second(self.seen.now.as_second() + seconds).unwrap();
    }
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
        deleting: false,
        paused: false,
        infrastructure_ready: true,
        control_plane: None,
        etcd: None,
    }
}
