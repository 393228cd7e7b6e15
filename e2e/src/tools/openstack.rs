//! The CRDs of Cluster API's OpenStack infrastructure. Its manager is not built: it could do nothing without an
//! OpenStack.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::module::CLUSTER_API_OPENSTACK;
use super::{Tools, build, manifests};

/// What an API server needs to validate objects of the OpenStack infrastructure.
#[derive(Debug, Clone)]
pub struct OpenStackProvider {
    /// Its CRDs.
    pub crds: Vec<Value>,
}

impl OpenStackProvider {
    /// Finds the CRDs, fetching the provider's module if they are missing. Inside a world only the former is possible.
    ///
    /// # Errors
    /// When the module cannot be fetched, or its manifests cannot be rendered.
    pub fn ensure(tools: &Tools) -> Result<Self> {
        let module = &CLUSTER_API_OPENSTACK;
        let built = build::ensure(module, &|_| true)?;
        let file = manifests::ensure(module, &manifests::OPENSTACK, &built, &tools.kubectl)?.join("openstack.json");
        let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        let mut crds: Vec<Value> = serde_json::from_slice(&text).with_context(|| format!("read {}", file.display()))?;
        crds.retain(|object| object["kind"] == "CustomResourceDefinition");
        for crd in &mut crds {
            // The webhook does not run, and with only one version there is nothing to convert.
            if let Some(spec) = crd["spec"].as_object_mut() {
                spec.remove("conversion");
            }
        }
        Ok(Self { crds })
    }
}
