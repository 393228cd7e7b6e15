//! The files that etcd, systemd and etcdctl read.

pub mod env;
pub mod etcdctl;
pub mod unit;

use std::collections::{BTreeMap, BTreeSet};

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

/// Names of the settings in etcd.env that are not as asked for. What only the first start reads does not count.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn differences(paths: &Paths, settings: &Settings) -> Result<Vec<String>> {
    let Some(there) = files::read(&paths.etcd_env())? else { return Ok(Vec::new()) };
    let there = String::from_utf8_lossy(&there).into_owned();
    let asked = env::render(paths, settings, &Start::Existing { initial_cluster: String::new() });
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
