//! Puts etcd's programs into the install directory.

use std::collections::BTreeMap;
use std::fs::File;

use anyhow::{Context, Result, bail, ensure};
use etcd_values::EtcdVersion;
use flate2::read::GzDecoder;

use crate::checksum::Sha256;
use crate::files::{self, PendingFile};
use crate::installed::{InstallRecord, version_of};
use crate::paths::Paths;
use crate::release::{self, Archive};
use crate::settings::Settings;

/// What every supported release has; `etcdutl` is missing in 3.4.
const REQUIRED: [&str; 2] = ["etcd", "etcdctl"];
const PROGRAMS: [&str; 3] = ["etcd", "etcdctl", "etcdutl"];

/// Makes sure that the requested version is installed. Programs that are already correct stay untouched.
///
/// # Errors
/// When there is no archive, it is damaged, or this machine already is a member with another version.
pub async fn ensure_installed(paths: &Paths, settings: &Settings, is_member: bool) -> Result<()> {
    let record = files::read(&paths.install_record())?;
    let record: Option<InstallRecord> = record.and_then(|text| serde_json::from_slice(&text).ok());
    let version = settings.version.to_string();
    // A member's program is never replaced, no matter who installed it.
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

/// Version of an etcd that was not installed by etcdadm, if its etcdctl is installed as well.
fn baked_version(paths: &Paths) -> Option<String> {
    let complete = REQUIRED.iter().all(|name| paths.program(name).is_file());
    if complete { version_of(&paths.program("etcd")) } else { None }
}

/// Unpacks the programs. They take their places only when all of them are complete.
///
/// Upstream's folder in the archive is named after the version and the processor. Other builds have a folder
/// `linux-<arch>`, without the version. In that case the unpacked etcd is asked for its version, and removed if it is
/// the wrong one.
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
