//! The krew manifest of the kubectl plugin: `hack/krew.sh` names what is there, with its checksum.

use crate::{output, repository};
use serde_yaml::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::process::Command;

fn script(directory: &Path) -> Command {
    let mut script = Command::new(repository("hack/krew.sh"));
    script.arg("v0.1.0").arg(directory).arg("https://example.org/ours/");
    script
}

#[test]
fn it_has_the_platforms_of_which_there_is_an_archive() {
    let directory = tempfile::tempdir().unwrap();
    for (platform, content) in [("linux-amd64", "one"), ("darwin-arm64", "other")] {
        fs::write(directory.path().join(format!("kubectl-etcdcluster-{platform}.tar.gz")), content).unwrap();
    }
    let text = String::from_utf8(output(&mut script(directory.path()))).unwrap();
    assert!(!text.contains('@'), "{text}");
    let manifest: Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(manifest["spec"]["version"], "v0.1.0");
    assert_eq!(manifest["spec"]["homepage"], "https://example.org/ours");
    let platforms = manifest["spec"]["platforms"].as_sequence().unwrap();
    let found: Vec<[&str; 4]> = platforms
        .iter()
        .map(|platform| {
            let labels = &platform["selector"]["matchLabels"];
            [&labels["os"], &labels["arch"], &platform["uri"], &platform["sha256"]].map(|text| text.as_str().unwrap())
        })
        .collect();
    let sum = |content: &str| -> String { Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect() };
    let uri = |platform: &str| {
        format!("https://example.org/ours/releases/download/v0.1.0/kubectl-etcdcluster-{platform}.tar.gz")
    };
    assert_eq!(
        found,
        [
            ["linux", "amd64", &uri("linux-amd64"), &sum("one")],
            ["darwin", "arm64", &uri("darwin-arm64"), &sum("other")],
        ]
    );
}

#[test]
fn without_any_archive_it_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let out = script(directory.path()).output().unwrap();
    assert!(!out.status.success() && out.stdout.is_empty());
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("there is no kubectl-etcdcluster-OS-ARCH.tar.gz"), "{said}");
}
