//! Cluster API's docker infrastructure: built only where it is asked for.

use std::path::PathBuf;

use anyhow::Result;

use super::module::CLUSTER_API_DOCKER;
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
    /// Finds it, building it if it is missing (half a minute). Inside a world only the former is possible.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn ensure(tools: &Tools) -> Result<Self> {
        let built = build::ensure(&CLUSTER_API_DOCKER, &|_| true)?;
        let manifests = manifests::ensure(&CLUSTER_API_DOCKER, &manifests::DOCKER_MANAGER, &built, &tools.kubectl)?;
        Ok(Self { capd: built.join("capd"), manifests: manifests.join("docker.json") })
    }
}
