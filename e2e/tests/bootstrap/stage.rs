//! A plane without Cluster API's managers, the controller in this process, and the objects that others would create.

use anyhow::{Context, Result, ensure};
use api::etcdadm_config::EtcdadmConfig;
use controller_support::{Shared, Shutdown};
use e2e::apply::{api_for, apply_object};
use e2e::plane::{LastingPlane, PlaneOptions, users};
use e2e::until::until;
use e2e::world::World;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Long compared to what is waited for, even on a busy computer.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// Another user that runs the same controller.
pub(crate) const SECOND: &str = "second-provider";

pub(crate) struct Stage {
    pub(crate) plane: LastingPlane,
    pub(crate) client: Client,
    running: Vec<(watch::Sender<bool>, JoinHandle<()>)>,
}

impl Stage {
    /// A plane with Cluster `demo`, whose infrastructure is provisioned, and EtcdCluster `demo-etcd`.
    pub(crate) async fn new(world: &World) -> Result<Self> {
        let mut crds = cluster_api_crds(world)?;
        for crd in api::crds::all() {
            crds.push(serde_json::to_value(crd)?);
        }
        let options =
            PlaneOptions { cluster_api: false, crds, users: vec![SECOND.to_owned()], ..PlaneOptions::default() };
        let plane = LastingPlane::start(world, options).await?;
        let stage = Self { client: plane.client(), plane, running: Vec::new() };
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "demo"},
            "spec": {"clusterNetwork": {"services": {"cidrBlocks": ["10.128.0.0/12"]}}}
        });
        stage.apply(&cluster).await?;
        stage.status(&cluster, &json!({"initialization": {"infrastructureProvisioned": true}})).await?;
        stage.apply(&etcd_cluster()).await?;
        Ok(stage)
    }

    /// Runs the controller as `user`.
    pub(crate) async fn run_as(&mut self, user: &str) -> Result<()> {
        self.run_with(self.plane.client_for(user).await?);
        Ok(())
    }

    /// Runs the controller with this client of the API server.
    pub(crate) fn run_with(&mut self, client: Client) {
        let (stop, shutdown) = Shutdown::new();
        let shared = Shared::new(client, shutdown);
        let task = tokio::spawn(async move {
            if let Err(error) = etcdadm_bootstrap::run(shared).await {
                eprintln!("the controller has ended: {error}");
            }
        });
        self.running.push((stop, task));
    }

    /// Runs the controller.
    pub(crate) async fn run(&mut self) -> Result<()> {
        self.run_as(users::PROVIDER).await
    }

    pub(crate) async fn stop(self) -> Result<()> {
        for (stop, task) in self.running {
            stop.send(true).ok();
            tokio::time::timeout(SOON, task).await.context("the controller does not stop")??;
        }
        self.plane.stop().await
    }

    pub(crate) async fn apply(&self, object: &Value) -> Result<DynamicObject> {
        apply_object(&self.client, object).await
    }

    /// Writes an object's status, as its controller would.
    pub(crate) async fn status(&self, object: &Value, status: &Value) -> Result<()> {
        let (api, name) = api_for(&self.client, object).await?;
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
        Ok(())
    }

    /// etcd's CA, as the etcd provider makes it.
    pub(crate) async fn certificates(&self) -> Result<()> {
        let (cert, key) = new_authority()?;
        self.secret("demo-managed-etcd", &json!({"tls.crt": cert, "tls.key": key})).await
    }

    /// Reports that etcd is initialized, as the etcd provider does.
    pub(crate) async fn initialized(&self, client_urls: &str) -> Result<()> {
        self.secret("demo-etcd-init", &json!({"address": "10.0.0.1", "clientUrls": client_urls})).await
    }

    pub(crate) async fn secret(&self, name: &str, values: &Value) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "labels": labels()}, "stringData": values
        });
        self.apply(&secret).await?;
        Ok(())
    }

    /// Creates a Machine of the EtcdCluster with its config, as the etcd provider and Cluster API do.
    pub(crate) async fn machine(&self, name: &str, spec: &Value) -> Result<()> {
        let etcd = self.apply(&etcd_cluster()).await?;
        let owner = json!({
            "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster", "name": "demo-etcd",
            "uid": etcd.uid(), "controller": true
        });
        self.machine_of(&[owner], name, spec).await
    }

    /// Creates a Machine with its config that does not belong to an EtcdCluster.
    pub(crate) async fn free_standing_machine(&self, name: &str) -> Result<()> {
        self.machine_of(&[], name, &json!({})).await
    }

    async fn machine_of(&self, owners: &[Value], name: &str, spec: &Value) -> Result<()> {
        let machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": name, "labels": labels(), "ownerReferences": owners},
            "spec": {
                "clusterName": "demo",
                "bootstrap": {"configRef": {
                    "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "EtcdadmConfig", "name": name
                }},
                "infrastructureRef": {
                    "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LocalMachine", "name": name
                }
            }
        });
        let machine = self.apply(&machine).await?;
        let config = json!({
            "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "EtcdadmConfig",
            "metadata": {"name": name, "labels": labels(), "ownerReferences": [{
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": machine.uid(),
                "controller": true
            }]},
            "spec": spec
        });
        self.apply(&config).await?;
        Ok(())
    }

    pub(crate) fn configs(&self) -> Api<EtcdadmConfig> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::default_namespaced(self.client.clone())
    }

    /// Waits until the status reports bootstrap data, and returns the data.
    pub(crate) async fn until_data(&self, name: &str) -> Result<String> {
        until(format!("{name} has bootstrap data"), SOON, async || {
            let status = self.configs().get(name).await?.status.unwrap_or_default();
            ensure!(status.ready, "{:?}", status.conditions);
            ensure!(status.data_secret_name.as_deref() == Some(name));
            ensure!(status.initialization.is_some_and(|initialization| initialization.data_secret_created));
            Ok(Some(()))
        })
        .await?;
        let secret = self.secrets().get(name).await?;
        let data = secret.data.unwrap_or_default();
        let value = data.get("value").context("the Secret has no key value")?;
        Ok(String::from_utf8(value.0.clone())?)
    }

    /// Waits until the status gives this reason for missing data, and returns the message.
    pub(crate) async fn until_reason(&self, name: &str, reason: &str) -> Result<String> {
        until(format!("{name} says {reason}"), SOON, async || {
            let status = self.configs().get(name).await?.status.unwrap_or_default();
            let condition = status.conditions.iter().find(|c| c.type_ == "DataSecretAvailable");
            let condition = condition.context("no condition")?;
            ensure!(!status.ready && condition.status == "False" && condition.reason == reason, "{condition:?}");
            Ok(Some(condition.message.clone()))
        })
        .await
    }
}

