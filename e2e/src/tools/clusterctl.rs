//! clusterctl: built only where a test asks for it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::build;
use super::module::CLUSTERCTL;

/// The program with which people install providers.
#[derive(Debug, Clone)]
pub struct Clusterctl {
    program: PathBuf,
    version: String,
}

impl Clusterctl {
    /// Finds it, building it if it is missing (one to two minutes on two cores). Inside a world it must be there.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn ensure() -> Result<Self> {
        let program = build::ensure(&CLUSTERCTL, &|_| true)?.join("clusterctl");
        Ok(Self { program, version: build::version(&CLUSTERCTL)? })
    }

    /// Where it is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Its version, which is that of the Cluster API it belongs to, with its `v`.
    pub fn version(&self) -> &str {
        &self.version
    }
}
