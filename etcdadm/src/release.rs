//! etcd's release archives: their names, their sources, and their verification.

mod download;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use etcd_values::EtcdVersion;

use crate::checksum::Sha256;
use crate::files;
use crate::paths::Paths;
use crate::settings::Settings;

/// File beside the archives that contains their SHA-256 sums.
const SUMS: &str = "SHA256SUMS";

/// How the URL of an archive ends. The URL of a folder of releases does not end like this.
const ARCHIVE_ENDING: &str = ".tar.gz";

/// A release archive on this machine.
#[derive(Clone, Debug)]
pub struct Archive {
    /// Its path.
    pub path: PathBuf,
    /// Its SHA-256 sum.
    pub sha256: Sha256,
}

/// The name of this machine's processor in Go, and so in the names of etcd's archives.
///
/// # Errors
/// When etcd has no release for it.
pub fn go_arch() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        "powerpc64" => Ok("ppc64le"),
        "s390x" => Ok("s390x"),
        other => bail!("etcd has no release for {other}; it has for x86_64, aarch64, powerpc64le and s390x"),
    }
}

/// Gets the archive from the cache, or downloads it from the release URL into the cache. The archive is checked against
/// `--release-sha256`, else against the checksums beside it. A cached archive without checksums is accepted as it is; a
/// download without checksums never is.
///
/// # Errors
/// When there is no archive, or its sum is wrong.
pub async fn obtain(paths: &Paths, settings: &Settings) -> Result<Archive> {
    let name = format!("{}.tar.gz", folder(&settings.version)?);
    let cache = paths.release_cache(&settings.version.to_string());
    let source = Source::new(settings, &name);
    if let Some(archive) = cached(&cache, &name, settings)? {
        return Ok(archive);
    }
    if source.name != name
        && let Some(archive) = cached(&cache, &source.name, settings)?
    {
        return Ok(archive);
    }
    let path = cache.join(&source.name);
    let sha256 = download::download(&source, &path, settings).await?;
    Ok(Archive { path, sha256 })
}

/// The folder in upstream's archive, which names the version and the platform: `etcd-v3.6.16-linux-amd64`.
///
/// # Errors
/// When etcd has no release for this machine.
pub fn folder(version: &EtcdVersion) -> Result<String> {
    Ok(format!("etcd-v{version}-linux-{}", go_arch()?))
}

/// Where an archive is downloaded from.
struct Source {
    /// The file name of the archive in its source.
    name: String,
    url: String,
    /// URLs of files that may contain its SHA-256 sum, tried in turn.
    sums: Vec<String>,
}

impl Source {
    /// `--release-url` itself, if it is the URL of an archive; else upstream's `name` below it.
    fn new(settings: &Settings, name: &str) -> Self {
        let given = reqwest::Url::parse(&settings.release_url).ok();
        let whole = given.filter(|url| url.path().ends_with(ARCHIVE_ENDING));
        let Some(url) = whole else {
            let directory = format!("{}/v{}", settings.release_url, settings.version);
            let (url, sums) = (format!("{directory}/{name}"), vec![format!("{directory}/{SUMS}")]);
            return Self { name: name.to_owned(), url, sums };
        };
        let (directory, name) = url.path().rsplit_once('/').unwrap_or_default();
        let beside = |file: &str| {
            let mut sums = url.clone();
            sums.set_path(&format!("{directory}/{file}"));
            sums.to_string()
        };
        let sums = vec![beside(&format!("{name}.sha256")), beside(SUMS)];
        Self { name: name.to_owned(), url: settings.release_url.clone(), sums }
    }
}

/// The archive in the cache, if it exists and its sum is not wrong.
fn cached(cache: &Path, name: &str, settings: &Settings) -> Result<Option<Archive>> {
    let path = cache.join(name);
    if !path.exists() {
        return Ok(None);
    }
    let place = || format!("cannot read {}", path.display());
    let sha256 = Sha256::of(&mut File::open(&path).with_context(place)?).with_context(place)?;
    match expected_of_cached(cache, name, settings)? {
        Some(expected) if expected != sha256 => {
            tracing::warn!("{} has SHA-256 {sha256}, not {expected}; it is not used", path.display());
            Ok(None)
        }
        checked => {
            let how = if checked.is_some() { "checked" } else { "no checksum beside it" };
            tracing::info!("release archive {} from the cache ({how})", path.display());
            Ok(Some(Archive { path, sha256 }))
        }
    }
}

fn expected_of_cached(cache: &Path, name: &str, settings: &Settings) -> Result<Option<Sha256>> {
    if let Some(given) = settings.release_sha256 {
        return Ok(Some(given));
    }
    for sums in [cache.join(format!("{name}.sha256")), cache.join(SUMS)] {
        let Some(text) = files::read(&sums)? else { continue };
        let text = String::from_utf8_lossy(&text);
        match Sha256::in_sums(&text, name) {
            Some(sha256) => return Ok(Some(sha256)),
            None => bail!("{} has no SHA-256 for {name}; correct it or remove it", sums.display()),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
