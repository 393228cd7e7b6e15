//! dockerd, in the world.

use super::runtime;
use crate::bed::programs;
use crate::process::{Command, Process};
use crate::until::until;
use crate::world::World;
use anyhow::{Context, Result, bail};
use rustix::mount::{UnmountFlags, unmount};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

/// Where clients look for a daemon by default. `/run` is the world's own.
const SOCKET: &str = "unix:///run/docker.sock";
/// Where the daemon stores images, containers and volumes, below its own directory.
const DATA_ROOT: &str = "data";
/// The network that the docker infrastructure puts its containers into.
const NETWORK: &str = "kind";
/// How long any command may take on a busy computer. Docker can wait for itself forever: for example, an exec into a
/// container that is being frozen, and the command to let that container continue.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running daemon.
pub(super) struct Daemon {
    process: Process,
    /// The directory of everything that it stores.
    state: PathBuf,
}

impl Daemon {
    /// Starts the daemon with the network that machines need.
    pub(super) async fn start(world: &World) -> Result<Self> {
        let state = world.state("docker")?;
        let mut config = json!({
            "data-root": state.join(DATA_ROOT),
            "exec-root": state.join("exec"),
            "pidfile": state.join("pid"),
            "hosts": [SOCKET],
            "storage-driver": "overlay2",
            "cgroup-parent": format!("/{}", world.cgroup()),
        });
        if runtime::must_ask_for_less()? {
            // A privileged container (`--privileged`) requests everything. Docker has no other way to request less on
            // its behalf.
            config["runtimes"] = json!({"less": {"path": programs()?.join("e2e"), "runtimeArgs": ["runc"]}});
            config["default-runtime"] = json!("less");
        }
        let file = state.join("daemon.json");
        fs::write(&file, config.to_string()).with_context(|| format!("write {}", file.display()))?;
        let process = Command::new("dockerd", "dockerd", world.logs())
            .arg("--config-file")
            .arg(&file)
            .spawn()
            .context("package docker.io has it")?;
        let mut daemon = Self { process, state };
        until("dockerd answers", Duration::from_secs(60), async || {
            if !daemon.process.is_running()? {
                bail!("it has ended; see {}", daemon.process.log().display());
            }
            daemon.docker(&["version"]).await.map(Some)
        })
        .await?;
        daemon.docker(&["network", "create", NETWORK]).await?;
        Ok(daemon)
    }

    /// The directory in which it stores everything about containers and volumes.
    pub(super) fn data_root(&self) -> PathBuf {
        self.state.join(DATA_ROOT)
    }

    /// Runs a command in a container. If the command or docker itself fails, only the exit status says so.
    pub(super) async fn exec(&self, container: &str, command: &[&str]) -> Result<Output> {
        self.answer(&[&["exec", container], command].concat()).await
    }

    /// Runs `docker` with these arguments. If it fails, only the exit status says so.
    pub(super) async fn answer(&self, arguments: &[&str]) -> Result<Output> {
        let output =
            tokio::process::Command::new("docker").args(["--host", SOCKET]).args(arguments).kill_on_drop(true).output();
        let output = tokio::time::timeout(PATIENCE, output).await;
        let output = output.with_context(|| format!("docker {}: no answer", arguments.join(" ")))?;
        output.context("run docker (package docker.io)")
    }

    /// What `docker` prints with these arguments.
    pub(super) async fn docker(&self, arguments: &[&str]) -> Result<String> {
        let output = self.answer(arguments).await?;
        if !output.status.success() {
            bail!("docker {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes an image of some paths, each below its directory. No path may come twice, not even as a directory.
    pub(super) async fn import(&self, name: &str, entrypoint: &str, paths: &[(&Path, &str)]) -> Result<()> {
        let mut tar = std::process::Command::new("tar");
        tar.arg("--create").stdout(std::process::Stdio::piped());
        for (directory, path) in paths {
            tar.arg("--directory").arg(directory).arg(path);
        }
        let mut tar = tar.spawn().context("run tar")?;
        let archive = tar.stdout.take().context("tar's standard output is piped")?;
        let output = tokio::process::Command::new("docker")
            .args(["--host", SOCKET, "import"])
            .args(["--change", &format!("ENTRYPOINT [\"{entrypoint}\"]"), "--change", "ENV container=docker"])
            .args(["-", name])
            .stdin(archive)
            .output()
            .await
            .context("run docker (package docker.io)")?;
        if !output.status.success() || !tar.wait().context("wait for tar")?.success() {
            bail!("make image {name}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// Ends the daemon after its containers, and removes what it has stored, so that another daemon can be started in
    /// this world.
    pub(super) async fn stop(mut self) -> Result<()> {
        let containers = self.docker(&["ps", "--all", "--quiet"]).await?;
        let containers: Vec<&str> = containers.lines().collect();
        if !containers.is_empty() {
            self.docker(&[&["rm", "--force", "--volumes"], containers.as_slice()].concat()).await?;
        }
        self.process.terminate(Duration::from_secs(15)).await?;
        unmount_below(&self.state)?;
        fs::remove_dir_all(&self.state).with_context(|| format!("remove {}", self.state.display()))?;
        Ok(())
    }
}

/// Unmounts what the daemon has left mounted. It leaves mounts behind if a command that reads from a container is
/// interrupted.
fn unmount_below(directory: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?;
    let points = mounts.lines().filter_map(|mount| mount.split(' ').nth(4)).map(Path::new);
    let below: Vec<&Path> = points.filter(|point| point.starts_with(directory) && *point != directory).collect();
    // A later mount may be inside an earlier one.
    for point in below.into_iter().rev() {
        println!("dockerd has left {} mounted", point.display());
        unmount(point, UnmountFlags::DETACH).with_context(|| format!("unmount {}", point.display()))?;
    }
    Ok(())
}
