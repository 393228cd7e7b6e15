//! External views: what we need of objects that other providers own, whatever version the objects have. The views are
//! tolerant readers: they ignore unknown fields, and find fields in the shape of either contract. All of this is pure.

mod cluster;
mod docker_machine;
mod failure_domains;
mod infrastructure_cluster;
mod machine;
mod mark;
mod secret;

pub use cluster::{ClusterView, is_cluster, pause_of};
pub use docker_machine::DockerMachineView;
pub use infrastructure_cluster::InfrastructureClusterView;
pub use machine::{MachineView, OwnerView, Ready};
pub use secret::{bytes as secret_bytes, text as secret_text};

use serde_json::Value;
use std::fmt::{self, Display};

/// Reference to an object of another provider, in the shape of either contract.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// API group, without a version.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name, in the namespace of the object that refers to it.
    pub name: String,
}

impl Reference {
    /// Reads `{apiGroup, kind, name}` (v1beta2) or `{apiVersion, kind, name}` (v1beta1).
    #[must_use]
    pub fn read(value: Option<&Value>) -> Option<Self> {
        let value = value?;
        let group = match value["apiGroup"].as_str() {
            Some(group) => group,
            None => api_group(value["apiVersion"].as_str()?),
        };
        let (kind, name) = (value["kind"].as_str()?, value["name"].as_str()?);
        if kind.is_empty() || name.is_empty() {
            return None;
        }
        Some(Self { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() })
    }
}

/// The group of an `apiVersion`, such as that of an owner reference. Empty: the core group.
#[must_use]
pub fn api_group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Kind and name, for people.
impl Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

fn flag(data: &Value, pointers: &[&str]) -> bool {
    pointers.iter().any(|pointer| data.pointer(pointer).and_then(Value::as_bool).unwrap_or(false))
}

/// `status.addresses` as (type, address).
fn addresses(data: &Value) -> Vec<(String, String)> {
    let list = data.pointer("/status/addresses").and_then(Value::as_array);
    let pair = |a: &Value| Some((a["type"].as_str()?.to_owned(), a["address"].as_str()?.to_owned()));
    list.into_iter().flatten().filter_map(pair).collect()
}

/// A condition of an object, if it has this status. Both contracts have conditions in this place, with these field
/// names.
fn condition<'a>(data: &'a Value, type_: &str, status: &str) -> Option<&'a Value> {
    let conditions = data.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|found| found["type"] == type_ && found["status"] == status)
}

fn string(data: &Value, pointer: &str) -> Option<String> {
    data.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_of_both_contracts_are_read() {
        let new = json!({"apiGroup": "g.io", "kind": "Kind", "name": "n"});
        let old = json!({"apiVersion": "g.io/v1beta1", "kind": "Kind", "name": "n", "namespace": "default"});
        let read = Reference::read(Some(&new)).unwrap();
        assert_eq!(Some(read.clone()), Reference::read(Some(&old)));
        assert_eq!((read.group.as_str(), read.kind.as_str(), read.name.as_str()), ("g.io", "Kind", "n"));
        assert_eq!(Reference::read(Some(&json!({"kind": "Kind"}))), None);
        assert_eq!(Reference::read(None), None);
    }
}
