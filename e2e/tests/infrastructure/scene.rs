//! A management plane with the local infrastructure and one Cluster.

use anyhow::{Context, Result, bail, ensure};
use e2e::apply::{api_for, apply_object};
use e2e::plane::{LastingPlane, PlaneOptions, users};
use e2e::process::{Command, Process};
use e2e::until::until;
use e2e::world::{ADDRESS, BRIDGE, PREFIX_LENGTH, World};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use local_infrastructure::image::{Parts, assemble, default_cache};
use local_infrastructure::machine::Machines;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// How long anything that takes a moment may take.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Scene {
    pub(crate) provider: Process,
    pub(crate) plane: LastingPlane,
    pub(crate) machines: Machines,
}

impl Scene {
    /// Starts everything, with a Cluster `demo` whose infrastructure is provisioned.
    pub(crate) async fn start(world: &World) -> Result<Self> {
        let image = world.state("image")?;
        assemble(&image, &Parts { etcdadm: None, etcd_releases: None, cache: default_cache() })?;
        let crds = local_infrastructure::crd::all().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        let plane = LastingPlane::start(world, PlaneOptions { crds, ..PlaneOptions::default() }).await?;
        let state = world.state("machines")?;
        let provider = Command::new("local-infrastructure", program()?, world.logs())
            .args(["run", "--bridge", BRIDGE, "--subnet", &subnet()])
            .arg("--kubeconfig")
            .arg(plane.kubeconfig_for(users::LOCAL_INFRASTRUCTURE)?)
            .arg("--state-dir")
            .arg(&state)
            .arg("--image-dir")
            .arg(&image)
            .spawn()?;
        let scene = Self { provider, plane, machines: Machines::open(state) };
        scene
            .apply(json!({"apiVersion": LOCAL, "kind": "LocalCluster", "metadata": {"name": "demo"}, "spec": {}}))
            .await?;
        scene
            .apply(json!({
                "apiVersion": CLUSTER, "kind": "Cluster", "metadata": {"name": "demo"},
                "spec": {"infrastructureRef": reference("LocalCluster", "demo")},
            }))
            .await?;
        until("the Cluster has infrastructure", SOON, async || {
            let cluster = scene.get("Cluster", "demo").await?;
            let host = cluster.data.pointer("/spec/controlPlaneEndpoint/host").cloned();
            let done = cluster.data.pointer("/status/initialization/infrastructureProvisioned") == Some(&json!(true));
            Ok((done && host.is_some()).then_some(()))
        })
        .await?;
        Ok(scene)
    }

    pub(crate) async fn apply(&self, mut object: Value) -> Result<DynamicObject> {
        object["metadata"]["namespace"] = json!("default");
        apply_object(&self.plane.client(), &object).await
    }

    pub(crate) async fn api(&self, kind: &str) -> Result<Api<DynamicObject>> {
        let version = if kind.starts_with("Local") { LOCAL } else { CLUSTER };
        Ok(api_for(&self.plane.client(), &json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}))
            .await?
            .0)
    }

    pub(crate) async fn get(&self, kind: &str, name: &str) -> Result<DynamicObject> {
        Ok(self.api(kind).await?.get(name).await?)
    }

    pub(crate) async fn change(&self, kind: &str, name: &str, change: Value) -> Result<()> {
        self.api(kind).await?.patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.api(kind).await?.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub(crate) async fn until_gone(&self, kind: &str, name: &str) -> Result<()> {
        let api = self.api(kind).await?;
        until(format!("{kind} {name} is gone"), SOON, async || Ok(api.get_opt(name).await?.is_none().then_some(())))
            .await
    }

    /// Makes a Machine with its LocalMachine. Without `data`, it has no bootstrap data yet.
    pub(crate) async fn machine(&self, name: &str, data: Option<&str>) -> Result<()> {
        self.apply(json!({
            "apiVersion": LOCAL, "kind": "LocalMachine",
            "metadata": {"name": name, "labels": {"cluster.x-k8s.io/cluster-name": "demo"}}, "spec": {},
        }))
        .await?;
        if let Some(data) = data {
            self.secret(name, data).await?;
        }
        let secret = data.map(|_| name);
        // Cluster API refuses a Machine with neither bootstrap data nor a config that provides it. Nothing provides
        // data for this config.
        let bootstrap = match secret {
            Some(secret) => json!({"dataSecretName": secret}),
            None => json!({"configRef": {
                "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": name,
            }}),
        };
        self.apply(json!({
            "apiVersion": CLUSTER, "kind": "Machine", "metadata": {"name": name},
            "spec": {
                "clusterName": "demo", "bootstrap": bootstrap,
                "infrastructureRef": reference("LocalMachine", name),
            },
        }))
        .await?;
        Ok(())
    }

    pub(crate) async fn secret(&self, name: &str, data: &str) -> Result<()> {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "type": "cluster.x-k8s.io/secret", "stringData": {"value": data, "format": "cloud-config"},
        }))
        .await?;
        Ok(())
    }

    /// Waits until a condition of a LocalMachine has this reason, and returns its message.
    pub(crate) async fn until_reason(&self, name: &str, type_: &str, reason: &str) -> Result<String> {
        let api = self.api("LocalMachine").await?;
        until(format!("{type_} of LocalMachine {name} says {reason}"), SOON, async || {
            let machine = api.get(name).await?;
            let conditions = machine.data.pointer("/status/conditions").and_then(Value::as_array).cloned();
            let condition =
                conditions.into_iter().flatten().find(|c| c["type"] == type_).context("no such condition")?;
            if condition["reason"] != reason {
                bail!("{condition}");
            }
            Ok(Some(condition["message"].as_str().unwrap_or_default().to_owned()))
        })
        .await
    }

    /// Waits until Cluster API reports a Machine as provisioned, and returns its first internal address.
    pub(crate) async fn until_provisioned(&self, name: &str) -> Result<String> {
        until(format!("Machine {name} is provisioned"), SOON, async || {
            let machine = self.get("Machine", name).await?;
            ensure!(machine.data.pointer("/status/phase") == Some(&json!("Provisioned")), "{}", machine.data["status"]);
            let addresses = machine.data.pointer("/status/addresses").and_then(Value::as_array).cloned();
            let address = addresses.into_iter().flatten().find(|a| a["type"] == "InternalIP").context("no address")?;
            Ok(Some(address["address"].as_str().context("no text")?.to_owned()))
        })
        .await
    }
}

pub(crate) const LOCAL: &str = "infrastructure.cluster.x-k8s.io/v1alpha1";
pub(crate) const CLUSTER: &str = "cluster.x-k8s.io/v1beta2";

pub(crate) fn reference(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name})
}

/// The network of the world's bridge.
fn subnet() -> String {
    let network = ADDRESS.rsplit_once('.').map_or(ADDRESS, |(network, _)| network);
    format!("{network}.0/{PREFIX_LENGTH}")
}

/// The program `local-infrastructure`, which is in the directory above the tests.
fn program() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let program = this.parent().and_then(|deps| deps.parent()).context("no directory")?.join("local-infrastructure");
    ensure!(program.exists(), "{} is not built: run `cargo build --workspace --bins`", program.display());
    Ok(program)
}
