//! clusterctl, with a local repository that has a release of this checkout.
//!
//! Two parts are replaced by stubs. The core provider is only a namespace, because Cluster API's managers run as
//! processes of the bed. Of cert-manager there are only the two kinds of which clusterctl creates an object to check
//! whether cert-manager is installed.

use crate::apply::{apply, documents};
use crate::bed::repository;
use crate::process::output_of;
use crate::tools::{Clusterctl, Earlier};
use crate::until::until;
use crate::world::World;
use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
/// How many files `hack/release.sh --manifests` writes: metadata, two files each for clusterctl and for kubectl, the
/// operator's sample, four templates, the NetworkPolicy, what people's roles take in, three files for monitoring, and
/// the checksums.
const FILES: usize = 16;

/// The value of every variable of the templates that has no default, except those that are arguments of clusterctl.
const VARIABLES: [(&str, &str); 12] = [
    // Kinds for the template for any infrastructure.
    ("INFRASTRUCTURE_CLUSTER_KIND", "DevCluster"),
    ("INFRASTRUCTURE_MACHINE_TEMPLATE_KIND", "DevMachineTemplate"),
    ("OPENSTACK_CLOUD", "openstack"),
    ("OPENSTACK_CONTROL_PLANE_MACHINE_FLAVOR", "m1.medium"),
    ("OPENSTACK_DNS_NAMESERVERS", "10.0.0.10"),
    ("OPENSTACK_ETCD_IMAGE_NAME", "etcd-3.6"),
    ("OPENSTACK_ETCD_MACHINE_FLAVOR", "m1.small"),
    ("OPENSTACK_EXTERNAL_NETWORK_ID", "00000000-0000-0000-0000-000000000001"),
    ("OPENSTACK_IMAGE_NAME", "ubuntu-kube-v1.36.3"),
    ("OPENSTACK_MANAGEMENT_CIDR", "192.0.2.0/24"),
    ("OPENSTACK_NODE_MACHINE_FLAVOR", "m1.medium"),
    ("OPENSTACK_SSH_KEY_NAME", "admin"),
];

/// The program, its repository and its configuration.
pub struct Setup {
    clusterctl: Clusterctl,
    kubectl: PathBuf,
    etcd_version: String,
    directory: PathBuf,
    version: String,
}

impl Setup {
    /// A setup in a directory of the world's memory. Its repository is empty.
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

    /// The repository in the layout that clusterctl requires of a local one: `PROVIDER/VERSION/FILE`.
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

