//! Access to the objects of a cluster, for scenarios and the demo.

mod control_plane;
mod deletion;

use anyhow::{Context, Result, bail, ensure};
use api::{EtcdCluster, EtcdClusterStatus};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt};

use super::Manifests;
use crate::until::until;
use std::time::Duration;

/// The kinds that scenarios use, with their groups and versions.
const KINDS: [(&str, &str, &str); 17] = [
    ("Cluster", "cluster.x-k8s.io", "v1beta2"),
    ("Machine", "cluster.x-k8s.io", "v1beta2"),
    ("MachineDeployment", "cluster.x-k8s.io", "v1beta2"),
    ("MachineSet", "cluster.x-k8s.io", "v1beta2"),
    ("KubeadmControlPlane", "controlplane.cluster.x-k8s.io", "v1beta2"),
    ("StubControlPlane", "example.org", "v1"),
    ("KubeadmConfig", "bootstrap.cluster.x-k8s.io", "v1beta2"),
    ("DevCluster", "infrastructure.cluster.x-k8s.io", "v1beta2"),
    ("DevMachine", "infrastructure.cluster.x-k8s.io", "v1beta2"),
    ("DevMachineTemplate", "infrastructure.cluster.x-k8s.io", "v1beta2"),
    ("DockerCluster", "infrastructure.cluster.x-k8s.io", "v1beta2"),
    ("DockerMachine", "infrastructure.cluster.x-k8s.io", "v1beta2"),
    ("LocalCluster", "infrastructure.cluster.x-k8s.io", "v1alpha1"),
    ("LocalMachine", "infrastructure.cluster.x-k8s.io", "v1alpha1"),
    ("LocalMachineTemplate", "infrastructure.cluster.x-k8s.io", "v1alpha1"),
    ("EtcdCluster", "etcdcluster.cluster.x-k8s.io", "v1beta1"),
    ("EtcdadmConfig", "bootstrap.cluster.x-k8s.io", "v1beta1"),
];

/// One cluster, seen through the API server.
#[derive(Clone)]
pub struct ClusterHandle {
    pub(super) client: Client,
    /// Namespace of everything.
    pub namespace: String,
    /// Name of the Cluster.
    pub cluster: String,
    /// Name of the EtcdCluster.
    pub etcd: String,
    /// Name of the control plane.
    pub control_plane: String,
}

