//! The Go command that builds the real parts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};

use super::module::Module;
use super::module_dir;
use crate::cache;

/// The oldest minor version of Go 1 that fetches the toolchain that a `go.mod` asks for.
const OLDEST: u32 = 21;

/// The Go command for `module`. It fetches the toolchain that `go.mod` asks for, also where `GOTOOLCHAIN` forbids that
/// for other projects, as in images that contain Go.
pub(super) fn go(module: &Module) -> Command {
    let mut command = Command::new(program());
    command.current_dir(module_dir(module)).env("CGO_ENABLED", "0").env("GOWORK", "off").stdin(Stdio::null());
    if std::env::var_os("GOTOOLCHAIN").is_none_or(|chosen| chosen == "local") {
        command.env("GOTOOLCHAIN", "auto");
    }
    command
}

/// What a short Go command prints.
pub(super) fn go_output(module: &Module, arguments: &[&str]) -> Result<String> {
    let output = go(module)
        .args(arguments)
        .output()
        .context("run go: the real parts are built with Go 1.21 or newer, which hack/setup.sh installs")?;
    if !output.status.success() {
        bail!("go {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("go prints UTF-8")
}

/// The Go in the `PATH`. If that one is missing or too old, the one that `hack/setup.sh` has fetched, which is in the
/// `PATH` only of scripts that source it.
fn program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        let in_the_path = PathBuf::from("go");
        let asked = Command::new(&in_the_path).args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local").output();
        if asked.is_ok_and(|answer| is_new_enough(&String::from_utf8_lossy(&answer.stdout))) {
            return in_the_path;
        }
        let fetched = cache::root().map(|root| root.join("go/bin/go"));
        fetched.ok().filter(|fetched| fetched.is_file()).unwrap_or(in_the_path)
    });
    &PROGRAM
}

/// Whether Go of this version, as `go env GOVERSION` prints it, fetches toolchains.
fn is_new_enough(version: &str) -> bool {
    let after = version.trim().strip_prefix("go1.").unwrap_or_default();
    let minor = after.split(|other: char| !other.is_ascii_digit()).next().unwrap_or_default();
    minor.parse().is_ok_and(|minor: u32| minor >= OLDEST)
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn go_is_new_enough_from_1_21_on() {
        for version in ["go1.21", "go1.21.0", "go1.26.8\n", "go1.100rc1", "go1.22.4-distribution"] {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["", "go1.19.8", "go1.20", "go1.9", "devel", "go1.", "1.26"] {
            assert!(!is_new_enough(version), "{version}");
        }
    }
}