pub(crate) fn etcd_cluster() -> Value {
    json!({
        "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster", "metadata": {"name": "demo-etcd"},
        "spec": {"infrastructureTemplate": {
            "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LocalMachineTemplate", "name": "demo"
        }}
    })
}

/// Certificate and key of a CA, in PEM.
pub(crate) fn new_authority() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn labels() -> Value {
    json!({"cluster.x-k8s.io/cluster-name": "demo", "cluster.x-k8s.io/etcd-cluster": "demo-etcd"})
}

/// Cluster and Machine as Cluster API defines them, without the webhooks that its manager would serve.
fn cluster_api_crds(world: &World) -> Result<Vec<Value>> {
    let file = world.tools().cluster_api.manifests.join("core.json");
    let objects: Vec<Value> = serde_json::from_slice(&std::fs::read(file)?)?;
    let wanted = ["clusters.cluster.x-k8s.io", "machines.cluster.x-k8s.io"];
    let mut crds: Vec<Value> = objects
        .into_iter()
        .filter(|object| object["kind"] == "CustomResourceDefinition")
        .filter(|crd| wanted.iter().any(|name| crd["metadata"]["name"] == *name))
        .collect();
    for crd in &mut crds {
        crd["spec"]["conversion"] = json!({"strategy": "None"});
    }
    Ok(crds)
}
