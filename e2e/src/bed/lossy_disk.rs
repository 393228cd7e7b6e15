//! A disk that loses what was not synced when the power is cut.
//!
//! A machine's own disk is in the memory of this computer, which has everything that was written. With a lossy disk,
//! etcd's data is on a separate ext4, on a loop device over a file of the machine. What a program writes waits in the
//! kernel's page cache of the ext4, and is not in that file until it is synced or the kernel writes it back. What the
//! ext4 has sent to its device is in the file immediately: the file is in memory, and its pages are the disk.
//!
//! So at any moment the file has what a disk would have, if it is copied while nothing is sent to it. Killing the
//! machine first would save too much: the kernel writes everything back when the last process has ended and the ext4 is
//! unmounted. Therefore the ext4 is shut down first, with the call that file systems have for tests of power cuts. From
//! then on it sends nothing more, not even the rest of its journal. The machine continues with the copy, because the
//! old ext4 still writes to its device when it is unmounted.

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

/// Mounts the disk. Machines have no loop devices, so it makes them. This computer may have more of them than it had at
/// its start.
const MOUNT: &str = "\
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
[ -e /dev/loop-control ] || mknod /dev/loop-control c 10 237
for i in $(seq 0 63); do [ -e /dev/loop$i ] || mknod /dev/loop$i b 7 $i; done
mount -t ext4 -o loop /srv/etcd-disk /var/lib/etcd
chmod 700 /var/lib/etcd
";

/// Makes the disk, with room for the free space that etcdadm requires and for the journal.
const MAKE: &str = "truncate -s 384M /srv/etcd-disk && mkfs.ext4 -q -F -m 0 /srv/etcd-disk && \
    systemctl enable etcd-disk.service && systemctl start etcd-disk.service && mountpoint -q /var/lib/etcd";

/// Writes something without syncing it, and shuts the ext4 down: EXT4_IOC_SHUTDOWN, without flushing its journal. The
/// file is new each time, because ext4 flushes by itself what replaces older content.
const CUT: &str = r#"
import fcntl, os, struct, time
disk = os.open("/var/lib/etcd", os.O_RDONLY)
with open("/var/lib/etcd/unsynced-%d" % time.time_ns(), "w") as unsynced:
    unsynced.write("lost" * 1024)
fcntl.ioctl(disk, 0x8004587D, struct.pack("I", 2))
"#;

/// Fails if the disk is not mounted, or has what was not synced.
const LOST: &str =
    "mountpoint -q /var/lib/etcd && ! find /var/lib/etcd -maxdepth 1 -name 'unsynced-*' -size +0 | grep .";

/// Whether such disks can be made: only the computer's real root may use loop devices.
///
/// # Errors
/// When the process's user namespace cannot be read.
pub fn can_be_made() -> std::io::Result<bool> {
    // The initial user namespace maps every id to itself.
    let map = fs::read_to_string("/proc/self/uid_map")?;
    Ok(map.split_whitespace().nth(2) == Some("4294967295"))
}

/// Gives such a disk to every machine of an EtcdCluster. `spec` is its `etcdadmConfigSpec`, whose `files` and
/// `preEtcdadmCommands` are replaced.
pub fn on_every_machine(spec: &mut Value) {
    spec["files"] = json!([
        {"path": "/etc/systemd/system/etcd-disk.service", "content": UNIT},
        {"path": "/srv/etcd-disk.sh", "content": MOUNT},
    ]);
    spec["preEtcdadmCommands"] = json!([MAKE]);
}

/// Whether the machine has such a disk.
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

/// Cuts the power: every process ends immediately, and what was not synced is lost. The machine stays down until it is
/// powered on.
///
/// # Errors
/// When the machine does not run, its disk is not mounted or cannot be shut down, or the machine does not end.
pub fn cut_power(machine: &Machine) -> Done<()> {
    // No process may see disk errors: without power, nothing runs.
    machine.freeze()?;
    inside(machine, &["/usr/bin/python3", "-c", CUT])?;
    let disk = file(machine);
    let left = disk.with_extension("left");
    outside(&["cp", "--sparse=always", &disk.display().to_string(), &left.display().to_string()])?;
    machine.kill()?;
    fs::rename(&left, &disk).map_err(|source| Error::File { path: disk, source })
}

/// Checks, on a machine that runs again, that the power cut has lost what was not synced. Otherwise the scenario proves
/// nothing.
///
/// # Errors
/// When it was not lost, the disk is not mounted, or the machine does not run.
pub fn has_lost(machine: &Machine) -> Done<()> {
    inside(machine, &["sh", "-c", LOST]).map(drop)
}

fn file(machine: &Machine) -> PathBuf {
    machine.directory().join("disk/root").join(DISK)
}
