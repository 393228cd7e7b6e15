//! Kind's released image of nodes, for users whose own Docker has it or can pull it.

use crate::cache;
use crate::process::output;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Kind's name of the image for a version of Kubernetes (with its `v`).
pub(super) fn name(version: &str) -> String {
    format!("kindest/node:{version}")
}

/// The archive of that image, if there is one.
pub(super) fn find(version: &str) -> Result<Option<PathBuf>> {
    Ok(Some(archive(version)?).filter(|archive| archive.is_file()))
}

/// Asks a Docker daemon of this computer for the image, if one answers, and keeps the image in an
/// archive.
pub(super) fn fetch(version: &str) -> Result<()> {
    let (archive, image) = (archive(version)?, name(version));
    let there = || succeeds(&["image", "inspect", &image]) || succeeds(&["pull", "--quiet", &image]);
    if archive.is_file() || !succeeds(&["version"]) || !there() {
        return Ok(());
    }
    eprintln!("{image}: taken from the Docker of this computer");
    let directory = archive.parent().context("an archive is in a directory")?;
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    let partial = archive.with_extension("partial");
    output(Command::new("docker").arg("save").arg("--output").arg(&partial).arg(&image))?;
    fs::rename(&partial, &archive).with_context(|| format!("rename {}", partial.display()))
}

fn archive(version: &str) -> Result<PathBuf> {
    Ok(cache::root()?.join("docker").join(format!("kindest-node-{version}.tar")))
}

/// Whether `docker` succeeds with these arguments. It does not succeed if it is not installed.
fn succeeds(arguments: &[&str]) -> bool {
    let mut command = Command::new("docker");
    let command = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
