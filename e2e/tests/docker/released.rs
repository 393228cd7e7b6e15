//! The artifacts of a release run: the manager's image as the Deployment runs it, and etcdadm from its image and as a
//! plain file. `hack/release.sh` makes the release from this checkout.

use crate::clusters::{GONE, applied, released};
use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use e2e::bed::{ClusterHandle, get};
use e2e::docker::DockerBed;
use e2e::own_release::OwnRelease;
use e2e::plane::users;
use e2e::process::output;
use e2e::tools::architecture;
use e2e::until::until;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const DEPLOYMENT: &str = include_str!("../../../config/manager/manager.yaml");
/// The largest size of an image on a node, in bytes.
const MOST: u64 = 20_000_000;
/// Name of the container.
const MANAGER: &str = "manager-of-the-release";
/// A Pod has its ports to itself. Here, other programs of the world use some.
const HEALTH_PORT: u16 = 9710;
const METRICS_PORT: u16 = 9711;
/// How long the manager may take to end.
const END: Duration = Duration::from_secs(15);
/// Where the container finds its kubeconfig.
const KUBECONFIG: &str = "/kubeconfig";

pub(crate) async fn images_run(bed: &mut DockerBed) -> Result<()> {
    let release = OwnRelease::find()?;
    let mut checksums = Command::new("sha256sum");
    output(checksums.args(["--check", "--strict", "SHA256SUMS"]).current_dir(release.directory()))?;
    plugin_completes(&release)?;
    let image = load(bed, &release.image("manager")?).await?;
    let deployment: Value = serde_yaml::from_str(DEPLOYMENT)?;
    is_what_the_deployment_asks_for(bed, &image, &deployment).await?;

    // Otherwise, the bed's manager would do the work.
    bed.manager().terminate(END).await?;
    start(bed, &image, &deployment).await?;
    runs_with_nothing(bed).await?;
    ClusterHandle::make_namespace(&bed.client(), "released").await?;
    let handle = applied(bed, "released", "released", 1).await?;
    released(&handle).await?;
    handle.delete("Cluster", &handle.cluster).await?;
    until("the Cluster is gone", GONE, async || {
        let left = [handle.names("Cluster", "").await?, handle.names("EtcdCluster", "").await?].concat();
        ensure!(left.is_empty(), "left are {}", left.join(", "));
        Ok(Some(()))
    })
    .await?;
    bed.docker(&["stop", "-t", "20", MANAGER]).await?;
    let code = bed.docker(&["inspect", "--format", "{{.State.ExitCode}}", MANAGER]).await?;
    ensure!(code.trim() == "0", "it did not end by itself: {code}");
    bed.docker(&["rm", MANAGER]).await?;
    bed.docker(&["image", "rm", &image]).await?;

    etcdadm_runs(bed, &release).await
}

/// The plugin's archive has all that kubectl needs to complete its commands.
fn plugin_completes(release: &OwnRelease) -> Result<()> {
    let archive = release.directory().join(format!("kubectl-etcdcluster-linux-{}.tar.gz", architecture()?));
    let folder = tempfile::tempdir()?;
    output(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()))?;
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH")?);
    let said = output(Command::new("kubectl_complete-etcdcluster").arg("sta").env("PATH", path))?;
    ensure!(said.lines().any(|line| line.starts_with("status")), "kubectl is told {said}");
    Ok(())
}

/// Loads an image as a person does, and returns its name.
async fn load(bed: &DockerBed, archive: &Path) -> Result<String> {
    let said = bed.docker(&["load", "--input", &archive.display().to_string()]).await?;
    let name = said.lines().find_map(|line| line.strip_prefix("Loaded image: "));
    Ok(name.with_context(|| format!("docker load says {said}"))?.trim().to_owned())
}

/// The image is small, is for this computer, has one file, and has the user that the Deployment wants.
async fn is_what_the_deployment_asks_for(bed: &DockerBed, image: &str, deployment: &Value) -> Result<()> {
    let said = bed.docker(&["image", "inspect", "--format", "{{json .}}", image]).await?;
    let described: Value = serde_json::from_str(&said).with_context(|| format!("docker says {said}"))?;
    let size = described["Size"].as_u64().context("no size")?;
    println!("  {image} has {size} bytes");
    ensure!((1..=MOST).contains(&size), "{image} has {size} bytes, and at most {MOST} are allowed");
    ensure!(described["Architecture"] == architecture()?, "it is for {}", described["Architecture"]);
    ensure!(described["RootFS"]["Layers"].as_array().is_some_and(|layers| layers.len() == 1), "{described}");
    let pod = &deployment["spec"]["template"]["spec"]["securityContext"];
    let user = format!("{}:{}", pod["runAsUser"], pod["runAsGroup"]);
    ensure!(pod["runAsNonRoot"] == true && user != "0:0", "the Deployment runs it as {user}");
    ensure!(described["Config"]["User"] == user.as_str(), "its user is {}", described["Config"]["User"]);
    Ok(())
}

