//! What ails a machine that goes on running: a slow network, a slow or a full disk, certificates that have been
//! replaced. All but certificates ends with the machine's next boot. And a database that is damaged, which stays so.

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

/// How much a slow network carries in a second: more than a member that leads sends under the load of scenarios, so that
/// all of it arrives, later.
const SLOW: &str = "1mbit";
/// Sends what does not fit through a slow network at once, to an address where nobody has to listen.
pub(crate) const BURST: &str = "head -c 8000 /dev/zero > /dev/udp/$0/9";

/// Of a shell: sends etcd a signal, and fails if there is no etcd.
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

/// Stops etcd for two thirds of the time, for less than an election takes each time.
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
/// Begins that, with [`STUTTER`] as its argument.
pub(crate) const BEGIN: &str = "setsid sh -c \"$0\" < /dev/null > /dev/null 2>&1 &";
/// Ends that, and fails if etcd was not stopped again and again.
pub(crate) const STEADY: &str =
    "rm /run/stutters && sleep 2 && [ $(wc -l < /run/stuttered) -gt 6 ] && rm /run/stuttered";

/// etcd stands still while its log is looked through: what it wrote meanwhile would be lost. dd ends with an error when the
/// disk is full.
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

/// As much of etcd's database as has both pages that all the rest is found by, on every architecture: a page has 64 KiB
/// at most.
const FIRST_PAGES: u64 = 128 * 1024;

/// Puts a key and a certificate in place of what etcd shows. It reads them for every connection.
const REPLACE: &str = "cd /etc/etcd/pki && for kind in key crt; do cp -p $1.$kind new.$kind; done && \
    printf %s \"$2\" > new.key && printf %s \"$3\" > new.crt && mv new.key $1.key && mv new.crt $1.crt";

/// Puts a key and a certificate beside what etcd shows.
const KEEP: &str = "cd /etc/etcd/pki && for kind in key crt; do cp -p $1.$kind kept.$1.$kind; done && \
    printf %s \"$2\" > kept.$1.key && printf %s \"$3\" > kept.$1.crt";

/// Puts them in the place of what etcd shows, and has it begin again: connections that are open would go on.
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
/// When the machine does not run, or nothing is slowed down.
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

/// Makes etcd stutter as with a disk that takes long to write: it stands still most of the time, and comes to
/// everything.
///
/// # Errors
/// When the machine does not run.
pub fn slow_disk(machine: &Machine) -> Done<()> {
    inside(machine, &["sh", "-c", BEGIN, STUTTER]).map(drop)
}

/// Ends what [`slow_disk`] has begun.
///
/// # Errors
/// When the machine does not run, or its etcd has not stood still.
pub fn end_slow_disk(machine: &Machine) -> Done<()> {
    inside(machine, &["sh", "-c", STEADY]).map(drop)
}

/// A command for before etcdadm, which gives the machine of this name a data disk of its own that can be filled: with
/// room for etcd's log, which is allocated in advance, and for as much beside it as etcdadm asks for. Other machines do
/// nothing.
#[must_use]
pub fn small_disk(machine: &str) -> String {
    let mount = "mount -t tmpfs -o size=224m,mode=0700 tmpfs /var/lib/etcd";
    format!("if [ \"$(cat /etc/hostname)\" = {machine} ]; then {mount}; fi")
}

/// Fills the disk that [`small_disk`] has made, to the last page: with what etcd has reserved for its log and not used
/// yet, as where a disk reserves nothing.
///
/// # Errors
/// When the machine does not run, or has no such disk.
pub fn fill_disk(machine: &Machine) -> Done<()> {
    inside(machine, &["sh", "-c", FILL]).map(drop)
}

/// Takes away what [`fill_disk`] has filled it with.
///
/// # Errors
/// When the machine does not run, or its disk was not filled.
pub fn free_disk(machine: &Machine) -> Done<()> {
    inside(machine, &["rm", "/var/lib/etcd/filler"]).map(drop)
}

/// Where etcd's data lies, seen from here: on the machine's disk, or on one that was mounted inside. Nowhere while a
/// [`lossy_disk`] is not mounted.
#[must_use]
pub fn etcd_data(machine: &Machine) -> Option<PathBuf> {
    let its_own = machine.first_process().map(|first| PathBuf::from(format!("/proc/{first}/root/var/lib/etcd")));
    let is_mounted = |data: &PathBuf| device(data).is_some() && device(data) != data.parent().and_then(device);
    its_own.filter(is_mounted).or_else(|| (!lossy_disk::is_on(machine)).then(|| machine.etcd_data()))
}

fn device(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.dev())
}

/// Pulls the plug, overwrites the beginning of etcd's database, as a disk does that is going to fail, and starts the
/// machine again. Its log is as it was.
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

/// Replaces a certificate of etcd, and its key: `server`, which it shows to clients, or `peer`, which it shows to other
/// members. Connections that are open go on.
///
/// # Errors
/// When the machine does not run, or has no such certificate.
pub async fn replace_certificate(machine: &impl Host, which: &str, identity: &Identity) -> Result<()> {
    said(machine, &["sh", "-c", REPLACE, "sh", which, &identity.key, &identity.certificate]).await.map(drop)
}

/// Keeps a certificate on the machine, and its key, for [`show_kept_certificates`] to show them.
///
/// # Errors
/// As for [`replace_certificate`].
pub async fn keep_certificate(machine: &impl Host, which: &str, identity: &Identity) -> Result<()> {
    said(machine, &["sh", "-c", KEEP, "sh", which, &identity.key, &identity.certificate]).await.map(drop)
}

/// Has etcd show what [`keep_certificate`] has kept, to clients and to other members, from a new start on.
///
/// # Errors
/// When the machine does not run, nothing is kept for one of the two, or there is no etcd.
pub fn show_kept_certificates(machine: &Machine) -> Done<()> {
    inside(machine, &["sh", "-c", SHOW]).map(drop)
}

/// A command that lets a device send so much in a second, and no more. The rest waits.
pub(crate) fn shape(device: &str) -> [&str; 13] {
    ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", SLOW, "burst", "2kb", "latency", "500ms"]
}

/// Whether something has had to wait at a device, by what tc says of it.
pub(crate) fn has_waited(told: &str) -> bool {
    let waited = told.split("overlimits ").nth(1).and_then(|rest| rest.split(' ').next());
    waited.and_then(|times| times.parse::<u64>().ok()).is_some_and(|times| times > 0)
}

/// The bridge's end of the machine's cable.
fn cable(machine: &Machine) -> String {
    format!("cape-{:08x}", u32::from(machine.address()))
}

/// Runs a program in the machine, and gives what it said.
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
