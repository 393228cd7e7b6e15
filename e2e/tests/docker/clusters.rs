//! Clusters for scenarios: creates them from the example, reads their state, and deletes them.

use anyhow::{Context, Result, ensure};
use api::names::ENDPOINTS_IN_USE_ANNOTATION;
use e2e::bed::{ClusterHandle, Manifests};
use e2e::docker::{DockerBed, EXAMPLE, KINDS};
use e2e::plane::{Request, Requests, users};
use e2e::until::until;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long a cluster may take here, on a busy computer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
/// How long a deletion may take if there are several at the same time on a busy computer.
pub(crate) const GONE: Duration = Duration::from_secs(180);
/// The file in a container that ends the waiting of its boot.
const GOES_ON: &str = "/run/goes-on";
/// The prefix of endpoints.
const HTTPS: &str = "https://";

/// The example's documents for a cluster with this many members.
pub(crate) fn documents(namespace: &str, name: &str, replicas: i64) -> Result<Manifests> {
    Ok(Manifests::of(EXAMPLE, namespace, name)?.replicas(replicas))
}

/// Applies a cluster with this many members.
pub(crate) async fn applied(bed: &DockerBed, namespace: &str, name: &str, replicas: i64) -> Result<ClusterHandle> {
    let manifests = documents(namespace, name, replicas)?;
    manifests.apply(&bed.client()).await?;
    Ok(ClusterHandle::new(&bed.client(), &manifests))
}

/// The same documents, but the machines of etcd wait before they run etcdadm, until [`goes_on`] is called. Their
/// containers run and there is no member, however late a scenario looks.
pub(crate) fn waiting_in_their_boot(documents: Manifests) -> Manifests {
    let waits = json!([format!("until [ -e {GOES_ON} ]; do sleep 0.2; done")]);
    documents.with("EtcdCluster", |etcd| etcd["spec"]["etcdadmConfigSpec"]["preEtcdadmCommands"] = waits)
}

/// Ends the waiting of a machine's boot.
pub(crate) async fn goes_on(bed: &DockerBed, name: &str) -> Result<()> {
    bed.exec(name, &["touch", GOES_ON]).await.map(drop)
}

/// A cluster that is up, and whose control plane is released.
pub(crate) async fn up(bed: &DockerBed, namespace: &str, name: &str, replicas: i64) -> Result<ClusterHandle> {
    let handle = applied(bed, namespace, name, replicas).await?;
    released(&handle).await?;
    Ok(handle)
}

/// Waits until etcd is Ready and the control plane has made its first Machine, with etcd's endpoints.
pub(crate) async fn released(handle: &ClusterHandle) -> Result<()> {
    let status = handle.until_ready(PATIENCE).await?;
    let data = handle.until_control_plane_data(PATIENCE).await?;
    ensure!(!handle.control_plane_is_paused().await?, "{} is still paused", handle.control_plane);
    for endpoint in status.endpoints.split(',') {
        ensure!(endpoint.starts_with(HTTPS), "an endpoint is {endpoint:?}");
        ensure!(data.contains(endpoint), "{endpoint} is not in the first Machine's bootstrap data");
    }
    Ok(())
}

/// Waits until an etcd machine's container runs.
pub(crate) async fn container(bed: &DockerBed, name: &str) -> Result<()> {
    until(format!("container {name} runs"), PATIENCE, async || bed.exec(name, &["true"]).await.map(Some)).await?;
    Ok(())
}

/// Changes an object, as its user would.
pub(crate) async fn change(handle: &ClusterHandle, kind: &str, name: &str, patch: &Value) -> Result<()> {
    let answer = handle.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    answer.with_context(|| format!("change {kind} {name}"))?;
    Ok(())
}

/// Sets or removes an annotation.
pub(crate) async fn annotate(
    handle: &ClusterHandle,
    kind: &str,
    name: &str,
    key: &str,
    value: Option<&str>,
) -> Result<()> {
    change(handle, kind, name, &json!({"metadata": {"annotations": {key: value}}})).await
}

/// Lets etcd's members be probed every second, so that a failure is seen within seconds: a few more than a member on a
/// busy computer takes to answer. Failures are only reported, because after so few seconds a member should not be
/// replaced there.
pub(crate) async fn look_closely(handle: &ClusterHandle) -> Result<()> {
    let check = json!({"intervalSeconds": 1, "unhealthyAfterSeconds": 5});
    let patch = json!({"spec": {"healthCheck": check, "remediation": {"mode": "Report"}}});
    change(handle, "EtcdCluster", &handle.etcd, &patch).await
}

