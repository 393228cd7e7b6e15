//! The versions of etcd on this computer that tests can use.

use std::cmp::Reverse;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use etcd_values::{DEFAULT_ETCD_VERSION, EtcdVersion};

/// A version of etcd on this computer.
#[derive(Clone, Debug)]
pub struct Release {
    pub version: String,
    pub programs: PathBuf,
}

/// The variable that names one more etcd.
const NAMED: &str = "ETCDADM_TEST_ETCD";
/// Minor versions that `E2E_FULL` requires.
const MINORS: [&str; 3] = ["3.5.", "3.6.", "3.7."];

/// Only the version that etcdadm installs by default; all of [`all_releases`] if the default version is not among them,
/// with `E2E_FULL`, or if `ETCDADM_TEST_ETCD` names one. Each further version makes every test take as long again.
pub fn releases() -> Vec<Release> {
    let all = all_releases();
    if ["E2E_FULL", NAMED].iter().any(|asks| std::env::var_os(asks).is_some()) {
        return all;
    }
    let default: Vec<Release> = all.iter().filter(|it| it.version == DEFAULT_ETCD_VERSION).cloned().collect();
    if default.is_empty() { all } else { default }
}

/// For each minor version the newest etcd in the project's cache, and the etcd of `ETCDADM_TEST_ETCD`, which is a
/// directory with etcd and etcdctl. If there is none, tests fail.
pub fn all_releases() -> Vec<Release> {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|set| !set.is_empty()).map_or_else(home, PathBuf::from);
    let tools = fs::read_dir(cache.join("cluster-api-provider-etcdadm/tools"));
    let cached = tools.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<Release> = cached.filter_map(release).collect();
    found.sort_by_cached_key(|it| Reverse(number(it)));
    found.dedup_by(|older, newer| minor(older) == minor(newer));
    found.extend(std::env::var_os(NAMED).map(PathBuf::from).and_then(release));
    found.sort_by_cached_key(number);
    found.dedup_by(|a, b| a.version == b.version);
    assert!(
        !found.is_empty(),
        "there is no etcd to test with: run `cargo run -p e2e -- tools build`, or name a directory with etcd and etcdctl \
         in ETCDADM_TEST_ETCD"
    );
    if std::env::var_os("E2E_FULL").is_some() {
        for minor in MINORS {
            assert!(
                found.iter().any(|release| release.version.starts_with(minor)),
                "with E2E_FULL, etcd {minor}x is needed too: run `cargo run -p e2e -- tools build --all-etcd`"
            );
        }
    }
    found
}

/// The release in a directory, if it has etcd and etcdctl.
fn release(programs: PathBuf) -> Option<Release> {
    let is_there = |name: &str| programs.join(name).is_file();
    if !(is_there("etcd") && is_there("etcdctl")) {
        return None;
    }
    let output = Command::new(programs.join("etcd")).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.lines().find_map(|line| line.strip_prefix("etcd Version: "))?.to_owned();
    Some(Release { version, programs })
}

/// First and second number of its version.
fn minor(release: &Release) -> &str {
    release.version.rsplit_once('.').map_or(release.version.as_str(), |(minor, _)| minor)
}

/// Its version as a number, by which 3.6.16 comes after 3.6.9.
fn number(release: &Release) -> EtcdVersion {
    release.version.parse().expect("etcd reports its version")
}
