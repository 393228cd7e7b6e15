//! The control groups of what a world runs in containers.
//!
//! They belong to the computer. When a world has ended its groups are still there; and a process that is frozen would not
//! end at all, because in cgroups of version 1 not even `SIGKILL` reaches it.

use crate::until::until;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";
/// Beginning of their names.
const PREFIX: &str = "etcdadm-e2e";
/// How long killed processes may take to go once they are not frozen any more.
const PATIENCE: Duration = Duration::from_secs(10);

/// Name of the group that everything of a world goes into, if this is the id of the process outside. That is an id among
/// those of its namespace only, and control groups have no namespaces here.
///
/// # Errors
/// When there is no `/proc`.
pub(super) fn name(outside: u32) -> Result<String> {
    let namespace = fs::metadata("/proc/self/ns/pid").context("look at this process's namespace")?.ino();
    Ok(format!("{PREFIX}-{namespace}-{outside}"))
}

/// Lets every frozen process of the group go on, so that it can be killed.
pub(super) fn thaw(name: &str) {
    of_name(name).iter().for_each(|group| thaw_all(group));
}

/// Removes the group, whose processes are being killed, with all groups in it.
///
/// # Errors
/// When processes of it don't go.
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

/// Removes what worlds have left whose process outside was killed before it could.
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
    // Whichever of the two there is: in these directories only the kernel makes files.
    let _ = fs::write(group.join("freezer.state"), "THAWED");
    let _ = fs::write(group.join("cgroup.freeze"), "0");
    directories(group).iter().for_each(|child| thaw_all(child));
}

/// The innermost first. One that has processes stays.
fn remove_all(group: &Path) {
    directories(group).iter().for_each(|child| remove_all(child));
    let _ = fs::remove_dir(group);
}
