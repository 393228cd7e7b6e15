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

/// Where clients look for a daemon if nobody tells them otherwise. `/run` is the world's own.
const SOCKET: &str = "unix:///run/docker.sock";
/// Where it stores images, containers and volumes, below its own directory.
const DATA_ROOT: &str = "data";
/// The network that the docker infrastructure puts its containers into.
const NETWORK: &str = "kind";
/// What any command may take on a busy computer. Docker can wait for itself forever: an exec into a container that is
/// being frozen and the command to let it go on are such a pair.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running daemon.
pub(super) struct Daemon {
    process: Process,
    /// Everything that it stores.
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
            // Docker has no other way to ask for less on behalf of those who ask for everything (`--privileged`).
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

    /// The directory of everything that it stores of containers and volumes.
    pub(super) fn data_root(&self) -> PathBuf {
        self.state.join(DATA_ROOT)
    }

    /// What a command says in a container. That it fails is in its exit status, as docker's own failures are.
    pub(super) async fn exec(&self, container: &str, command: &[&str]) -> Result<Output> {
        self.answer(&[&["exec", container], command].concat()).await
    }

    /// What `docker` says with these arguments.
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

    /// Makes an image of some paths, each in its directory. No path may come twice, as a directory either.
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

    /// Ends it after its containers, and removes what it has stored: another may be started in this world.
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

/// Takes away what the daemon has left mounted: it does so where a command was interrupted that looked into a container.
fn unmount_below(directory: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?;
    let points = mounts.lines().filter_map(|mount| mount.split(' ').nth(4)).map(Path::new);
    let below: Vec<&Path> = points.filter(|point| point.starts_with(directory) && *point != directory).collect();
    // What was mounted last may lie in what was mounted before.
    for point in below.into_iter().rev() {
        println!("dockerd has left {} mounted", point.display());
        unmount(point, UnmountFlags::DETACH).with_context(|| format!("unmount {}", point.display()))?;
    }
    Ok(())
}
