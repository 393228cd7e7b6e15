//! Reads what belongs to an EtcdCluster in a wider sense. If something cannot be read, the result says so, and nothing
//! fails: a user who wants a report or a diagnosis has trouble already.

use crate::facts::{Crd, Manager, PROVIDER_LABEL, PROVIDER_NAMESPACE, Read};
use crate::reader::dynamic;
use crate::secrets::SecretSummary;
use api::names;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, LogParams};
use kube::discovery::{self, ApiGroup, ApiResource};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// How many lines are read from the end of each log.
pub const LOG_LINES: i64 = 20_000;

/// Reads from an API server, with the namespace of the EtcdCluster.
pub struct Gatherer {
    client: Client,
    namespace: String,
    groups: BTreeMap<String, ApiGroup>,
}

impl Gatherer {
    /// A new gatherer, which has not read anything yet.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), groups: BTreeMap::new() }
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A kind in the version that the API server prefers; nothing if the API server does not serve the kind.
    ///
    /// # Errors
    /// The reason why this cannot be determined.
    pub async fn kind(&mut self, group: &str, kind: &str) -> Read<Option<ApiResource>> {
        self.served(group, kind).await.map_err(why)
    }

    async fn served(&mut self, group: &str, kind: &str) -> kube::Result<Option<ApiResource>> {
        if !self.groups.contains_key(group) {
            match discovery::group(&self.client, group).await {
                Ok(found) => drop(self.groups.insert(group.to_owned(), found)),
                Err(kube::Error::Discovery(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let found = self.groups.get(group).and_then(|found| found.recommended_kind(kind));
        Ok(found.map(|(resource, _)| resource))
    }

    /// An object in the namespace, in the version that [`Gatherer::kind`] returns; nothing if the object or its kind
    /// does not exist.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn find(
        &mut self,
        group: &str,
        kind: &str,
        name: &str,
    ) -> kube::Result<Option<(DynamicObject, ApiResource)>> {
        let Some(resource) = self.served(group, kind).await? else { return Ok(None) };
        let found = dynamic(&self.client, Some(&self.namespace), &resource).get_opt(name).await?;
        Ok(found.map(|object| (object, resource)))
    }

    /// The same as JSON.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub async fn object(&mut self, group: &str, kind: &str, name: &str) -> Read<Option<Value>> {
        let found = self.find(group, kind, name).await.map_err(why)?;
        Ok(found.map(|(object, resource)| value(&object, &resource)))
    }

    /// Objects in the namespace with these labels; none if their kind does not exist.
    ///
    /// # Errors
    /// The reason why they cannot be read.
    pub async fn objects(&mut self, group: &str, kind: &str, labels: &str) -> Read<Vec<Value>> {
        let Some(resource) = self.kind(group, kind).await? else { return Ok(Vec::new()) };
        let list = dynamic(&self.client, Some(&self.namespace), &resource).list(&with(labels)).await.map_err(why)?;
        Ok(list.items.iter().map(|object| value(object, &resource)).collect())
    }

    /// Objects in the namespace of a kind that belongs to Kubernetes itself.
    ///
    /// # Errors
    /// The reason why they cannot be read.
    pub async fn own<K>(&self, parameters: &ListParams) -> Read<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        Ok(api.list(parameters).await.map_err(why)?.items)
    }

    /// The parts of a Cluster's Secrets that may be shown: of Secrets with the Cluster's label, and of those with one
    /// of our names. This drops their data.
    ///
    /// # Errors
    /// The reason why they cannot be read.
    pub async fn secrets(&self, cluster: &str) -> Read<Vec<SecretSummary>> {
        let secrets: Vec<Secret> = self.own(&with(&format!("{}={cluster}", names::CLUSTER_NAME_LABEL))).await?;
        let mut found: Vec<SecretSummary> = secrets.iter().map(SecretSummary::new).collect();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        for name in secret_names(cluster) {
            if !found.iter().any(|secret| secret.name == name) {
                let secret = api.get_opt(&name).await.map_err(why)?;
                found.extend(secret.as_ref().map(SecretSummary::new));
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// The CRDs with these names that exist.
    ///
    /// # Errors
    /// The reason why they cannot be read.
    pub async fn crds(&self, names: &BTreeSet<String>) -> Read<Vec<Crd>> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let mut found = Vec::new();
        for name in names {
            found.extend(api.get_opt(name).await.map_err(why)?.as_ref().map(Crd::new));
        }
        Ok(found)
    }

    /// Deployments with this label, in all namespaces that this program may read.
    ///
    /// # Errors
    /// The reason why they cannot be read.
    pub async fn deployments(&self, label: &str) -> Read<Vec<Deployment>> {
        self.everywhere(label).await
    }

    /// Managers whose Deployment has this label.
    ///
    /// # Errors
    /// The reason why they cannot be read.
    pub async fn managers(&self, label: &str) -> Read<Vec<Manager>> {
        Ok(self.deployments(label).await?.iter().map(Manager::new).collect())
    }

    /// Pods of this provider's managers.
    ///
    /// # Errors
    /// The reason why they cannot be read.
    pub async fn manager_pods(&self) -> Read<Vec<Pod>> {
        self.everywhere(PROVIDER_LABEL).await
    }

    /// The last lines of a Pod's log: that of the running container, or of the container before its last restart.
    ///
    /// # Errors
    /// Which log cannot be read, and why.
    pub async fn log(&self, pod: &Pod, lines: i64, previous: bool) -> Read<String> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        // A sidecar may have been injected. The API server then wants to know which container is meant.
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let container = containers.map(|container| &container.name).find(|name| *name == "manager").cloned();
        let parameters = LogParams { container, previous, tail_lines: Some(lines), ..LogParams::default() };
        let read = pods.logs(&name, &parameters).await;
        read.map_err(|error| format!("the log of Pod {namespace}/{name}: {}", why(error)))
    }

    /// Objects in all namespaces. If this is forbidden, those in the namespace of the EtcdCluster, or else those in the
    /// manager's usual namespace.
    async fn everywhere<K>(&self, label: &str) -> Read<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let everywhere: Api<K> = Api::all(self.client.clone());
        match everywhere.list(&with(label)).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                // A user without access to all namespaces may have access to this one.
                let here: Vec<K> = self.own(&with(label)).await.unwrap_or_default();
                if !here.is_empty() {
                    return Ok(here);
                }
                let usual: Api<K> = Api::namespaced(self.client.clone(), PROVIDER_NAMESPACE);
                Ok(usual.list(&with(label)).await.map_err(why)?.items)
            }
            other => Ok(other.map_err(why)?.items),
        }
    }
}

