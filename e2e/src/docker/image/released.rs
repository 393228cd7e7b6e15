//! Kind's released image of nodes, for those whose own Docker has it or can fetch it.

use crate::cache;
use crate::world::is_outside;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What kind calls its image of a version of Kubernetes (with its `v`).
pub(super) fn name(version: &str) -> String {
    format!("kindest/node:{version}")
}

/// The archive of that image. Outside a world, a Docker daemon of this computer is asked for it, if one answers; what it
/// gave is kept.
pub(super) fn find(version: &str) -> Result<Option<PathBuf>> {
    let archive = cache::root()?.join("docker").join(format!("kindest-node-{version}.tar"));
    if archive.is_file() {
        return Ok(Some(archive));
    }
    let image = name(version);
    let there = || succeeds(&["image", "inspect", &image]) || succeeds(&["pull", "--quiet", &image]);
    if !is_outside() || !succeeds(&["version"]) || !there() {
        return Ok(None);
    }
    eprintln!("{image}: taken from the Docker of this computer");
    let partial = archive.with_extension("partial");
    let output = Command::new("docker").arg("save").arg("--output").arg(&partial).arg(&image).output();
    let output = output.context("run docker")?;
    if !output.status.success() {
        bail!("docker save {image}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    fs::rename(&partial, &archive).with_context(|| format!("rename {}", partial.display()))?;
    Ok(Some(archive))
}

/// Whether `docker` does so. Where it is not installed, it does not.
fn succeeds(arguments: &[&str]) -> bool {
    let mut command = Command::new("docker");
    let command = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
