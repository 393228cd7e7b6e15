//! A release of this checkout, as `make release` writes it, but only for this computer's architecture.

use crate::bed::{programs, repository};
use crate::tools::{Tools, architecture};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The file that is written last.
const WHOLE: &str = "SHA256SUMS";

/// A finished release.
pub struct OwnRelease {
    directory: PathBuf,
}

impl OwnRelease {
    /// Makes the release, outside a world. This takes ten minutes on two processors the first time, and half a minute
    /// if nothing has changed.
    ///
    /// # Errors
    /// When a program does not build, or is larger than it may be.
    pub fn make(tools: &Tools) -> Result<()> {
        // An earlier release must not be mistaken for this one.
        match fs::remove_file(directory()?.join(WHOLE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).context("forget an earlier release");
            }
            _ => {}
        }
        let mut script = Command::new(repository("hack/release.sh"));
        script.arg(directory()?).env("ARCHITECTURES", architecture()?).env("KUBECTL", &tools.kubectl);
        script.env_remove("SIGNING_KEY").stdin(Stdio::null()).stdout(Stdio::null());
        let status = script.status().context("run hack/release.sh")?;
        ensure!(status.success(), "hack/release.sh: {status}");
        Ok(())
    }

    /// The release that was made.
    ///
    /// # Errors
    /// When there is none.
    pub fn find() -> Result<Self> {
        let directory = directory()?;
        let said = "what hack/release.sh has said stands at the beginning of this run";
        ensure!(directory.join(WHOLE).exists(), "no release has been made in {}: {said}", directory.display());
        Ok(Self { directory })
    }

    /// The directory of its files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The archive with the image of a program.
    ///
    /// # Errors
    /// When there is none for this architecture.
    pub fn image(&self, program: &str) -> Result<PathBuf> {
        Ok(self.directory.join(format!("{program}-image-linux-{}.tar", architecture()?)))
    }

    /// A program as a plain file.
    ///
    /// # Errors
    /// As [`OwnRelease::image`].
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        Ok(self.directory.join(format!("{name}-linux-{}", architecture()?)))
    }
}

/// In cargo's target directory, whatever its profile directory with the programs of this run.
fn directory() -> Result<PathBuf> {
    let programs = programs()?;
    Ok(programs.parent().context("the programs lie nowhere")?.join("own-release"))
}
