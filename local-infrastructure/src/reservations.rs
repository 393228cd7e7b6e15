//! The reserved addresses, as files: `addresses/<address>` contains the name of its owner. Reservations outlive the
//! process that made them, until they are released.

use crate::{
    address::Subnet,
    machine::{Error, Result, names, on, write_atomic},
};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

/// The reservations of one state directory.
#[derive(Clone, Debug)]
pub struct Reservations {
    directory: PathBuf,
}

impl Reservations {
    pub(crate) fn open(state_dir: &Path) -> Self {
        Self { directory: state_dir.join("addresses") }
    }

    /// The address of `owner`. Reserves one if it has none yet.
    ///
    /// # Errors
    /// If the subnet has no free address, or the state directory cannot be written.
    pub fn reserve(&self, subnet: &Subnet, owner: &str) -> Result<Ipv4Addr> {
        fs::create_dir_all(&self.directory).map_err(on(&self.directory))?;
        let _lock = self.lock()?;
        let (mut taken, mut own) = (BTreeSet::new(), None);
        for (address, of) in self.all()? {
            taken.insert(address);
            if of == owner {
                own = Some(address);
            }
        }
        if let Some(address) = own {
            return Ok(address);
        }
        let cursor = self.directory.join("last");
        let after = fs::read_to_string(&cursor).ok().and_then(|text| text.trim().parse().ok());
        let address = subnet.allocate(&taken, after).ok_or_else(|| Error::NoAddress(subnet.to_string()))?;
        let file = self.directory.join(address.to_string());
        write_atomic(&file, owner.as_bytes())?;
        write_atomic(&cursor, address.to_string().as_bytes())?;
        Ok(address)
    }

    /// Makes the address of `owner` available again. Nothing happens if it has none.
    ///
    /// # Errors
    /// If the state directory cannot be written.
    pub fn release(&self, owner: &str) -> Result<()> {
        if !self.directory.exists() {
            return Ok(());
        }
        let _lock = self.lock()?;
        for (address, _) in self.all()?.into_iter().filter(|(_, of)| of == owner) {
            let file = self.directory.join(address.to_string());
            fs::remove_file(&file).map_err(on(&file))?;
        }
        Ok(())
    }

    /// Every reserved address with its owner.
    ///
    /// # Errors
    /// If the state directory cannot be read.
    pub fn all(&self) -> Result<Vec<(Ipv4Addr, String)>> {
        let mut found = Vec::new();
        for name in names(&self.directory)? {
            if let Ok(address) = name.parse() {
                let file = self.directory.join(name);
                found.push((address, fs::read_to_string(&file).map_err(on(&file))?));
            }
        }
        Ok(found)
    }

    /// The lock for reads and changes of the reservations: several processes may share a state directory.
    fn lock(&self) -> Result<File> {
        let path = self.directory.join("lock");
        let file = File::create(&path).map_err(on(&path))?;
        file.lock().map_err(on(&path))?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_keeps_its_address_until_it_is_released() {
        let state = tempfile::tempdir().expect("a directory");
        let reservations = Reservations::open(state.path());
        let subnet: Subnet = "10.77.0.0/24".parse().expect("a subnet");
        let first = reservations.reserve(&subnet, "machine/a/one").expect("room");
        let second = reservations.reserve(&subnet, "machine/a/two").expect("room");
        assert_ne!(first, second);
        assert_eq!(reservations.reserve(&subnet, "machine/a/one").expect("known"), first);
        reservations.release("machine/a/one").expect("released");
        assert_eq!(reservations.all().expect("read"), [(second, "machine/a/two".to_owned())]);
        // The address rests: the next owner gets another one.
        assert_ne!(reservations.reserve(&subnet, "machine/a/three").expect("room"), first);
    }
}
