//! A provider's life as its users have it: the files of a release, and the real clusterctl.
//!
//! Two things stand in for what has no part in it: a core provider that is nothing but a namespace, because the bed runs Cluster
//! API's managers by hand, and the two kinds of cert-manager that clusterctl makes an object of to see whether it is there. The
//! manager is the bed's as well: there are no nodes for its Deployment.

mod moves;
mod upgrade;

pub(crate) use moves::moves;

use anyhow::{Context, Result, ensure};
use e2e::apply::apply;
use e2e::bed::{Bed, Look, Manifests};
use e2e::plane::Plane;
use e2e::process::output;
use e2e::tools::Clusterctl;
use e2e::until::until;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const NAMESPACE: &str = "clusterctl";
const INSTALLED_IN: &str = "capi-etcdadm-system";
const LABEL: &str = "cluster.x-k8s.io/provider=bootstrap-etcdadm";

/// The tag of the image that the first version installs.
const TAG: &str = "1.2.3";

/// Install, make a cluster, look at it, upgrade beside it, delete it, uninstall.
pub(crate) async fn whole_life(bed: &mut Bed) -> Result<()> {
    let setup = Setup::new(bed)?;
    setup.release(bed).await?;
    setup.stand_ins(&bed.plane).await?;
    setup.install(&bed.plane).await?;
    let look = a_cluster(bed, &setup).await?;
    setup.upgrade(bed, &look).await?;
    look.delete("Cluster", &look.cluster).await?;
    let gone = ["Cluster", "EtcdCluster", "KubeadmControlPlane", "Machine", "EtcdadmConfig", "LocalMachine"];
    look.until_nothing_is_left(&gone, PATIENCE).await?;
    setup.uninstall(&bed.plane).await
}

/// Where things are.
struct Setup {
    clusterctl: Clusterctl,
    /// As clusterctl wants a local repository: `PROVIDER/VERSION/FILE`.
    repository: PathBuf,
    version: String,
    etcd_version: String,
}

impl Setup {
    fn new(bed: &Bed) -> Result<Self> {
        let repository = bed.world().state("clusterctl")?;
        let version = format!("v{}", env!("CARGO_PKG_VERSION"));
        let etcd_version = bed.world().tools().etcd_version.clone();
        Ok(Self { clusterctl: Clusterctl::ensure()?, repository, version, etcd_version })
    }

    fn released(&self) -> PathBuf {
        self.repository.join("bootstrap-etcdadm").join(&self.version)
    }

    fn core(&self) -> PathBuf {
        self.repository.join("cluster-api").join(self.clusterctl.version())
    }

    fn configuration(&self) -> PathBuf {
        self.repository.join("clusterctl.yaml")
    }

    /// Writes where the providers are, and which image is to be installed.
    fn configure(&self, tag: &str) -> Result<()> {
        let provider = |name: &str, type_: &str, directory: &Path, file: &str| json!({"name": name, "type": type_, "url": format!("file://{}", directory.join(file).display())});
        let configuration = json!({
            "providers": [
                provider("cluster-api", "CoreProvider", &self.core(), "core-components.yaml"),
                provider("etcdadm", "BootstrapProvider", &self.released(), "bootstrap-components.yaml"),
            ],
            "images": {"bootstrap-etcdadm": {"repository": "registry.example.org", "tag": tag}},
            "ETCDADM_MANAGER_VERBOSITY": "4",
        });
        Ok(fs::write(self.configuration(), configuration.to_string())?)
    }

