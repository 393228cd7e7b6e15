//! What a release has beside what is installed and made of it here.

use anyhow::{Result, ensure};
use e2e::apply::documents;
use e2e::clusterctl::{Setup, substituted};
use e2e::plane::Plane;
use serde_json::Value;
use std::fs;

/// What Kubernetes serves as v1 from 1.36 on, and no earlier.
const NEW: [&str; 2] = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

/// clusterctl takes the components that the provider's `url` names. Those for a Kubernetes before 1.36 lack what that
/// does not serve, and nothing else.
pub(super) async fn components_for_an_older_kubernetes(setup: &Setup) -> Result<()> {
    let all = setup.components("bootstrap-components.yaml").await?;
    let older = setup.components("bootstrap-components-before-kubernetes-1.36.yaml").await?;
    let lacking: Vec<&Value> = all.iter().filter(|object| !older.contains(object)).collect();
    let kinds: Vec<&str> = lacking.iter().filter_map(|object| object["kind"].as_str()).collect();
    ensure!(NEW.iter().all(|kind| kinds.contains(kind)) && lacking.len() == NEW.len(), "they lack {lacking:#?}");
    ensure!(older.len() + NEW.len() == all.len(), "they have {} objects, and {} are all", older.len(), all.len());
    Ok(())
}

/// clusterctl makes of every template what the API tier has a server accept.
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
