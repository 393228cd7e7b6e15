//! The boot: cloud-init, and the result of the bootstrap data.

use super::children::Children;
use crate::machine::{BOOTSTRAP, Bootstrap, write_in};
use rustix::fs::{Access, AtFlags, accessat};
use serde::Deserialize;
use std::{
    fs::{self, File},
    io,
    path::Path,
    process::Command,
    time::Instant,
};

/// The file that successful bootstrap data leaves, according to Cluster API's bootstrap contract.
const SENTINEL: &str = "/run/cluster-api/bootstrap-success.complete";
/// What cloud-init leaves when it is done.
const RESULT: &str = "/run/cloud-init/result.json";

#[derive(Deserialize)]
struct CloudInitResult {
    v1: Stages,
}

#[derive(Deserialize)]
struct Stages {
    errors: Vec<String>,
}

/// Runs cloud-init as at every boot. After the boot that ran the bootstrap data, records the result in `directory`.
pub(super) async fn run(children: &Children, started: Instant, directory: &File) {
    let stages = children.run(Command::new("/usr/bin/python3").args(["-c", include_str!("cloud_init.py")])).await;
    if accessat(directory, BOOTSTRAP, Access::EXISTS, AtFlags::empty()).is_ok() {
        return;
    }
    let errors = match stages {
        Err(error) => vec![format!("cloud-init cannot be started: {error}")],
        Ok(_) => errors(fs::read(RESULT), Path::new(SENTINEL).exists()),
    };
    let milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let result = Bootstrap { succeeded: errors.is_empty(), errors, milliseconds };
    println!("Bootstrap data {} after {milliseconds} ms.", if result.succeeded { "succeeded" } else { "failed" });
    let recorded = serde_json::to_vec(&result).map_err(io::Error::from);
    if let Err(error) = recorded.and_then(|json| write_in(directory, BOOTSTRAP, &json)) {
        println!("The result cannot be recorded: {error}");
    }
}

/// The errors, according to cloud-init's own result and the sentinel file.
fn errors(result: io::Result<Vec<u8>>, sentinel: bool) -> Vec<String> {
    let parsed = result.and_then(|json| serde_json::from_slice::<CloudInitResult>(&json).map_err(io::Error::from));
    let mut errors = match parsed {
        Ok(result) => result.v1.errors,
        Err(error) => vec![format!("cloud-init left no result: {error}")],
    };
    if !sentinel {
        errors.push(format!("the bootstrap data ended without creating {SENTINEL}"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::well(Ok(r#"{"v1": {"datasource": "x", "errors": []}}"#), true, &[])]
    #[case::no_sentinel(Ok(r#"{"v1": {"errors": []}}"#), false, &["without creating"])]
    #[case::module(Ok(r#"{"v1": {"errors": ["('ntp', E)"]}}"#), true, &["('ntp', E)"])]
    #[case::both(Ok(r#"{"v1": {"errors": ["('scripts-user', E)"]}}"#), false, &["scripts-user", "without creating"])]
    #[case::crashed(Err(io::ErrorKind::NotFound), false, &["left no result", "without creating"])]
    fn bootstrap_data_succeeds_only_with_the_sentinel_and_no_error(
        #[case] result: Result<&str, io::ErrorKind>,
        #[case] sentinel: bool,
        #[case] expected: &[&str],
    ) {
        let found = errors(result.map(|json| json.as_bytes().to_vec()).map_err(io::Error::from), sentinel);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }
}
