//! The control plane of the cluster that moves: it keeps what it was given for etcd, and is given nothing else.
//!
//! It is Cluster API's own kind, but no machine of the local infrastructure can run what kubeadm makes. No API server
//! answers at the Cluster's endpoint, so Cluster API never finds that the control plane is initialized, nor a Node of
//! its Machine. clusterctl requires both. So the scenario writes both into the status, as Cluster API would if there
//! were a kubelet. It does so on each side, because a status is not moved. Cluster API itself derives the Cluster's
//! status from this.

use super::{PATIENCE, STAYS};
use anyhow::{Context, Result, ensure};
use api::names::{ENDPOINTS_IN_USE_ANNOTATION, PAUSED_ANNOTATION, apiserver_client_secret};
use e2e::bed::ClusterHandle;
use e2e::plane::{Mark, Plane, Request};
use e2e::until::until;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// The annotation on the control plane in which the Cluster hook records the endpoints that it has written.
const WRITTEN_ENDPOINTS: &str = "etcdcluster.cluster.x-k8s.io/written-endpoints";
/// JSON pointer to the pause annotation in a patch.
const PAUSE: &str = "/metadata/annotations/cluster.x-k8s.io~1paused";

/// What the control plane was given for etcd.
#[derive(Debug, PartialEq)]
pub(super) struct Given {
    endpoints: Vec<String>,
    written: Option<String>,
    /// The record on the EtcdCluster of the endpoints in use.
    in_use: Option<String>,
    pause: Option<String>,
    /// Certificate and key, from the Secret that is the gate.
    client: [String; 2],
    /// Names of its Machines, none of which it may replace.
    machines: Vec<String>,
}

impl Given {
    /// Reads it after the Cluster hook has reported Ready and has had time to change something.
    pub(super) async fn read(handle: &ClusterHandle) -> Result<Self> {
        handle.until_cluster_condition("ManagedExternalEtcdReady", "True", "Ready", PATIENCE).await?;
        tokio::time::sleep(STAYS).await;
        let (control_plane, etcd) = (handle.control_plane().await?, handle.etcds().get(&handle.etcd).await?);
        let client = apiserver_client_secret(&handle.cluster);
        Ok(Self {
            endpoints: handle.control_plane_endpoints().await?,
            written: annotation(&control_plane, WRITTEN_ENDPOINTS),
            in_use: annotation(&etcd, ENDPOINTS_IN_USE_ANNOTATION),
            pause: annotation(&control_plane, PAUSED_ANNOTATION),
            client: [handle.secret(&client, "tls.crt").await?, handle.secret(&client, "tls.key").await?],
            machines: handle.control_plane_machines().await?,
        })
    }

    /// Checks that nothing is missing. Otherwise a move could not lose it.
    pub(super) fn is_whole(&self) -> Result<()> {
        let Self { endpoints, written, in_use, pause, machines, .. } = self;
        let counts = (endpoints.len(), machines.len());
        ensure!(counts == (3, 1), "the endpoints are {endpoints:?}, the control plane's Machines {machines:?}");
        ensure!(written.is_some() && in_use.is_some(), "the records are {written:?} and {in_use:?}");
        ensure!(pause.is_none(), "the control plane is paused: {pause:?}");
        Ok(())
    }
}

fn annotation(object: &impl ResourceExt, name: &str) -> Option<String> {
    object.annotations().get(name).cloned()
}

/// Writes into the status that the control plane works, and waits until the Cluster reports it. Once written, it stays.
/// Objects that an interrupted move has already deleted are left out.
pub(super) async fn works(handle: &ClusterHandle) -> Result<()> {
    let parameters = PatchParams::default();
    let control_planes = handle.api("KubeadmControlPlane");
    if control_planes.get_opt(&handle.control_plane).await?.is_some() {
        let said = Patch::Merge(json!({"status": {"initialization": {"controlPlaneInitialized": true}}}));
        control_planes.patch_status(&handle.control_plane, &parameters, &said).await.context("the control plane")?;
    }
    for machine in handle.control_plane_machines().await? {
        let said = Patch::Merge(json!({"status": {"nodeRef": {"name": machine}}}));
        handle.api("Machine").patch_status(&machine, &parameters, &said).await.context("its Machine")?;
    }
    let clusters = handle.api("Cluster");
    until("the Cluster says that its control plane is initialized", PATIENCE, async || {
        let Some(cluster) = clusters.get_opt(&handle.cluster).await? else { return Ok(Some(())) };
        let conditions = cluster.data.pointer("/status/conditions").and_then(Value::as_array);
        let mut conditions = conditions.into_iter().flatten();
        let is_said =
            conditions.any(|condition| condition["type"] == "ControlPlaneInitialized" && condition["status"] == "True");
        let is_initialized = cluster.data.pointer("/status/initialization/controlPlaneInitialized");
        Ok((is_said && is_initialized == Some(&json!(true))).then_some(()))
    })
    .await
}

/// Checks that, since then, the control plane was made on this side, by clusterctl, and that nobody has written to its
/// spec or paused it, even for a moment.
pub(super) fn is_untouched(handle: &ClusterHandle, plane: &Plane, since: Mark) -> Result<()> {
    let writes = plane.requests_since(since)?.writes().resource("kubeadmcontrolplanes");
    let writes = writes.filter(|request| request.namespace == handle.namespace && request.code < 300);
    ensure!(!writes.verb("create").is_empty(), "nobody has made the control plane here: {writes}");
    let touches = |request: &Request| {
        let whole = request.verb == "update" && request.subresource.is_empty();
        whole || request.body.get("spec").is_some() || request.body.pointer(PAUSE).is_some()
    };
    let touched = writes.filter(touches);
    ensure!(touched.is_empty(), "the control plane was written to: {:?}", touched.iter().next());
    Ok(())
}
