//! A control plane of a kind that only this test bed has. Cluster API's own control plane never rolls out here, because
//! no machine can run what kubeadm makes. The stub keeps the contract that any kind of control plane may keep: it takes
//! etcd's endpoints from its object, runs real API servers with them, replaces the API servers when the endpoints
//! change, and counts them in its status.
//!
//! Its API servers have no Machines, and it publishes no kubeconfig, so Cluster API does not reach the workload
//! cluster.

mod balancer;
mod provider;
mod rollout;
mod status;

use super::{Bed, ClusterHandle, Manifests};
use crate::plane::workload::Workload;
use crate::until::until;
use anyhow::{Result, ensure};
use api::names::{EXTERNAL_ETCD_PATH_ANNOTATION, PLACEHOLDER_ENDPOINT};
use balancer::Balancer;
use provider::Provider;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use rollout::Behaviour;

/// Group, version and kind.
const GROUP: &str = "example.org";
const VERSION: &str = "v1";
const KIND: &str = "StubControlPlane";
/// Its user in the management plane.
pub(super) const USER: &str = "control-plane-stub";

/// The provider of one control plane. Dropping it kills its API servers.
pub struct ControlPlaneStub {
    /// An administrator's kubeconfig for its API servers. Each connection goes to an API server that is ready.
    pub kubeconfig: PathBuf,
    behaviour: watch::Sender<Behaviour>,
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

/// The state of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many API servers are wanted.
    pub wanted: usize,
    /// Endpoints of each running API server, oldest first.
    pub servers: Vec<Vec<String>>,
    /// How many of the running API servers are ready.
    pub ready: usize,
    /// How many API servers have been started so far.
    pub started: usize,
    /// The error of the last turn, if it failed.
    pub trouble: Option<String>,
}

impl ControlPlaneStub {
    /// Starts the provider of a cluster's control plane. The control plane's object has to exist.
    ///
    /// # Errors
    /// When it cannot connect to the management plane, or cannot prepare the files and the port of its API servers.
    pub async fn start(bed: &Bed, handle: &ClusterHandle) -> Result<Self> {
        let handle = ClusterHandle { client: bed.plane.client_for(USER).await?, ..handle.clone() };
        let workload = Workload::at(bed.world(), &format!("control-plane-{}", handle.namespace))?;
        let balancer = Balancer::start().await?;
        let kubeconfig = workload.kubeconfig(balancer.port())?;
        let observed = bed.observed_servers(&format!("{}/{}", handle.namespace, handle.cluster));
        let (behaviour, orders) = watch::channel(Behaviour::Rolls);
        let (news, seen) = watch::channel(Seen::default());
        let provider = Provider::new(handle, workload, balancer, observed, orders);
        Ok(Self { kubeconfig, behaviour, seen, task: tokio::spawn(provider.run(news)) })
    }

    /// Sets how the control plane reacts to changed endpoints from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
    }

    /// The state of the control plane after the last turn.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits until all wanted API servers run and are ready, and all were started with these endpoints, which are a
    /// list with commas.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn until_all_use(&self, endpoints: &str, timeout: Duration) -> Result<()> {
        let endpoints: Vec<&str> = endpoints.split(',').collect();
        until(format!("every API server uses {endpoints:?}"), timeout, async || {
            let seen = self.seen();
            let is_whole = seen.wanted > 0 && seen.servers.len() == seen.wanted && seen.ready == seen.wanted;
            ensure!(is_whole && seen.servers.iter().all(|used| *used == endpoints), "there is {seen:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until its object is gone, and its API servers with it.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn until_gone(&self, timeout: Duration) -> Result<()> {
        until("the control plane is gone", timeout, async || {
            ensure!(self.task.is_finished(), "there is {:?}", self.seen());
            Ok(Some(()))
        })
        .await
    }
}

impl Drop for ControlPlaneStub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Manifests {
    /// Replaces the Cluster's KubeadmControlPlane by a stub with `replicas` API servers.
    #[must_use]
    pub fn with_control_plane_stub(self, replicas: usize) -> Self {
        let name = self.control_plane();
        let is_its_template = |document: &Value| {
            document["kind"] == "LocalMachineTemplate" && document["metadata"]["name"] == name.as_str()
        };
        let with_reference = self.with("Cluster", |cluster| {
            cluster["spec"]["controlPlaneRef"]["apiGroup"] = json!(GROUP);
            cluster["spec"]["controlPlaneRef"]["kind"] = json!(KIND);
        });
        let with_both = with_reference.with("KubeadmControlPlane", |control_plane| {
            control_plane["apiVersion"] = json!(format!("{GROUP}/{VERSION}"));
            control_plane["kind"] = json!(KIND);
            let etcd = json!({"external": {"endpoints": [PLACEHOLDER_ENDPOINT]}});
            control_plane["spec"] = json!({"replicas": replicas, "etcd": etcd});
        });
        with_both.without(is_its_template)
    }
}

/// The CRD. The Cluster hook needs only its annotation, which says where the spec has the external etcd.
pub(super) fn crd() -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let singular = KIND.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{singular}s.{GROUP}"),
            "labels": {"cluster.x-k8s.io/v1beta2": VERSION},
            "annotations": {EXTERNAL_ETCD_PATH_ANNOTATION: "spec.etcd.external"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": KIND, "plural": format!("{singular}s"), "singular": singular},
            "versions": [{
                "name": VERSION, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_names_a_stub_and_nothing_of_kubeadms_is_left() {
        let manifests = Manifests::new("somewhere", "demo").unwrap().with_control_plane_stub(3);
        let text = serde_json::to_string(manifests.documents()).unwrap();
        assert!(!text.contains("ubeadm"), "{text}");
        let named =
            |kind: &str| manifests.documents().iter().find(|document| document["kind"] == kind).unwrap().clone();
        let reference = json!({"apiGroup": GROUP, "kind": KIND, "name": "demo-control-plane"});
        assert_eq!(named("Cluster")["spec"]["controlPlaneRef"], reference);
        assert_eq!(named(KIND)["spec"]["replicas"], 3);
        let templates = manifests.documents().iter().filter(|document| document["kind"] == "LocalMachineTemplate");
        assert_eq!(templates.map(|it| it["metadata"]["name"].clone()).collect::<Vec<_>>(), ["demo-etcd"]);
    }
}
