//! A world of namespaces for the current program, with or without root.
//!
//! A program calls [`enter_or_run`] first thing in `main`. It then exists three times:
//!
//! 1. *outside*: builds the real parts, starts `unshare`, passes signals on, and keeps the logs if anything failed;
//! 2. *init*: the first process of the world; makes the bridge and the mounts, starts the program once more, collects
//!    orphans. The kernel ends everything in the world when it ends;
//! 3. *inside*: runs what was passed to [`enter_or_run`].
//!
//! Inside, network interfaces, mounts and process ids are the world's own; files are the host's, except under `/run`.
//! An ordinary user is root inside, with exactly one user id.

mod cgroups;
mod init;
mod outside;
mod setup;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::scenarios::Durations;
use crate::tools::{ManagementKubernetes, Release, Tools};

/// Bridge that machines attach to.
pub const BRIDGE: &str = "cape0";
/// The world's own address on [`BRIDGE`], which is a machine's default gateway.
pub const ADDRESS: &str = "10.77.0.1";
/// Prefix length of the network on [`BRIDGE`].
pub const PREFIX_LENGTH: u8 = 16;
/// A memory file system of the world's own. Overlay mounts of `/` can have their upper directories here, but not
/// anywhere below `/` itself.
pub const STATE: &str = "/run/world";

/// Which of the three processes this is. Unset means outside.
const STAGE: &str = "CAPE_WORLD_STAGE";
/// The directory for logs, chosen outside.
const LOGS: &str = "CAPE_WORLD_LOGS";
/// The real parts as JSON, found outside: inside, there is no network with which to build them.
const TOOLS: &str = "CAPE_WORLD_TOOLS";
/// The name of the world's control group.
const CGROUP: &str = "CAPE_WORLD_CGROUP";

const INIT: &str = "init";
const INSIDE: &str = "inside";

/// Whether the kernel has IPv6, and enables it on new interfaces.
#[must_use]
pub fn has_ipv6() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6").is_ok_and(|disabled| disabled.trim() == "0")
}

/// The world this process is in.
#[derive(Debug, Clone)]
pub struct World {
    logs: PathBuf,
    tools: Tools,
    cgroup: String,
}

/// Runs `run` in a world of its own and returns its exit code. If this process is the one outside, it starts this
/// program again with the same arguments and waits.
///
/// The logs of a run that fails are kept, and their directory is printed. It is `e2e-logs/<program>-<process id>` in
/// cargo's target directory, or in the directory that `E2E_LOGS` names; with `E2E_KEEP_LOGS` set it always stays.
///
/// `SIGINT`, `SIGTERM` and `SIGHUP` to the process outside reach the one inside, once. After 20 s, or at a second
/// `SIGINT` or `SIGTERM`, everything is killed.
pub fn enter_or_run(run: impl FnOnce(World) -> ExitCode) -> ExitCode {
    prepare_and_run(|_| Ok(()), |world| Ok(run(world)))
}

/// The same, but calls `prepare` first. It runs outside, where there is a network, and makes what the inside needs
/// beyond the real parts. An error of either is printed, and fails the program.
pub fn prepare_and_run(
    prepare: impl FnOnce(&Tools) -> Result<()>,
    run: impl FnOnce(World) -> Result<ExitCode>,
) -> ExitCode {
    let stage = std::env::var_os(STAGE);
    let result = match stage.as_ref().and_then(|stage| stage.to_str()) {
        None => outside::enter(prepare),
        Some(INIT) => init::run(),
        _ => World::from_environment().and_then(run),
    };
    result.unwrap_or_else(|error| {
        eprintln!("Error: {error:#}");
        ExitCode::FAILURE
    })
}

impl World {
    fn from_environment() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).with_context(|| format!("read {name}"));
        let tools = serde_json::from_str(&variable(TOOLS)?).with_context(|| format!("read {TOOLS}"))?;
        Ok(Self { logs: PathBuf::from(variable(LOGS)?), tools, cgroup: variable(CGROUP)? })
    }

    /// The same world with another release of Cluster API.
    ///
    /// # Errors
    /// When the managers of that release have not been built outside.
    pub fn with_cluster_api(&self, release: Release) -> Result<Self> {
        Ok(Self { tools: self.tools.clone().with_cluster_api(release)?, ..self.clone() })
    }

    /// The same world with another Kubernetes of the management plane.
    ///
    /// # Errors
    /// When its programs have not been built outside.
    pub fn with_kubernetes(&self, release: ManagementKubernetes) -> Result<Self> {
        Ok(Self { tools: self.tools.clone().with_kubernetes(release)?, ..self.clone() })
    }

    /// Where every process of the world has its log file; kept when the run fails.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// The real parts.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Name of the control group for containers. The world removes it.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// A directory in the world's own memory file system ([`STATE`]), created if it does not exist.
    ///
    /// # Errors
    /// When memory is used up, or something else has the name.
    pub fn state(&self, name: &str) -> Result<PathBuf> {
        let path = Path::new(STATE).join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(path)
    }

    /// The same world, with its logs in a directory called `name` below the present one: one for each scenario.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn with_logs(&self, name: &str) -> Result<Self> {
        let logs = self.logs.join(name);
        std::fs::create_dir_all(&logs).with_context(|| format!("create {}", logs.display()))?;
        Ok(Self { logs, ..self.clone() })
    }
}

/// Runs `scenario` to its end on a runtime of its own.
///
/// # Errors
/// The scenario's, or when there can be no runtime.
pub fn block_on<T>(scenario: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start tokio")?.block_on(scenario)
}

/// One test for `libtest_mimic`: `scenario` in `world`, with logs in a directory of its own name.
///
/// Scenarios of one world use the same ports, so they run one after the other: set `test_threads` to one.
pub fn trial<F>(
    durations: &Arc<Durations>,
    world: &World,
    name: &str,
    scenario: impl FnOnce(World) -> F + Send + 'static,
) -> libtest_mimic::Trial
where
    F: Future<Output = Result<()>>,
{
    let (world, logs) = (world.clone(), name.to_owned());
    durations.trial(name, move || block_on(scenario(world.with_logs(&logs)?)))
}

/// `PATH`, with the directories of `ip` and `iptables`, which an ordinary user's often lacks.
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}
