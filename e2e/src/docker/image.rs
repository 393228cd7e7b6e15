//! What containers start from: Debian packages, and nothing that an image registry would have to serve.

use super::daemon::Daemon;
use crate::bed::programs;
use crate::cache;
use crate::world::World;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The image of etcd machines. `examples/docker/etcd.yaml` names it.
const MACHINE: &str = "cluster-api-provider-etcdadm/etcd-machine:dev";
/// The image that Cluster API 1.14's docker infrastructure starts its load balancer from.
const LOAD_BALANCER: &str = "kindest/haproxy:v20230606-42a2262b";

/// systemd 252: the last in Debian that runs with cgroups of both versions.
const SUITE: &str = "bookworm";
const MACHINE_PACKAGES: &str =
    "systemd,systemd-sysv,dbus,iproute2,iptables,procps,kmod,util-linux,ca-certificates,hostname";
const LOAD_BALANCER_PACKAGES: &str = "haproxy";

/// Units that have nothing to do in a container, or may not do it. Each costs time when it starts, and the docker
/// infrastructure looks for the end of the start about half a second after its beginning, and then again only 5 s later.
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

/// Found by `docker exec` before Debian's: the docker infrastructure asks for more connections than a process may have here.
const HAPROXY: &str = "#!/bin/sh\nexec /usr/sbin/haproxy -n 2000 \"$@\"\n";
const HAPROXY_CONFIG: &str = "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n\
    frontend control-plane\n  bind *:6443\n";
/// The docker infrastructure runs `crictl ps` to see the container runtime answer. An etcd machine has none to wait for.
const CRICTL: &str = "#!/bin/sh\nexit 0\n";

/// The root directory of machines, without what changes from build to build.
pub(super) fn machine() -> Result<PathBuf> {
    let parts = [SUITE, MACHINE_PACKAGES, &MASKED.join(" "), CRICTL];
    root("etcd-machine", &parts, |root| {
        debootstrap(MACHINE_PACKAGES, root)?;
        for unit in MASKED {
            symlink("/dev/null", root.join("etc/systemd/system").join(unit)).with_context(|| format!("mask {unit}"))?;
        }
        // Each machine has an identity of its own.
        fs::write(root.join("etc/machine-id"), "")?;
        program(&root.join("usr/local/bin/crictl"), CRICTL)
    })
}

/// The load balancer's.
pub(super) fn load_balancer() -> Result<PathBuf> {
    root("load-balancer", &[SUITE, LOAD_BALANCER_PACKAGES, HAPROXY, HAPROXY_CONFIG], |root| {
        debootstrap(LOAD_BALANCER_PACKAGES, root)?;
        fs::create_dir_all(root.join("usr/local/etc/haproxy"))?;
        fs::write(root.join("usr/local/etc/haproxy/haproxy.cfg"), HAPROXY_CONFIG)?;
        program(&root.join("usr/local/sbin/haproxy"), HAPROXY)
    })
}

/// Gives the daemon both images, with our etcdadm and etcd's release in the machines'.
pub(super) async fn import(world: &World, daemon: &Daemon, machine: &Path, load_balancer: &Path) -> Result<()> {
    let ours = world.state("docker/etcd-machine")?;
    let (bin, cache) = (ours.join("usr/local/bin"), ours.join("var/cache/etcdadm"));
    fs::create_dir_all(&bin)?;
    fs::create_dir_all(&cache)?;
    fs::copy(programs()?.join("etcdadm"), bin.join("etcdadm")).context("copy etcdadm")?;
    let releases = world.tools().releases.join("etcd");
    let copied = Command::new("cp").arg("--recursive").arg(&releases).arg(&cache).status().context("run cp")?;
    anyhow::ensure!(copied.success(), "copy {}: {copied}", releases.display());
    daemon
        .import(
            MACHINE,
            "/sbin/init",
            &[(machine, "."), (&ours, "./usr/local/bin/etcdadm"), (&ours, "./var/cache/etcdadm")],
        )
        .await?;
    daemon.import(LOAD_BALANCER, "haproxy", &[(load_balancer, ".")]).await
}

/// A root directory in the cache, called after everything in `parts`.
fn root(name: &str, parts: &[&str], fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let hash: String = Sha256::digest(parts.join("\0")).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
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
    // Its modes were the temporary directory's.
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).context("set the root's mode")
}

fn program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).with_context(|| format!("chmod {}", path.display()))
}
