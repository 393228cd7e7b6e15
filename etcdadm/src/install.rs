//! Puts etcd's programs into the install directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_values::EtcdVersion;
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

use crate::checksum::Sha256;
use crate::files::{self, PendingFile};
use crate::paths::Paths;
use crate::release::{self, Archive};
use crate::settings::Settings;

/// What every supported release has; `etcdutl` is missing in 3.4.
const REQUIRED: [&str; 2] = ["etcd", "etcdctl"];
const PROGRAMS: [&str; 3] = ["etcd", "etcdctl", "etcdutl"];
/// How often a program is tried that another process has open. That one runs its own program within moments.
const BUSY_TRIES: usize = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// What was installed last, in `install.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InstallRecord {
    version: String,
    archive_sha256: Sha256,
    programs: BTreeMap<String, Sha256>,
}

/// Makes sure that the wanted version is installed. Programs that are there and right stay untouched.
///
/// # Errors
/// When there is no archive, it is damaged, or this machine already is a member with another version.
pub async fn ensure_installed(paths: &Paths, settings: &Settings, is_member: bool) -> Result<()> {
    let record = files::read(&paths.install_record())?;
    let record: Option<InstallRecord> = record.and_then(|text| serde_json::from_slice(&text).ok());
    let version = settings.version.to_string();
    // A member's program is never replaced, whoever put it there.
    if is_member && let Some(there) = version_of(&paths.program("etcd")) {
        ensure!(
            there == version,
            "this machine is a member with etcd {there}; init and join do not change it to {version}"
        );
        tracing::info!("this machine is a member with etcd {version}, which stays as it is");
        return Ok(());
    }
    if let Some(record) = &record {
        ensure!(
            !is_member || record.version == version,
            "this machine is a member with etcd {}; init and join do not change it to {version}",
            record.version
        );
        let archive_fits = settings.release_sha256.is_none_or(|given| given == record.archive_sha256);
        if record.version == version && archive_fits && unchanged(paths, record)? {
            tracing::info!("etcd {version} is installed");
            return Ok(());
        }
    } else if settings.release_sha256.is_none() && baked_version(paths).as_deref() == Some(&version) {
        tracing::info!("etcd {version} is installed (it came with the machine's image)");
        return Ok(());
    }
    let archive = release::obtain(paths, settings).await?;
    let programs = unpack(paths, &archive, &settings.version)?;
    let record = InstallRecord { version, archive_sha256: archive.sha256, programs };
    files::write(&paths.install_record(), &serde_json::to_vec_pretty(&record)?, 0o644)?;
    tracing::info!("etcd {} installed into {}", record.version, settings.install_dir.display());
    Ok(())
}

fn unchanged(paths: &Paths, record: &InstallRecord) -> Result<bool> {
    for (name, expected) in &record.programs {
        let path = paths.program(name);
        let Ok(mut file) = File::open(&path) else { return Ok(false) };
        let found = Sha256::of(&mut file).with_context(|| format!("cannot read {}", path.display()))?;
        if found != *expected {
            tracing::warn!("{} is not the program that was installed; installing it again", path.display());
            return Ok(false);
        }
    }
    Ok(REQUIRED.iter().all(|name| record.programs.contains_key(*name)))
}

/// Version of an etcd that somebody else put there, together with its etcdctl.
fn baked_version(paths: &Paths) -> Option<String> {
    let complete = REQUIRED.iter().all(|name| paths.program(name).is_file());
    if complete { version_of(&paths.program("etcd")) } else { None }
}

/// What an etcd program says its version is; `None` if it does not run.
pub(crate) fn version_of(etcd: &Path) -> Option<String> {
    let output = asked_for_version(etcd)?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix("etcd Version: "))?.trim().to_owned())
}

/// Linux does not run a file that a process has open for writing. A process that this one has just forked has all its files
/// until it runs its own program.
#[expect(clippy::disallowed_methods, reason = "the program itself is waited for too, for longer")]
fn asked_for_version(etcd: &Path) -> Option<Output> {
    for _ in 0..BUSY_TRIES {
        match Command::new(etcd).arg("--version").output() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(BUSY_PAUSE);
            }
            answer => return answer.ok(),
        }
    }
    None
}

/// The version that was installed last, by install.json.
pub(crate) fn recorded_version(record: &Path) -> Option<String> {
    let record: InstallRecord = serde_json::from_slice(&files::read(record).ok()??).ok()?;
    Some(record.version)
}

/// Unpacks the programs; all of them take their places together, once every one is complete.
///
/// Upstream's folder in the archive says version and processor. Other builds have a folder `linux-<arch>`, which says
/// nothing of the version: then etcd itself is asked, and taken away again if it is another one.
fn unpack(paths: &Paths, archive: &Archive, version: &EtcdVersion) -> Result<BTreeMap<String, Sha256>> {
    let at = || format!("cannot unpack {}", archive.path.display());
    let folders = [release::folder(version)?, format!("linux-{}", release::go_arch()?)];
    let mut says_version = true;
    let file = File::open(&archive.path).with_context(at)?;
    let mut tar = tar::Archive::new(GzDecoder::new(std::io::BufReader::with_capacity(256 * 1024, file)));
    let mut unpacked = Vec::new();
    for entry in tar.entries().with_context(at)? {
        let mut entry = entry.with_context(at)?;
        let path = entry.path().with_context(at)?.into_owned();
        let below = path.strip_prefix(".").unwrap_or(&path);
        let program = |folder: &String| {
            let inside = below.strip_prefix(folder).ok()?;
            PROGRAMS.into_iter().find(|name| inside.as_os_str() == *name)
        };
        let Some((folder, name)) = folders.iter().find_map(|folder| Some((folder, program(folder)?))) else { continue };
        says_version &= *folder == folders[0];
        if !entry.header().entry_type().is_file() {
            bail!("{}: {} in it is not a regular file", at(), path.display());
        }
        let target = paths.program(name);
        let place = || format!("cannot write {}", target.display());
        let mut pending = PendingFile::create(&target, 0o755).with_context(place)?;
        let sha256 = Sha256::of_copy(&mut entry, &mut pending).with_context(place)?;
        unpacked.push((name, pending, sha256));
    }
    for name in REQUIRED {
        ensure!(
            unpacked.iter().any(|(there, ..)| *there == name),
            "{}: {} is not in it; it is not an archive of etcd {version} for this machine",
            at(),
            folders.each_ref().map(|folder| format!("{folder}/{name}")).join(" or ")
        );
    }
    let mut programs = BTreeMap::new();
    for (name, pending, sha256) in unpacked {
        pending.commit().with_context(|| format!("cannot write {}", paths.program(name).display()))?;
        programs.insert(name.to_owned(), sha256);
    }
    if !says_version {
        let there = version_of(&paths.program("etcd"));
        if there.as_deref() != Some(version.to_string().as_str()) {
            programs.keys().try_for_each(|name| files::remove(&paths.program(name)))?;
            let what = there.map_or("a program that does not run here".to_owned(), |there| format!("etcd {there}"));
            bail!("{}: it has {what}, not etcd {version}; give its own version with --version", at());
        }
    }
    Ok(programs)
}

#[cfg(test)]
mod tests;
