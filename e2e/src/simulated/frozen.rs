//! Which machines are frozen: files that one process writes and the other reads.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The frozen machines of a state directory. A frozen machine accepts connections and never answers.
pub struct Frozen(PathBuf);

impl Frozen {
    /// The frozen machines of `state_dir`.
    ///
    /// # Errors
    /// When their directory cannot be made.
    pub fn at(state_dir: &Path) -> Result<Self> {
        let directory = state_dir.join("frozen");
        fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        Ok(Self(directory))
    }

    /// Freezes the machine with this address. This takes effect after a moment.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn freeze(&self, address: Ipv4Addr) -> Result<()> {
        fs::write(self.0.join(address.to_string()), "").context("freeze a machine")
    }

    /// Lets the machine with this address go on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn thaw(&self, address: Ipv4Addr) -> Result<()> {
        match fs::remove_file(self.0.join(address.to_string())) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("thaw a machine"),
            _ => Ok(()),
        }
    }

    /// The addresses of all frozen machines.
    pub(super) fn read(&self) -> Result<BTreeSet<Ipv4Addr>> {
        let entries = fs::read_dir(&self.0).context("list frozen machines")?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.map(|name: Result<String>| name?.parse().context("an address")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_frozen_is_read_until_it_is_thawed() {
        let directory = tempfile::tempdir().unwrap();
        let frozen = Frozen::at(directory.path()).unwrap();
        let address = Ipv4Addr::new(10, 78, 0, 10);
        frozen.freeze(address).unwrap();
        assert_eq!(Frozen::at(directory.path()).unwrap().read().unwrap(), [address].into());
        frozen.thaw(address).unwrap();
        frozen.thaw(address).unwrap();
        assert!(frozen.read().unwrap().is_empty());
    }
}
