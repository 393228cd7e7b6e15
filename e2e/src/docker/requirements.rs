//! Checks that this computer has what the test bed's own Docker needs, and says in one line what it lacks.

use anyhow::{Result, bail};
use std::env;
use std::fs;
use std::path::Path;

/// Programs, with the Debian package that has each.
const PROGRAMS: [(&str, &str); 5] = [
    ("dockerd", "docker.io"),
    ("docker", "docker.io, or docker-cli of Debian 13"),
    ("runc", "runc"),
    ("debootstrap", "debootstrap"),
    ("iptables", "iptables"),
];
const CGROUPS: &str = "/sys/fs/cgroup";
/// How many inotify instances a user may have. A control-plane node takes about 25 of the 128 that are Linux's default.
const INOTIFY: &str = "/proc/sys/fs/inotify/max_user_instances";
const INOTIFY_INSTANCES: u32 = 1024;

/// Checks this computer, outside a world.
pub(super) fn check() -> Result<()> {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push("root".to_owned());
    }
    let mut packages: Vec<&str> = PROGRAMS.iter().filter(|(program, _)| !is_there(program)).map(|(_, p)| *p).collect();
    packages.dedup();
    missing.extend(packages.iter().map(|package| format!("package {package}")));
    if !fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("\toverlay\n")) {
        missing.push("the kernel's overlay file system (modprobe overlay)".to_owned());
    }
    if missing.is_empty() && !cgroups_can_be_made() {
        missing.push(format!("cgroups that may be written ({CGROUPS})"));
    }
    if missing.is_empty() && !inotify_is_enough() {
        missing.push(format!("{INOTIFY} of at least {INOTIFY_INSTANCES}"));
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!("the docker infrastructure needs what this computer lacks: {}", missing.join(", "))
}

fn is_there(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|directory| directory.join(program).is_file()))
}

/// Whether a cgroup can be made: in a hierarchy of version 1, or in the only hierarchy of version 2.
fn cgroups_can_be_made() -> bool {
    let hierarchy = Path::new(CGROUPS).join("memory");
    let hierarchy = if hierarchy.is_dir() { hierarchy.as_path() } else { Path::new(CGROUPS) };
    let probe = hierarchy.join(format!("probe-{}", std::process::id()));
    fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).is_ok()
}

/// Whether the limit is high enough. If it is too low, raises it until the next start of this computer, and says so.
fn inotify_is_enough() -> bool {
    let limit = || fs::read_to_string(INOTIFY).ok().and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(0);
    let before = limit();
    if before < INOTIFY_INSTANCES && fs::write(INOTIFY, INOTIFY_INSTANCES.to_string()).is_ok() {
        eprintln!("{INOTIFY} was {before} and is {INOTIFY_INSTANCES} until the next start: nodes watch many files");
    }
    limit() >= INOTIFY_INSTANCES
}
