//! The images that containers start from. They consist of Debian packages and our own programs, so no image registry is
//! needed.

mod etcd_machine;
mod keep_address;
mod load_balancer;
mod node;
mod preload;
mod released;

pub(super) use node::Node;

use super::daemon::Daemon;
use crate::cache::{self, hexadecimal};
use crate::tools::{Kubernetes, Tools};
use crate::world::World;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Has systemd 252, the last one in Debian that runs with cgroups of both versions.
const SUITE: &str = "bookworm";

/// Units that are useless in a container, or must not run there. Each costs time when it starts, and the docker
/// infrastructure checks whether the start has ended about half a second after its beginning, and then only 5 s later.
const MASKED: [&str; 35] = [
    "systemd-resolved.service",
    "systemd-udevd.service",
    "systemd-udevd-kernel.socket",
    "systemd-udevd-control.socket",
    "systemd-udev-trigger.service",
    "systemd-logind.service",
    "systemd-timesyncd.service",
    "systemd-firstboot.service",
    "getty.target",
    "console-getty.service",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "dev-hugepages.mount",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "systemd-binfmt.service",
    "systemd-journal-flush.service",
    "systemd-modules-load.service",
    "systemd-random-seed.service",
    "systemd-remount-fs.service",
    "systemd-sysctl.service",
    "systemd-sysusers.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
    "systemd-user-sessions.service",
    "systemd-initctl.socket",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "dev-mqueue.mount",
];

/// Root directories of images, in the cache.
pub(super) struct Roots {
    etcd_machine: PathBuf,
    node: Node,
    load_balancer: PathBuf,
}

impl Roots {
    /// Makes what is missing, outside a world.
    pub(super) fn ensure(tools: &Tools) -> Result<Self> {
        Ok(Self {
            etcd_machine: etcd_machine::root()?,
            node: Node::ensure(Kubernetes::Current, tools)?,
            load_balancer: load_balancer::root()?,
        })
    }

    /// Imports an image of each into the daemon.
    pub(super) async fn import(&self, world: &World, daemon: &Daemon) -> Result<()> {
        etcd_machine::import(world, daemon, &self.etcd_machine).await?;
        self.node.import(world, daemon).await?;
        load_balancer::import(daemon, &self.load_balancer).await
    }
}

/// A root directory in the cache, whose name has a hash of everything in `parts`.
fn root(name: &str, parts: &[&str], fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let hash = hexadecimal(&Sha256::digest(parts.join("\0"))[..6]);
    let directory = cache::root()?.join("docker").join(format!("{name}-{hash}"));
    cache::directory(&directory, || eprintln!("{name}: another run is making it; waiting"), fill)?;
    Ok(directory)
}

fn debootstrap(packages: &str, root: &Path) -> Result<()> {
    eprintln!("installing Debian {SUITE} with {packages} into {}", root.display());
    let output = Command::new("debootstrap")
        .args(["--variant=minbase", &format!("--include={packages}"), SUITE])
        .arg(root)
        .stdin(Stdio::null())
        .output()
        .context("run debootstrap (package debootstrap)")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        let last: Vec<&str> = text.lines().rev().take(5).collect();
        bail!("debootstrap: {}\n{}", String::from_utf8_lossy(&output.stderr).trim(), last.join("\n"));
    }
    for unneeded in ["var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"] {
        fs::remove_dir_all(root.join(unneeded)).with_context(|| format!("remove {unneeded}"))?;
    }
    // It still has the mode of the temporary directory that it was.
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).context("set the root's mode")
}

/// Masks the systemd units of `root` that do not belong in a container.
fn mask_units(root: &Path) -> Result<()> {
    for unit in MASKED {
        symlink("/dev/null", root.join("etc/systemd/system").join(unit)).with_context(|| format!("mask {unit}"))?;
    }
    // Each machine makes its own identity.
    fs::write(root.join("etc/machine-id"), "").context("empty the machine's identity")
}

/// Writes a file in `root`, and makes the directories above it.
fn file(root: &Path, path: &str, text: &str) -> Result<()> {
    let path = root.join(path);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    }
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// Writes a script in `root`.
fn script(root: &Path, path: &str, text: &str) -> Result<()> {
    file(root, path, text)?;
    let path = root.join(path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).with_context(|| format!("chmod {}", path.display()))
}

/// Copies a program into `root`.
fn copy(from: &Path, root: &Path, to: &str) -> Result<()> {
    fs::copy(from, root.join(to)).with_context(|| format!("copy {}", from.display())).map(|_| ())
}
