//! As somebody has it who is not of this project: a management cluster with Nodes, and our manager in it as Pods from
//! its image, installed from the files of a release.
//!
//! The management cluster is one that Cluster API has made. Three things are not as they would be: Cluster API's own
//! managers run beside it and not in it, since they have no images here; a rule of iptables stands in for kube-proxy;
//! and nobody runs clusterctl, which another scenario does (`clusterctl::whole_life`), so the variables are filled in
//! here.

use crate::clusters::{PATIENCE, change, documents, gone};
use anyhow::{Context, Result, ensure};
use e2e::bed::{Look, Manifests, programs};
use e2e::docker::{DockerBed, ManagerImage, Workload};
use e2e::process::output;
use e2e::until::until;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const NAMESPACE: &str = "outsider";
const INSTALLED_IN: &str = "capi-etcdadm-system";
const LEASE: &str = "cluster-api-provider-etcdadm";
/// The manager's Pods.
const LABEL: &str = "app.kubernetes.io/name=cluster-api-provider-etcdadm";
/// How long the Pod that waits may take to get to work. A lease that is not given back ends after 15 s.
const TAKES_OVER: Duration = Duration::from_secs(60);

/// Two Pods, a cluster that they bring up, and the one that works is deleted: another one goes on.
pub(crate) async fn installs_a_release(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let (workload, node) = a_cluster_with_one_node(bed).await?;
    let begun = Instant::now();
    let lap = |what: &str| println!("  {what:<40} {:>6.1} s", begun.elapsed().as_secs_f32());
    let cluster_api = bed.start_cluster_api_for(workload.kubeconfig()).await?;
    lap("Cluster API is there");
    let address = ["get", "service", "kubernetes", "--namespace=default", "--output=jsonpath={.spec.clusterIP}"];
    bed.serve_the_api(&node, &workload.kubectl(&address)?).await?;
    bed.load_image(&node, &ManagerImage::find()?).await?;
    let components = components(bed).await?;
    workload.kubectl(&["apply", "--server-side", "--filename", &components.to_string_lossy()])?;
    let cluster = Installed::new(&workload);
    let pods = cluster.until_both_are_ready().await?;
    lap("both Pods are ready");
    let budget = ["get", "poddisruptionbudgets", "manager", "--namespace", INSTALLED_IN];
    let budget = [&budget[..], &["--output=jsonpath={.status.disruptionsAllowed} of {.status.expectedPods}"]].concat();
    until("the PodDisruptionBudget lets one of two Pods go", PATIENCE, async || {
        let allowed = workload.kubectl(&budget)?;
        ensure!(allowed == "1 of 2", "it lets {allowed} go");
        Ok(Some(()))
    })
    .await?;

    let client = workload.client();
    Look::make_namespace(&client, NAMESPACE).await?;
    let manifests = documents(NAMESPACE, "inside", 1)?;
    manifests.apply(&client).await?;
    let look = Look::at(&client, &manifests);
    look.until_ready(PATIENCE).await?;
    look.until_control_plane_data(PATIENCE).await?;
    lap("a cluster that was made there is Ready");
    logs_are_found(&workload, &look)?;

    let before = cluster.holder().await?;
    ensure!(pods.contains(&before), "{before} has the lease, the Pods are {pods:?}");
    cluster.pods.delete(&before, &DeleteParams::default()).await.context("delete the Pod that works")?;
    let after = until("another Pod works", TAKES_OVER, async || {
        let holder = cluster.holder().await?;
        Ok((holder != before).then_some(holder))
    })
    .await?;
    println!("  {after} has taken over from {before}");
    lap("another Pod works");
    change(&look, "EtcdCluster", &look.etcd, &json!({"spec": {"replicas": 3}})).await?;
    until("three members are healthy", PATIENCE, async || {
        let status = look.status().await?;
        ensure!(status.ready && status.ready_replicas == 3 && status.members.len() == 3, "{:?}", status.conditions);
        Ok(Some(()))
    })
    .await?;
    cluster.until_both_are_ready().await?;
    lap("there are three members, and two Pods");
    look.delete("Cluster", &look.cluster).await?;
    gone(bed, &look).await?;
    lap("nothing of it is left");
    drop(cluster_api);
    Ok(())
}

