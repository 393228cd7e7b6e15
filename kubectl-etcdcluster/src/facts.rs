//! Data from the API server besides an EtcdCluster's own objects, as plain data: CRDs, managers, versions. Pure.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use serde::Serialize;
use std::collections::BTreeMap;

/// Something that was read, or why it could not be read.
pub type Read<T> = Result<T, String>;

/// Label that every object of the provider's manifests has, and its value.
pub const PROVIDER_LABEL: &str = "app.kubernetes.io/name=cluster-api-provider-etcdadm";
/// Namespace of the manager, unless it was installed elsewhere.
pub const PROVIDER_NAMESPACE: &str = "capi-etcdadm-system";
/// The variable for the namespace in the arguments in our manifests. `config/manager/manager.yaml` sets it.
const NAMESPACE_VARIABLE: &str = "$(POD_NAMESPACE)";
/// Label of Cluster API's own manager, and its value.
pub const CORE_LABEL: &str = "cluster.x-k8s.io/provider=cluster-api";

/// A CRD without its schemas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Crd {
    /// Name, such as `machines.cluster.x-k8s.io`.
    pub name: String,
    /// Labels, among them those of contracts.
    pub labels: BTreeMap<String, String>,
    /// Versions that are served.
    pub served: Vec<String>,
    /// The version that is stored.
    pub storage: String,
    /// Versions that objects may still be stored in.
    pub stored: Vec<String>,
}

impl Crd {
    /// Extracts the data from a CRD.
    #[must_use]
    pub fn new(crd: &CustomResourceDefinition) -> Self {
        let versions = &crd.spec.versions;
        let served = versions.iter().filter(|version| version.served).map(|version| version.name.clone());
        let storage = versions.iter().find(|version| version.storage).map(|version| version.name.clone());
        let stored = crd.status.as_ref().and_then(|status| status.stored_versions.clone());
        Self {
            name: crd.name_any(),
            labels: crd.labels().clone(),
            served: served.collect(),
            storage: storage.unwrap_or_default(),
            stored: stored.unwrap_or_default(),
        }
    }

    /// Versions that satisfy a contract, by its label.
    #[must_use]
    pub fn versions_for(&self, contract: &str) -> Vec<&str> {
        let versions = self.labels.get(contract).map(String::as_str).unwrap_or_default();
        versions.split('_').filter(|version| !version.is_empty()).collect()
    }
}

/// A Deployment of a manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manager {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Image of its container `manager`, or of its first one.
    pub image: String,
    /// Arguments of that container. The variable for the namespace is replaced with the namespace.
    pub arguments: Vec<String>,
    /// The service account of its Pods.
    pub service_account: String,
    /// The wanted number of Pods.
    pub replicas: i32,
    /// The number of available Pods.
    pub available: i32,
}

impl Manager {
    /// Extracts the data from a Deployment.
    #[must_use]
    pub fn new(deployment: &Deployment) -> Self {
        let spec = deployment.spec.as_ref();
        let pod = spec.and_then(|spec| spec.template.spec.as_ref());
        let containers = pod.map(|pod| pod.containers.as_slice()).unwrap_or_default();
        let container = containers.iter().find(|container| container.name == "manager").or_else(|| containers.first());
        let arguments = container.and_then(|container| container.args.as_deref()).unwrap_or_default();
        let namespace = deployment.namespace().unwrap_or_default();
        let status = deployment.status.as_ref();
        Self {
            name: deployment.name_any(),
            image: container.and_then(|container| container.image.clone()).unwrap_or_default(),
            arguments: arguments.iter().map(|argument| argument.replace(NAMESPACE_VARIABLE, &namespace)).collect(),
            service_account: pod
                .and_then(|pod| pod.service_account_name.clone())
                .unwrap_or_else(|| "default".to_owned()),
            replicas: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            available: status.and_then(|status| status.available_replicas).unwrap_or_default(),
            namespace,
        }
    }

    /// The tag of its image; nothing if the image has no tag.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        let name = self.image.split('@').next().unwrap_or_default();
        let (_, tag) = name.rsplit_once(':')?;
        (!tag.contains('/')).then_some(tag)
    }

    /// The value of one of its arguments, as `--name=value`.
    #[must_use]
    pub fn argument(&self, name: &str) -> Option<&str> {
        self.arguments.iter().rev().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether it looks after objects of a namespace.
    #[must_use]
    pub fn looks_after(&self, namespace: &str) -> bool {
        self.argument("--namespace").is_none_or(|only| only.is_empty() || only == namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manager(image: &str, arguments: &str) -> Manager {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let container = json!({"name": "manager", "image": image, "args": arguments});
        let pod = json!({"metadata": {}, "spec": {"containers": [container]}});
        let metadata = json!({"name": "m", "namespace": "team-a"});
        let deployment = json!({"metadata": metadata, "spec": {"selector": {}, "template": pod}});
        Manager::new(&serde_json::from_value(deployment).unwrap())
    }

    #[test]
    fn the_version_of_a_manager_is_the_tag_of_its_image() {
        for (image, version) in [
            ("registry:5000/a/b:v1.14.0", Some("v1.14.0")),
            ("registry:5000/a/b", None),
            ("a:v1@sha256:00", Some("v1")),
            ("a", None),
        ] {
            assert_eq!(manager(image, "").version(), version, "{image}");
        }
        assert_eq!(manager("a", "--namespace=a --namespace=b").argument("--namespace"), Some("b"));
    }

    #[test]
    fn a_manager_looks_after_all_namespaces_or_the_one_of_its_arguments() {
        for (arguments, looks_after) in [
            ("--v=2", [true, true]),
            ("--namespace=", [true, true]),
            // As in config/namespaced.
            ("--leader-election-namespace=$(POD_NAMESPACE) --namespace=$(POD_NAMESPACE)", [true, false]),
            ("--namespace=team-b", [false, true]),
        ] {
            let manager = manager("a", arguments);
            assert_eq!(
                ["team-a", "team-b"].map(|namespace| manager.looks_after(namespace)),
                looks_after,
                "{arguments}"
            );
        }
        assert_eq!(manager("a", "--namespace=$(POD_NAMESPACE)").argument("--namespace"), Some("team-a"));
        let installed = include_str!("../../config/namespaced/kustomization.yaml");
        assert!(installed.contains(&format!("value: --namespace={NAMESPACE_VARIABLE}}}\n")));
    }
}
