//! What the demo shows of a cluster, read in one go.

use crate::bed::Look;
use anyhow::Result;
use api::EtcdClusterStatus;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

/// A cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Name of the Cluster.
    pub cluster: String,
    /// The Cluster's condition about its etcd: status, reason, message.
    pub cluster_condition: Option<(String, String, String)>,
    /// Name of the EtcdCluster, wanted members, status.
    pub etcd: (String, i32, EtcdClusterStatus),
    /// etcd Machines: name, phase, address.
    pub machines: Vec<(String, String, String)>,
    /// Name of the control plane.
    pub control_plane: String,
    /// Whether it is paused.
    pub paused: bool,
    /// Endpoints in it.
    pub endpoints: Vec<String>,
    /// Control-plane Machines: name, whether it has bootstrap data.
    pub control_plane_machines: Vec<(String, bool)>,
    /// Machines of control plane and workers that have become Nodes: name, whether the Node is Ready.
    pub nodes: Vec<(String, bool)>,
}

impl Snapshot {
    /// Reads a cluster. What is not there yet is left empty.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn take(look: &Look) -> Result<Self> {
        let machines = look.api("Machine").list(&ListParams::default()).await?.items;
        let etcd = look.etcds().get(&look.etcd).await?;
        let cluster = look.api("Cluster").get(&look.cluster).await?;
        let control_plane = look.api("KubeadmControlPlane").get(&look.control_plane).await?;
        let is_etcd =
            |machine: &&DynamicObject| machine.labels().get(api::names::ETCD_CLUSTER_LABEL) == Some(&look.etcd);
        let is_control_plane =
            |machine: &&DynamicObject| machine.labels().contains_key("cluster.x-k8s.io/control-plane");
        let endpoints = "/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external/endpoints";
        Ok(Self {
            cluster: look.cluster.clone(),
            cluster_condition: condition(&cluster, api::conditions::MANAGED_EXTERNAL_ETCD_READY),
            etcd: (look.etcd.clone(), etcd.spec.replicas, etcd.status.unwrap_or_default()),
            machines: machines.iter().filter(is_etcd).map(machine).collect(),
            control_plane: look.control_plane.clone(),
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
        self.etcd.2.ready
    }

    /// Whether a control-plane Machine has its bootstrap data.
    #[must_use]
    pub fn control_plane_has_data(&self) -> bool {
        self.control_plane_machines.iter().any(|(_, has_data)| *has_data)
    }

    /// Names of the healthy voters.
    pub fn healthy_voters(&self) -> impl Iterator<Item = &str> {
        let members = self.etcd.2.members.iter();
        members
            .filter(|m| m.healthy_since.is_some() && m.role == api::etcd_cluster::MemberRole::Voter)
            .map(|m| m.name.as_str())
    }
}

fn machine(machine: &DynamicObject) -> (String, String, String) {
    let text = |pointer: &str| machine.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let addresses = machine.data.pointer("/status/addresses").and_then(Value::as_array);
    let internal = addresses.into_iter().flatten().find(|address| address["type"] == "InternalIP");
    let address = internal.and_then(|address| address["address"].as_str()).unwrap_or_default().to_owned();
    (machine.name_any(), text("/status/phase"), address)
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
