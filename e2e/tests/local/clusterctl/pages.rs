//! The commands of the pages that generate a Cluster from a template on standard input.

use anyhow::{Context, Result, ensure};
use e2e::apply::documents;
use e2e::clusterctl::Setup;
use e2e::pages::blocks;
use e2e::plane::Plane;
use e2e::process::output_of;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The last command of each pipe. No docker infrastructure is installed here, whose kinds it would apply.
const APPLIES: &str = " kubectl apply -f -";

/// Each of them, typed up to kubectl, makes the same complete Cluster, with a published image on its nodes. The api
/// tier has a server accept it.
pub(super) async fn commands_generate_a_cluster(setup: &Setup, plane: &Plane) -> Result<()> {
    let checkout = checkout(setup)?;
    let mut made: Vec<Vec<Value>> = Vec::new();
    for block in blocks()? {
        for command in block.commands() {
            if !(command.starts_with("sed ") && command.contains("clusterctl generate cluster ")) {
                continue;
            }
            let (typed, last) = command.rsplit_once('|').context("it is not a pipe")?;
            ensure!(last.split_whitespace().eq(APPLIES.split_whitespace()), "it ends with another command: {command}");
            let mut shell = Command::new("bash");
            shell.args(["-o", "pipefail", "-c", typed]).current_dir(&checkout);
            let path = std::env::var("PATH").context("no PATH")?;
            shell.env("PATH", format!("{}:{path}", checkout.join("bin").display()));
            shell.env("KUBECONFIG", plane.kubeconfig()?).env("XDG_CONFIG_HOME", setup.directory());
            shell.env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
            let text = output_of(shell).await.with_context(|| command.clone())?;
            is_complete(&text).with_context(|| command.clone())?;
            made.push(documents(&text)?);
        }
    }
    ensure!(made.len() == 2, "the pages have {} such commands", made.len());
    ensure!(made[0] == made[1], "they make different Clusters: {made:#?}");
    Ok(())
}

/// A folder with what the commands read of a checkout, the release, and clusterctl with its configuration.
fn checkout(setup: &Setup) -> Result<PathBuf> {
    let folder = setup.directory().join("checkout");
    for needed in ["bin", "out"] {
        fs::create_dir_all(folder.join(needed))?;
    }
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples"), folder.join("examples"))?;
    symlink(setup.released(), folder.join("out/release"))?;
    let (program, script) = (setup.program().display(), folder.join("bin/clusterctl"));
    fs::write(&script, format!("#!/bin/sh\nexec {program} \"$@\" --config {}\n", setup.configuration().display()))?;
    fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// Checks that the command's flags and variables are in what it has made, and that kubeadm skips nothing.
fn is_complete(text: &str) -> Result<()> {
    ensure!(!text.contains("skipPhases") && !text.contains("${"), "{text}");
    ensure!(text.contains("kindest/node:v1.36.1"), "no published image: {text}");
    let all = documents(text)?;
    for (kind, replicas) in [("KubeadmControlPlane", 3), ("MachineDeployment", 1)] {
        let found = all.iter().find(|document| document["kind"] == kind).with_context(|| format!("no {kind}"))?;
        ensure!(found["spec"]["replicas"] == json!(replicas), "{kind} with {} replicas", found["spec"]["replicas"]);
        ensure!(found["metadata"]["namespace"] == "default", "{kind} in another namespace: {}", found["metadata"]);
    }
    Ok(())
}
