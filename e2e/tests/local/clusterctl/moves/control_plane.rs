//! The control plane of the cluster that is moved: it keeps what it was given of etcd, and is given nothing else.
//!
//! It is Cluster API's own, but no machine of the local infrastructure can run what kubeadm makes: no API server
//! answers at the Cluster's endpoint, so Cluster API never finds the control plane initialized, nor a Node of its
//! Machine. clusterctl asks for both. So the scenario says them in the status, where a kubelet would have Cluster API
//! say them, and on each side again, since a status is not moved. What follows from that in the Cluster, Cluster API
//! says itself.

use super::{PATIENCE, STAYS};
use anyhow::{Context, Result, ensure};
use api::names::{ENDPOINTS_IN_USE_ANNOTATION, PAUSED_ANNOTATION, apiserver_client_secret};
use e2e::bed::ClusterHandle;
use e2e::plane::{Mark, Plane, Request};
use e2e::until::until;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// The Cluster hook's record on the control plane of what it has written into it.
const WRITTEN_ENDPOINTS: &str = "etcdcluster.cluster.x-k8s.io/written-endpoints";
/// The annotation of a pause, in a patch.
const PAUSE: &str = "/metadata/annotations/cluster.x-k8s.io~1paused";

/// What the control plane has of etcd.
#[derive(Debug, PartialEq)]
pub(super) struct Given {
    endpoints: Vec<String>,
    written: Option<String>,
    /// The record on the EtcdCluster of what API servers may use.
    in_use: Option<String>,
    pause: Option<String>,
    /// Certificate and key, from the Secret that is the gate.
    client: [String; 2],
    /// Names of its Machines: it replaces none.
    machines: Vec<String>,
}

impl Given {
    /// Reads it, when the Cluster hook has found all well, and had the time to change something.
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

    /// Nothing of it is missing: else there would be nothing that a move could lose.
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

/// Has it said that the control plane works, and waits until the Cluster says so. Once said, it stays. What is gone by
/// now has nobody to say it.
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

/// Since then, nobody has written to the control plane's spec on this side, or paused it for a moment. clusterctl has
/// made it here, as it was.
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