    /// Writes the files of a release twice, with the same bytes, and a configuration that says where they are.
    async fn release(&self, bed: &Bed) -> Result<()> {
        let again = self.repository.join("again");
        for directory in [&self.released(), &again] {
            let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/release.sh"));
            script.arg("--manifests").arg(directory).env("KUBECTL", &bed.world().tools().kubectl);
            run(script).await?;
        }
        let mut names = Vec::new();
        for file in fs::read_dir(self.released())? {
            let name = file?.file_name();
            let same = fs::read(self.released().join(&name))? == fs::read(again.join(&name))?;
            ensure!(same, "the second run has written another {}", name.display());
            names.push(name);
        }
        ensure!(names.len() == 7, "{names:?}");
        let core = self.core();
        fs::create_dir_all(&core)?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "capi-system"}});
        fs::write(core.join("core-components.yaml"), namespace.to_string())?;
        let mut version = self.clusterctl.version().trim_start_matches('v').split('.').map(str::parse::<u32>);
        let mut number = || version.next().context("a version has three numbers")?.context("a version has numbers");
        let metadata = json!({
            "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata",
            "releaseSeries": [{"major": number()?, "minor": number()?, "contract": "v1beta2"}],
        });
        fs::write(core.join("metadata.yaml"), metadata.to_string())?;
        self.configure(TAG)
    }

    /// cert-manager, as far as clusterctl asks for it.
    async fn stand_ins(&self, plane: &Plane) -> Result<()> {
        let kind = |kind: &str, plural: &str| {
            let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}});
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.cert-manager.io")},
                "spec": {"group": "cert-manager.io", "scope": "Namespaced", "versions": [version],
                    "names": {"kind": kind, "plural": plural}},
            })
        };
        let crds = [kind("Issuer", "issuers"), kind("Certificate", "certificates")];
        for crd in &crds {
            apply(&plane.client(), &crd.to_string()).await?;
        }
        let known: Api<CustomResourceDefinition> = Api::all(plane.client());
        until("cert-manager's kinds are served", PATIENCE, async || {
            for crd in &crds {
                let crd = known.get(crd["metadata"]["name"].as_str().unwrap_or_default()).await?;
                let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
                if !conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True") {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
        .await
    }

    /// Runs clusterctl, and gives what it prints.
    async fn clusterctl(&self, plane: &Plane, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.clusterctl.program());
        command.args(arguments).arg("--config").arg(self.configuration()).arg("--kubeconfig").arg(plane.kubeconfig()?);
        command.env("XDG_CONFIG_HOME", &self.repository).env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        command.env("ETCD_VERSION", &self.etcd_version);
        run(command).await
    }

    async fn install(&self, plane: &Plane) -> Result<()> {
        let core = format!("cluster-api:{}", self.clusterctl.version());
        let etcdadm = format!("etcdadm:{}", self.version);
        let mut providers = vec!["init", "--bootstrap", etcdadm.as_str(), "--control-plane", "-"];
        // The core provider is there still where a scenario before this one has installed it.
        let crds: Api<CustomResourceDefinition> = Api::all(plane.client());
        if crds.get_opt("providers.clusterctl.cluster.x-k8s.io").await?.is_none() {
            providers.extend(["--core", core.as_str()]);
        }
        self.clusterctl(plane, &providers).await?;
        is_installed(plane, TAG).await
    }

    async fn uninstall(&self, plane: &Plane) -> Result<()> {
        self.clusterctl(plane, &["delete", "--bootstrap", "etcdadm"]).await?;
        until("the provider is gone", PATIENCE, async || {
            let left = deployments(plane).get_opt("manager").await?.is_some();
            Ok((!left && policies(plane).await? == 0).then_some(()))
        })
        .await?;
        let crds: Api<CustomResourceDefinition> = Api::all(plane.client());
        let left = crds.list(&ListParams::default().labels(LABEL)).await?.items.len();
        ensure!(left == 3, "{left} CRDs are left: without them, everybody's EtcdClusters are gone");
        // The scenarios after this one want the policies.
        for policy in e2e::bed::admission_policies()? {
            apply(&plane.client(), &policy.to_string()).await?;
        }
        Ok(())
    }
}

/// Makes a cluster from the template, and looks at it.
async fn a_cluster(bed: &Bed, setup: &Setup) -> Result<Look> {
    let client = bed.client();
    Look::make_namespace(&client, NAMESPACE).await?;
    let template = setup.released().join("cluster-template-local.yaml");
    let from = template.to_str().context("a path in UTF-8")?;
    let generate = ["generate", "cluster", "demo", "--from", from, "--target-namespace", NAMESPACE];
    let manifest =
        setup.clusterctl(&bed.plane, &[&generate[..], &["--kubernetes-version", "v1.36.3"]].concat()).await?;
    apply(&client, &manifest).await?;
    let look = Look::at(&client, &Manifests::new(NAMESPACE, "demo")?);
    look.until_ready(PATIENCE).await?;
    look.until_control_plane_data(PATIENCE).await?;
    let describe = ["describe", "cluster", "demo", "--namespace", NAMESPACE, "--grouping=false"];
    let described = setup.clusterctl(&bed.plane, &describe).await?;
    for shown in ["KubeadmControlPlane/demo-control-plane", "Machine/demo-etcd-0", "Machine/demo-etcd-2"] {
        let (kind, name) = shown.split_once('/').context("kind and name")?;
        let line = described.lines().any(|line| line.contains(kind) && line.contains(name));
        ensure!(line, "clusterctl describe does not show {shown}:\n{described}");
    }
    Ok(look)
}

/// The manager of this image is installed, with the flags that were asked for, and what comes with it.
async fn is_installed(plane: &Plane, tag: &str) -> Result<()> {
    let manager = deployments(plane).get("manager").await?.spec.context("no spec")?;
    ensure!(manager.replicas == Some(2), "{:?} managers are wanted", manager.replicas);
    let pod = manager.template.spec.context("no Pod")?;
    let container = pod.containers.into_iter().next().context("no container")?;
    let image = format!("registry.example.org/cluster-api-provider-etcdadm:{tag}");
    ensure!(container.image.as_deref() == Some(&*image), "the image is {:?}", container.image);
    let arguments = container.args.unwrap_or_default();
    ensure!(arguments.iter().any(|argument| argument == "--v=4"), "the arguments are {arguments:?}");
    ensure!(policies(plane).await? == 1, "the admission policy is not there");
    Ok(())
}

fn deployments(plane: &Plane) -> Api<Deployment> {
    Api::namespaced(plane.client(), INSTALLED_IN)
}

async fn policies(plane: &Plane) -> Result<usize> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(plane.client());
    Ok(policies.list(&ListParams::default().labels(LABEL)).await?.items.len())
}

async fn run(mut command: Command) -> Result<String> {
    tokio::task::spawn_blocking(move || output(&mut command)).await?
}
