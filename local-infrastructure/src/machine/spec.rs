//! What a machine is made from, and the paths of its files.

use super::{Result, files, if_there, on, write_atomic};
use crate::address::IpFamily;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

/// What a machine is made from. It does not change during the machine's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// Namespace of its LocalMachine.
    pub namespace: String,
    /// Name of its LocalMachine.
    pub name: String,
    /// The identity that distinguishes this machine from an earlier one with the same name. It is cloud-init's instance
    /// ID.
    pub uid: String,
    /// Its host name: the name of the Cluster API Machine.
    pub host_name: String,
    /// The address that is reserved for it. The machine has the address of its IP family that corresponds to this one.
    pub address: Ipv4Addr,
    /// The IP family of its addresses.
    #[serde(default)]
    pub ip_family: IpFamily,
    /// Length of the network's prefix in bits.
    pub prefix_length: u8,
    /// The gateway: the bridge's address.
    pub gateway: Ipv4Addr,
    /// The bridge that it is plugged into.
    pub bridge: String,
    /// The image: a directory made by [`crate::image::assemble`].
    pub image_dir: PathBuf,
    /// The program `local-infrastructure`, which is the machine's first process.
    pub program: PathBuf,
}

impl MachineSpec {
    /// Its address on the bridge.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.ip_family.address(self.address)
    }

    /// The bridge's end of the machine's cable.
    pub(super) fn cable(&self) -> String {
        format!("cape-{:08x}", u32::from(self.address))
    }

    /// A hardware address derived from the IP address, so that neighbors need not learn a new one after a reboot.
    pub(super) fn hardware_address(&self) -> String {
        let [a, b, c, d] = self.address.octets();
        format!("02:ca:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
    }
}

/// The result of a machine's bootstrap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Whether cloud-init had no errors, and the data left the sentinel file that Cluster API's contract requires.
    pub succeeded: bool,
    /// What went wrong, one line each.
    pub errors: Vec<String>,
    /// Milliseconds from the machine's start to the end of cloud-init.
    pub milliseconds: u64,
}

/// The paths of a machine's files.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    directory: PathBuf,
    faults: PathBuf,
    label: String,
}

/// Name of the file with the result of the bootstrap.
pub(crate) const BOOTSTRAP: &str = "bootstrap.json";
/// Name of the file that identifies the first process while it exists.
pub(crate) const PROCESS: &str = "process.json";
/// Name of the file that says whether the machine should be running.
pub(crate) const POWER: &str = "power";

impl Layout {
    pub(crate) fn new(state_dir: &Path, namespace: &str, name: &str) -> Self {
        Self {
            directory: state_dir.join("machines").join(namespace).join(name),
            faults: state_dir.join("faults").join(namespace).join(name),
            label: format!("{namespace}/{name}"),
        }
    }

    /// The layout of the machine in this directory, for the machine itself.
    pub(crate) fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), faults: PathBuf::new(), label: directory.display().to_string() }
    }

    /// Namespace and name, for messages.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn faults(&self) -> &Path {
        &self.faults
    }

    pub(crate) fn spec(&self) -> PathBuf {
        self.directory.join("machine.json")
    }

    pub(crate) fn console(&self) -> PathBuf {
        self.directory.join("console.log")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.directory.join("lock")
    }

    /// The path of [`PROCESS`].
    pub(crate) fn process(&self) -> PathBuf {
        self.directory.join(PROCESS)
    }

    /// Where the disk's directories are as the machine sees them at `/`.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.join("disk/root")
    }

    /// The upper layer of a shared directory: what the machine has written to it.
    pub(crate) fn upper(&self, top: &str) -> PathBuf {
        self.directory.join("disk/upper").join(top)
    }

    /// The directory that the kernel needs beside `upper`.
    pub(crate) fn work(&self, top: &str) -> PathBuf {
        self.directory.join("disk/work").join(top)
    }

    /// The saved copy of etcd's data.
    pub(super) fn saved_data(&self) -> PathBuf {
        self.directory.join("saved-data")
    }

    pub(crate) fn partition(&self) -> PathBuf {
        self.directory.join("partition.json")
    }

    pub(super) fn powered_on(&self) -> bool {
        fs::read_to_string(self.directory.join(POWER)).is_ok_and(|power| power == "on")
    }

    pub(super) fn set_power(&self, on: bool) -> Result<()> {
        write_atomic(&self.directory.join(POWER), if on { b"on" } else { b"off" })
    }

    /// How often it has been started.
    pub(super) fn boots(&self) -> u64 {
        fs::read_to_string(self.directory.join("boots")).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    pub(super) fn count_boot(&self) -> Result<()> {
        write_atomic(&self.directory.join("boots"), (self.boots() + 1).to_string().as_bytes())
    }

    pub(super) fn read_bootstrap(&self) -> Result<Option<Bootstrap>> {
        files::read_json(&self.directory.join(BOOTSTRAP))
    }

    pub(super) fn remove(&self) -> Result<()> {
        // Removes the spec first, so that a machine whose removal was interrupted does not look complete.
        if_there(fs::remove_file(self.spec())).map_err(on(&self.spec()))?;
        files::remove_tree(&self.directory)
    }
}
