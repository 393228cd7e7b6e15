//! A shell, as a reader of the pages has one: in a checkout, with kubectl, the plugin and a kubeconfig.

use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, Manifests, programs};
use e2e::process::output;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

/// How long a command may take. One of them deletes a whole cluster.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a command is watched that goes on until it is ended.
const LOOK: Duration = Duration::from_secs(5);
/// The exit status of a plan that is refused.
const REFUSED: i32 = 1;
/// The files of the checkout that commands name, and those that their scripts read. There is a copy of `config`.
const CHECKOUT: [&str; 7] = ["docs", "examples", "hack", "e2e", "Cargo.toml", "Makefile", "metadata.yaml"];
/// Folders of `config` into which readers write a namespace.
const NAMESPACED: [&str; 2] = ["namespaced", "watch-filter"];

pub(super) struct Shell {
    directory: PathBuf,
    kubeconfig: PathBuf,
    machines: PathBuf,
    path: OsString,
}

impl Shell {
    /// A shell whose kubeconfig is for the namespace of these documents. The pages call the documents `cluster.yaml`.
    /// `four.yaml` is the same with a number of members that is refused.
    pub(super) fn new(bed: &Bed, manifests: &Manifests) -> Result<Self> {
        let directory = bed.world().state(&manifests.namespace)?;
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for name in CHECKOUT {
            symlink(checkout.join(name), directory.join(name))?;
        }
        let config = directory.join("config");
        output(std::process::Command::new("cp").arg("--recursive").arg(checkout.join("config")).arg(&config))?;
        for folder in NAMESPACED {
            name_the_namespace(&config.join(folder).join("kustomization.yaml"), &manifests.namespace)?;
        }
        let written = |manifests: &Manifests| -> String {
            manifests.documents().iter().map(|document| format!("---\n{document}\n")).collect()
        };
        fs::write(directory.join("cluster.yaml"), written(manifests))?;
        fs::write(directory.join("four.yaml"), written(&manifests.clone().replicas(4)))?;

        let kubeconfig = directory.join("kubeconfig");
        let mut config: Value = serde_json::from_slice(&fs::read(bed.plane.kubeconfig()?)?)?;
        config["contexts"][0]["context"]["namespace"] = json!(manifests.namespace);
        fs::write(&kubeconfig, config.to_string())?;

        let kubectl = bed.world().tools().kubectl.parent().context("kubectl lies nowhere")?;
        let mut path = programs()?.into_os_string();
        path.push(":");
        path.push(kubectl);
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Ok(Self { directory, kubeconfig, machines: bed.world().state("machines")?, path })
    }

    fn command(&self, line: &str) -> Command {
        let mut shell = Command::new("bash");
        shell.args(["-o", "pipefail", "-c", line]).current_dir(&self.directory).stdin(Stdio::null()).kill_on_drop(true);
        shell.env("PATH", &self.path).env("KUBECONFIG", &self.kubeconfig);
        shell.env("LOCAL_INFRASTRUCTURE_STATE_DIR", &self.machines);
        // The directory has no commit whose date the scripts could use.
        shell.env("SOURCE_DATE_EPOCH", "0");
        shell
    }

    async fn output(&self, line: &str) -> Result<Output> {
        let output = timeout(PATIENCE, self.command(line).output()).await;
        output.with_context(|| format!("it has not ended after {} s", PATIENCE.as_secs()))?.context("run bash")
    }

    /// Runs a command that has to succeed.
    pub(super) async fn succeeds(&self, line: &str) -> Result<()> {
        let output = self.output(line).await?;
        ensure!(output.status.success(), "{}: {}", output.status, said(&output));
        Ok(())
    }

    /// Runs a command that has to succeed, and to print something about `what`.
    pub(super) async fn answers(&self, line: &str, what: &str) -> Result<()> {
        let output = self.output(line).await?;
        ensure!(output.status.success(), "{}: {}", output.status, said(&output));
        tells_of(what, &output)
    }

    /// Runs a command that has to say that `what` is refused, with the exit status for that.
    pub(super) async fn refuses(&self, line: &str, what: &str) -> Result<()> {
        let output = self.output(line).await?;
        ensure!(output.status.code() == Some(REFUSED), "{}: {}", output.status, said(&output));
        tells_of(what, &output)?;
        tells_of(" refuses ", &output)
    }

    /// Runs a command that has to print `what` and go on until it is ended.
    pub(super) async fn goes_on(&self, line: &str, what: &str) -> Result<()> {
        let child = self.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.context("run bash")?;
        sleep(LOOK).await;
        let ended = child.try_wait()?;
        if ended.is_none() {
            child.start_kill()?;
        }
        let output = child.wait_with_output().await?;
        ensure!(ended.is_none(), "it has ended: {}", said(&output));
        tells_of(what, &output)
    }
}

fn tells_of(what: &str, output: &Output) -> Result<()> {
    ensure!(String::from_utf8_lossy(&output.stdout).contains(what), "not a word about {what}: {}", said(output));
    Ok(())
}

/// Writes a namespace into a kustomization, as its page says.
fn name_the_namespace(kustomization: &Path, namespace: &str) -> Result<()> {
    let text = fs::read_to_string(kustomization)?;
    let before = text.lines().find(|line| line.starts_with("namespace: ")).context("it names no namespace")?;
    Ok(fs::write(kustomization, text.replacen(before, &format!("namespace: {namespace}"), 1))?)
}

/// Everything that a command has printed.
fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}
