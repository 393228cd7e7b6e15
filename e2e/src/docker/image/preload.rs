//! The control plane's container images, put into a node's containerd before its first start.

use crate::cache::hexadecimal;
use crate::process::output;
use crate::tools::{NodePrograms, architecture};
use anyhow::{Context, Result, bail};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// This file: what it makes changes when it does.
pub(super) const SOURCE: &str = include_str!("preload.rs");
/// What Debian has in place of the pause image's program: it holds a pod's namespaces open and does nothing.
const PAUSE: &str = "bin/busybox";
const PAUSE_COMMAND: [&str; 3] = ["/usr/local/bin/busybox", "sleep", "2147483647"];
/// How often, and after which time each, a starting containerd is asked whether it answers: half a minute in all.
const ATTEMPTS: u32 = 300;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

/// Makes those images that kubeadm asks for and that have a program here, and imports them into the containerd of `root`.
pub(super) fn images(root: &Path, programs: &NodePrograms) -> Result<()> {
    let kubeadm = programs.kubernetes.join("kubeadm");
    // It also knows which pause image belongs to this version.
    let list =
        output(Command::new(kubeadm).args(["config", "images", "list", "--kubernetes-version", &programs.version]))?;
    let work = tempfile::tempdir().context("make a temporary directory")?;
    let mut archives = Vec::new();
    for reference in list.lines() {
        let name = reference.rsplit('/').next().and_then(|name| name.split(':').next()).unwrap_or_default();
        let (program, command) = match name {
            "kube-apiserver" | "kube-controller-manager" | "kube-scheduler" => {
                (programs.kubernetes.join(name), vec![format!("/usr/local/bin/{name}")])
            }
            "pause" => (root.join(PAUSE), PAUSE_COMMAND.map(str::to_owned).to_vec()),
            // The addons' and etcd's are not needed: see the examples' `skipPhases`.
            _ => continue,
        };
        archives.push(archive(&work.path().join(name), reference, &program, &command)?);
    }
    let containerd = Containerd::start(root, programs, work.path())?;
    for archive in &archives {
        output(containerd.ctr().args(["--namespace", "k8s.io", "images", "import"]).arg(archive))?;
    }
    containerd.stop()
}

/// An image of one program, in the form that `docker save` writes.
fn archive(directory: &Path, reference: &str, program: &Path, command: &[String]) -> Result<PathBuf> {
    let bin = directory.join("layer/usr/local/bin");
    fs::create_dir_all(&bin).with_context(|| format!("create {}", bin.display()))?;
    let name = program.file_name().context("a program has a name")?;
    fs::copy(program, bin.join(name)).with_context(|| format!("copy {}", program.display()))?;
    let layer = directory.join("layer.tar");
    let owner = ["--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];
    output(
        Command::new("tar")
            .args(owner)
            .arg("--directory")
            .arg(directory.join("layer"))
            .arg("-cf")
            .arg(&layer)
            .arg("usr"),
    )?;
    let digest = digest(&layer)?;
    let config = json!({
        "architecture": architecture()?,
        "os": "linux",
        "config": {"Entrypoint": command, "Env": ["PATH=/usr/local/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    fs::write(directory.join("config.json"), config.to_string())?;
    let manifest = json!([{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]);
    fs::write(directory.join("manifest.json"), manifest.to_string())?;
    let archive = directory.with_extension("tar");
    let parts = ["manifest.json", "config.json", "layer.tar"];
    output(Command::new("tar").arg("--directory").arg(directory).arg("-cf").arg(&archive).args(parts))?;
    Ok(archive)
}

fn digest(path: &Path) -> Result<String> {
    let content = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    Ok(hexadecimal(&Sha256::digest(content)))
}

/// A containerd that only stores images, below a root directory. Dropping it kills it.
struct Containerd {
    process: Child,
    ctr: PathBuf,
    socket: PathBuf,
}

impl Containerd {
    fn start(root: &Path, programs: &NodePrograms, work: &Path) -> Result<Self> {
        let socket = work.join("containerd.sock");
        let quoted = |path: &Path| format!("'{}'", path.display());
        // Nothing outside the two directories is touched: not the place for plugins, not pods.
        let config = format!(
            "version = 3\nroot = {}\nstate = {}\n\
             disabled_plugins = ['io.containerd.internal.v1.opt', 'io.containerd.grpc.v1.cri', \
             'io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.nri.v1.nri', \
             'io.containerd.tracing.processor.v1.otlp']\n\
             [grpc]\naddress = {}\n[ttrpc]\naddress = {}\n",
            quoted(&root.join("var/lib/containerd")),
            quoted(&work.join("state")),
            quoted(&socket),
            quoted(&work.join("containerd.sock.ttrpc")),
        );
        let file = work.join("containerd.toml");
        fs::write(&file, config).context("write containerd's configuration")?;
        let log = work.join("containerd.log");
        let process = Command::new(programs.containerd.join("containerd"))
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).context("make containerd's log")?)
            .spawn()
            .context("run containerd")?;
        let mut started = Self { process, ctr: programs.containerd.join("ctr"), socket };
        for _ in 0..ATTEMPTS {
            if output(started.ctr().arg("version")).is_ok() {
                return Ok(started);
            }
            if started.process.try_wait().context("look at containerd")?.is_some() {
                break;
            }
            pause();
        }
        let log = fs::read_to_string(&log).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        bail!("containerd does not start:\n{}", last.join("\n"))
    }

    fn ctr(&self) -> Command {
        let mut command = Command::new(&self.ctr);
        command.arg("--address").arg(&self.socket);
        command
    }

    /// Lets it end by itself: what it stores has to be whole.
    fn stop(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).context("end containerd")?;
        self.process.wait().context("wait for containerd").map(|_| ())
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "images are made before there is anything asynchronous")]
fn pause() {
    std::thread::sleep(BETWEEN_ATTEMPTS);
}
