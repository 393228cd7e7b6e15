//! Cluster API's managers, in the supported versions.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::build;
use super::manifests::{self, Source};
use super::module::{
    CLUSTER_API, CLUSTER_API_1_12, CLUSTER_API_1_13, CLUSTER_API_1_14_2, CLUSTER_API_DOCKER, CLUSTER_API_DOCKER_1_12,
    Module,
};

/// The variable that chooses the release.
const CHOICE: &str = "E2E_CLUSTER_API";

/// A supported release of Cluster API, pinned to a patch version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Release {
    /// The newest release whose docker infrastructure is available: no later version of its module has been published.
    V1_14,
    /// The newest release.
    V1_14_2,
    /// The minor release between the newest and the oldest.
    V1_13,
    /// The oldest supported release.
    V1_12,
}

impl Release {
    /// All releases, by the names that `E2E_CLUSTER_API` takes.
    pub const ALL: [(&str, Self); 4] =
        [("1.14", Self::V1_14), ("1.14.2", Self::V1_14_2), ("1.13", Self::V1_13), ("1.12", Self::V1_12)];

    /// The release that `E2E_CLUSTER_API` names; 1.14 if it is not set.
    ///
    /// # Errors
    /// When it names a release that is not supported.
    pub fn chosen() -> Result<Self> {
        let chosen = std::env::var(CHOICE).unwrap_or_default();
        if chosen.is_empty() {
            return Ok(Self::V1_14);
        }
        Self::named(&chosen).with_context(|| format!("read {CHOICE}"))
    }

    /// The release with this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        let names = || Self::ALL.map(|(known, _)| known).join(", ");
        found.map(|(_, release)| release).with_context(|| format!("{name} is not one of {}", names()))
    }

    fn managers(self) -> (&'static Module, &'static [Source]) {
        match self {
            Self::V1_14 => (&CLUSTER_API, &manifests::CORE_MANAGERS),
            Self::V1_14_2 => (&CLUSTER_API_1_14_2, &manifests::CORE_MANAGERS),
            Self::V1_13 => (&CLUSTER_API_1_13, &manifests::CORE_MANAGERS_AT_THE_ROOT),
            Self::V1_12 => (&CLUSTER_API_1_12, &manifests::CORE_MANAGERS_AT_THE_ROOT),
        }
    }

    /// The module of its docker infrastructure, if that is available.
    pub(super) fn docker(self) -> Result<&'static Module> {
        match self {
            Self::V1_14 => Ok(&CLUSTER_API_DOCKER),
            Self::V1_12 => Ok(&CLUSTER_API_DOCKER_1_12),
            Self::V1_14_2 | Self::V1_13 => bail!("the docker infrastructure of {self:?} is not built here"),
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
