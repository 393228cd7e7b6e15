//! What machines are made of, where a person has the choice.

use crate::docker::Parts;
use crate::tools::Tools;
use crate::world::is_outside;
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
    /// Makes what has to be there before a world is entered: inside there is no network to fetch anything from.
    ///
    /// # Errors
    /// When it can't be made; the error says what this computer lacks.
    pub fn prepare(self) -> Result<()> {
        match self {
            Self::Docker if is_outside() => Tools::ensure().and_then(|tools| Parts::ensure(&tools)).map(|_| ()),
            Self::Docker | Self::Local => Ok(()),
        }
    }
}
