//! LocalCluster, LocalMachine and LocalMachineTemplate: infrastructure of Cluster API, contracts v1beta1 and v1beta2.

// kube's derive reads repeated `printcolumn(type_ = "string", …)` attributes; they are not duplicates.
#![allow(clippy::duplicated_attributes)]

use crate::address::IpFamily;
use api::meta::{AddressType, TemplateMeta};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// API group of the kinds.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// Held by LocalMachines and LocalClusters until every trace of them is removed.
pub const FINALIZER: &str = "local.infrastructure.cluster.x-k8s.io";
/// Field manager of every write.
pub const FIELD_MANAGER: &str = "local-infrastructure";
/// Port of API servers where a LocalCluster does not say otherwise.
pub const API_SERVER_PORT: i32 = 6443;

/// What the infrastructure of a cluster should be.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "LocalCluster",
    plural = "localclusters",
    category = "cluster-api",
    namespaced,
    status = "LocalClusterStatus",
    derive = "PartialEq",
    doc = "LocalCluster is a cluster's place on this computer's bridge: an address for its API servers.",
    label("cluster.x-k8s.io/provider", "infrastructure-local"),
    label("cluster.x-k8s.io/v1beta1", "v1alpha1"),
    label("cluster.x-k8s.io/v1beta2", "v1alpha1"),
    label("clusterctl.cluster.x-k8s.io", ""),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.controlPlaneEndpoint.host"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct LocalClusterSpec {
    /// Where the cluster's API servers are reached. Left out, an address of the subnet is reserved until the LocalCluster
    /// is deleted, with port 6443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// Names of failure domains to report. They are names only: all machines run on this computer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 100),
        inner(length(min = 1, max = 63)),
        extend("x-kubernetes-list-type" = "set")
    )]
    #[x_kube(validation = Rule::new("self.all(name, name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))").message("each failure domain is a name of lower-case letters, digits and hyphens that begins and ends with a letter or digit, such as zone-a"))]
    pub failure_domains: Vec<String>,
}

/// Host and port of API servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    /// Host name or address.
    #[schemars(length(min = 1, max = 512))]
    pub host: String,
    /// Port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// What the infrastructure of a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalClusterStatus {
    /// Contract v1beta1: the endpoint can be used.
    #[serde(default)]
    pub ready: bool,
    /// Contract v1beta2: progress of the provisioning.
    #[serde(default)]
    pub initialization: Initialization,
    /// Failure domains that Machines can be made for, in the form of the contract v1beta2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<FailureDomain>,
    /// Ready and Paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One failure domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// Name.
    pub name: String,
    /// Machines of control planes can be there; those of etcd go where these can.
    pub control_plane: bool,
}

/// What the contract v1beta2 asks about the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Initialization {
    /// The infrastructure is there. It never becomes false again.
    #[serde(default)]
    pub provisioned: bool,
}

/// What a machine should be.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "LocalMachine",
    plural = "localmachines",
    category = "cluster-api",
    namespaced,
    status = "LocalMachineStatus",
    derive = "PartialEq",
    doc = "LocalMachine is a machine made of Linux namespaces, with an address, a disk, a host name and processes of its own.",
    label("cluster.x-k8s.io/provider", "infrastructure-local"),
    label("cluster.x-k8s.io/v1beta1", "v1alpha1"),
    label("cluster.x-k8s.io/v1beta2", "v1alpha1"),
    label("clusterctl.cluster.x-k8s.io", ""),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.addresses[?(@.type=='InternalIP')].address"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct LocalMachineSpec {
    /// The machine's id, `local:////<namespace>/<name>`. Set by the provider once the machine exists.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub provider_id: Option<String>,
    /// Which addresses the machine has, IPv4 if nothing is said. It is read when the machine is made.
    #[serde(default, skip_serializing_if = "IpFamily::is_default")]
    pub ip_family: IpFamily,
}

/// What a machine is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalMachineStatus {
    /// Contract v1beta1: the machine exists. It says nothing about whether it has booted.
    #[serde(default)]
    pub ready: bool,
    /// Contract v1beta2: progress of the provisioning.
    #[serde(default)]
    pub initialization: Initialization,
    /// Where the machine is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub addresses: Vec<Address>,
    /// Ready, BootstrapSucceeded and Paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One address of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Address {
    /// What kind of address it is.
    #[serde(rename = "type")]
    pub kind: AddressType,
    /// The address.
    #[schemars(length(min = 1, max = 256))]
    pub address: String,
}

