//! Packs what was built as upstream packs its releases, for machines to install.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::module::Module;
use crate::cache::{self, hexadecimal};

/// Returns the release cache with etcd `version` (no `v`) in it, packed from the programs in `built`.
pub(super) fn ensure_etcd(module: &Module, built: &Path, version: &str) -> Result<PathBuf> {
    let releases = cache::root()?.join("releases");
    let waiting = || eprintln!("{}: another run is packing its release; waiting", module.name);
    cache::directory(&releases.join("etcd").join(format!("v{version}")), waiting, |into| {
        let name = format!("etcd-v{version}-linux-{}", architecture()?);
        let staging = into.join(&name);
        fs::create_dir(&staging)?;
        for program in module.programs {
            fs::copy(built.join(program.name), staging.join(program.name))
                .with_context(|| format!("copy {}", program.name))?;
        }
        let archive = format!("{name}.tar.gz");
        // Owner, time and order are fixed, so that the same programs give the same checksum.
        let status = Command::new("tar")
            .args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"])
            .arg("--use-compress-program=gzip -n")
            .arg("--file")
            .arg(into.join(&archive))
            .arg("--directory")
            .arg(into)
            .arg(&name)
            .status()
            .context("run tar")?;
        if !status.success() {
            bail!("tar could not pack {name}: {status}");
        }
        fs::remove_dir_all(&staging)?;
        let digest = hexadecimal(&Sha256::digest(fs::read(into.join(&archive))?));
        Ok(fs::write(into.join(format!("{archive}.sha256")), format!("{digest}  {archive}\n"))?)
    })?;
    Ok(releases)
}

/// This computer's architecture, as Go, etcd and container images name it.
///
/// # Errors
/// When etcd has no release for it.
pub fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("etcd has no release for {other}"),
    }
}