/// CRDs that everything here depends on.
#[must_use]
pub fn crd_names() -> BTreeSet<String> {
    let (etcd, bootstrap, core) = (names::ETCD_CLUSTER_GROUP, names::BOOTSTRAP_GROUP, names::CLUSTER_GROUP);
    let ours = [("etcdclusters", etcd), ("etcdadmconfigs", bootstrap), ("etcdadmconfigtemplates", bootstrap)];
    let all = ours.into_iter().chain([("clusters", core), ("machines", core)]);
    all.map(|(plural, group)| format!("{plural}.{group}")).collect()
}

/// Names of the Secrets that a managed etcd has, in the order in which they are made.
#[must_use]
pub fn secret_names(cluster: &str) -> [String; 5] {
    [
        names::ca_secret(cluster),
        names::control_plane_ca_secret(cluster),
        names::init_secret(cluster),
        names::staged_apiserver_client_secret(cluster),
        names::apiserver_client_secret(cluster),
    ]
}

/// A short text about an error of the API server.
#[must_use]
pub fn why(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// An object as JSON with its kind, which lists leave out.
pub fn typed<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Value {
    value(object, &ApiResource::erase::<K>(&()))
}

fn value(object: &impl Serialize, resource: &ApiResource) -> Value {
    let mut found = serde_json::to_value(object).unwrap_or_default();
    found["apiVersion"] = Value::from(resource.api_version.clone());
    found["kind"] = Value::from(resource.kind.clone());
    found
}

fn with(labels: &str) -> ListParams {
    ListParams::default().labels(labels)
}
