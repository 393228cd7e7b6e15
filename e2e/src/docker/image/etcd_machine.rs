//! The image of etcd machines: systemd, our etcdadm, etcd's release.

use super::{Daemon, MASKED, SUITE, copy, debootstrap, keep_address, mask_units, script};
use crate::bed::programs;
use crate::process::output;
use crate::world::World;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the image in the examples.
const IMAGE: &str = "cluster-api-provider-etcdadm/etcd-machine:dev";
const PACKAGES: &str = "systemd,systemd-sysv,dbus,iproute2,iptables,procps,kmod,util-linux,ca-certificates,hostname";
/// The docker infrastructure runs `crictl ps` to see whether the container runtime answers. An etcd machine has none,
/// so this program only succeeds.
const CRICTL: &str = "#!/bin/sh\nexit 0\n";

/// The root directory of the image, without what changes from build to build.
pub(super) fn root() -> Result<PathBuf> {
    let parts = [SUITE, PACKAGES, &MASKED.join(" "), CRICTL];
    super::root("etcd-machine", &parts, |root| {
        debootstrap(PACKAGES, root)?;
        mask_units(root)?;
        script(root, "usr/local/bin/crictl", CRICTL)
    })
}

/// Makes the image, with our etcdadm and etcd's release.
pub(super) async fn import(world: &World, daemon: &Daemon, root: &Path) -> Result<()> {
    let ours = world.state("docker/etcd-machine")?;
    let (bin, cache) = (ours.join("usr/local/bin"), ours.join("var/cache/etcdadm"));
    fs::create_dir_all(&bin)?;
    fs::create_dir_all(&cache)?;
    copy(&programs()?.join("etcdadm"), &bin, "etcdadm")?;
    let releases = world.tools().releases.join("etcd");
    output(Command::new("cp").arg("--recursive").arg(&releases).arg(&cache))?;
    let unit = keep_address::unit(world)?;
    let paths = [(root, "."), (&ours, "./usr/local/bin/etcdadm"), (&ours, "./var/cache/etcdadm")];
    daemon.import(IMAGE, "/sbin/init", &[&paths[..], &unit.paths()].concat()).await
}