/// What machines are made from.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "LocalMachineTemplate",
    plural = "localmachinetemplates",
    category = "cluster-api",
    namespaced,
    derive = "PartialEq",
    doc = "LocalMachineTemplate is what LocalMachines are made from.",
    label("cluster.x-k8s.io/provider", "infrastructure-local"),
    label("cluster.x-k8s.io/v1beta1", "v1alpha1"),
    label("cluster.x-k8s.io/v1beta2", "v1alpha1"),
    label("clusterctl.cluster.x-k8s.io", ""),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct LocalMachineTemplateSpec {
    /// The machine.
    pub template: LocalMachineTemplateResource,
}

/// A LocalMachine to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalMachineTemplateResource {
    /// Labels and annotations of the LocalMachines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMeta>,
    /// What can be chosen about a LocalMachine; `{}` is enough.
    pub spec: LocalMachineTemplateResourceSpec,
}

/// What can be chosen about a LocalMachine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalMachineTemplateResourceSpec {
    /// Which addresses the machine has, IPv4 if nothing is said.
    #[serde(default, skip_serializing_if = "IpFamily::is_default")]
    pub ip_family: IpFamily,
}

/// Conditions and reasons that this provider writes.
pub mod conditions {
    pub use api::conditions::reasons::{
        DELETING, NOT_PAUSED, PAUSED as IS_PAUSED, READY as IS_READY, WAITING_FOR_CLUSTER,
        WAITING_FOR_CLUSTER_INFRASTRUCTURE, WAITING_FOR_MACHINE,
    };
    pub use api::conditions::{PAUSED, READY};

    /// How the bootstrap ended. Unknown until it has finished.
    pub const BOOTSTRAP_SUCCEEDED: &str = "BootstrapSucceeded";

    /// The Machine names no bootstrap data yet, or it cannot be read.
    pub const WAITING_FOR_BOOTSTRAP_DATA: &str = "WaitingForBootstrapData";
    /// The machine cannot be made or started; the message says why. It is tried again.
    pub const CREATION_FAILED: &str = "CreationFailed";
    /// The machine exists and its bootstrap has not finished.
    pub const BOOTING: &str = "Booting";
    /// The bootstrap failed; the message has the errors and the last lines of the console.
    pub const BOOTSTRAP_FAILED: &str = "BootstrapFailed";
    /// The machine has been shut down or its plug was pulled.
    pub const POWERED_OFF: &str = "PoweredOff";
    /// The machine should run, and its first process is gone.
    pub const NOT_RUNNING: &str = "NotRunning";
    /// The bootstrap succeeded.
    pub const SUCCEEDED: &str = "Succeeded";
}

/// A machine's id for Cluster API.
#[must_use]
pub fn provider_id(namespace: &str, name: &str) -> String {
    format!("local:////{namespace}/{name}")
}

impl Endpoint {
    /// Port 6443 of an address.
    #[must_use]
    pub fn at(address: Ipv4Addr) -> Self {
        Self { host: address.to_string(), port: API_SERVER_PORT }
    }
}

/// The definitions of the kinds, as they are installed.
#[must_use]
pub fn all() -> [CustomResourceDefinition; 3] {
    [LocalCluster::crd(), LocalMachine::crd(), LocalMachineTemplate::crd()]
}

/// File name and content of every definition.
///
/// # Errors
/// If a definition cannot be written as YAML.
pub fn files() -> Result<Vec<(String, String)>, serde_yaml::Error> {
    all()
        .iter()
        .map(|crd| {
            let yaml = serde_yaml::to_string(crd)?;
            let head =
                "# Generated by `local-infrastructure crds`; change the types in local-infrastructure/ instead.\n";
            Ok((format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural), format!("{head}{yaml}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};

    #[test]
    fn the_definitions_in_the_repository_are_those_of_the_types() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/crd/local");
        for (name, content) in files().expect("yaml") {
            let found = fs::read_to_string(directory.join(&name)).unwrap_or_default();
            assert!(found == content, "config/crd/local/{name} is out of date: run `make generate`");
        }
    }

    #[test]
    fn cluster_api_finds_the_contracts_and_the_names_it_expects() {
        for crd in all() {
            let labels = crd.metadata.labels.unwrap_or_default();
            for contract in ["cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"] {
                assert_eq!(labels.get(contract).map(String::as_str), Some("v1alpha1"));
            }
            assert!(labels.contains_key("clusterctl.cluster.x-k8s.io"));
            let kind = crd.spec.names.kind.to_lowercase();
            assert_eq!(crd.metadata.name.as_deref(), Some(format!("{kind}s.{GROUP}").as_str()));
        }
    }
}
