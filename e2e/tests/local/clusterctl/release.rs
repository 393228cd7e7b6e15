//! The files of a release that the scenario neither installs nor makes a cluster from.

use anyhow::{Context, Result, ensure};
use e2e::apply::documents;
use e2e::clusterctl::{Setup, substituted};
use e2e::plane::Plane;
use serde_json::Value;
use std::fs;

/// The page that explains the variables of the templates.
const PAGE: &str = include_str!("../../../../docs/install.md");

/// The kinds that Kubernetes serves as v1 only from 1.36 on.
const NEW: [&str; 2] = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

/// clusterctl installs the components file that the provider's `url` names. The file for Kubernetes before 1.36 lacks
/// only the kinds that such a Kubernetes does not serve.
pub(super) async fn components_for_an_older_kubernetes(setup: &Setup) -> Result<()> {
    let all = setup.components("bootstrap-components.yaml").await?;
    let older = setup.components("bootstrap-components-before-kubernetes-1.36.yaml").await?;
    let lacking: Vec<&Value> = all.iter().filter(|object| !older.contains(object)).collect();
    let kinds: Vec<&str> = lacking.iter().filter_map(|object| object["kind"].as_str()).collect();
    ensure!(NEW.iter().all(|kind| kinds.contains(kind)) && lacking.len() == NEW.len(), "they lack {lacking:#?}");
    ensure!(older.len() + NEW.len() == all.len(), "they have {} objects, and {} are all", older.len(), all.len());
    Ok(())
}

/// Checks that clusterctl makes of every template what `substituted` makes of it, which the api tier tests against an
/// API server.
pub(super) async fn templates_are_generated(setup: &Setup, plane: &Plane) -> Result<()> {
    let further = ["--target-namespace", "default", "--kubernetes-version", "v1.36.3"];
    let further = [&further[..], &["--control-plane-machine-count", "1", "--worker-machine-count", "1"]].concat();
    let mut generated = 0;
    for file in fs::read_dir(setup.released())? {
        let name = file?.file_name().display().to_string();
        if !name.starts_with("cluster-template") {
            continue;
        }
        let found = documents(&setup.generate(plane.kubeconfig()?, &name, &further).await?)?;
        let expected = documents(&substituted(&fs::read_to_string(setup.released().join(&name))?)?)?;
        ensure!(found == expected, "{name}: clusterctl makes {found:#?} of it");
        generated += 1;
    }
    ensure!(generated == 4, "{generated} templates");
    Ok(())
}

/// clusterctl lists the variables of every template, and the page that says how to list them explains each one.
pub(super) async fn variables_are_explained(setup: &Setup, plane: &Plane) -> Result<()> {
    let mut explained = 0;
    for file in fs::read_dir(setup.released())? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().display().to_string();
        if !name.starts_with("cluster-template") {
            continue;
        }
        let from = path.to_str().context("a path in UTF-8")?;
        let lists = ["generate", "cluster", "demo", "--from", from, "--list-variables"];
        let listed = setup.run(plane.kubeconfig()?, &lists).await?;
        for variable in listed.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split_whitespace().next()) {
            ensure!(PAGE.contains(&format!("| `{variable}` |")), "{name}: nothing explains {variable}");
            explained += 1;
        }
    }
    ensure!(explained > 20, "only {explained} variables are listed");
    Ok(())
}
