//! Small types that several resources share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Labels and annotations of objects that are made from a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMeta {
    /// Labels to add to the objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add to the objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Kind of an address of a Machine, as in Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AddressType {
    /// Address inside the infrastructure's network.
    InternalIP,
    /// Address reachable from outside.
    ExternalIP,
    /// Name that resolves inside the infrastructure's network.
    InternalDNS,
    /// Name that resolves from outside.
    ExternalDNS,
    /// Host name of the machine.
    Hostname,
}

impl AddressType {
    /// The name as Cluster API writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InternalIP => "InternalIP",
            Self::ExternalIP => "ExternalIP",
            Self::InternalDNS => "InternalDNS",
            Self::ExternalDNS => "ExternalDNS",
            Self::Hostname => "Hostname",
        }
    }
}
