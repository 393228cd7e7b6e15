//! The krew manifest of the kubectl plugin: `hack/krew.sh` lists the archives that exist, with their checksums.

use crate::{output, read, repository};
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
    // Nobody builds for the other system, so its archive is none of ours.
    for (platform, content) in [("linux-arm64", "one"), ("darwin-arm64", "other")] {
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
    assert_eq!(found, [["linux", "arm64", &uri("linux-arm64"), &sum("one")]]);
}

/// The template has no platform that nobody builds for, and lacks none.
#[test]
fn it_knows_the_platforms_that_a_release_is_built_for() {
    let script = read("hack/release.sh");
    let (_, rest) = script.split_once("${ARCHITECTURES:-").unwrap();
    let built = rest.split('}').next().unwrap().split(' ').map(|architecture| format!("linux-{architecture}"));
    let template = read("config/krew/etcdcluster.yaml");
    let listed = template.split("/kubectl-etcdcluster-").skip(1).filter_map(|rest| rest.split(".tar.gz").next());
    assert_eq!(listed.collect::<Vec<_>>(), built.collect::<Vec<_>>());
}

#[test]
fn without_any_archive_it_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let out = script(directory.path()).output().unwrap();
    assert!(!out.status.success() && out.stdout.is_empty());
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("there is no kubectl-etcdcluster-linux-ARCH.tar.gz"), "{said}");
}

/// If the release is given its homepage, the manifest is written beside the archives that it is about.
#[test]
fn a_release_that_is_to_be_published_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let release = |homepage: &str| {
        // Nothing is compiled: the archive comes from an earlier run. Nothing is rendered.
        let mut script = Command::new(repository("hack/release.sh"));
        script.arg("--manifests").arg(directory.path()).env("KUBECTL", "echo").env("RELEASE_HOMEPAGE", homepage);
        output(script.env("SOURCE_DATE_EPOCH", "1700000000").env_remove("SIGNING_KEY"));
    };
    fs::write(directory.path().join("kubectl-etcdcluster-linux-amd64.tar.gz"), "one").unwrap();
    let file = directory.path().join("kubectl-etcdcluster.krew.yaml");
    let sums = || fs::read_to_string(directory.path().join("SHA256SUMS")).unwrap();
    release("https://example.org/ours");
    let text = fs::read_to_string(&file).unwrap();
    let address = format!("https://example.org/ours/releases/download/v{}/", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&format!("{address}kubectl-etcdcluster-linux-amd64.tar.gz")), "{text}");
    assert!(sums().contains("kubectl-etcdcluster.krew.yaml"), "it has no checksum");
    release("");
    assert!(!file.exists(), "it leads to a place where nothing is published");
    assert!(!sums().contains("krew"));
}
