//! Faults of a machine that keeps running: a slow network, a slow or full disk, replaced certificates. All of these
//! except replaced certificates end with the machine's next boot. A damaged database, which is here too, stays damaged.

use super::data::{Host, said};
use super::lossy_disk;
use crate::process::output;
use crate::tls::Identity;
use crate::world::ADDRESS;
use anyhow::Result;
use local_infrastructure::machine::{Error, Machine, Result as Done};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The bandwidth of a slow network. It is more than a leader sends under the load of scenarios, so that everything
/// arrives, but late.
const SLOW: &str = "1mbit";
/// Sends more than a slow network carries immediately, to an address, `$0`, at which nothing has to listen.
pub(crate) const BURST: &str = "head -c 8000 /dev/zero > /dev/udp/$0/9";

/// A shell function that sends etcd a signal, and fails if etcd does not run.
macro_rules! send {
    () => {
        r#"
send() {
    sent=1
    for p in /proc/[0-9]*; do
        if [ "$(cat $p/comm 2>/dev/null)" = etcd ]; then kill -$1 ${p#/proc/} && sent=0; fi
    done
    return $sent
}
"#
    };
}

/// Freezes etcd for two thirds of the time, each time for less than an election takes.
pub(crate) const STUTTER: &str = concat!(
    send!(),
    r#"
: > /run/stutters
while [ -e /run/stutters ]; do
    send STOP && echo >> /run/stuttered
    sleep 0.4
    send CONT && echo >> /run/stuttered
    sleep 0.2
done
"#
);
/// Runs [`STUTTER`], which is its argument, in the background.
pub(crate) const BEGIN: &str = "setsid sh -c \"$0\" < /dev/null > /dev/null 2>&1 &";
/// Ends [`STUTTER`], and fails if etcd was not frozen again and again.
pub(crate) const STEADY: &str =
    "rm /run/stutters && sleep 2 && [ $(wc -l < /run/stuttered) -gt 6 ] && rm /run/stuttered";

/// Fills the disk. Holes are dug into the log while etcd is frozen, because what etcd writes meanwhile would be lost.
/// dd fails when the disk is full, as it should.
const FILL: &str = concat!(
    send!(),
    r#"
set -e
cd /var/lib/etcd
mountpoint -q .
send STOP || :
for log in $(find . -path '*/wal/*' -type f); do fallocate --dig-holes $log; done
if dd if=/dev/zero of=filler bs=4k 2>/dev/null; then exit 1; fi
send CONT || :
"#
);

/// The part of etcd's database that contains both meta pages, through which everything else is found, on every
/// architecture: a page has at most 64 KiB.
const FIRST_PAGES: u64 = 128 * 1024;

/// Replaces the key and the certificate that etcd presents. etcd reads them for every new connection.
const REPLACE: &str = "cd /etc/etcd/pki && for kind in key crt; do cp -p $1.$kind new.$kind; done && \
    printf %s \"$2\" > new.key && printf %s \"$3\" > new.crt && mv new.key $1.key && mv new.crt $1.crt";

/// Stores a key and a certificate beside those that etcd presents.
const KEEP: &str = "cd /etc/etcd/pki && for kind in key crt; do cp -p $1.$kind kept.$1.$kind; done && \
    printf %s \"$2\" > kept.$1.key && printf %s \"$3\" > kept.$1.crt";

/// Replaces the keys and certificates that etcd presents by the stored ones, and restarts etcd, because open
/// connections would stay.
const SHOW: &str = concat!(
    send!(),
    r#"
set -e
cd /etc/etcd/pki
for which in server peer; do
    for kind in key crt; do mv kept.$which.$kind $which.$kind; done
done
send KILL
"#
);

/// Slows a machine's network down, in both directions.
///
/// # Errors
/// When the machine does not run, or its network is not slower.
pub fn slow_network(machine: &Machine) -> Done<()> {
    inside(machine, &shape("eth0"))?;
    outside(&shape(&cable(machine)))?;
    machine.exec(&["bash", "-c", BURST, ADDRESS])?;
    let told = inside(machine, &["tc", "-s", "qdisc", "show", "dev", "eth0"])?;
    if has_waited(&told) { Ok(()) } else { Err(failed("tc", format!("nothing is slowed down: {told}"))) }
}

/// Ends what [`slow_network`] has begun.
///
/// # Errors
/// When the machine does not run, or its network was not slow.
pub fn end_slow_network(machine: &Machine) -> Done<()> {
    inside(machine, &["tc", "qdisc", "del", "dev", "eth0", "root"])?;
    outside(&["tc", "qdisc", "del", "dev", &cable(machine), "root"])
}

/// Makes etcd stutter, as it does if its disk is slow: etcd is frozen most of the time, but gets everything done.
///
/// # Errors
/// When the machine does not run.
pub fn slow_disk(machine: &Machine) -> Done<()> {
    inside(machine, &["sh", "-c", BEGIN, STUTTER]).map(drop)
}

/// Ends what [`slow_disk`] has begun.
///
/// # Errors
/// When the machine does not run, or its etcd was not frozen.
pub fn end_slow_disk(machine: &Machine) -> Done<()> {
    inside(machine, &["sh", "-c", STEADY]).map(drop)
}

/// A command to run before etcdadm. It gives the machine of this name a separate data disk that can be filled. The disk
/// has room for etcd's WAL, which is allocated in advance, and for the free space that etcdadm requires. On other
/// machines the command does nothing.
#[must_use]
pub fn small_disk(machine: &str) -> String {
    let mount = "mount -t tmpfs -o size=224m,mode=0700 tmpfs /var/lib/etcd";
    format!("if [ \"$(cat /etc/hostname)\" = {machine} ]; then {mount}; fi")
}

/// Fills the disk that [`small_disk`] has made, to the last page. This includes the space that etcd has reserved for
/// its WAL and not used yet, as on a disk that reserves nothing.
///
/// # Errors
/// When the machine does not run, or has no such disk.
pub fn fill_disk(machine: &Machine) -> Done<()> {
    inside(machine, &["sh", "-c", FILL]).map(drop)
}

/// Removes the file with which [`fill_disk`] has filled the disk.
///
/// # Errors
/// When the machine does not run, or its disk was not filled.
pub fn free_disk(machine: &Machine) -> Done<()> {
    inside(machine, &["rm", "/var/lib/etcd/filler"]).map(drop)
}

/// The path of etcd's data on this computer: on the machine's disk, or on a disk that is mounted inside the machine.
/// `None` while the machine has a [`lossy_disk`] that is not mounted.
#[must_use]
pub fn etcd_data(machine: &Machine) -> Option<PathBuf> {
    let its_own = machine.first_process().map(|first| PathBuf::from(format!("/proc/{first}/root/var/lib/etcd")));
    let is_mounted = |data: &PathBuf| device(data).is_some() && device(data) != data.parent().and_then(device);
    its_own.filter(is_mounted).or_else(|| (!lossy_disk::is_on(machine)).then(|| machine.etcd_data()))
}

fn device(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.dev())
}

