//! Cluster API's docker infrastructure: built only where it is asked for.

use std::path::PathBuf;

use anyhow::Result;

use super::{Tools, build, manifests};

/// The docker infrastructure manager, unmodified.
#[derive(Debug, Clone)]
pub struct DockerProvider {
    /// The manager.
    pub capd: PathBuf,
    /// Its CRDs and webhook configurations: a JSON list.
    pub manifests: PathBuf,
}

impl DockerProvider {
    /// Finds the one that belongs to the release of [`Tools::cluster_api`], building it if it is missing (half a
    /// minute). Inside a world only the former is possible.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn ensure(tools: &Tools) -> Result<Self> {
        let module = tools.cluster_api.release.docker()?;
        let built = build::ensure(module, &|_| true)?;
        let manifests = manifests::ensure(module, &manifests::DOCKER_MANAGER, &built, &tools.kubectl)?;
        Ok(Self { capd: built.join("capd"), manifests: manifests.join("docker.json") })
    }
}