    /// Writes the configuration: where the providers are, and what else a person would set.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn configure(&self, settings: Value) -> Result<()> {
        let mut configuration = settings;
        configuration["providers"] = json!([
            provider("cluster-api", "CoreProvider", &self.core().join("core-components.yaml")),
            provider("etcdadm", "BootstrapProvider", &self.released().join("bootstrap-components.yaml")),
        ]);
        Ok(fs::write(self.configuration(), configuration.to_string())?)
    }

    /// Writes the files of a release twice, to show that they are the same, and the stub of the core provider.
    ///
    /// # Errors
    /// When they cannot be written, or the two differ.
    pub async fn release(&self) -> Result<()> {
        let again = self.directory.join("again");
        for directory in [&self.released(), &again] {
            self.write(&repository(""), directory).await?;
        }
        let mut names = Vec::new();
        for file in fs::read_dir(self.released())? {
            let name = file?.file_name();
            let same = fs::read(self.released().join(&name))? == fs::read(again.join(&name))?;
            ensure!(same, "the second run has written another {}", name.display());
            names.push(name);
        }
        ensure!(names.len() == FILES, "{names:?}");
        self.release_core()
    }

    /// Writes the files of a release of an earlier state as those of this version, and the stub of the core provider.
    ///
    /// # Errors
    /// When they cannot be written.
    pub async fn release_earlier(&self, earlier: &Earlier) -> Result<()> {
        self.write(earlier.checkout(), &self.released()).await?;
        self.release_core()
    }

    /// Writes the files of a release of the present state as those of a later version.
    ///
    /// # Errors
    /// When they cannot be written.
    pub async fn release_as(&self, version: &str) -> Result<()> {
        self.write(&repository(""), &self.released().with_file_name(version)).await
    }

    /// Writes the files of a release of this checkout.
    async fn write(&self, checkout: &Path, directory: &Path) -> Result<()> {
        let mut script = Command::new(checkout.join("hack/release.sh"));
        script.arg("--manifests").arg(directory).env("KUBECTL", &self.kubectl);
        if !checkout.join(".git").exists() {
            // There is no commit whose date the script could use.
            script.env("SOURCE_DATE_EPOCH", "0");
        }
        output_of(script).await.map(drop)
    }

    /// Writes the stub of the core provider.
    fn release_core(&self) -> Result<()> {
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

    /// Runs clusterctl on a management cluster, and returns what it prints.
    ///
    /// # Errors
    /// When it fails. The error has its output.
    pub async fn run(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = self.command(arguments, &self.configuration());
        command.arg("--kubeconfig").arg(kubeconfig);
        output_of(command).await
    }

    fn command(&self, arguments: &[&str], configuration: &Path) -> Command {
        let mut command = Command::new(self.program());
        command.args(arguments).arg("--config").arg(configuration);
        command.env("XDG_CONFIG_HOME", &self.directory).env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        command.env("ETCD_VERSION", &self.etcd_version);
        command
    }

    /// What clusterctl makes of a template of the release for a Cluster called `demo`. `further` are additional
    /// arguments.
    ///
    /// # Errors
    /// When clusterctl refuses. The error has its output.
    pub async fn generate(&self, kubeconfig: &Path, template: &str, further: &[&str]) -> Result<String> {
        let mut command = self.command(&["generate", "cluster", "demo"], &self.configuration());
        command.arg("--kubeconfig").arg(kubeconfig).arg("--from").arg(self.released().join(template));
        command.args(further).envs(VARIABLES);
        output_of(command).await
    }

    /// What clusterctl would install if the provider's `url` named this file of the release.
    ///
    /// # Errors
    /// When clusterctl refuses. The error has its output.
    pub async fn components(&self, file: &str) -> Result<Vec<Value>> {
        let configuration = self.directory.join("components.yaml");
        let etcdadm = provider("etcdadm", "BootstrapProvider", &self.released().join(file));
        fs::write(&configuration, json!({"providers": [etcdadm]}).to_string())?;
        let version = format!("etcdadm:{}", self.version);
        documents(&output_of(self.command(&["generate", "provider", "--bootstrap", &version], &configuration)).await?)
    }

    /// Installs the release in a management cluster, and the core provider if there is none. `client` is a client of
    /// the same management cluster, and `further` are additional arguments.
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

/// A provider in the form of the configuration. It is installed from the file `components`.
fn provider(name: &str, type_: &str, components: &Path) -> Value {
    json!({"name": name, "type": type_, "url": format!("file://{}", components.display())})
}

/// A template with its variables replaced as clusterctl does it: `${NAME}` or `${NAME:=default}`. The Cluster is called
/// `demo`, and its Kubernetes version is 1.36.3.
///
/// # Errors
/// When a variable has neither a value nor a default.
pub fn substituted(text: &str) -> Result<String> {
    let arguments = [("CLUSTER_NAME", "demo"), ("KUBERNETES_VERSION", "v1.36.3")];
    let mut parts = text.split("${");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (variable, rest) = part.split_once('}').context("a variable has no end")?;
        let known = arguments.iter().chain(&VARIABLES).find(|known| known.0 == variable).map(|known| known.1);
        match known.or_else(|| variable.split_once(":=").map(|variable| variable.1)) {
            Some(value) => result.push_str(value),
            None => bail!("variable {variable} has no value"),
        }
        result.push_str(rest);
    }
    Ok(result)
}

/// Adds to a management cluster what clusterctl requires of cert-manager.
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
