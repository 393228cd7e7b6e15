//! LocalCluster, LocalMachine and LocalMachineTemplate: infrastructure for Cluster API, with its contracts v1beta1 and
//! v1beta2.

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
/// LocalMachines and LocalClusters have this finalizer until everything that belongs to them is removed.
pub const FINALIZER: &str = "local.infrastructure.cluster.x-k8s.io";
/// Field manager of every write.
pub const FIELD_MANAGER: &str = "local-infrastructure";
/// Port of API servers if a LocalCluster does not say otherwise.
pub const API_SERVER_PORT: i32 = 6443;

/// Desired state of a LocalCluster.
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
    /// Host and port at which the cluster's API servers are reached. If not set, the provider reserves an address of
    /// the subnet, with port 6443, and sets the field. The address stays reserved until the LocalCluster is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// Names of the failure domains to report. They are only names: all machines run on this computer.
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
    /// Host name or IP address of the API servers.
    #[schemars(length(min = 1, max = 512))]
    pub host: String,
    /// Port of the API servers.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// Observed state of a LocalCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalClusterStatus {
    /// Whether the endpoint can be used. Part of version v1beta1 of Cluster API's contract.
    #[serde(default)]
    pub ready: bool,
    /// Progress of the provisioning. Part of version v1beta2 of Cluster API's contract.
    #[serde(default)]
    pub initialization: Initialization,
    /// Failure domains that Machines can be made for, in the form of version v1beta2 of Cluster API's contract.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<FailureDomain>,
    /// Conditions of the LocalCluster: Ready and Paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One failure domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// Name of the failure domain.
    pub name: String,
    /// Whether Machines of control planes can be in this failure domain. Machines of etcd go into the same domains.
    pub control_plane: bool,
}

/// Progress of the provisioning. Part of version v1beta2 of Cluster API's contract.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Initialization {
    /// Whether the infrastructure is provisioned. It never goes back to false.
    #[serde(default)]
    pub provisioned: bool,
}

/// Desired state of a LocalMachine.
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
    /// ID of the machine for Cluster API: `local:////<namespace>/<name>`. The provider sets it once the machine exists.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub provider_id: Option<String>,
    /// IP family of the machine's addresses: IPv4, or IPv6 alone. Defaults to IPv4. The provider reads it when it makes
    /// the machine.
    #[serde(default, skip_serializing_if = "IpFamily::is_default")]
    pub ip_family: IpFamily,
}

/// Observed state of a LocalMachine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalMachineStatus {
    /// Whether the machine exists. The field does not say whether the machine has booted. Part of version v1beta1 of
    /// Cluster API's contract.
    #[serde(default)]
    pub ready: bool,
    /// Progress of the provisioning. Part of version v1beta2 of Cluster API's contract.
    #[serde(default)]
    pub initialization: Initialization,
    /// Addresses at which the machine is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub addresses: Vec<Address>,
    /// Conditions of the LocalMachine: Ready, BootstrapSucceeded and Paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One address of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Address {
    /// Kind of the address.
    #[serde(rename = "type")]
    pub kind: AddressType,
    /// The address.
    #[schemars(length(min = 1, max = 256))]
    pub address: String,
}

/// Desired state of a LocalMachineTemplate.
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
    /// Metadata and spec of the LocalMachines that are made from this template.
    pub template: LocalMachineTemplateResource,
}

/// Metadata and spec of a LocalMachine that is made from the template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalMachineTemplateResource {
    /// Labels and annotations of the LocalMachines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMeta>,
    /// Spec of the LocalMachines. `{}` is enough.
    pub spec: LocalMachineTemplateResourceSpec,
}

/// Fields of a LocalMachine that a template can set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalMachineTemplateResourceSpec {
    /// IP family of the machine's addresses: IPv4, or IPv6 alone. Defaults to IPv4.
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

    /// The result of the bootstrap. Unknown until it has finished.
    pub const BOOTSTRAP_SUCCEEDED: &str = "BootstrapSucceeded";

    /// The Machine names no bootstrap data yet, or the data cannot be read.
    pub const WAITING_FOR_BOOTSTRAP_DATA: &str = "WaitingForBootstrapData";
    /// The machine cannot be made or started; the message says why. The controller retries.
    pub const CREATION_FAILED: &str = "CreationFailed";
    /// The machine exists and its bootstrap has not finished.
    pub const BOOTING: &str = "Booting";
    /// The bootstrap failed; the message has the errors and the last lines of the console.
    pub const BOOTSTRAP_FAILED: &str = "BootstrapFailed";
    /// The machine has been shut down, or its plug was pulled.
    pub const POWERED_OFF: &str = "PoweredOff";
    /// The machine should run, and its first process is gone.
    pub const NOT_RUNNING: &str = "NotRunning";
    /// The bootstrap succeeded.
    pub const SUCCEEDED: &str = "Succeeded";
}

/// The provider ID of a machine.
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

/// The CRDs of all kinds.
#[must_use]
pub fn all() -> [CustomResourceDefinition; 3] {
    [LocalCluster::crd(), LocalMachine::crd(), LocalMachineTemplate::crd()]
}

/// File name and content of each CRD.
///
/// # Errors
/// If a CRD cannot be written as YAML.
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
