//! Cluster API's managers, in the versions that are supported.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::build;
use super::manifests::{self, Source};
use super::module::{CLUSTER_API, CLUSTER_API_1_12, CLUSTER_API_DOCKER, CLUSTER_API_DOCKER_1_12, Module};

/// Which one is used where nobody chooses.
const CHOICE: &str = "E2E_CLUSTER_API";

/// A supported release of Cluster API. Each minor version is pinned to one patch version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Release {
    /// The newest.
    V1_14,
    /// The oldest.
    V1_12,
}

impl Release {
    /// The release that `E2E_CLUSTER_API` names (`1.12`, `1.14`); the newest if it is not set.
    ///
    /// # Errors
    /// When it names none that is supported.
    pub fn chosen() -> Result<Self> {
        match std::env::var(CHOICE).unwrap_or_default().as_str() {
            "" | "1.14" => Ok(Self::V1_14),
            "1.12" => Ok(Self::V1_12),
            other => bail!("{CHOICE}={other}: there are 1.12 and 1.14"),
        }
    }

    fn managers(self) -> (&'static Module, &'static [Source]) {
        match self {
            Self::V1_14 => (&CLUSTER_API, &manifests::CORE_MANAGERS),
            Self::V1_12 => (&CLUSTER_API_1_12, &manifests::CORE_MANAGERS_1_12),
        }
    }

    /// The module of its docker infrastructure.
    pub(super) fn docker(self) -> &'static Module {
        match self {
            Self::V1_14 => &CLUSTER_API_DOCKER,
            Self::V1_12 => &CLUSTER_API_DOCKER_1_12,
        }
    }
}

/// The managers of one release, unmodified.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClusterApi {
    /// The release.
    pub release: Release,
    /// The core manager.
    pub core: PathBuf,
    /// The kubeadm bootstrap manager.
    pub bootstrap: PathBuf,
    /// The kubeadm control plane manager.
    pub control_plane: PathBuf,
    /// Rendered manifests, one JSON list per manager: `core.json`, `bootstrap.json`, `control-plane.json`.
    pub manifests: PathBuf,
}

impl ClusterApi {
    /// Finds the managers, building what is missing. Inside a world only the former is possible.
    ///
    /// # Errors
    /// When one cannot be built.
    pub(super) fn ensure(release: Release, kubectl: &Path) -> Result<Self> {
        let (module, sources) = release.managers();
        let built = build::ensure(module, &|_| true)?;
        Ok(Self {
            release,
            core: built.join("capi-core"),
            bootstrap: built.join("capi-bootstrap"),
            control_plane: built.join("capi-control-plane"),
            manifests: manifests::ensure(module, sources, &built, kubectl)?,
        })
    }
}
