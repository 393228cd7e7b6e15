//! The signature of a release: a verification as the documentation describes it notices every change.

use crate::{output, read, repository};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The private key, as docs/install.md calls it.
const KEY: &str = "release-key.pem";

/// What docs/install.md tells people to type, one command in each line: those lines of a block that begin with these
/// words.
fn documented(beginnings: &[&str]) -> Vec<String> {
    let documentation = read("docs/install.md");
    let blocks = documentation.split("```").skip(1).step_by(2).flat_map(str::lines);
    let lines: Vec<String> = blocks
        .filter(|line| beginnings.iter().any(|beginning| line.starts_with(*beginning)))
        .map(str::to_owned)
        .collect();
    assert!(lines.len() >= beginnings.len(), "docs/install.md has {lines:?} of {beginnings:?}");
    lines
}

/// Runs the lines one after the other, and ends with the first line that fails.
fn typed(directory: &Path, lines: &[String]) -> Output {
    Command::new("sh").args(["-e", "-c", &lines.join("\n")]).current_dir(directory).output().unwrap()
}

fn make_a_key(directory: &Path) {
    let made = typed(directory, &documented(&["openssl genpkey ", "openssl pkey "]));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn is_genuine(directory: &Path) -> bool {
    typed(directory, &documented(&["openssl dgst ", "sha256sum --check "])).status.success()
}

/// `hack/release.sh` without what takes long: programs are not built, and nothing is rendered.
fn release(directory: &Path) -> Command {
    let mut script = Command::new(repository("hack/release.sh"));
    script.arg("--manifests").arg(directory.join("release")).env("KUBECTL", "echo");
    script.env("SOURCE_DATE_EPOCH", "1700000000").env_remove("SIGNING_KEY");
    script
}

#[test]
fn what_is_documented_verifies_a_release_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    make_a_key(directory);
    output(release(directory).env("SIGNING_KEY", directory.join(KEY)));
    let released = directory.join("release");
    fs::copy(directory.join("release-key.pub"), released.join("release-key.pub")).unwrap();
    assert!(is_genuine(&released));

    let changed = |file: &str, change: &dyn Fn(&str) -> String| {
        let path = released.join(file);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(&path, change(&before)).unwrap();
        let genuine = is_genuine(&released);
        fs::write(&path, before).unwrap();
        genuine
    };
    assert!(!changed("metadata.yaml", &|text| format!("{text}\n")), "a file was changed");
    let other = |text: &str| text.replacen(text.get(..1).unwrap_or_default(), "z", 1);
    assert!(!changed("SHA256SUMS", &other), "the checksums were changed");
    assert!(is_genuine(&released));

    make_a_key(directory);
    fs::copy(directory.join("release-key.pub"), released.join("release-key.pub")).unwrap();
    assert!(!is_genuine(&released), "it is signed by another key");
}

#[test]
fn an_old_signature_does_not_stay_and_a_wrong_key_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let signature = directory.join("release/SHA256SUMS.sig");
    make_a_key(directory);
    output(release(directory).env("SIGNING_KEY", directory.join(KEY)));
    assert!(signature.exists());
    output(&mut release(directory));
    assert!(!signature.exists(), "it is not of these checksums");
    assert!(!fs::read_to_string(directory.join("release/SHA256SUMS")).unwrap().contains("SHA256SUMS"));

    fs::remove_dir_all(directory.join("release")).unwrap();
    let refused = release(directory).env("SIGNING_KEY", directory.join("release-key.pub")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("is not a private key"), "{said}");
    assert!(!directory.join("release").exists(), "something was written");
}