fn resource(kind: &str) -> ApiResource {
    let known = KINDS.iter().find(|known| known.0 == kind);
    let (kind, group, version) = known.unwrap_or_else(|| panic!("scenarios do not know kind {kind}"));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The first address in the status of a Machine or LocalMachine.
#[must_use]
pub fn first_address(machine: &DynamicObject) -> Option<&str> {
    machine.data["status"]["addresses"][0]["address"].as_str()
}

impl ClusterHandle {
    /// The handle of the cluster that these documents make.
    #[must_use]
    pub fn new(client: &Client, manifests: &Manifests) -> Self {
        Self {
            client: client.clone(),
            namespace: manifests.namespace.clone(),
            cluster: manifests.name.clone(),
            etcd: manifests.etcd(),
            control_plane: manifests.control_plane(),
        }
    }

    /// The same handle, with another EtcdCluster.
    #[must_use]
    pub fn with_etcd(mut self, name: &str) -> Self {
        name.clone_into(&mut self.etcd);
        self
    }

    /// The objects of a kind in this namespace.
    ///
    /// # Panics
    /// For an unknown kind, which is a mistake in the scenario.
    #[must_use]
    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }

    /// A handle of no cluster, for requests about all of them.
    #[must_use]
    pub fn anywhere(client: &Client) -> Self {
        let none = String::new;
        Self { client: client.clone(), namespace: none(), cluster: none(), etcd: none(), control_plane: none() }
    }

    /// The same handle, in this namespace.
    #[must_use]
    pub fn within(mut self, namespace: Option<String>) -> Self {
        self.namespace = namespace.unwrap_or_default();
        self
    }

    /// Objects of a kind in every namespace.
    ///
    /// # Panics
    /// As [`ClusterHandle::api`].
    #[must_use]
    pub fn everywhere(&self, kind: &str) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(kind))
    }

    /// Secrets.
    #[must_use]
    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// EtcdClusters.
    #[must_use]
    pub fn etcds(&self) -> Api<EtcdCluster> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes a namespace.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn make_namespace(client: &Client, name: &str) -> Result<()> {
        let namespace = Namespace {
            metadata: kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
            ..Default::default()
        };
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.context("make a namespace")?;
        Ok(())
    }

    /// The EtcdCluster's status; the default before there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn status(&self) -> Result<EtcdClusterStatus> {
        Ok(self.etcds().get(&self.etcd).await?.status.unwrap_or_default())
    }

    /// Waits until the EtcdCluster is ready.
    ///
    /// # Errors
    /// When it is not ready in time; the error says what it is waiting for.
    pub async fn until_ready(&self, timeout: Duration) -> Result<EtcdClusterStatus> {
        until(format!("EtcdCluster {} is ready", self.etcd), timeout, async || {
            let status = self.status().await?;
            if status.ready {
                return Ok(Some(status));
            }
            bail!("{}", self.reason("Ready", &status))
        })
        .await
    }

    /// Waits until a condition of the EtcdCluster has this status and reason, and returns its message.
    ///
    /// # Errors
    /// When that does not happen in time; the error says what the condition is.
    pub async fn until_condition(&self, type_: &str, status: &str, reason: &str, timeout: Duration) -> Result<String> {
        until(format!("condition {type_} of {} is {status} {reason}", self.etcd), timeout, async || {
            let seen = self.status().await?;
            match seen.conditions.iter().find(|condition| condition.type_ == type_) {
                Some(condition) if condition.status == status && condition.reason == reason => {
                    Ok(Some(condition.message.clone()))
                }
                _ => bail!("{}", self.reason(type_, &seen)),
            }
        })
        .await
    }

    /// Waits until every member is healthy, and one leads.
    ///
    /// # Errors
    /// When that does not happen in time; the error has the conditions.
    pub async fn until_all_are_well(&self, timeout: Duration) -> Result<()> {
        until(format!("all members of {} in {} are well", self.etcd, self.namespace), timeout, async || {
            let status = self.status().await?;
            let all = status.conditions.iter().find(|condition| condition.type_ == "MembersHealthy");
            let well = status.ready && all.is_some_and(|condition| condition.status == "True");
            ensure!(well && status.members.iter().any(|member| member.leader), "{:?}", status.conditions);
            Ok(Some(()))
        })
        .await
    }

    fn reason(&self, type_: &str, status: &EtcdClusterStatus) -> String {
        match status.conditions.iter().find(|condition| condition.type_ == type_) {
            Some(condition) => format!("{type_} is {} {}: {}", condition.status, condition.reason, condition.message),
            None => format!("it has no condition {type_}"),
        }
    }

    /// Names of the etcd Machines, sorted.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn etcd_machines(&self) -> Result<Vec<String>> {
        self.names("Machine", &format!("{}={}", api::names::ETCD_CLUSTER_LABEL, self.etcd)).await
    }

    /// Names of objects of a kind that match a label selector, sorted.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn names(&self, kind: &str, selector: &str) -> Result<Vec<String>> {
        let list = self.api(kind).list(&ListParams::default().labels(selector)).await?;
        let mut names: Vec<String> = list.items.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    }

    /// Names of all Secrets of the namespace, sorted.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn secret_names(&self) -> Result<Vec<String>> {
        let list = self.secrets().list(&ListParams::default()).await?;
        let mut names: Vec<String> = list.items.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    }

    /// A value of a Secret as text.
    ///
    /// # Errors
    /// When there is no such Secret or key.
    pub async fn secret(&self, name: &str, key: &str) -> Result<String> {
        let secret = self.secrets().get(name).await.with_context(|| format!("read Secret {name}"))?;
        let value = secret.data.unwrap_or_default().remove(key).with_context(|| format!("{name} has no {key}"))?;
        Ok(String::from_utf8(value.0)?)
    }

    /// Deletes an object in the background.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.api(kind)
            .delete(name, &DeleteParams::background())
            .await
            .with_context(|| format!("delete {kind} {name}"))?;
        Ok(())
    }

    /// Waits until nothing of a cluster is left in the namespace: no object of these kinds, no Secret, no ConfigMap.
    ///
    /// # Errors
    /// When something is left after this time; the error names it.
    pub async fn until_nothing_is_left(&self, kinds: &[&str], timeout: Duration) -> Result<()> {
        until(format!("nothing is left in {}", self.namespace), timeout, async || {
            let mut left = Vec::new();
            for kind in kinds {
                left.extend(self.names(kind, "").await?.into_iter().map(|name| format!("{kind} {name}")));
            }
            left.extend(self.secret_names().await?.into_iter().map(|name| format!("Secret {name}")));
            left.extend(self.config_map_names().await?.into_iter().map(|name| format!("ConfigMap {name}")));
            if left.is_empty() { Ok(Some(())) } else { bail!("left are {}", left.join(", ")) }
        })
        .await
    }
}
