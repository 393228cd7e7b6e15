//! A provider's life as its users see it: with the files of a release, and the real clusterctl.
//!
//! [`e2e::clusterctl`] says which parts are replaced by stubs. The manager is the bed's too, because there are no nodes
//! for its Deployment.

mod earlier;
mod moves;
mod pages;
mod release;
mod upgrade;

pub(crate) use earlier::{FIRST_RELEASE, from_the_first_release};
pub(crate) use moves::moves;

use anyhow::{Context, Result, ensure};
use e2e::apply::{api_for, apply};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::clusterctl::{Setup, stand_in_for_cert_manager};
use e2e::plane::Plane;
use e2e::until::until;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use pages::commands_generate_a_cluster;
use release::{components_for_an_older_kubernetes, templates_are_generated, variables_are_explained};
use serde_json::json;
use std::time::Duration;
use upgrade::upgrade;

const PATIENCE: Duration = Duration::from_secs(120);
const NAMESPACE: &str = "clusterctl";
const INSTALLED_IN: &str = "capi-etcdadm-system";
const LABEL: &str = "cluster.x-k8s.io/provider=bootstrap-etcdadm";

/// The tag of the image that the first version installs.
const TAG: &str = "1.2.3";

/// Installs the provider, makes a cluster and describes it, upgrades the provider beside it, deletes the cluster, and
/// uninstalls the provider.
pub(crate) async fn whole_life(bed: &mut Bed) -> Result<()> {
    let setup = released(bed).await?;
    components_for_an_older_kubernetes(&setup).await?;
    install(&setup, &bed.plane).await?;
    templates_are_generated(&setup, &bed.plane).await?;
    variables_are_explained(&setup, &bed.plane).await?;
    commands_generate_a_cluster(&setup, &bed.plane).await?;
    let handle = a_cluster(bed, &setup).await?;
    upgrade(&setup, bed, &handle).await?;
    handle.delete("Cluster", &handle.cluster).await?;
    all_is_gone(&handle).await?;
    uninstall(&setup, &bed.plane).await
}

/// Waits until nothing is left of a cluster that is being deleted.
async fn all_is_gone(handle: &ClusterHandle) -> Result<()> {
    let gone = ["Cluster", "EtcdCluster", "KubeadmControlPlane", "Machine", "EtcdadmConfig", "LocalMachine"];
    handle.until_nothing_is_left(&gone, PATIENCE).await
}

/// Makes a release, and a configuration that names its place.
async fn released(bed: &Bed) -> Result<Setup> {
    let setup = Setup::new(bed.world())?;
    setup.release().await?;
    configure(&setup, TAG)?;
    Ok(setup)
}

/// Configures the image that is installed, and how much it logs.
fn configure(setup: &Setup, tag: &str) -> Result<()> {
    let image = json!({"repository": "registry.example.org", "tag": tag});
    setup.configure(json!({"images": {"bootstrap-etcdadm": image}, "ETCDADM_MANAGER_VERBOSITY": "4"}))
}

async fn install(setup: &Setup, plane: &Plane) -> Result<()> {
    stand_in_for_cert_manager(&plane.client()).await?;
    // The core provider is still there if an earlier scenario has installed it.
    setup.init(plane.kubeconfig()?, plane.client(), &[]).await?;
    is_installed(plane, TAG).await
}

async fn uninstall(setup: &Setup, plane: &Plane) -> Result<()> {
    setup.run(plane.kubeconfig()?, &["delete", "--bootstrap", "etcdadm"]).await?;
    until("the provider is gone", PATIENCE, async || {
        let left = deployments(plane).get_opt("manager").await?.is_some();
        Ok((!left && policies(plane).await? == 0).then_some(()))
    })
    .await?;
    let crds: Api<CustomResourceDefinition> = Api::all(plane.client());
    let left = crds.list(&ListParams::default().labels(LABEL)).await?.items.len();
    ensure!(left == 3, "{left} CRDs are left: without them, everybody's EtcdClusters are gone");
    // Later scenarios need the policies.
    for policy in e2e::bed::admission_policies()? {
        apply(&plane.client(), &policy.to_string()).await?;
    }
    Ok(())
}

/// Makes a cluster from the template, and checks that `clusterctl describe` shows it.
async fn a_cluster(bed: &Bed, setup: &Setup) -> Result<ClusterHandle> {
    let handle = generated(bed, setup).await?;
    let describe = ["describe", "cluster", "demo", "--namespace", NAMESPACE, "--grouping=false"];
    let described = setup.run(bed.plane.kubeconfig()?, &describe).await?;
    for shown in ["KubeadmControlPlane/demo-control-plane", "Machine/demo-etcd-0", "Machine/demo-etcd-2"] {
        let (kind, name) = shown.split_once('/').context("kind and name")?;
        let line = described.lines().any(|line| line.contains(kind) && line.contains(name));
        ensure!(line, "clusterctl describe does not show {shown}:\n{described}");
    }
    Ok(handle)
}

/// Makes a cluster from the template of the release.
async fn generated(bed: &Bed, setup: &Setup) -> Result<ClusterHandle> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, NAMESPACE).await?;
    let further = ["--target-namespace", NAMESPACE, "--kubernetes-version", "v1.36.3"];
    let manifest = setup.generate(bed.plane.kubeconfig()?, "cluster-template-local.yaml", &further).await?;
    apply(&client, &manifest).await?;
    let handle = ClusterHandle::new(&client, &Manifests::new(NAMESPACE, "demo")?);
    handle.until_ready(PATIENCE).await?;
    handle.until_control_plane_data(PATIENCE).await?;
    Ok(handle)
}

/// Checks that the manager is installed with this image and the configured flags, and so are the admission policies.
async fn is_installed(plane: &Plane, tag: &str) -> Result<()> {
    let (replicas, container) = manager(plane).await?;
    ensure!(replicas == Some(2), "{replicas:?} managers are wanted");
    let image = format!("registry.example.org/cluster-api-provider-etcdadm:{tag}");
    ensure!(container.image.as_deref() == Some(&*image), "the image is {:?}", container.image);
    let arguments = container.args.unwrap_or_default();
    ensure!(arguments.iter().any(|argument| argument == "--v=4"), "the arguments are {arguments:?}");
    let (found, wanted) = (policies(plane).await?, e2e::bed::admission_policies()?.len());
    ensure!(found == wanted, "of {wanted} admission policies and their bindings, {found} are there");
    Ok(())
}

/// How many managers are wanted, and the container of each.
async fn manager(plane: &Plane) -> Result<(Option<i32>, Container)> {
    let manager = deployments(plane).get("manager").await?.spec.context("no spec")?;
    let pod = manager.template.spec.context("no Pod")?;
    Ok((manager.replicas, pod.containers.into_iter().next().context("no container")?))
}

/// The image that a release has installed. What else it installs is its own affair.
async fn manager_image(plane: &Plane) -> Result<String> {
    manager(plane).await?.1.image.context("no image")
}

fn deployments(plane: &Plane) -> Api<Deployment> {
    Api::namespaced(plane.client(), INSTALLED_IN)
}

/// How many admission policies and their bindings the provider has installed, of all kinds of which it has one.
async fn policies(plane: &Plane) -> Result<usize> {
    let mut found = 0;
    for policy in e2e::bed::admission_policies()? {
        let (kind, _) = api_for(&plane.client(), &policy).await?;
        found += kind.list(&ListParams::default().labels(LABEL)).await?.items.len();
    }
    Ok(found)
}
