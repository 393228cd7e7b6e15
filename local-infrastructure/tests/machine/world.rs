//! Namespaces for the whole test: it is root in them, and has a bridge, and a file system for the machines' state.

use libtest_mimic::Failed;
use local_infrastructure::image::{default_cache, systemctl};
use std::{
    fs,
    path::Path,
    process::{Command, ExitCode},
};

const INSIDE: &str = "LOCAL_INFRASTRUCTURE_TEST_WORLD";

/// Whether this process is in its world already.
pub(crate) fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Whether this computer's real root runs the test, with all ids mapped.
pub(crate) fn real_root() -> bool {
    std::env::var(INSIDE).is_ok_and(|kind| kind == "root")
}

/// Runs this program once more, inside. With `LOCAL_INFRASTRUCTURE_TEST_USERNS`, the world is made as for an
/// unprivileged user, even if root runs the test.
pub(crate) fn enter() -> ExitCode {
    // This is downloaded now, because there is no network inside.
    if let Err(error) = systemctl(&default_cache()) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    let root = is_root() && std::env::var_os("LOCAL_INFRASTRUCTURE_TEST_USERNS").is_none();
    let user: &[&str] = if root { &[] } else { &["--user", "--map-root-user"] };
    let set_up = "mount -t tmpfs tmpfs /run && ip link set lo up && ip link add cape0 type bridge \
                  && ip address add 10.77.0.1/16 dev cape0 && ip link set cape0 up && exec \"$@\"";
    let status = Command::new("unshare")
        .args(user)
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .args(["sh", "-c", set_up, "sh"])
        .args(std::env::args_os())
        .env(INSIDE, if root { "root" } else { "user" })
        .status();
    match status {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("unshare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The number of processes in this network namespace.
pub(crate) fn processes_in(namespace: &Path) -> Result<usize, Failed> {
    let links = fs::read_dir("/proc")?.filter_map(|entry| fs::read_link(entry.ok()?.path().join("ns/net")).ok());
    Ok(links.filter(|link| link == namespace).count())
}

/// The world's network interfaces.
pub(crate) fn links() -> Result<String, Failed> {
    let output = Command::new("ip").args(["-oneline", "link", "show"]).output()?;
    Ok(String::from_utf8(output.stdout)?)
}

/// Adds another bridge.
pub(crate) fn add_bridge(name: &str) -> Result<(), Failed> {
    let status = Command::new("ip").args(["link", "add", name, "type", "bridge"]).status()?;
    if status.success() { Ok(()) } else { Err(format!("the bridge {name} cannot be made").into()) }
}
