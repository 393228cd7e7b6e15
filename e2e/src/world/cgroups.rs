//! The control groups of the containers in a world.
//!
//! They belong to the computer, so they still exist when their world has ended. A frozen process would not even end,
//! because in cgroups of version 1 not even `SIGKILL` reaches it.

use crate::until::until;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";
/// What the names of the groups begin with.
const PREFIX: &str = "etcdadm-e2e";
/// How long killed processes may take to end once they are thawed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Name of the group for everything in a world, from the ID of the process outside. The name includes the PID
/// namespace: the ID is unique only in there, and control groups have no namespaces here.
///
/// # Errors
/// When there is no `/proc`.
pub(super) fn name(outside: u32) -> Result<String> {
    let namespace = fs::metadata("/proc/self/ns/pid").context("look at this process's namespace")?.ino();
    Ok(format!("{PREFIX}-{namespace}-{outside}"))
}

/// Thaws every frozen process of the group, so that it can be killed.
pub(super) fn thaw(name: &str) {
    of_name(name).iter().for_each(|group| thaw_all(group));
}

/// Removes the group and all groups in it. Its processes are being killed already.
///
/// # Errors
/// When processes of the group do not end.
pub(super) async fn remove(name: &str) -> Result<()> {
    until(format!("control group {name} is removed"), PATIENCE, async || {
        for group in of_name(name) {
            thaw_all(&group);
            remove_all(&group);
        }
        let left = of_name(name);
        ensure!(left.is_empty(), "left are {left:?}");
        Ok(Some(()))
    })
    .await
}

/// Removes the groups of worlds whose process outside was killed before it could do so.
///
/// # Errors
/// As for [`remove`] and [`name`].
pub(super) async fn remove_those_of_the_dead() -> Result<()> {
    for group in hierarchies().iter().flat_map(|hierarchy| directories(hierarchy)) {
        let Some(found) = group.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(outside) = found.rsplit_once('-').and_then(|(_, id)| id.parse().ok()) else { continue };
        if found == name(outside)? && !Path::new("/proc").join(outside.to_string()).exists() {
            remove(found).await?;
        }
    }
    Ok(())
}

/// The group in every hierarchy that has it.
fn of_name(name: &str) -> Vec<PathBuf> {
    hierarchies().iter().map(|hierarchy| hierarchy.join(name)).filter(|group| group.is_dir()).collect()
}

/// Where groups may be: one hierarchy (version 2), one for each controller (version 1), or both.
fn hierarchies() -> Vec<PathBuf> {
    let mut hierarchies = directories(Path::new(ROOT));
    hierarchies.push(PathBuf::from(ROOT));
    hierarchies
}

fn directories(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

fn thaw_all(group: &Path) {
    // Only one of these files exists, and the other is not created: only the kernel makes files in these directories.
    let _ = fs::write(group.join("freezer.state"), "THAWED");
    let _ = fs::write(group.join("cgroup.freeze"), "0");
    directories(group).iter().for_each(|child| thaw_all(child));
}

/// Innermost groups first. A group with processes stays.
fn remove_all(group: &Path) {
    directories(group).iter().for_each(|child| remove_all(child));
    let _ = fs::remove_dir(group);
}
