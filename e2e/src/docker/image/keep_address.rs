//! Docker assigns addresses in the order in which containers start, so after a power cut each container may get the
//! address of another. A machine keeps its address, as it would on any other infrastructure, because etcd's members,
//! their certificates and a cluster's endpoints depend on it.

use super::{file, script};
use crate::world::World;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The program.
pub(super) const SCRIPT: &str = include_str!("keep-address.sh");
/// Its path in an image.
pub(super) const PROGRAM: &str = "usr/local/sbin/keep-address";
const UNIT: &str = "[Unit]\nDescription=The address of this machine\nDefaultDependencies=no\nBefore=sysinit.target\n\
    [Service]\nType=oneshot\nExecStart=/usr/local/sbin/keep-address\n";

/// What an image with systemd needs in addition to its root directory.
pub(super) struct Unit(PathBuf);

/// Writes the program and its unit.
pub(super) fn unit(world: &World) -> Result<Unit> {
    let directory = world.state("docker/keep-address")?;
    script(&directory, PROGRAM, SCRIPT)?;
    file(&directory, "etc/systemd/system/keep-address.service", UNIT)?;
    let wants = directory.join("etc/systemd/system/sysinit.target.wants");
    fs::create_dir_all(&wants).context("create sysinit.target.wants")?;
    let enabled = wants.join("keep-address.service");
    if !enabled.is_symlink() {
        symlink("../keep-address.service", enabled).context("enable keep-address")?;
    }
    Ok(Unit(directory))
}

impl Unit {
    /// Its files, as an image is made from them.
    pub(super) fn paths(&self) -> [(&Path, &str); 3] {
        [
            (&self.0, "./usr/local/sbin/keep-address"),
            (&self.0, "./etc/systemd/system/keep-address.service"),
            (&self.0, "./etc/systemd/system/sysinit.target.wants/keep-address.service"),
        ]
    }
}
