//! The files that etcd, systemd and etcdctl read.

pub mod env;
pub mod etcdctl;
pub mod unit;

use anyhow::{Context, Result};

use crate::files;
use crate::paths::Paths;
use crate::settings::Settings;
use env::Start;

/// Writes everything that starting the member takes.
///
/// # Errors
/// When a file cannot be written.
pub fn write_all(paths: &Paths, settings: &Settings, start: &Start) -> Result<()> {
    let data_dir = paths.data_dir();
    files::create_directory(data_dir, 0o700).with_context(|| format!("cannot make {}", data_dir.display()))?;
    files::write(&paths.etcd_env(), env::render(paths, settings, start).as_bytes(), 0o600)?;
    files::write(&paths.unit(), unit::render(paths).as_bytes(), 0o644)?;
    files::write(&paths.etcdctl_env(), etcdctl::render_env(paths).as_bytes(), 0o600)?;
    files::write(&paths.etcdctl_wrapper(), etcdctl::render_wrapper(paths).as_bytes(), 0o755)?;
    Ok(())
}

#[cfg(test)]
mod tests;
