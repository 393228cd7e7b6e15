//! A machine's disk: plain directories for the machine's own files, and overlays of this computer's programs and
//! settings.
//!
//! `/usr`, `/etc` and `/var` (and `/bin`, `/lib`, `/sbin` if they are not links into `/usr`) are overlays with the
//! image as the middle layer. There is one overlay for each and not one for `/`: in a user namespace, the kernel
//! rejects a directory as a lower layer if something is mounted below it. Opaque directories hide the parts of this
//! computer's own state that the machine must not see. The files that the machine changes are in the upper layer from
//! the start, because in a user namespace a file whose owner is not mapped cannot be copied up.

use super::{Layout, MachineSpec, Result, check, files, on};
use crate::address::IpFamily;
use rustix::fs::{XattrFlags, setxattr};
use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::Write,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
};

/// etcd's data directory, as a path below `/`.
pub(super) const ETCD_DATA: &str = "var/lib/etcd";

/// Directories of `/` that a machine may share with this computer, as overlays or as the links that they are.
const SHARED: [&str; 9] = ["usr", "etc", "var", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Directories of `/` that only the machine has, with their modes.
const OWN: [(&str, u32); 11] = [
    ("boot", 0o755),
    ("dev", 0o755),
    ("home", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
];

/// Directories that the upper layer has from the start, and that also show their content on this computer and in the
/// image.
const MERGED: [&str; 8] =
    ["etc/cloud", "etc/systemd", "etc/default", "usr/local/bin", "usr/local/lib", "var/cache", "var/lib", "var/spool"];

/// Directories that start empty, even if this computer has files there.
const OPAQUE: [&str; 11] = [
    "etc/cloud/cloud.cfg.d",
    "etc/etcd",
    "etc/kubernetes",
    "etc/sudoers.d",
    "etc/systemd/system",
    "var/lib/cloud",
    ETCD_DATA,
    "var/lib/kubelet",
    "var/log",
    "var/mail",
    "var/tmp",
];

/// The directories of `/` that are overlays on this computer.
pub(crate) fn overlaid() -> impl Iterator<Item = &'static str> {
    SHARED.into_iter().filter(|name| fs::symlink_metadata(Path::new("/").join(name)).is_ok_and(|meta| meta.is_dir()))
}

/// Whether this process runs in a user namespace, where it may not use the extended attributes that require the
/// computer's real root.
pub(crate) fn in_user_namespace() -> bool {
    // The initial user namespace maps each ID to itself.
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.split_whitespace().nth(2) != Some("4294967295"))
}

/// Makes an empty disk with the identity and the bootstrap data of the machine.
pub(super) fn prepare(layout: &Layout, spec: &MachineSpec, user_data: &[u8]) -> Result<()> {
    // What exists is incomplete.
    layout.remove()?;
    directory(layout.directory(), 0o700)?;
    let root = layout.root();
    for (name, mode) in OWN {
        directory(&root.join(name), mode)?;
    }
    for name in SHARED {
        let original = Path::new("/").join(name);
        if let Ok(target) = fs::read_link(&original) {
            symlink(target, root.join(name)).map_err(on(&root.join(name)))?;
        }
    }
    for name in overlaid() {
        for path in [root.join(name), layout.upper(name), layout.work(name)] {
            directory(&path, 0o755)?;
        }
    }
    for path in MERGED {
        directory(&layout.upper(path), 0o755)?;
    }
    let attribute = if in_user_namespace() { "user.overlay.opaque" } else { "trusted.overlay.opaque" };
    for path in OPAQUE {
        let path = layout.upper(path);
        directory(&path, 0o755)?;
        setxattr(&path, attribute, b"y", XattrFlags::empty()).map_err(Into::into).map_err(on(&path))?;
    }
    accounts(layout)?;
    identity(layout, spec, user_data)
}