/// The endpoints that the API server on a control-plane node was started with, sorted.
pub(crate) async fn servers(bed: &DockerBed, machine: &str) -> Result<Vec<String>> {
    let manifest = bed.exec(machine, &["cat", "/etc/kubernetes/manifests/kube-apiserver.yaml"]).await?;
    let servers = manifest.lines().find_map(|line| line.trim().strip_prefix("- --etcd-servers="));
    let servers = servers.with_context(|| format!("the API server on {machine} has no --etcd-servers"))?;
    let mut servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
    servers.sort_unstable();
    Ok(servers)
}

/// Whether these endpoints, with which an API server was started, are a list that is recorded as in use on the
/// EtcdCluster.
pub(crate) async fn is_recorded(handle: &ClusterHandle, endpoints: &[String]) -> Result<bool> {
    let etcd = handle.etcds().get(&handle.etcd).await?;
    let recorded = etcd.annotations().get(ENDPOINTS_IN_USE_ANNOTATION).map_or("", String::as_str);
    let list = endpoints.join(",");
    Ok(recorded.split(';').any(|found| found == list))
}

/// Deletes the only Cluster, and waits until the computer is as it was before: everything that the deletion has to
/// remove is gone, including containers, networks and volumes.
pub(crate) async fn deleted_without_a_trace(bed: &DockerBed, handle: &ClusterHandle) -> Result<()> {
    let begun = Instant::now();
    handle.delete("Cluster", &handle.cluster).await?;
    handle.until_nothing_is_left(&KINDS, GONE).await?;
    let left = bed.traces().await?;
    ensure!(left.is_empty(), "left are {left:?}");
    println!("  deletion took {:.1} s", begun.elapsed().as_secs_f32());
    Ok(())
}

/// Waits until nothing is left of a cluster that is being deleted: no objects of its name in its namespace, and no
/// containers.
pub(crate) async fn gone(bed: &DockerBed, handle: &ClusterHandle) -> Result<()> {
    let ours = |name: &str| name == handle.cluster || name.starts_with(&format!("{}-", handle.cluster));
    until(format!("nothing is left of {}", handle.cluster), GONE, async || {
        let mut left = Vec::new();
        for kind in KINDS {
            left.extend(handle.names(kind, "").await?.iter().filter(|n| ours(n)).map(|name| format!("{kind} {name}")));
        }
        left.extend(handle.secret_names().await?.iter().filter(|n| ours(n)).map(|name| format!("Secret {name}")));
        left.extend(
            handle.config_map_names().await?.iter().filter(|n| ours(n)).map(|name| format!("ConfigMap {name}")),
        );
        left.extend(bed.containers().await?.iter().filter(|n| ours(n)).map(|name| format!("container {name}")));
        ensure!(left.is_empty(), "left are {}", left.join(", "));
        Ok(Some(()))
    })
    .await
}

/// Successful requests of one user about one cluster's objects.
pub(crate) fn granted(requests: &Requests, handle: &ClusterHandle, user: &str) -> Requests {
    let prefix = format!("{}-", handle.cluster);
    let ours = |request: &Request| request.name == handle.cluster || request.name.starts_with(&prefix);
    requests.user(user).done_in(&handle.namespace).filter(ours)
}

/// According to the API server's audit log, we wrote endpoints, then made the client Secret, and only then did the
/// control plane make a Machine.
pub(crate) fn gate_was_kept(requests: &Requests, handle: &ClusterHandle) -> Result<()> {
    let ours = granted(requests, handle, users::PROVIDER);
    let written = writes_of_endpoints(requests, handle);
    let written = written.iter().next().context("nobody of us wrote endpoints")?;
    let name = format!("{}-apiserver-etcd-client", handle.cluster);
    let secrets = ours.verb("create").resource("secrets").filter(|request| request.name == name);
    let published = secrets.iter().next().with_context(|| format!("nobody of us made Secret {name}"))?;
    let machines = control_plane_machines(requests, handle);
    let first = machines.iter().next().context("the control plane has made no Machine")?;
    ensure!(
        written.received < published.received && published.received < first.received,
        "endpoints were written at {}, {name} was made at {}, the control plane's first Machine at {}",
        written.received,
        published.received,
        first.received
    );
    Ok(())
}

/// Our writes of etcd's endpoints into the control plane.
pub(crate) fn writes_of_endpoints(requests: &Requests, handle: &ClusterHandle) -> Requests {
    let patches = granted(requests, handle, users::PROVIDER).verb("patch").resource("kubeadmcontrolplanes");
    patches.filter(|patch| patch.body.pointer("/spec/kubeadmConfigSpec").is_some())
}

/// Creations of Machines by the control plane.
pub(crate) fn control_plane_machines(requests: &Requests, handle: &ClusterHandle) -> Requests {
    let theirs = granted(requests, handle, users::CAPI_CONTROL_PLANE).resource("machines");
    theirs.filter(|request| request.code == 201 && request.subresource.is_empty())
}
