//! Manifests from a module's own directories, made once per version. Those of Cluster API are rendered; others are used
//! as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::go::go_output;
use super::module::Module;
use crate::apply::documents;
use crate::cache;
use crate::process::output;

/// File name of a manager's manifests, and the manager's directory in its module.
pub(super) type Source = (&'static str, &'static str);

/// The sources of Cluster API itself.
pub(super) const CORE_MANAGERS: [Source; 3] =
    [("core", "core"), ("bootstrap", "bootstrap/kubeadm"), ("control-plane", "controlplane/kubeadm")];

/// The same up to 1.13, where the core manager is still at the module's root.
pub(super) const CORE_MANAGERS_AT_THE_ROOT: [Source; 3] =
    [("core", ""), ("bootstrap", "bootstrap/kubeadm"), ("control-plane", "controlplane/kubeadm")];

/// The source of the docker infrastructure.
pub(super) const DOCKER_MANAGER: [Source; 1] = [("docker", "infrastructure/docker")];

/// The source of the OpenStack infrastructure.
pub(super) const OPENSTACK: [Source; 1] = [("openstack", "")];

/// The kinds that a plane of plain processes needs. It does not use Deployments, RBAC and certificates.
const KEPT_KINDS: [&str; 4] =
    ["CustomResourceDefinition", "MutatingWebhookConfiguration", "Namespace", "ValidatingWebhookConfiguration"];

/// Returns the directory with the rendered manifests that belong to the programs in `built`.
pub(super) fn ensure(module: &Module, managers: &[Source], built: &Path, kubectl: &Path) -> Result<PathBuf> {
    beside(module, built, |source, into| {
        for (name, subdirectory) in managers {
            let objects = render(kubectl, &source.join(subdirectory).join("config/default"))?;
            // JSON, because it is read at every start and YAML takes many times as long.
            fs::write(into.join(format!("{name}.json")), serde_json::to_vec(&objects)?)?;
        }
        Ok(())
    })
}

/// The same where nothing has to be rendered: each YAML file of a directory of the module becomes a JSON list of its
/// documents.
pub(super) fn ensure_files(module: &Module, subdirectory: &str, built: &Path) -> Result<PathBuf> {
    beside(module, built, |source, into| {
        let directory = source.join(subdirectory);
        for entry in fs::read_dir(&directory).with_context(|| format!("read {}", directory.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
                let objects = documents(&text).with_context(|| format!("read {}", path.display()))?;
                let name = Path::new(path.file_name().context("a file has a name")?).with_extension("json");
                fs::write(into.join(name), serde_json::to_vec(&objects)?)?;
            }
        }
        Ok(())
    })
}

/// Returns the directory beside `built`. If it does not exist yet, `write` fills it from the module's own directory.
fn beside(module: &Module, built: &Path, write: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<PathBuf> {
    let mut name = built.file_name().context("the programs have a directory")?.to_owned();
    name.push("-manifests");
    let directory = built.with_file_name(name);
    let waiting = || eprintln!("{}: another run is writing its manifests; waiting", module.name);
    cache::directory(&directory, waiting, |into| {
        // The module has been downloaded already, unless nothing is built from it.
        go_output(module, &["mod", "download", module.source])?;
        let source = go_output(module, &["list", "-m", "-f", "{{.Dir}}", module.source])?;
        write(Path::new(source.trim()), into)
    })?;
    Ok(directory)
}

fn render(kubectl: &Path, directory: &Path) -> Result<Vec<Value>> {
    let rendered = output(Command::new(kubectl).arg("kustomize").arg(directory))?;
    let mut kept = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&rendered) {
        let object =
            Value::deserialize(document).with_context(|| format!("read what {} renders", directory.display()))?;
        if object["kind"].as_str().is_some_and(|kind| KEPT_KINDS.contains(&kind)) {
            kept.push(object);
        }
    }
    Ok(kept)
}
