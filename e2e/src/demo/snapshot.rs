//! What the demo shows of a cluster, all read at the same time.

use crate::bed::ClusterHandle;
use anyhow::{Context, Result};
use api::EtcdClusterStatus;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};
use kubectl_etcdcluster::reader::now;
use kubectl_etcdcluster::report::Report;
use kubectl_etcdcluster::snapshot::Objects;
use serde_json::Value;

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Name of the Cluster.
    pub cluster: String,
    /// The Cluster's condition about its etcd: status, reason, message.
    pub cluster_condition: Option<(String, String, String)>,
    /// When it was read.
    pub now: Timestamp,
    /// The EtcdCluster, as the kubectl plugin reports on it.
    pub etcd: Report,
    /// Its status.
    pub status: EtcdClusterStatus,
    /// Name of the control plane.
    pub control_plane: String,
    /// Whether it is paused.
    pub paused: bool,
    /// The endpoints in it.
    pub endpoints: Vec<String>,
    /// Control-plane Machines: name, whether it has bootstrap data.
    pub control_plane_machines: Vec<(String, bool)>,
    /// Machines of control plane and workers that have become Nodes: name, whether the Node is Ready.
    pub nodes: Vec<(String, bool)>,
}

impl Snapshot {
    /// Reads a cluster. What does not exist yet is left empty.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn take(handle: &ClusterHandle) -> Result<Self> {
        let machines = handle.api("Machine").list(&ListParams::default()).await?.items;
        let etcd = handle.etcds().get(&handle.etcd).await?;
        let cluster = handle.api("Cluster").get(&handle.cluster).await?;
        let control_plane = handle.api("KubeadmControlPlane").get(&handle.control_plane).await?;
        let is_control_plane =
            |machine: &&DynamicObject| machine.labels().contains_key("cluster.x-k8s.io/control-plane");
        let endpoints = "/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external/endpoints";
        let cluster_condition = condition(&cluster, api::conditions::MANAGED_EXTERNAL_ETCD_READY);
        let status = etcd.status.clone().unwrap_or_default();
        let objects =
            Objects { etcds: vec![etcd], machines: machines.clone(), clusters: vec![cluster], ..Objects::default() };
        let etcd = objects.snapshots(now()).pop().context("the EtcdCluster that was just read is not there")?;
        Ok(Self {
            cluster: handle.cluster.clone(),
            cluster_condition,
            now: etcd.now,
            etcd: Report::new(&etcd),
            status,
            control_plane: handle.control_plane.clone(),
            paused: control_plane.annotations().contains_key(api::names::PAUSED_ANNOTATION),
            endpoints: strings(control_plane.data.pointer(endpoints)),
            control_plane_machines: machines
                .iter()
                .filter(is_control_plane)
                .map(|m| (m.name_any(), m.data.pointer("/spec/bootstrap/dataSecretName").is_some()))
                .collect(),
            nodes: machines.iter().filter_map(node).collect(),
        })
    }

    /// How many Nodes are Ready.
    #[must_use]
    pub fn ready_nodes(&self) -> usize {
        self.nodes.iter().filter(|(_, ready)| *ready).count()
    }

    /// Whether etcd is ready.
    #[must_use]
    pub fn etcd_ready(&self) -> bool {
        self.status.ready
    }

    /// Whether a control-plane Machine has its bootstrap data.
    #[must_use]
    pub fn control_plane_has_data(&self) -> bool {
        self.control_plane_machines.iter().any(|(_, has_data)| *has_data)
    }

    /// Names of the healthy voters.
    pub fn healthy_voters(&self) -> impl Iterator<Item = &str> {
        let members = self.status.members.iter();
        members
            .filter(|m| m.healthy_since.is_some() && m.role == api::etcd_cluster::MemberRole::Voter)
            .map(|m| m.name.as_str())
    }
}

/// A Machine that has a Node, and whether that is Ready.
fn node(machine: &DynamicObject) -> Option<(String, bool)> {
    machine.data.pointer("/status/nodeRef/name")?;
    let ready = condition(machine, "NodeReady").is_some_and(|(status, ..)| status == "True");
    Some((machine.name_any(), ready))
}

fn condition(object: &DynamicObject, type_: &str) -> Option<(String, String, String)> {
    let conditions = object.data.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == type_)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

fn strings(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
