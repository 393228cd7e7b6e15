//! The infrastructures that a person can choose.

use crate::docker::Parts;
use crate::tools::Tools;
use anyhow::Result;
use clap::ValueEnum;

/// An infrastructure that the demo and the benchmarks know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Infrastructure {
    /// Linux namespaces on this computer.
    Local,
    /// Containers of Cluster API's own docker infrastructure; as root.
    Docker,
}

impl Infrastructure {
    /// Makes what it needs beyond the real parts. Call this outside a world.
    ///
    /// # Errors
    /// When it can't be made; the error says what this computer lacks.
    pub fn prepare(self, tools: &Tools) -> Result<()> {
        match self {
            Self::Docker => Parts::prepare(tools),
            Self::Local => Ok(()),
        }
    }
}
