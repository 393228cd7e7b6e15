//! The files that etcd, systemd and etcdctl read.

pub mod env;
pub mod etcdctl;
pub mod unit;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use rand::RngExt;

use crate::paths::Paths;
use crate::settings::Settings;
use crate::{existing, files};
use env::Start;

/// Writes all files that the start of the member needs.
///
/// # Errors
/// When a file cannot be written.
pub fn write_all(paths: &Paths, settings: &Settings, start: &Start) -> Result<()> {
    let data_dir = paths.data_dir();
    files::create_directory(data_dir, 0o700).with_context(|| format!("cannot make {}", data_dir.display()))?;
    files::write(&paths.etcd_env(), env::render(paths, settings, start).as_bytes(), 0o600)?;
    files::write(&paths.guard(), crate::guard::render(paths).as_bytes(), 0o755)?;
    files::write(&paths.unit(), unit::render(paths).as_bytes(), 0o644)?;
    files::write(&paths.etcdctl_env(), etcdctl::render_env(paths).as_bytes(), 0o600)?;
    files::write(&paths.etcdctl_wrapper(), etcdctl::render_wrapper(paths).as_bytes(), 0o755)?;
    Ok(())
}

/// Whether etcd.env is what `start` would write.
///
/// # Errors
/// When the file exists and cannot be read.
pub fn is_current(paths: &Paths, settings: &Settings, start: &Start) -> Result<bool> {
    Ok(files::read(&paths.etcd_env())?.is_some_and(|there| there == env::render(paths, settings, start).as_bytes()))
}

/// Changes etcd.env to the settings of a member that has data; see [`existing::as_existing`].
///
/// # Errors
/// When the file cannot be read or written.
pub fn mark_existing(paths: &Paths) -> Result<()> {
    let Some(there) = files::read(&paths.etcd_env())? else { return Ok(()) };
    let text = String::from_utf8_lossy(&there);
    if !existing::is_existing(&text) {
        files::write(&paths.etcd_env(), existing::as_existing(&text).as_bytes(), 0o600)?;
    }
    Ok(())
}

/// The initial cluster token: the one that an interrupted run chose, else a random one.
///
/// # Errors
/// When etcd.env exists and cannot be read.
pub fn token(paths: &Paths) -> Result<String> {
    let there = files::read(&paths.etcd_env())?.unwrap_or_default();
    let text = String::from_utf8_lossy(&there);
    let chosen = text.lines().find_map(|line| line.strip_prefix("ETCD_INITIAL_CLUSTER_TOKEN="));
    Ok(chosen.map_or_else(|| format!("{:016x}", rand::rng().random::<u64>()), str::to_owned))
}

/// Names of the settings in etcd.env that differ from the requested ones. Settings that only the first start reads do
/// not count.
///
/// # Errors
/// When the file exists and cannot be read.
pub fn differences(paths: &Paths, settings: &Settings) -> Result<Vec<String>> {
    let Some(there) = files::read(&paths.etcd_env())? else { return Ok(Vec::new()) };
    let there = String::from_utf8_lossy(&there).into_owned();
    let asked = env::render(paths, settings, &Start::Again);
    let (there, asked) = (lasting(&there), lasting(&asked));
    let names: BTreeSet<&&str> = there.keys().chain(asked.keys()).collect();
    let different = names.into_iter().filter(|name| there.get(*name) != asked.get(*name));
    Ok(different.map(|name| (*name).to_owned()).collect())
}

fn lasting(text: &str) -> BTreeMap<&str, &str> {
    let settings = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    settings.filter(|(name, _)| !name.starts_with("ETCD_INITIAL_")).collect()
}

#[cfg(test)]
mod tests;