/// Starts the image with the Deployment's command line and restrictions, as the image's user, and waits until it is
/// ready.
async fn start(bed: &DockerBed, image: &str, deployment: &Value) -> Result<()> {
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let restrictions = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
    });
    ensure!(container["securityContext"] == restrictions, "the Deployment has other restrictions: {container}");
    let arguments = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let ports = [("9440", HEALTH_PORT), ("8443", METRICS_PORT)];
    let arguments: Vec<String> = arguments
        .map(|argument| {
            let argument = argument.replace("$(POD_NAMESPACE)", "default");
            ports.iter().fold(argument, |argument, (port, here)| argument.replace(port, &here.to_string()))
        })
        .collect();
    let mount = format!("{}:{KUBECONFIG}:ro", kubeconfig(bed)?);
    let mut run = vec!["run", "--detach", "--name", MANAGER, "--network", "host", "--volume", &mount];
    run.extend(["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", image]);
    run.extend(["--kubeconfig", KUBECONFIG]);
    run.extend(arguments.iter().map(String::as_str));
    bed.docker(&run).await?;
    until(format!("{MANAGER} is ready"), Duration::from_secs(60), async || {
        let state = bed.docker(&["inspect", "--format", "{{.State.Status}}", MANAGER]).await?;
        ensure!(state.trim() == "running", "it is {state}");
        Ok(get(HEALTH_PORT, "/readyz").await.is_ok().then_some(()))
    })
    .await?;
    get(HEALTH_PORT, "/healthz").await.map(drop)
}

/// A kubeconfig that needs no other files, readable for the container's user.
fn kubeconfig(bed: &DockerBed) -> Result<String> {
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(bed.plane.kubeconfig_for(users::PROVIDER)?)?)?;
    let cluster = kubeconfig["clusters"][0]["cluster"].as_object_mut().context("no cluster in the kubeconfig")?;
    let authority = cluster.remove("certificate-authority").context("no authority in the kubeconfig")?;
    let authority = fs::read(authority.as_str().context("the authority is not a file")?)?;
    cluster.insert("certificate-authority-data".to_owned(), json!(STANDARD.encode(authority)));
    let file = bed.world().state("released")?.join("kubeconfig");
    fs::write(&file, kubeconfig.to_string()).with_context(|| format!("write {}", file.display()))?;
    Ok(file.display().to_string())
}

/// According to the kernel, the process is not root, has no capabilities, and cannot get any.
async fn runs_with_nothing(bed: &DockerBed) -> Result<()> {
    let pid = bed.docker(&["inspect", "--format", "{{.State.Pid}}", MANAGER]).await?;
    let status = fs::read_to_string(format!("/proc/{}/status", pid.trim()))?;
    for line in ["Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532\t65532\t65532\t65532", "NoNewPrivs:\t1"] {
        ensure!(status.lines().any(|found| found == line), "not {line:?}:\n{status}");
    }
    let capabilities = status.lines().filter(|line| line.starts_with("Cap"));
    let some =
        capabilities.filter(|line| line.split_whitespace().nth(1).is_none_or(|set| set.contains(|c: char| c != '0')));
    let some: Vec<&str> = some.collect();
    ensure!(some.is_empty(), "it has capabilities: {some:?}");
    Ok(())
}

/// etcdadm is the same program in its image and as a plain file.
async fn etcdadm_runs(bed: &DockerBed, release: &OwnRelease) -> Result<()> {
    let image = load(bed, &release.image("etcdadm")?).await?;
    let inside = bed.docker(&["run", "--rm", "--read-only", "--network", "none", &image, "version"]).await?;
    bed.docker(&["image", "rm", &image]).await?;
    let file = output(Command::new(release.program("etcdadm")?).arg("version"))?;
    ensure!(inside == file && file.contains(env!("CARGO_PKG_VERSION")), "the image says {inside}, the file {file}");
    Ok(())
}
