//! All that was read of an EtcdCluster, as plain data. Pure.

use api::etcdadm_config::EtcdadmConfigSpec;
use api::{EtcdCluster, names};
use controller_support::external::{ClusterView, MachineView};
use etcd_cluster_controller::roster::number;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// An EtcdCluster and what belongs to it, at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was read.
    pub now: Timestamp,
    /// The EtcdCluster.
    pub etcd: EtcdCluster,
    /// The Cluster that it is for; nothing if no Cluster names it.
    pub cluster: Option<ClusterView>,
    /// Its Machines, in the order in which they were made.
    pub machines: Vec<Machine>,
    /// The config that each Machine was made from, by name of the Machine.
    pub configs: BTreeMap<String, EtcdadmConfigSpec>,
    /// The learner limits in these configs, by name of the Machine.
    pub learner_limits: BTreeMap<String, String>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

/// A Machine of etcd.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The data that the controllers read too.
    pub view: MachineView,
    /// Its phase, in Cluster API's words.
    pub phase: String,
}

impl Machine {
    /// Reads a Machine of any version.
    #[must_use]
    pub fn read(machine: &DynamicObject) -> Self {
        let phase = machine.data.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        Self { view: MachineView::read(machine), phase: phase.to_owned() }
    }
}

/// Everything that was read, of any number of EtcdClusters.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// EtcdClusters.
    pub etcds: Vec<EtcdCluster>,
    /// Machines with the label of an EtcdCluster.
    pub machines: Vec<DynamicObject>,
    /// Clusters.
    pub clusters: Vec<DynamicObject>,
    /// EtcdadmConfigs with the label of an EtcdCluster.
    pub configs: Vec<DynamicObject>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

impl Objects {
    /// One snapshot for each EtcdCluster, by namespace and name.
    #[must_use]
    pub fn snapshots(&self, now: Timestamp) -> Vec<Snapshot> {
        let mut etcds: Vec<&EtcdCluster> = self.etcds.iter().collect();
        etcds.sort_by_key(|etcd| (etcd.namespace(), etcd.name_any()));
        etcds.into_iter().map(|etcd| self.snapshot(etcd, now)).collect()
    }

    fn snapshot(&self, etcd: &EtcdCluster, now: Timestamp) -> Snapshot {
        let (namespace, name) = (etcd.namespace(), etcd.name_any());
        let is_its = |object: &&DynamicObject| {
            object.namespace() == namespace && object.labels().get(names::ETCD_CLUSTER_LABEL) == Some(&name)
        };
        let mut machines: Vec<Machine> = self.machines.iter().filter(is_its).map(Machine::read).collect();
        // `x-9` before `x-10`.
        machines.sort_by_key(|machine| (number(&machine.view.name).unwrap_or(u64::MAX), machine.view.name.clone()));
        let clusters = self.clusters.iter().filter(|cluster| cluster.namespace() == namespace).map(ClusterView::read);
        let mut naming: Vec<ClusterView> = clusters.filter(|cluster| cluster.names_etcd_cluster(&name)).collect();
        // If several name it, the one in its label keeps it.
        naming.sort_by_key(|cluster| etcd.labels().get(names::CLUSTER_NAME_LABEL) != Some(&cluster.name));
        let configs = self.configs.iter().filter(is_its).filter_map(|config| {
            let is_it = |machine: &&Machine| {
                machine.view.bootstrap_config.as_ref().is_some_and(|used| used.name == config.name_any())
            };
            Some((machines.iter().find(is_it)?.view.name.clone(), config))
        });
        let configs: Vec<(String, &DynamicObject)> = configs.collect();
        let spec = |config: &DynamicObject| EtcdadmConfigSpec::deserialize(config.data.get("spec")?).ok();
        let limit = |config: &DynamicObject| config.annotations().get(names::MAX_LEARNERS_ANNOTATION).cloned();
        Snapshot {
            now,
            cluster: naming.into_iter().next(),
            configs: configs.iter().filter_map(|(name, config)| Some((name.clone(), spec(config)?))).collect(),
            learner_limits: configs.iter().filter_map(|(name, config)| Some((name.clone(), limit(config)?))).collect(),
            machines,
            etcd: etcd.clone(),
            unread: self.unread.clone(),
        }
    }
}
