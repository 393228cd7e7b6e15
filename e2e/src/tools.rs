//! The real parts: where they are, and how missing ones are built.
//!
//! Every directory under `e2e/tools/` is a Go module of ours that pins what it builds in `go.mod` and `go.sum`. The
//! cache keeps what a module builds under the hash of everything it is built from. So a changed pin leads to a new
//! directory, and an unchanged one costs nothing.

mod build;
mod cluster_api;
mod clusterctl;
mod docker;
mod earlier;
mod etcd;
mod go;
mod judge;
mod kube_state_metrics;
mod management;
mod manifests;
mod module;
mod node;
mod openstack;
mod others;
mod progress;
mod promtool;
mod release;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use cluster_api::{ClusterApi, Release};
pub use clusterctl::Clusterctl;
pub use docker::DockerProvider;
pub use earlier::Earlier;
pub use etcd::Etcd;
pub use judge::Judge;
pub use kube_state_metrics::KubeStateMetrics;
pub use management::ManagementKubernetes;
use module::{ETCD_3_6, Module};
pub use node::{Kubernetes, NodePrograms};
pub use openstack::OpenStackProvider;
pub use others::crds_of_others;
pub use promtool::Promtool;
pub use release::architecture;

/// Paths of the real parts on this computer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tools {
    /// etcd for the management plane.
    pub etcd: PathBuf,
    /// etcd's client program.
    pub etcdctl: PathBuf,
    /// etcd's offline program (snapshots).
    pub etcdutl: PathBuf,
    /// The release of the next three programs.
    pub kubernetes: ManagementKubernetes,
    /// The Kubernetes API server of the management plane.
    pub kube_apiserver: PathBuf,
    /// The Kubernetes controller manager, for garbage collection and namespaces.
    pub kube_controller_manager: PathBuf,
    /// kubectl.
    pub kubectl: PathBuf,
    /// The API server of workload clusters.
    pub workload_kube_apiserver: PathBuf,
    /// Cluster API's managers.
    pub cluster_api: ClusterApi,
    /// Version of etcd that [`Tools::releases`] holds, without a leading `v`.
    pub etcd_version: String,
    /// Release archives for machines: `etcd/v<version>/etcd-v<version>-linux-<arch>.tar.gz`, each with a `.sha256`
    /// beside it.
    pub releases: PathBuf,
}

impl Tools {
    /// Finds every part, building what is missing (about ten minutes on two cores the first time, with progress on
    /// standard error; well under a second afterwards).
    ///
    /// With `KUBEBUILDER_ASSETS` set, etcd, kube-apiserver and kubectl of the management plane are taken from that
    /// directory as they are. `E2E_CLUSTER_API` chooses another release of Cluster API ([`Release::ALL`]).
    ///
    /// # Errors
    /// When Go is not there, a build fails, or `KUBEBUILDER_ASSETS` lacks one of its three programs.
    pub fn ensure() -> Result<Self> {
        // Checked before anything is built, so that a wrong directory is reported without delay.
        let assets = Assets::named(std::env::var_os("KUBEBUILDER_ASSETS"))?;
        let etcd = build::ensure(&ETCD_3_6, &|_| true)?;
        let release = ManagementKubernetes::V1_36;
        let kubernetes =
            build::ensure(release.module(), &|program| assets.is_none() || !Assets::NAMES.contains(&program.name))?;
        let assets = assets.unwrap_or_else(|| Assets {
            etcd: etcd.join("etcd"),
            kube_apiserver: kubernetes.join("kube-apiserver"),
            kubectl: kubernetes.join("kubectl"),
        });
        let cluster_api = ClusterApi::ensure(Release::chosen()?, &assets.kubectl)?;
        let etcd_version = build::version(&ETCD_3_6)?.trim_start_matches('v').to_owned();
        let releases = release::ensure_etcd(&ETCD_3_6, &etcd, &etcd_version)?;
        Ok(Self {
            etcd: assets.etcd,
            etcdctl: etcd.join("etcdctl"),
            etcdutl: etcd.join("etcdutl"),
            kubernetes: release,
            workload_kube_apiserver: assets.kube_apiserver.clone(),
            kube_apiserver: assets.kube_apiserver,
            kube_controller_manager: kubernetes.join("kube-controller-manager"),
            kubectl: assets.kubectl,
            cluster_api,
            etcd_version,
            releases,
        })
    }

    /// The same with another release of Cluster API, which is built if it is missing. Inside a world it must be there.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn with_cluster_api(mut self, release: Release) -> Result<Self> {
        self.cluster_api = ClusterApi::ensure(release, &self.kubectl)?;
        Ok(self)
    }

    /// The same with another Kubernetes of the management plane, which is built if it is missing. Inside a world it
    /// must be there.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn with_kubernetes(mut self, release: ManagementKubernetes) -> Result<Self> {
        // Otherwise the programs of `KUBEBUILDER_ASSETS` would be replaced.
        if release != self.kubernetes {
            let built = build::ensure(release.module(), &|_| true)?;
            self.kubernetes = release;
            self.kube_apiserver = built.join("kube-apiserver");
            self.kube_controller_manager = built.join("kube-controller-manager");
            self.kubectl = built.join("kubectl");
        }
        Ok(self)
    }
}

/// The programs in `KUBEBUILDER_ASSETS`.
struct Assets {
    etcd: PathBuf,
    kube_apiserver: PathBuf,
    kubectl: PathBuf,
}

impl Assets {
    const NAMES: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

    /// The programs in the directory that the variable names; `None` if it is not set.
    fn named(variable: Option<OsString>) -> Result<Option<Self>> {
        variable.filter(|value| !value.is_empty()).map(|directory| Self::find(Path::new(&directory))).transpose()
    }

    fn find(directory: &Path) -> Result<Self> {
        let find = |name: &str| {
            let path = directory.join(name);
            path.is_file()
                .then_some(path)
                .with_context(|| format!("KUBEBUILDER_ASSETS={} has no {name}", directory.display()))
        };
        let [etcd, kube_apiserver, kubectl] = Self::NAMES;
        Ok(Self { etcd: find(etcd)?, kube_apiserver: find(kube_apiserver)?, kubectl: find(kubectl)? })
    }
}

/// Where our own Go modules are in this checkout.
fn module_dir(module: &Module) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tools").join(module.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_are_all_in_the_directory_that_is_named_or_nowhere() {
        assert!(Assets::named(None).unwrap().is_none());
        assert!(Assets::named(Some(OsString::new())).unwrap().is_none());
        let directory = tempfile::tempdir().unwrap();
        let variable = || Some(directory.path().as_os_str().to_owned());
        for name in Assets::NAMES {
            let told = Assets::named(variable()).err().unwrap().to_string();
            assert!(told.starts_with("KUBEBUILDER_ASSETS=/") && told.ends_with(&format!(" has no {name}")), "{told}");
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let found = Assets::named(variable()).unwrap().unwrap();
        let wanted = Assets::NAMES.map(|name| directory.path().join(name));
        assert_eq!([found.etcd, found.kube_apiserver, found.kubectl], wanted);
    }
}