/// A Kubernetes cluster of one control-plane node, and the name of that.
async fn a_cluster_with_one_node(bed: &DockerBed) -> Result<(Workload, String)> {
    let client = bed.client();
    Look::make_namespace(&client, NAMESPACE).await?;
    let manifests = Manifests::of("examples/docker/cluster.yaml", NAMESPACE, NAMESPACE)?.replicas(1);
    let worker = format!("{NAMESPACE}-md-0");
    let manifests = manifests.without(|document| document["metadata"]["name"] == worker.as_str());
    manifests.apply(&client).await?;
    let look = Look::at(&client, &manifests);
    look.until_ready(PATIENCE).await?;
    let workload = Workload::until_ready(bed, &look, PATIENCE).await?;
    workload.until_nodes(1, PATIENCE).await?;
    let machines = look.control_plane_machines().await?;
    let node = machines.into_iter().next().context("the control plane has no Machine")?;
    Ok((workload, node))
}

/// Writes `bootstrap-components.yaml` of a release, as clusterctl applies it where nobody has set a variable.
async fn components(bed: &DockerBed) -> Result<PathBuf> {
    let directory = bed.world().state("release")?;
    let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/release.sh"));
    script.arg("--manifests").arg(&directory).env("KUBECTL", &bed.world().tools().kubectl);
    tokio::task::spawn_blocking(move || output(&mut script)).await??;
    let released = fs::read_to_string(directory.join("bootstrap-components.yaml"))?;
    let image = ManagerImage::reference();
    ensure!(released.contains(&format!("image: {image}\n")), "the Deployment has another image than {image}");
    let file = directory.join("applied.yaml");
    fs::write(&file, with_defaults(&released)?)?;
    Ok(file)
}

/// Fills in `${NAME:=DEFAULT}`.
fn with_defaults(text: &str) -> Result<String> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, variable)) = rest.split_once("${") {
        let (variable, after) = variable.split_once('}').context("a variable does not end")?;
        let (_, default) = variable.split_once(":=").with_context(|| format!("{variable} has no default"))?;
        filled.push_str(before);
        filled.push_str(default);
        rest = after;
    }
    Ok(filled + rest)
}

/// What the plugin finds, now that there are Pods.
fn logs_are_found(workload: &Workload, look: &Look) -> Result<()> {
    let mut logs = Command::new(programs()?.join("kubectl-etcdcluster"));
    logs.args(["logs", &look.etcd, "--namespace", &look.namespace, "--kubeconfig"]).arg(workload.kubeconfig());
    let logs = output(&mut logs)?;
    ensure!(logs.contains(&look.etcd), "kubectl etcdcluster logs finds nothing of {} in the Pods: {logs:?}", look.etcd);
    Ok(())
}

/// The manager as it is installed.
struct Installed {
    pods: Api<Pod>,
    leases: Api<Lease>,
}

impl Installed {
    fn new(workload: &Workload) -> Self {
        let client: Client = workload.client();
        Self { pods: Api::namespaced(client.clone(), INSTALLED_IN), leases: Api::namespaced(client, INSTALLED_IN) }
    }

    /// Waits until there are two Pods and both are ready, and gives their names.
    async fn until_both_are_ready(&self) -> Result<Vec<String>> {
        until("the manager's two Pods are ready", PATIENCE, async || {
            let pods = self.pods.list(&ListParams::default().labels(LABEL)).await?.items;
            let is_ready = |pod: &Pod| {
                let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                conditions.into_iter().flatten().any(|found| found.type_ == "Ready" && found.status == "True")
            };
            let states: Vec<_> = pods.iter().map(|pod| pod.status.as_ref()).collect();
            ensure!(pods.len() == 2 && pods.iter().all(is_ready), "{states:?}");
            Ok(Some(pods.iter().map(ResourceExt::name_any).collect()))
        })
        .await
    }

    /// Name of the Pod that has the lease.
    async fn holder(&self) -> Result<String> {
        let holder = self.leases.get(LEASE).await?.spec.and_then(|spec| spec.holder_identity);
        let holder = holder.filter(|holder| !holder.is_empty()).context("nobody has the lease")?;
        // Behind the name stands what tells one life of a Pod from the next.
        Ok(holder.rsplit_once('_').map_or(holder.as_str(), |(pod, _)| pod).to_owned())
    }
}
