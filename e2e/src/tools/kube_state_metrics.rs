//! kube-state-metrics: built only where a test asks for it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::build;
use super::module::KUBE_STATE_METRICS;

/// The program that makes metrics of the API server's objects.
#[derive(Debug, Clone)]
pub struct KubeStateMetrics {
    program: PathBuf,
}

impl KubeStateMetrics {
    /// Finds it, building it if it is missing (one to two minutes on two cores). Inside a world it must be there.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn ensure() -> Result<Self> {
        Ok(Self { program: build::ensure(&KUBE_STATE_METRICS, &|_| true)?.join("kube-state-metrics") })
    }

    /// Where it is.
    pub fn program(&self) -> &Path {
        &self.program
    }
}
