//! clusterctl, with a local repository that has a release of this checkout.
//!
//! Two things stand in for what has no part in it: a core provider that is nothing but a namespace, because Cluster
//! API's managers run as processes of the bed, and the two kinds of cert-manager that clusterctl makes an object of to
//! see whether it is there.

use crate::apply::apply;
use crate::bed::repository;
use crate::process::output_of;
use crate::tools::Clusterctl;
use crate::until::until;
use crate::world::World;
use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
/// What `hack/release.sh --manifests` writes: metadata, components, four templates and the checksums.
const FILES: usize = 7;

/// The program, its repository and its configuration.
pub struct Setup {
    clusterctl: Clusterctl,
    kubectl: PathBuf,
    etcd_version: String,
    directory: PathBuf,
    version: String,
}

impl Setup {
    /// One in a directory of the world's memory, with nothing in its repository yet.
    ///
    /// # Errors
    /// When [`Clusterctl::ensure`] has not built it outside.
    pub fn new(world: &World) -> Result<Self> {
        let tools = world.tools();
        Ok(Self {
            clusterctl: Clusterctl::ensure()?,
            kubectl: tools.kubectl.clone(),
            etcd_version: tools.etcd_version.clone(),
            directory: world.state("clusterctl")?,
            version: format!("v{}", env!("CARGO_PKG_VERSION")),
        })
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Path {
        self.clusterctl.program()
    }

    /// The repository as clusterctl wants a local one: `PROVIDER/VERSION/FILE`.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The version of the release, with its `v`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where the files of the release are.
    #[must_use]
    pub fn released(&self) -> PathBuf {
        self.directory.join("bootstrap-etcdadm").join(&self.version)
    }

    /// The configuration file.
    #[must_use]
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("clusterctl.yaml")
    }

    fn core(&self) -> PathBuf {
        self.directory.join("cluster-api").join(self.clusterctl.version())
    }

    /// Writes the configuration: where the providers are, and what a person has set besides.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn configure(&self, settings: Value) -> Result<()> {
        let provider = |name: &str, type_: &str, directory: &Path, file: &str| json!({"name": name, "type": type_, "url": format!("file://{}", directory.join(file).display())});
        let mut configuration = settings;
        configuration["providers"] = json!([
            provider("cluster-api", "CoreProvider", &self.core(), "core-components.yaml"),
            provider("etcdadm", "BootstrapProvider", &self.released(), "bootstrap-components.yaml"),
        ]);
        Ok(fs::write(self.configuration(), configuration.to_string())?)
    }

    /// Writes the files of a release twice, with the same bytes, and the stand-in for the core provider.
    ///
    /// # Errors
    /// When they cannot be written, or differ.
    pub async fn release(&self) -> Result<()> {
        let again = self.directory.join("again");
        for directory in [&self.released(), &again] {
            let mut script = Command::new(repository("hack/release.sh"));
            script.arg("--manifests").arg(directory).env("KUBECTL", &self.kubectl);
            output_of(script).await?;
        }
        let mut names = Vec::new();
        for file in fs::read_dir(self.released())? {
            let name = file?.file_name();
            let same = fs::read(self.released().join(&name))? == fs::read(again.join(&name))?;
            ensure!(same, "the second run has written another {}", name.display());
            names.push(name);
        }
        ensure!(names.len() == FILES, "{names:?}");
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
        Ok(fs::write(core.join("metadata.yaml"), metadata.to_string())?)
    }

    /// Runs clusterctl on a management cluster, and gives what it prints.
    ///
    /// # Errors
    /// When it fails; the error tells what it said.
    pub async fn run(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.program());
        command.args(arguments).arg("--config").arg(self.configuration()).arg("--kubeconfig").arg(kubeconfig);
        command.env("XDG_CONFIG_HOME", &self.directory).env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        command.env("ETCD_VERSION", &self.etcd_version);
        output_of(command).await
    }

    /// Installs the release in a management cluster, and the core provider where there is none. `client`: a client for
    /// the same management cluster; `further`: arguments.
    ///
    /// # Errors
    /// When clusterctl refuses.
    pub async fn init(&self, kubeconfig: &Path, client: Client, further: &[&str]) -> Result<()> {
        let core = format!("cluster-api:{}", self.clusterctl.version());
        let etcdadm = format!("etcdadm:{}", self.version);
        let mut arguments = vec!["init", "--bootstrap", etcdadm.as_str(), "--control-plane", "-"];
        let crds: Api<CustomResourceDefinition> = Api::all(client);
        if crds.get_opt("providers.clusterctl.cluster.x-k8s.io").await?.is_none() {
            arguments.extend(["--core", core.as_str()]);
        }
        arguments.extend(further);
        self.run(kubeconfig, &arguments).await.map(drop)
    }
}

/// Makes a management cluster have cert-manager, as far as clusterctl asks for it.
///
/// # Errors
/// When its kinds are refused, or not served in time.
pub async fn stand_in_for_cert_manager(client: &Client) -> Result<()> {
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
        apply(client, &crd.to_string()).await?;
    }
    let known: Api<CustomResourceDefinition> = Api::all(client.clone());
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
