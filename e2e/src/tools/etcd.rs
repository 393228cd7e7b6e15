//! Versions of etcd for machines, built and packed only if a caller asks for them.

use anyhow::Result;

use super::module::{ETCD_3_5, ETCD_3_6, ETCD_3_6_10, ETCD_3_7, Module};
use super::{build, release};

/// A version of etcd that machines can run. Each is pinned to one patch version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Etcd {
    /// The oldest version whose new members join as learners.
    V3_5,
    /// An earlier patch version of 3.6. A rollout from it to 3.7 is refused.
    V3_6_10,
    /// The version that [`super::Tools::ensure`] builds: the default of machines, and the management plane's.
    V3_6,
    /// The newest version.
    V3_7,
}

impl Etcd {
    /// All of them, the oldest first.
    pub const ALL: [Self; 4] = [Self::V3_5, Self::V3_6_10, Self::V3_6, Self::V3_7];

    /// One version of each minor release, the oldest first.
    pub const MINORS: [Self; 3] = [Self::V3_5, Self::V3_6, Self::V3_7];

    fn module(self) -> &'static Module {
        match self {
            Self::V3_5 => &ETCD_3_5,
            Self::V3_6_10 => &ETCD_3_6_10,
            Self::V3_6 => &ETCD_3_6,
            Self::V3_7 => &ETCD_3_7,
        }
    }

    /// Its version, without a leading `v`.
    ///
    /// # Errors
    /// When the pins cannot be read.
    pub fn version(self) -> Result<String> {
        Ok(build::version(self.module())?.trim_start_matches('v').to_owned())
    }

    /// Packs its release beside the others in [`super::Tools::releases`], building it if it is missing (one to two
    /// minutes on two cores). Inside a world it must be there.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn ensure(self) -> Result<()> {
        let built = build::ensure(self.module(), &|_| true)?;
        release::ensure_etcd(self.module(), &built, &self.version()?).map(drop)
    }
}
