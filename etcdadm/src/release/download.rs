//! Downloads. A file appears only after it has been checked.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use reqwest::{Client, Response};
use sha2::Digest;

use super::Source;
use crate::checksum::Sha256;
use crate::files::{self, PendingFile};
use crate::release_url::without_credentials;
use crate::settings::Settings;

/// How often a download is tried, for some five minutes: a machine boots only once, and by then its resolver, proxy or
/// mirror may be away.
const ATTEMPTS: u32 = 24;
/// Pause after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 1000 });
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 15_000 });
/// A server that sends nothing for this long is gone.
const SILENCE: Duration = Duration::from_secs(30);

/// Downloads an archive to `target`, which appears only when it is complete and checked, with its sum beside it. The
/// usual environment variables for proxies apply.
pub(super) async fn download(source: &Source, target: &Path, settings: &Settings) -> Result<Sha256> {
    let client = Client::builder()
        .connect_timeout(settings.download_connect_timeout)
        .read_timeout(SILENCE)
        .user_agent(concat!("etcdadm/", env!("CARGO_PKG_VERSION")))
        .build()
        .context("cannot set up downloads")?;
    let shown = without_credentials(&source.url);
    let mut pause = FIRST_PAUSE;
    for attempt in 1.. {
        match once(&client, source, target, settings.release_sha256).await {
            Ok(sha256) => return Ok(sha256),
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Transient(error)) if attempt == ATTEMPTS => {
                return Err(error.context(format!(
                    "cannot download {shown} in {ATTEMPTS} attempts; check --release-url and the proxy variables, or put \
                     the archive at {}",
                    target.display()
                )));
            }
            Err(Failure::Transient(error)) => {
                tracing::warn!("download of {shown} failed: {error:#}; trying again in {pause:?}");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    unreachable!("the loop returns")
}

enum Failure {
    /// Trying again may help.
    Transient(anyhow::Error),
    /// Trying again does not help.
    Final(anyhow::Error),
}

async fn once(client: &Client, source: &Source, target: &Path, given: Option<Sha256>) -> Result<Sha256, Failure> {
    let expected = match given {
        Some(given) => given,
        None => published(client, source).await?,
    };
    let Source { name, url, .. } = source;
    tracing::info!("downloading {}", without_credentials(url));
    let response = get(client, url).await?;
    let written = write(response, target, expected, url).await?;
    let sums = format!("{written}  {name}\n");
    let beside = target.with_file_name(format!("{name}.sha256"));
    files::write(&beside, sums.as_bytes(), 0o644).map_err(Failure::Final)?;
    Ok(written)
}

/// The SHA-256 sum that the server itself publishes.
async fn published(client: &Client, source: &Source) -> Result<Sha256, Failure> {
    let name = &source.name;
    let mut why = Vec::new();
    for url in &source.sums {
        let shown = without_credentials(url);
        match get(client, url).await {
            Ok(sums) => {
                let text = sums.text().await.map_err(|error| Failure::Transient(error.without_url().into()))?;
                match Sha256::in_sums(&text, name) {
                    Some(sha256) => return Ok(sha256),
                    None => why.push(format!("{shown} does not have it")),
                }
            }
            Err(Failure::Final(error)) => why.push(error.to_string()),
            Err(passing) => return Err(passing),
        }
    }
    let why = why.join(", and ");
    Err(Failure::Final(anyhow!("no checksum for {name}: {why}; serve it there, or give it with --release-sha256")))
}

/// A successful response. Any other status is an error.
async fn get(client: &Client, url: &str) -> Result<Response, Failure> {
    let response = client.get(url).send().await.map_err(|error| Failure::Transient(error.without_url().into()))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let error = anyhow!("{} answers {status}", without_credentials(url));
    // 408 and 429 ask for a retry. Any other 4xx is final.
    let stays = status.is_client_error() && !matches!(status.as_u16(), 408 | 429);
    Err(if stays { Failure::Final(error) } else { Failure::Transient(error) })
}

async fn write(mut response: Response, target: &Path, expected: Sha256, url: &str) -> Result<Sha256, Failure> {
    let place = |error: std::io::Error| {
        Failure::Final(anyhow::Error::new(error).context(format!("cannot write {}", target.display())))
    };
    let mut file = PendingFile::create(target, 0o644).map_err(place)?;
    let mut hasher = sha2::Sha256::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Failure::Transient(error.without_url().into()))? {
        hasher.update(&chunk);
        file.write_all(&chunk).map_err(place)?;
    }
    let sha256 = Sha256::from(hasher);
    if sha256 != expected {
        return Err(Failure::Final(anyhow!(
            "{} has SHA-256 {sha256}, but {expected} is expected; nothing was installed",
            without_credentials(url)
        )));
    }
    file.commit().map_err(place)?;
    Ok(sha256)
}
