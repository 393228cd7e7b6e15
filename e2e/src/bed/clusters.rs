//! The documents that scenarios apply: those of `examples/local/`, under other names and with
//! changes.

use super::repository;
use crate::apply::{apply_object, documents};
use anyhow::{Context, Result};
use kube::Client;
use serde_json::{Value, json};

/// The example that every scenario's cluster is made from.
pub const EXAMPLE: &str = "examples/local/cluster.yaml";

/// The documents of one cluster.
#[derive(Clone, Debug)]
pub struct Manifests {
    /// Name of the Cluster; everything else is called after it.
    pub name: String,
    /// Namespace of everything.
    pub namespace: String,
    documents: Vec<Value>,
}

impl Manifests {
    /// The example's cluster, called `name` in `namespace`.
    ///
    /// # Errors
    /// When the example cannot be read.
    pub fn new(namespace: &str, name: &str) -> Result<Self> {
        Self::of(EXAMPLE, namespace, name)
    }

    /// The cluster of another example of this repository, called `name` in `namespace`. In the
    /// example, it has to be called `demo`.
    ///
    /// # Errors
    /// When the example cannot be read.
    pub fn of(example: &str, namespace: &str, name: &str) -> Result<Self> {
        let path = repository(example);
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let mut documents = documents(&text)?;
        for document in &mut documents {
            document["metadata"]["namespace"] = json!(namespace);
            rename(document, name);
        }
        Ok(Self { name: name.to_owned(), namespace: namespace.to_owned(), documents })
    }

    /// Sets the number of members.
    #[must_use]
    pub fn replicas(mut self, replicas: i64) -> Self {
        self.document("EtcdCluster")["spec"]["replicas"] = json!(replicas);
        self
    }

    /// Changes the first document of a kind.
    #[must_use]
    pub fn with(mut self, kind: &str, change: impl FnOnce(&mut Value)) -> Self {
        change(self.document(kind));
        self
    }

    /// Leaves out every document for which `unwanted` returns true.
    #[must_use]
    pub fn without(mut self, unwanted: impl Fn(&Value) -> bool) -> Self {
        self.documents.retain(|document| !unwanted(document));
        self
    }

    /// Leaves out the control plane, and the template of its machines.
    #[must_use]
    pub fn without_control_plane(self) -> Self {
        let control_plane = self.control_plane();
        let theirs = |document: &Value| document["metadata"]["name"] == control_plane.as_str();
        let manifests = self.with("Cluster", |cluster| {
            if let Some(spec) = cluster["spec"].as_object_mut() {
                spec.remove("controlPlaneRef");
            }
        });
        manifests.without(theirs)
    }

    /// Name of the EtcdCluster.
    #[must_use]
    pub fn etcd(&self) -> String {
        format!("{}-etcd", self.name)
    }

    /// Name of the control plane.
    #[must_use]
    pub fn control_plane(&self) -> String {
        format!("{}-control-plane", self.name)
    }

    /// The documents.
    #[must_use]
    pub fn documents(&self) -> &[Value] {
        &self.documents
    }

    /// The documents, to change them.
    pub fn documents_mut(&mut self) -> &mut [Value] {
        &mut self.documents
    }

    /// The first document of a kind.
    ///
    /// # Panics
    /// When there is none, which is a mistake in the scenario.
    pub fn document(&mut self, kind: &str) -> &mut Value {
        let found = self.documents.iter_mut().find(|document| document["kind"] == kind);
        found.unwrap_or_else(|| panic!("the example has no {kind}"))
    }

    /// Applies all documents in their order.
    ///
    /// # Errors
    /// When one is refused.
    pub async fn apply(&self, client: &Client) -> Result<()> {
        for document in &self.documents {
            apply_object(client, document).await?;
        }
        Ok(())
    }

    /// Applies all documents, those of the kinds in `order` first and in that order.
    ///
    /// # Errors
    /// When one is refused.
    pub async fn apply_in_order(&self, client: &Client, order: &[&str]) -> Result<()> {
        let mut sorted = self.documents.clone();
        let rank = |document: &Value| order.iter().position(|kind| document["kind"] == *kind).unwrap_or(order.len());
        sorted.sort_by_key(rank);
        for document in &sorted {
            apply_object(client, document).await?;
        }
        Ok(())
    }
}

/// Gives everything that is called `demo` or `demo-…` another name.
fn rename(value: &mut Value, name: &str) {
    match value {
        Value::String(text) if text == "demo" => name.clone_into(text),
        Value::String(text) => {
            if let Some(rest) = text.strip_prefix("demo-") {
                *text = format!("{name}-{rest}");
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, name)),
        Value::Object(fields) => fields.values_mut().for_each(|value| rename(value, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_renamed_throughout() {
        let mut manifests = Manifests::new("somewhere", "other").unwrap().replicas(5);
        let text = serde_json::to_string(manifests.documents()).unwrap();
        assert!(!text.contains("demo"), "{text}");
        assert_eq!(manifests.document("EtcdCluster")["spec"]["replicas"], 5);
        assert!(manifests.documents().iter().all(|document| document["metadata"]["namespace"] == "somewhere"));
    }
}
