//! Turns a cluster of containers into a management cluster: Cluster API, and the image of our manager.

use super::{CAPD, DockerBed};
use crate::bed::repository;
use crate::cache;
use crate::plane::AnotherManager;
use crate::process::{Process, output};
use crate::tools::{DockerProvider, architecture};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user and group that run the manager, as in `hack/release.sh`.
const USER: &str = "65532:65532";

/// The archive of the manager's image, made as `make release` makes it.
pub struct ManagerImage {
    archive: PathBuf,
}

impl ManagerImage {
    /// Makes the image, outside a world. This takes several minutes if the sources have changed.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn make() -> Result<()> {
        let (archive, architecture) = (archive()?, architecture()?);
        let directory = archive.parent().context("the archive lies nowhere")?;
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        eprintln!("building the manager as for a release");
        output(Command::new(repository("hack/programs.sh")).arg(architecture).arg(directory).arg("manager"))?;
        let mut image = Command::new(repository("hack/image.sh"));
        image.arg(directory.join("manager")).arg(architecture).arg(Self::reference()).arg(&archive).arg(USER);
        output(&mut image).map(drop)
    }

    /// Finds the image, inside a world.
    ///
    /// # Errors
    /// When it has not been made.
    pub fn find() -> Result<Self> {
        let archive = archive()?;
        fs::metadata(&archive).with_context(|| format!("{} was not made outside", archive.display()))?;
        Ok(Self { archive })
    }

    /// The name and tag of the image, which are those in `bootstrap-components.yaml`.
    #[must_use]
    pub fn reference() -> String {
        format!("localhost/cluster-api-provider-etcdadm:{}", env!("CARGO_PKG_VERSION"))
    }
}

fn archive() -> Result<PathBuf> {
    Ok(cache::root()?.join("docker/manager-image/manager.tar"))
}

impl DockerBed {
    /// Puts the image into the container runtime of a node, as `kind load` does.
    ///
    /// # Errors
    /// When the node does not run, or refuses it.
    pub async fn load_image(&self, node: &str, image: &ManagerImage) -> Result<()> {
        let archive = image.archive.to_string_lossy();
        self.daemon.docker(&["cp", &archive, &format!("{node}:/manager.tar")]).await?;
        self.exec(node, &["ctr", "--namespace", "k8s.io", "images", "import", "/manager.tar"]).await.map(drop)
    }

    /// Lets the Pods of a cluster with one node reach its API server at the address of its Service. This is all that
    /// they need of kube-proxy, which the image of nodes does not have.
    ///
    /// # Errors
    /// When iptables does not work on the node.
    pub async fn serve_the_api(&self, node: &str, service: &str) -> Result<()> {
        let to = format!("{}:6443", self.address(node).await?);
        // By default, Debian's iptables uses nftables, which not every kernel has.
        let script = "iptables -t nat -S >/dev/null 2>&1 ||\n\
            update-alternatives --set iptables /usr/sbin/iptables-legacy\n\
            iptables -t nat -A PREROUTING -p tcp -d \"$1\" --dport 443 -j DNAT --to-destination \"$2\"";
        self.exec(node, &["sh", "-ec", script, "sh", service, &to]).await.map(drop)
    }

    /// Installs Cluster API in another cluster, with the docker infrastructure of this bed's daemon. The managers run
    /// in this world, and end when the returned processes are dropped.
    ///
    /// # Errors
    /// When one does not become ready.
    pub async fn start_cluster_api_for(&self, kubeconfig: &Path) -> Result<Vec<Process>> {
        let provider = DockerProvider::ensure(self.world.tools())?;
        let capd = AnotherManager { user: CAPD, program: &provider.capd, manifests: &provider.manifests };
        self.plane.start_elsewhere(&self.world, kubeconfig, &capd).await
    }
}
