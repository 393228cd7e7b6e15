//! This project at an earlier commit, which an upgrade starts from. It is built only if a test asks for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cache;
use crate::process::output;

/// The programs that are built, each in a crate of its own name.
const PROGRAMS: [&str; 2] = ["manager", "etcdadm"];
/// What is kept of the sources: the manifests, and what `hack/release.sh --manifests` reads besides. The first states
/// have no metadata.yaml.
const KEPT: [&str; 5] = ["config", "examples", "hack", "Cargo.toml", "metadata.yaml"];

/// An earlier state of this project.
#[derive(Debug, Clone)]
pub struct Earlier {
    directory: PathBuf,
}

impl Earlier {
    /// Finds the state of a commit, building it if it is missing (five to ten minutes on two cores). Inside a world it
    /// must be there.
    ///
    /// # Errors
    /// When the commit is not in this clone, or it cannot be built.
    pub fn ensure(commit: &str) -> Result<Self> {
        let directory = cache::root()?.join("earlier").join(commit);
        let waiting = || eprintln!("this project at {commit}: another run is building it; waiting");
        cache::directory(&directory, waiting, |into| make(commit, into))?;
        Ok(Self { directory })
    }

    /// Where its manager and etcdadm are.
    pub fn programs(&self) -> PathBuf {
        self.directory.join("programs")
    }

    /// Its folder `config`.
    pub fn config(&self) -> PathBuf {
        self.directory.join("config")
    }

    /// A folder with as much of its checkout as writing the manifests of a release takes.
    pub fn checkout(&self) -> &Path {
        &self.directory
    }
}

/// Leaves the programs and the manifests: the other sources and cargo's intermediate files would only take up space.
fn make(commit: &str, into: &Path) -> Result<()> {
    let (sources, target, programs) = (into.join("sources"), into.join("target"), into.join("programs"));
    unpack(commit, into, &sources)?;
    eprintln!("building this project as it was at {commit}, which takes minutes");
    build(&sources, &target).with_context(|| format!("build this project as it was at {commit}"))?;
    fs::create_dir(&programs)?;
    for program in PROGRAMS {
        fs::copy(target.join("debug").join(program), programs.join(program))
            .with_context(|| format!("copy {program}"))?;
    }
    for kept in KEPT.into_iter().filter(|kept| sources.join(kept).exists()) {
        fs::rename(sources.join(kept), into.join(kept)).with_context(|| format!("keep {kept}"))?;
    }
    fs::remove_dir_all(&sources)?;
    Ok(fs::remove_dir_all(&target)?)
}

fn unpack(commit: &str, into: &Path, sources: &Path) -> Result<()> {
    let archive = into.join("sources.tar");
    let mut git = Command::new("git");
    git.arg("-C").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    git.args(["archive", "--format=tar", "--output"]).arg(&archive).arg(commit);
    output(&mut git).with_context(|| {
        format!("commit {commit} has to be in this clone, which may have to be deepened: git fetch --unshallow")
    })?;
    fs::create_dir(sources)?;
    output(Command::new("tar").arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(sources))?;
    Ok(fs::remove_file(&archive)?)
}

/// Builds with the cargo that runs the tests, if one does.
fn build(sources: &Path, target: &Path) -> Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(sources).args(["build", "--quiet", "--locked"]);
    for program in PROGRAMS {
        cargo.args(["--package", program, "--bin", program]);
    }
    cargo.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0").stdin(Stdio::null()).stdout(Stdio::null());
    let status = cargo.status().context("run cargo")?;
    ensure!(status.success(), "cargo ended with {status}");
    Ok(())
}
