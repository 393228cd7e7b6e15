//! A report as one file.

use super::File;
use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::jiff::Timestamp;
use tar::{Builder, Header};

/// The name of a report, without a file extension.
#[must_use]
pub fn name(etcd: &str, now: Timestamp) -> String {
    let time: String = format!("{now:.0}").chars().filter(|c| !matches!(c, '-' | ':')).collect();
    format!("etcdcluster-report-{etcd}-{time}")
}

/// The files as a tar.gz, in a folder with this name. The same files always result in the same bytes.
///
/// # Errors
/// When a path is too long for an archive.
pub fn archive(folder: &str, files: &[File], now: Timestamp) -> Result<Vec<u8>> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for file in files {
        let mut header = Header::new_gnu();
        header.set_size(file.text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
        let path = format!("{folder}/{}", file.path);
        builder.append_data(&mut header, &path, file.text.as_bytes()).with_context(|| format!("pack {path}"))?;
    }
    Ok(builder.into_inner()?.finish()?)
}
