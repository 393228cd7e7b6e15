//! Our own programs and CRDs, and the image that machines start from.

use super::repository;
use crate::apply::documents;
use crate::tools::Earlier;
use crate::world::World;
use anyhow::{Context, Result, bail, ensure};
use local_infrastructure::image::{Parts, assemble, default_cache};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What a bed installs of this project, as a management cluster does: the present state, or an earlier one.
pub(super) struct Product {
    /// Where the manager and etcdadm are.
    pub(super) programs: PathBuf,
    pub(super) crds: Vec<Value>,
    pub(super) policies: Vec<Value>,
}

impl Product {
    /// The present state. On an older Kubernetes it has no policies, and the scenario installs a folder of `config`.
    pub(super) fn present(world: &World) -> Result<Self> {
        let takes_all = world.tools().kubernetes.takes_all_policies();
        let policies = if takes_all { admission_policies()? } else { Vec::new() };
        Ok(Self { programs: programs()?, crds: crds()?, policies })
    }

    /// An earlier state. The local infrastructure is still the bed's own.
    pub(super) fn earlier(earlier: &Earlier) -> Result<Self> {
        let config = earlier.config();
        let crds = [manifests(&config.join("crd"))?, infrastructure_crds()?].concat();
        Ok(Self { programs: earlier.programs(), crds, policies: manifests(&config.join("admission"))? })
    }
}

/// The directory of our built programs: `E2E_PROGRAMS`, or cargo's directory that this program is in.
///
/// # Errors
/// When one of them is missing.
pub fn programs() -> Result<PathBuf> {
    let directory = match std::env::var_os("E2E_PROGRAMS") {
        Some(directory) => PathBuf::from(directory),
        None => beside_this()?,
    };
    for program in ["manager", "etcdadm", "local-infrastructure"] {
        if !directory.join(program).exists() {
            bail!("{} is not built: run `cargo build --workspace --bins`", directory.join(program).display());
        }
    }
    Ok(directory)
}

/// The kubectl plugin that was built beside this program.
///
/// # Errors
/// When it is missing.
pub fn plugin() -> Result<PathBuf> {
    let plugin = beside_this()?.join("kubectl-etcdcluster");
    ensure!(plugin.exists(), "{} is not built: run `cargo build --workspace --bins`", plugin.display());
    Ok(plugin)
}

/// Cargo's directory that this program is in.
fn beside_this() -> Result<PathBuf> {
    let this = std::env::current_exe().context("find this program")?;
    let parent = this.parent().context("this program lies nowhere")?;
    // Test programs are one directory further below.
    let beside = if parent.ends_with("deps") { parent.parent().unwrap_or(parent) } else { parent };
    Ok(beside.to_owned())
}

/// Makes the machines' image: our etcdadm, and every etcd release that the test bed has built.
///
/// # Errors
/// When a part is missing.
pub fn machine_image(world: &World) -> Result<PathBuf> {
    machine_image_with(world, &programs()?.join("etcdadm"))
}

/// Makes the machines' image with this etcdadm.
pub(super) fn machine_image_with(world: &World, etcdadm: &Path) -> Result<PathBuf> {
    let image = world.state("image")?;
    let parts = Parts {
        etcdadm: Some(etcdadm.to_owned()),
        etcd_releases: Some(world.tools().releases.join("etcd")),
        cache: default_cache(),
    };
    assemble(&image, &parts).context("make the machines' image")?;
    Ok(image)
}

/// Our CRDs, as they are installed: from `config/crd`, and the local infrastructure's.
///
/// # Errors
/// When one cannot be read.
pub fn crds() -> Result<Vec<Value>> {
    Ok([manifests(&repository("config/crd"))?, infrastructure_crds()?].concat())
}

fn infrastructure_crds() -> Result<Vec<Value>> {
    manifests(&repository("config/crd/local"))
}

/// Our admission policies, as they are installed: from `config/admission`. The API server enforces them a moment after
/// they have been applied.
///
/// # Errors
/// When one cannot be read.
pub fn admission_policies() -> Result<Vec<Value>> {
    manifests(&repository("config/admission"))
}

/// Every document in a directory's YAML files, except kustomization.yaml.
fn manifests(directory: &Path) -> Result<Vec<Value>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml");
        if is_yaml && !path.ends_with("kustomization.yaml") {
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            found.extend(documents(&text).with_context(|| format!("read {}", path.display()))?);
        }
    }
    Ok(found)
}
