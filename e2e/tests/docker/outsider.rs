//! What a person outside this project has: a management cluster with Nodes, in which our manager runs as Pods from its
//! image. clusterctl installs it from the files of a release, and it is uninstalled as docs/install.md says.
//!
//! Cluster API has made the management cluster. It differs from a usual one in two ways: Cluster API's own managers run
//! beside it and not in it, because they have no images here, and cert-manager is missing with them
//! ([`e2e::clusterctl`]); and a rule of iptables replaces kube-proxy. The plane's own docker infrastructure is stopped
//! meanwhile, because its manager uses a port that no flag changes.

use crate::clusters::{PATIENCE, change, documents, gone};
use anyhow::{Context, Result, ensure};
use e2e::bed::{ClusterHandle, Manifests, metrics, plugin, reader};
use e2e::clusterctl::{Setup, stand_in_for_cert_manager};
use e2e::docker::{DockerBed, ManagerImage, Workload};
use e2e::process::{self, output};
use e2e::scenarios::caught;
use e2e::until::until;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

const NAMESPACE: &str = "outsider";
const INSTALLED_IN: &str = "capi-etcdadm-system";
const LEASE: &str = "cluster-api-provider-etcdadm";
/// The manager's Pods.
const LABEL: &str = "app.kubernetes.io/name=cluster-api-provider-etcdadm";
/// The label of everything that clusterctl has installed.
const PROVIDER: &str = "cluster.x-k8s.io/provider=bootstrap-etcdadm";
/// The ClusterRole of clients that read the metrics. The release does not bind it.
const METRICS_READER: &str = "capi-etcdadm-metrics-reader";
/// A port of this world that is forwarded to a Pod's metrics.
const METRICS_PORT: u16 = 9712;
/// How long the waiting Pod may take to start work. A lease that was not given back expires after 30 s.
const TAKES_OVER: Duration = Duration::from_secs(60);

/// Two Pods bring up a cluster and report it in their metrics. Then the active Pod is deleted, and another one goes on.
/// In the end, nothing of the cluster and the provider is left.
pub(crate) async fn installs_a_release(bed: &mut DockerBed) -> Result<()> {
    let (workload, node) = a_cluster_with_one_node(bed).await?;
    bed.capd().kill().await?;
    let ended = caught(in_it(bed, workload, node)).await;
    bed.capd().restart().await?;
    ended
}

async fn in_it(bed: &DockerBed, workload: Workload, node: String) -> Result<()> {
    let begun = Instant::now();
    let lap = |what: &str| println!("  {what:<40} {:>6.1} s", begun.elapsed().as_secs_f32());
    let cluster_api = bed.start_cluster_api_for(workload.kubeconfig()).await?;
    lap("Cluster API is there");
    let address = ["get", "service", "kubernetes", "--namespace=default", "--output=jsonpath={.spec.clusterIP}"];
    bed.serve_the_api(&node, &workload.kubectl(&address)?).await?;
    bed.load_image(&node, &ManagerImage::find()?).await?;
    let setup = install(bed, &workload).await?;
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
    ClusterHandle::make_namespace(&client, NAMESPACE).await?;
    let manifests = documents(NAMESPACE, "inside", 1)?;
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    handle.until_ready(PATIENCE).await?;
    handle.until_control_plane_data(PATIENCE).await?;
    lap("a cluster that was made there is Ready");
    logs_are_found(&workload, &handle)?;

    let before = cluster.holder().await?;
    ensure!(pods.contains(&before), "{before} has the lease, the Pods are {pods:?}");
    tells_those_who_may_read(bed, &workload, &before, &handle).await?;
    lap("its metrics are read with a token");
    cluster.pods.delete(&before, &DeleteParams::default()).await.context("delete the Pod that works")?;
    let after = until("another Pod works", TAKES_OVER, async || {
        let holder = cluster.holder().await?;
        Ok((holder != before).then_some(holder))
    })
    .await?;
    println!("  {after} has taken over from {before}");
    lap("another Pod works");
    change(&handle, "EtcdCluster", &handle.etcd, &json!({"spec": {"replicas": 3}})).await?;
    until("three members are healthy", PATIENCE, async || {
        let status = handle.status().await?;
        ensure!(status.ready && status.ready_replicas == 3 && status.members.len() == 3, "{:?}", status.conditions);
        Ok(Some(()))
    })
    .await?;
    cluster.until_both_are_ready().await?;
    lap("there are three members, and two Pods");
    handle.delete("Cluster", &handle.cluster).await?;
    gone(bed, &handle).await?;
    lap("nothing of it is left");
    uninstall(&setup, &workload).await?;
    lap("the provider is uninstalled");
    drop(cluster_api);
    Ok(())
}

/// A Kubernetes cluster of one control-plane node, and the name of that node.
async fn a_cluster_with_one_node(bed: &DockerBed) -> Result<(Workload, String)> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, NAMESPACE).await?;
    let manifests = Manifests::of("examples/docker/cluster.yaml", NAMESPACE, NAMESPACE)?.replicas(1);
    let worker = format!("{NAMESPACE}-md-0");
    let manifests = manifests.without(|document| document["metadata"]["name"] == worker.as_str());
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    handle.until_ready(PATIENCE).await?;
    let workload = Workload::until_ready(bed, &handle, PATIENCE).await?;
    workload.until_nodes(1, PATIENCE).await?;
    let machines = handle.control_plane_machines().await?;
    let node = machines.into_iter().next().context("the control plane has no Machine")?;
    Ok((workload, node))
}

