//! A machine's root and what is mounted in it.

use crate::machine::{Layout, MachineSpec, in_user_namespace, overlaid};
use anyhow::{Context, Result};
use rustix::{
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
        mount_remount, unmount,
    },
    process::{chdir, pivot_root},
};
use std::{
    ffi::{CStr, CString},
    fs::{self, File},
    os::unix::fs::{DirBuilderExt, symlink},
    path::Path,
};

/// Devices that every machine has.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Mounts everything below the machine's root. Until [`enter`], the root can be reached from the world.
pub(super) fn assemble(layout: &Layout, spec: &MachineSpec) -> Result<()> {
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).context("private mounts")?;
    let root = &layout.root();
    mount_bind_recursive(root, root).context("the machine's root")?;
    for top in overlaid() {
        overlay(layout, spec, top).with_context(|| format!("the machine's /{top}"))?;
    }
    // This comes while the world's mounts still exist: in a user namespace, the kernel mounts these file systems only
    // if they are already visible.
    file_system("proc", &root.join("proc"), MountFlags::empty(), c"")?;
    file_system("sysfs", &root.join("sys"), MountFlags::RDONLY, c"")?;
    protect_kernel(&root.join("proc"))?;
    file_system("tmpfs", &root.join("run"), MountFlags::empty(), c"mode=755")?;
    file_system("tmpfs", &root.join("tmp"), MountFlags::empty(), c"mode=1777")?;
    devices(&root.join("dev"))?;
    // Programs check this directory to find out whether systemd runs, and `systemctl` checks the file to find out
    // whether the boot is complete.
    fs::create_dir_all(root.join("run/systemd/system")).context("/run/systemd")?;
    fs::create_dir_all(root.join("run/lock")).context("/run/lock")?;
    fs::write(root.join("run/sysinit.target.status"), "ActiveState=active\nSubState=running\n").context("/run")
}

/// Makes the machine's root the root of this process, and detaches the world's root.
pub(super) fn enter(layout: &Layout) -> Result<()> {
    chdir(layout.root()).context("the machine's root")?;
    // Both are the same directory: the old root is then mounted on top of the new one, and is unmounted from there.
    pivot_root(".", ".").context("the machine's root")?;
    unmount(".", UnmountFlags::DETACH).context("the world's root")?;
    chdir("/").context("the machine's root")
}

fn overlay(layout: &Layout, spec: &MachineSpec, top: &str) -> Result<()> {
    let image = spec.image_dir.join(top);
    let lower = match image.is_dir() {
        true => format!("{}:/{top}", escape(&image)),
        false => format!("/{top}"),
    };
    let (upper, work) = (escape(&layout.upper(top)), escape(&layout.work(top)));
    let attributes = if in_user_namespace() { ",userxattr" } else { "" };
    let options = CString::new(format!("lowerdir={lower},upperdir={upper},workdir={work}{attributes}"))?;
    mount("overlay", layout.root().join(top), "overlay", MountFlags::empty(), options.as_c_str())?;
    Ok(())
}

/// Escapes the characters that have a meaning in the options of an overlay.
fn escape(path: &Path) -> String {
    path.display().to_string().replace('\\', "\\\\").replace(':', "\\:").replace(',', "\\,")
}

fn file_system(kind: &str, at: &Path, flags: MountFlags, options: &CStr) -> Result<()> {
    let flags = flags | MountFlags::NOSUID | MountFlags::NODEV;
    mount(kind, at, kind, flags, options).with_context(|| format!("{kind} on {}", at.display()))
}

/// Protects the settings of the kernel, which belong to this computer: only those of the machine's own network can be
/// changed.
fn protect_kernel(proc: &Path) -> Result<()> {
    // A bind mount of a read-only mount is also read-only, until it is remounted.
    for (name, read_only) in
        [("sys", MountFlags::RDONLY), ("sysrq-trigger", MountFlags::RDONLY), ("sys/net", MountFlags::empty())]
    {
        let path = proc.join(name);
        if !path.exists() {
            // Not every kernel has all of them.
            continue;
        }
        mount_bind(&path, &path).with_context(|| path.display().to_string())?;
        let flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | read_only;
        mount_remount(&path, flags, "").with_context(|| path.display().to_string())?;
    }
    // Many bootstrap commands begin with `swapoff -a`, which disables the swap devices that it reads here.
    let swaps = proc.join("swaps");
    if swaps.exists() {
        mount_bind("/dev/null", &swaps).context("/proc/swaps")?;
    }
    Ok(())
}

fn devices(dev: &Path) -> Result<()> {
    mount("tmpfs", dev, "tmpfs", MountFlags::NOSUID, c"mode=755").context("/dev")?;
    for name in DEVICES {
        let device = dev.join(name);
        File::create(&device).context("/dev")?;
        // They are bind mounts, because devices cannot be made in a user namespace.
        mount_bind(Path::new("/dev").join(name), &device).with_context(|| format!("/dev/{name}"))?;
    }
    for (name, target) in
        [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"), ("ptmx", "pts/ptmx")]
    {
        symlink(target, dev.join(name)).context("/dev")?;
    }
    for name in ["pts", "shm"] {
        fs::DirBuilder::new().mode(0o755).create(dev.join(name)).context("/dev")?;
    }
    mount("devpts", dev.join("pts"), "devpts", MountFlags::NOSUID, c"newinstance,ptmxmode=0666,mode=620")
        .context("/dev/pts")?;
    file_system("tmpfs", &dev.join("shm"), MountFlags::empty(), c"mode=1777")
}