/// The accounts of this computer, without passwords.
fn accounts(layout: &Layout) -> Result<()> {
    for name in ["passwd", "group", "subuid", "subgid"] {
        let content = fs::read(Path::new("/etc").join(name)).unwrap_or_default();
        write(&layout.upper("etc").join(name), 0o644, &content)?;
    }
    for (from, to, fields) in [("passwd", "shadow", "*:19000:0:99999:7:::"), ("group", "gshadow", "*::")] {
        let accounts = fs::read_to_string(Path::new("/etc").join(from)).unwrap_or_default();
        let locked: String = accounts
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, _)| format!("{name}:{fields}\n"))
            .collect();
        write(&layout.upper("etc").join(to), 0o640, locked.as_bytes())?;
    }
    write(&layout.upper("etc/sudoers"), 0o440, b"root ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n")
}

fn identity(layout: &Layout, spec: &MachineSpec, user_data: &[u8]) -> Result<()> {
    let MachineSpec { host_name, uid, namespace, name, ip_family, .. } = spec;
    let address = spec.ip();
    let local = match ip_family {
        IpFamily::IPv4 => "local-ipv4",
        IpFamily::IPv6 => "local-ipv6",
    };
    let etc = layout.upper("etc");
    write(&etc.join("hostname"), 0o644, format!("{host_name}\n").as_bytes())?;
    let hosts = format!("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n{address} {host_name}\n");
    write(&etc.join("hosts"), 0o644, hosts.as_bytes())?;
    let machine_id: String = uid.chars().filter(char::is_ascii_hexdigit).collect();
    write(&etc.join("machine-id"), 0o444, format!("{machine_id:0>32}\n").as_bytes())?;

    let seed = layout.upper("var/lib/cloud/seed/nocloud");
    directory(&seed, 0o700)?;
    let meta_data = serde_json::json!({
        "instance-id": uid,
        "local-hostname": host_name,
        "hostname": host_name,
        local: address,
        "provider-id": crate::crd::provider_id(namespace, name),
    });
    write(&seed.join("meta-data"), 0o600, meta_data.to_string().as_bytes())?;
    write(&seed.join("user-data"), 0o600, user_data)
}

/// Removes everything in etcd's data directory. The machine must be off, because the kernel does not expect changes
/// below a mounted overlay.
pub(super) fn rob(layout: &Layout) -> Result<()> {
    let data = layout.upper(ETCD_DATA);
    for name in files::names(&data)? {
        let path = data.join(name);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(on(&path))?;
    }
    Ok(())
}

/// An offset that every log has written to: it is in the first records, whatever they contain.
const IN_THE_FIRST_RECORDS: u64 = 100;

/// Changes one byte of the written part of the latest file of etcd's log. The machine must be off.
pub(super) fn corrupt_log(layout: &Layout) -> Result<()> {
    let logs = layout.upper(ETCD_DATA).join("member/wal");
    let files = files::names(&logs)?.into_iter().filter(|name| name.ends_with(".wal"));
    // The names of the files begin with their numbers.
    let latest = files.max().ok_or_else(|| super::failed("corrupting etcd's log", "there is none"))?;
    let path = logs.join(latest);
    let change = || {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, IN_THE_FIRST_RECORDS)?;
        file.write_all_at(&[byte[0] ^ 0xff], IN_THE_FIRST_RECORDS)?;
        file.sync_all()
    };
    change().map_err(on(&path))
}

/// Copies etcd's data directory to a place outside the machine's disk, in place of the previous copy. Nothing may write
/// to the directory meanwhile.
pub(super) fn save_data(layout: &Layout) -> Result<()> {
    let saved = layout.saved_data();
    files::remove_tree(&saved)?;
    copy(&layout.upper(ETCD_DATA), &saved)
}

/// Replaces etcd's data by the saved copy, which there must be. The machine must be off.
pub(super) fn put_back_data(layout: &Layout) -> Result<()> {
    rob(layout)?;
    copy(&layout.saved_data(), &layout.upper(ETCD_DATA))
}

/// Copies a directory's content with owners, modes and times. etcd preallocates its log, so holes stay holes.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut cp = Command::new("cp");
    cp.args(["--archive", "--sparse=always", "--no-target-directory"]).arg(from).arg(to);
    check("cp", cp.output())
}

fn directory(path: &Path, mode: u32) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(on(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(on(path))
}

fn write(path: &Path, mode: u32, content: &[u8]) -> Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path).map_err(on(path))?;
    file.write_all(content).map_err(on(path))
}
