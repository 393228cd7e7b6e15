//! A disk that loses at a power cut what was not synced.
//!
//! A machine's own disk is memory of this computer, which has everything that was written. Here etcd's data lies on an
//! ext4 of its own, in a file of the machine, by a loop device. What a program writes waits in the kernel's pages of
//! the ext4, and is not in that file before it is synced, or the kernel gets round to it. What the ext4 has sent to its
//! device is in the file at once: that lies in memory, and its pages are the disk.
//!
//! So the file is what a disk has at any moment, if it is copied while nothing is sent to it. To kill the machine first
//! would save too much: the kernel writes everything out when the last process has gone and the ext4 is unmounted.
//! Therefore the ext4 is shut down before, by the call that file systems have for tests of power cuts: from then on it
//! sends nothing more, not even the rest of its journal. The machine goes on with the copy, since the old ext4 still
//! writes to its device when it is unmounted.

use super::illness::{inside, outside};
use local_infrastructure::machine::{Error, Machine, Result as Done};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// The file that is the disk, as a path below `/`.
const DISK: &str = "srv/etcd-disk";

/// Mounts the disk before etcd starts, at every boot.
const UNIT: &str = "\
[Unit]
Before=etcd.service

[Service]
Type=oneshot
RemainAfterExit=true
ExecStart=/bin/sh /srv/etcd-disk.sh

[Install]
WantedBy=multi-user.target
";

/// Machines have no loop devices. There may be more of them on this computer than it had at its start.
const MOUNT: &str = "\
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
[ -e /dev/loop-control ] || mknod /dev/loop-control c 10 237
for i in $(seq 0 63); do [ -e /dev/loop$i ] || mknod /dev/loop$i b 7 $i; done
mount -t ext4 -o loop /srv/etcd-disk /var/lib/etcd
chmod 700 /var/lib/etcd
";

/// With room for as much as etcdadm asks for, and for the journal.
const MAKE: &str = "truncate -s 384M /srv/etcd-disk && mkfs.ext4 -q -F -m 0 /srv/etcd-disk && \
    systemctl enable etcd-disk.service && systemctl start etcd-disk.service && mountpoint -q /var/lib/etcd";

/// Writes something without syncing it, and shuts the ext4 down: EXT4_IOC_SHUTDOWN, without flushing its journal. A new
/// file each time: what replaces an older content is flushed by itself.
const CUT: &str = r#"
import fcntl, os, struct, time
disk = os.open("/var/lib/etcd", os.O_RDONLY)
with open("/var/lib/etcd/unsynced-%d" % time.time_ns(), "w") as unsynced:
    unsynced.write("lost" * 1024)
fcntl.ioctl(disk, 0x8004587D, struct.pack("I", 2))
"#;

/// Fails where the disk is not mounted, or has what was not synced.
const LOST: &str =
    "mountpoint -q /var/lib/etcd && ! find /var/lib/etcd -maxdepth 1 -name 'unsynced-*' -size +0 | grep .";

/// Whether there can be such disks: only the computer's real root may have loop devices.
///
/// # Errors
/// When it cannot be told.
pub fn can_be_made() -> std::io::Result<bool> {
    // The initial user namespace maps every id to itself.
    let map = fs::read_to_string("/proc/self/uid_map")?;
    Ok(map.split_whitespace().nth(2) == Some("4294967295"))
}

/// Has every machine of an EtcdCluster's `etcdadmConfigSpec` get one, in addition to what that says.
pub fn on_every_machine(spec: &mut Value) {
    spec["files"] = json!([
        {"path": "/etc/systemd/system/etcd-disk.service", "content": UNIT},
        {"path": "/srv/etcd-disk.sh", "content": MOUNT},
    ]);
    spec["preEtcdadmCommands"] = json!([MAKE]);
}

/// Whether the machine has one.
#[must_use]
pub fn is_on(machine: &Machine) -> bool {
    file(machine).exists()
}

/// Whether the disk is mounted, so that the power can be cut.
///
/// # Errors
/// When the machine does not run.
pub fn is_mounted(machine: &Machine) -> Done<bool> {
    Ok(machine.exec(&["mountpoint", "-q", "/var/lib/etcd"])?.status.success())
}

/// Cuts the power: every process is gone at once, and so is what was not synced. The machine stays down until it is
/// powered on.
///
/// # Errors
/// When the machine does not run, its disk is not mounted or cannot be shut down, or the machine does not end.
pub fn cut_power(machine: &Machine) -> Done<()> {
    // Nobody is to see errors of a disk: without power nothing runs.
    machine.freeze()?;
    inside(machine, &["/usr/bin/python3", "-c", CUT])?;
    let disk = file(machine);
    let left = disk.with_extension("left");
    outside(&["cp", "--sparse=always", &disk.display().to_string(), &left.display().to_string()])?;
    machine.kill()?;
    fs::rename(&left, &disk).map_err(|source| Error::File { path: disk, source })
}

/// Checks, on a machine that runs again, that the power cut has taken what was not synced with it. Otherwise nothing is
/// shown.
///
/// # Errors
/// When it is there, or the machine does not run.
pub fn has_lost(machine: &Machine) -> Done<()> {
    inside(machine, &["sh", "-c", LOST]).map(drop)
}

fn file(machine: &Machine) -> PathBuf {
    machine.directory().join("disk/root").join(DISK)
}
