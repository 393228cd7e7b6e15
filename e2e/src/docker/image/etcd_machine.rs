//! The image of etcd machines: systemd, our etcdadm, etcd's release.

use super::{Daemon, MASKED, SUITE, debootstrap, file, mask_units, script};
use crate::bed::programs;
use crate::world::World;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The examples name it.
const IMAGE: &str = "cluster-api-provider-etcdadm/etcd-machine:dev";
const PACKAGES: &str = "systemd,systemd-sysv,dbus,iproute2,iptables,procps,kmod,util-linux,ca-certificates,hostname";
/// The docker infrastructure runs `crictl ps` to see the container runtime answer. An etcd machine has none to wait for.
const CRICTL: &str = "#!/bin/sh\nexit 0\n";

/// Docker gives addresses away in the order in which containers start. A machine has to keep its own, as it would on any
/// other infrastructure: etcd's members and their certificates are made for it.
const KEEP_ADDRESS: &str = include_str!("keep-address.sh");
const KEEP_ADDRESS_UNIT: &str = "[Unit]\nDescription=The address of this machine\nDefaultDependencies=no\n\
    Before=sysinit.target\n[Service]\nType=oneshot\nExecStart=/usr/local/sbin/keep-address\n";

/// Its root directory, without what changes from build to build.
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
    fs::copy(programs()?.join("etcdadm"), bin.join("etcdadm")).context("copy etcdadm")?;
    let releases = world.tools().releases.join("etcd");
    let copied = Command::new("cp").arg("--recursive").arg(&releases).arg(&cache).status().context("run cp")?;
    anyhow::ensure!(copied.success(), "copy {}: {copied}", releases.display());
    script(&ours, "usr/local/sbin/keep-address", KEEP_ADDRESS)?;
    file(&ours, "etc/systemd/system/keep-address.service", KEEP_ADDRESS_UNIT)?;
    let wants = ours.join("etc/systemd/system/sysinit.target.wants");
    fs::create_dir_all(&wants)?;
    let _ = fs::remove_file(wants.join("keep-address.service"));
    symlink("../keep-address.service", wants.join("keep-address.service")).context("enable keep-address")?;
    let paths = [
        (root, "."),
        (&ours, "./usr/local/bin/etcdadm"),
        (&ours, "./usr/local/sbin/keep-address"),
        (&ours, "./etc/systemd/system/keep-address.service"),
        (&ours, "./etc/systemd/system/sysinit.target.wants/keep-address.service"),
        (&ours, "./var/cache/etcdadm"),
    ];
    daemon.import(IMAGE, "/sbin/init", &paths).await
}