/// Cuts the power, overwrites the beginning of etcd's database, as a failing disk does, and starts the machine again.
/// The WAL stays as it was.
///
/// # Errors
/// When the machine cannot be stopped or started, or has no database.
pub fn corrupt_database(machine: &Machine) -> Done<()> {
    machine.kill()?;
    let overwrite = || -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(machine.etcd_data().join("member/snap/db"))?;
        let length = file.metadata()?.len().min(FIRST_PAGES);
        file.write_all_at(&vec![0xff; usize::try_from(length).unwrap_or_default()], 0)?;
        file.sync_all()
    };
    overwrite().map_err(|error| failed("overwriting etcd's database", error.to_string()))?;
    machine.power_on()
}

/// Replaces a certificate of etcd and its key. `which` is `server` for the certificate that etcd presents to clients,
/// or `peer` for the one that it presents to other members. Open connections stay.
///
/// # Errors
/// When the machine does not run, or has no such certificate.
pub async fn replace_certificate(machine: &impl Host, which: &str, identity: &Identity) -> Result<()> {
    said(machine, &["sh", "-c", REPLACE, "sh", which, &identity.key, &identity.certificate]).await.map(drop)
}

/// Stores a certificate and its key on the machine, for [`show_kept_certificates`].
///
/// # Errors
/// As for [`replace_certificate`].
pub async fn keep_certificate(machine: &impl Host, which: &str, identity: &Identity) -> Result<()> {
    said(machine, &["sh", "-c", KEEP, "sh", which, &identity.key, &identity.certificate]).await.map(drop)
}

/// Restarts etcd with the certificates that [`keep_certificate`] has stored, both for clients and for other members.
///
/// # Errors
/// When the machine does not run, one of the two certificates is not stored, or etcd does not run.
pub fn show_kept_certificates(machine: &Machine) -> Done<()> {
    inside(machine, &["sh", "-c", SHOW]).map(drop)
}

/// A command that limits how much a device sends in a second. The rest waits.
pub(crate) fn shape(device: &str) -> [&str; 13] {
    ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", SLOW, "burst", "2kb", "latency", "500ms"]
}

/// Whether packets had to wait at a device, according to tc's statistics.
pub(crate) fn has_waited(told: &str) -> bool {
    let waited = told.split("overlimits ").nth(1).and_then(|rest| rest.split(' ').next());
    waited.and_then(|times| times.parse::<u64>().ok()).is_some_and(|times| times > 0)
}

/// The bridge's end of the machine's cable.
fn cable(machine: &Machine) -> String {
    format!("cape-{:08x}", u32::from(machine.address()))
}

/// Runs a program in the machine, and returns what it printed.
pub(super) fn inside(machine: &Machine, command: &[&str]) -> Done<String> {
    let output = machine.exec(command)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    Err(failed(command[0], format!("{}: {said}{}", output.status, String::from_utf8_lossy(&output.stderr))))
}

/// Runs a program in the world.
pub(super) fn outside(command: &[&str]) -> Done<()> {
    let run = output(Command::new(command[0]).args(&command[1..]));
    run.map(drop).map_err(|error| failed(command[0], format!("{error:#}")))
}

fn failed(program: &str, message: String) -> Error {
    Error::Program { program: program.to_owned(), message }
}
