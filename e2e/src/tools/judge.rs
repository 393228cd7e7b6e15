//! The judge of histories: built only where a test asks for it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::build;
use super::module::ROBUSTNESS;

/// The program that judges what [`crate::history`] has recorded.
#[derive(Debug, Clone)]
pub struct Judge(PathBuf);

impl Judge {
    /// Finds it, building it if it is missing (about a minute on two cores). Inside a world it must be there.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn ensure() -> Result<Self> {
        Ok(Self(build::ensure(&ROBUSTNESS, &|_| true)?.join("judge")))
    }

    /// Where it is.
    pub fn program(&self) -> &Path {
        &self.0
    }
}