/// Lets clusterctl install a release in the cluster, with all defaults, and waits until the manager runs.
async fn install(bed: &DockerBed, workload: &Workload) -> Result<Setup> {
    let setup = Setup::new(bed.world())?;
    setup.release().await?;
    setup.configure(json!({}))?;
    let released = fs::read_to_string(setup.released().join("bootstrap-components.yaml"))?;
    let image = ManagerImage::reference();
    ensure!(released.contains(&format!("image: {image}\n")), "the Deployment has another image than {image}");
    stand_in_for_cert_manager(&workload.client()).await?;
    setup.init(workload.kubeconfig(), workload.client(), &["--wait-providers"]).await?;
    Ok(setup)
}

/// Removes what was installed, in the two steps of docs/install.md, and checks that nothing is left.
async fn uninstall(setup: &Setup, workload: &Workload) -> Result<()> {
    let everything = ["delete", "--bootstrap", "etcdadm", "--include-crd", "--include-namespace"];
    setup.run(workload.kubeconfig(), &everything).await?;
    let selector = format!("--selector={PROVIDER}");
    workload.kubectl(&["delete", "clusterroles,clusterrolebindings", &selector])?;
    let kinds = "customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies,\
        validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings,namespaces";
    until("nothing of the provider is left", PATIENCE, async || {
        let left = workload.kubectl(&["get", kinds, &selector, "--output=name"])?;
        ensure!(left.is_empty(), "left are {}", left.split_whitespace().collect::<Vec<_>>().join(", "));
        let namespace = workload.kubectl(&["get", "namespace", INSTALLED_IN, "--ignore-not-found", "--output=name"])?;
        Ok(namespace.is_empty().then_some(()))
    })
    .await
}

/// The Pod serves metrics over TLS only to users to whom the release's ClusterRole is bound. The metrics report the
/// cluster, and that the Pod is active.
async fn tells_those_who_may_read(
    bed: &DockerBed,
    workload: &Workload,
    pod: &str,
    handle: &ClusterHandle,
) -> Result<()> {
    let client = workload.client();
    let prometheus = reader(&client, "default", "prometheus", Some(METRICS_READER)).await?;
    let visitor = reader(&client, "default", "visitor", None).await?;
    let _leads_there = process::Command::new("port-forward", &bed.world().tools().kubectl, bed.world().logs())
        .arg("--kubeconfig")
        .arg(workload.kubeconfig())
        .args(["port-forward", "--namespace", INSTALLED_IN, pod, &format!("{METRICS_PORT}:8443")])
        .spawn()?;
    ensure!(answer(None).await? == Err(401), "without a token");
    ensure!(answer(Some(&visitor)).await? == Err(403), "without the role");
    let name = format!("name=\"{}\"", handle.etcd);
    until("the Pod that works tells of the cluster", PATIENCE, async || {
        let text = metrics(METRICS_PORT, Some(&prometheus)).await?;
        let text = text.map_err(|status| anyhow::anyhow!("{status} with the role"))?;
        ensure!(text.contains("\netcdadm_provider_lease_held 1\n"), "it does not say that it holds the lease");
        let mut ready = text.lines().filter(|line| line.starts_with("etcdadm_provider_etcd_cluster_ready{"));
        ensure!(ready.any(|line| line.contains(&name) && line.ends_with(" 1")), "{} is not Ready: {text}", handle.etcd);
        Ok(Some(()))
    })
    .await
}

/// The Pod's answer to the owner of a token, once the port forwarding works.
async fn answer(token: Option<&str>) -> Result<Result<String, u16>> {
    until("the Pod answers", PATIENCE, async || metrics(METRICS_PORT, token).await.map(Some)).await
}

/// The plugin finds the logs of the Pods.
fn logs_are_found(workload: &Workload, handle: &ClusterHandle) -> Result<()> {
    let mut logs = Command::new(plugin()?);
    logs.args(["logs", &handle.etcd, "--namespace", &handle.namespace, "--kubeconfig"]).arg(workload.kubeconfig());
    let logs = output(&mut logs)?;
    ensure!(
        logs.contains(&handle.etcd),
        "kubectl etcdcluster logs finds nothing of {} in the Pods: {logs:?}",
        handle.etcd
    );
    Ok(())
}

/// The installed manager.
struct Installed {
    pods: Api<Pod>,
    leases: Api<Lease>,
}

impl Installed {
    fn new(workload: &Workload) -> Self {
        let client: Client = workload.client();
        Self { pods: Api::namespaced(client.clone(), INSTALLED_IN), leases: Api::namespaced(client, INSTALLED_IN) }
    }

    /// Waits until there are two Pods and both are ready, and returns their names.
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

    /// Name of the Pod that holds the lease.
    async fn holder(&self) -> Result<String> {
        let holder = self.leases.get(LEASE).await?.spec.and_then(|spec| spec.holder_identity);
        let holder = holder.filter(|holder| !holder.is_empty()).context("nobody has the lease")?;
        // The name is followed by a suffix that distinguishes the lives of a Pod.
        Ok(holder.rsplit_once('_').map_or(holder.as_str(), |(pod, _)| pod).to_owned())
    }
}
