//! CRDs of the projects for which `config/` has objects. Nothing of these projects is built or run.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::module::{CERT_MANAGER, CLUSTER_API_OPERATOR, Module, PROMETHEUS_OPERATOR};
use super::{build, manifests};

/// A module, the directory of the CRDs in it, and which of the files there are used.
type Source = (&'static Module, &'static str, &'static [&'static str]);

const SOURCES: [Source; 3] = [
    (
        &PROMETHEUS_OPERATOR,
        "example/prometheus-operator-crd",
        &[
            "monitoring.coreos.com_prometheusrules",
            "monitoring.coreos.com_scrapeconfigs",
            "monitoring.coreos.com_servicemonitors",
        ],
    ),
    (&CERT_MANAGER, "deploy/crds", &["cert-manager.io_certificates", "cert-manager.io_issuers"]),
    (&CLUSTER_API_OPERATOR, "config/crd/bases", &["operator.cluster.x-k8s.io_bootstrapproviders"]),
];

/// The CRDs of the Prometheus operator, cert-manager and cluster-api-operator for those kinds of which `config/` has
/// objects. The modules are fetched if they are missing; inside a world they must be there.
///
/// # Errors
/// When a module cannot be fetched, or lacks a CRD.
pub fn crds_of_others() -> Result<Vec<Value>> {
    let mut crds = Vec::new();
    for (module, subdirectory, names) in SOURCES {
        let built = build::ensure(module, &|_| true)?;
        let directory = manifests::ensure_files(module, subdirectory, &built)?;
        for name in names {
            let file = directory.join(format!("{name}.json"));
            let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
            let found: Vec<Value> =
                serde_json::from_slice(&text).with_context(|| format!("read {}", file.display()))?;
            crds.extend(found);
        }
    }
    Ok(crds)
}
