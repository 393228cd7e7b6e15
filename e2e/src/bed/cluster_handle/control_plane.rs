//! What the Cluster and its control plane hold about etcd.

use super::ClusterHandle;
use crate::plane::workload::EtcdAccess;
use crate::until::until;
use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use std::time::Duration;

impl ClusterHandle {
    /// Waits until a condition of the Cluster has this status and reason, and returns its message.
    ///
    /// # Errors
    /// When that does not happen in time; the error says what the condition is.
    pub async fn until_cluster_condition(
        &self,
        type_: &str,
        status: &str,
        reason: &str,
        timeout: Duration,
    ) -> Result<String> {
        until(format!("condition {type_} of Cluster {} is {status} {reason}", self.cluster), timeout, async || {
            match self.cluster_condition(type_).await? {
                found if found["status"] == status && found["reason"] == reason => {
                    Ok(Some(found["message"].as_str().unwrap_or_default().to_owned()))
                }
                found => bail!("it is {found}"),
            }
        })
        .await
    }

    /// A condition of the Cluster; null if it has none of this type.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn cluster_condition(&self, type_: &str) -> Result<Value> {
        let cluster = self.api("Cluster").get(&self.cluster).await?;
        let conditions = cluster.data.pointer("/status/conditions").and_then(Value::as_array);
        let found = conditions.into_iter().flatten().find(|condition| condition["type"] == type_);
        Ok(found.cloned().unwrap_or_default())
    }

    /// The control plane.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn control_plane(&self) -> Result<DynamicObject> {
        Ok(self.api("KubeadmControlPlane").get(&self.control_plane).await?)
    }

    /// The etcd endpoints in the control plane's spec.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn control_plane_endpoints(&self) -> Result<Vec<String>> {
        let control_plane = self.control_plane().await?;
        let path = "/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external/endpoints";
        let endpoints = control_plane.data.pointer(path).and_then(Value::as_array).context("no endpoints")?;
        Ok(endpoints.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Whether the control plane carries the pause annotation.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn control_plane_is_paused(&self) -> Result<bool> {
        Ok(self.control_plane().await?.annotations().contains_key(api::names::PAUSED_ANNOTATION))
    }

    /// Names of the control plane's Machines, sorted.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn control_plane_machines(&self) -> Result<Vec<String>> {
        let selector = format!("cluster.x-k8s.io/control-plane,cluster.x-k8s.io/cluster-name={}", self.cluster);
        self.names("Machine", &selector).await
    }

    /// The endpoints and certificates that are published for API servers, from where a control plane reads them.
    ///
    /// # Errors
    /// When a part of it is missing.
    pub async fn etcd_access(&self) -> Result<EtcdAccess> {
        let client = api::names::apiserver_client_secret(&self.cluster);
        self.access(self.control_plane_endpoints().await?, &client).await
    }

    /// The endpoints and certificates that a control plane would get: for clusters without one.
    ///
    /// # Errors
    /// When a part of it is missing.
    pub async fn staged_etcd_access(&self) -> Result<EtcdAccess> {
        let endpoints = self.status().await?.endpoints.split(',').map(str::to_owned).collect();
        self.access(endpoints, &api::names::staged_apiserver_client_secret(&self.cluster)).await
    }

    /// These endpoints, with the CA and the client certificate. `client` is the Secret with the client certificate.
    pub(in crate::bed) async fn access(&self, endpoints: Vec<String>, client: &str) -> Result<EtcdAccess> {
        Ok(EtcdAccess {
            endpoints,
            ca: self.secret(&api::names::control_plane_ca_secret(&self.cluster), "tls.crt").await?,
            certificate: self.secret(client, "tls.crt").await?,
            key: self.secret(client, "tls.key").await?,
        })
    }

    /// Waits for the bootstrap data of the first control-plane Machine, and returns it with every base64 block decoded
    /// at the end.
    ///
    /// # Errors
    /// When it does not come in time.
    pub async fn until_control_plane_data(&self, timeout: Duration) -> Result<String> {
        until(format!("control plane {} has a Machine with data", self.control_plane), timeout, async || {
            let Some(name) = self.control_plane_machines().await?.into_iter().next() else {
                let etcd = self.cluster_condition("ManagedExternalEtcdReady").await?;
                bail!("no Machine; paused: {}; the Cluster says {etcd}", self.control_plane_is_paused().await?)
            };
            let machine = self.api("Machine").get(&name).await?;
            let Some(secret) = machine.data.pointer("/spec/bootstrap/dataSecretName").and_then(Value::as_str) else {
                bail!("Machine {name} has no data yet")
            };
            let data = self.secret(secret, "value").await?;
            let decoded: Vec<String> = data
                .split_whitespace()
                .filter_map(|word| STANDARD.decode(word.trim_matches(['"', '\''])).ok())
                .filter_map(|bytes| String::from_utf8(bytes).ok())
                .collect();
            Ok(Some(format!("{data}\n{}", decoded.join("\n"))))
        })
        .await
    }
}
