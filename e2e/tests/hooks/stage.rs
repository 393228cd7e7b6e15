//! A namespace of a management plane, hooks that start and end, and the scenario as the etcd provider.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use controller_support::external::secret_text;
use e2e::apply::apply_object;
use e2e::plane::{Plane, PlaneOptions};
use e2e::until::until;
use e2e::world::World;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::ApiResource;
use kube::{Api, Config, ResourceExt};
use serde_json::{Value, json};

use crate::hook::Hook;

/// How long anything that takes a moment may take, even on a busy computer.
pub(crate) const SOON: Duration = Duration::from_secs(90);
/// The users of the API server that hooks run as.
pub(crate) const HOOKS: [&str; 2] = ["hook-0", "hook-1"];
pub(crate) const PLACEHOLDER: &str = "https://placeholder.invalid:2379";

/// How long it may take to remove what a scenario has left.
const CLEAR: Duration = Duration::from_secs(90);

const PAUSED: &str = "cluster.x-k8s.io/paused";

pub(crate) struct Stage {
    // The first field, so that hooks end first and do not lose the API server.
    hooks: [Option<Hook>; 2],
    pub(crate) plane: Plane,
    /// The world, with the logs of this scenario.
    pub(crate) world: World,
    /// The namespace of everything that the scenario makes.
    pub(crate) namespace: String,
}

/// Starts a plane that has the kind OtherEtcd.
pub(crate) async fn start_plane(world: &World) -> Result<Plane> {
    let crds = local_infrastructure::crd::all().into_iter().chain(api::crds::all());
    let mut crds: Vec<Value> = crds.map(serde_json::to_value).collect::<Result<_, _>>()?;
    crds.push(crd("OtherEtcd"));
    let users = HOOKS.map(str::to_owned).to_vec();
    Plane::start(world, PlaneOptions { crds, users, ..PlaneOptions::default() }).await
}

impl Stage {
    /// The stage of one scenario: a namespace of its own on a plane, and one hook.
    pub(crate) async fn on(plane: Plane, world: World, scenario: &str) -> Result<Self> {
        let namespace = scenario.replace('_', "-");
        let document = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        apply_object(&plane.client(), &document).await?;
        let mut stage = Self { hooks: [None, None], plane, world, namespace };
        stage.start_hook(0).await?;
        Ok(stage)
    }

    /// Removes what the scenario has left, except CRDs.
    pub(crate) async fn clear(&mut self) -> Result<()> {
        // The deletion of a Cluster waits for a hook.
        if self.hooks[0].is_none() {
            self.start_hook(0).await?;
        }
        for cluster in self.api("Cluster").list(&ListParams::default()).await?.items {
            self.delete("Cluster", &cluster.name_any()).await?;
        }
        until(format!("Clusters and Machines of {} are gone", self.namespace), CLEAR, async || {
            let mut left = Vec::new();
            for kind in ["Cluster", "Machine"] {
                let list = self.api(kind).list(&ListParams::default()).await?;
                left.extend(list.items.iter().map(|object| format!("{kind} {}", object.name_any())));
            }
            ensure!(left.is_empty(), "left are {}", left.join(", "));
            Ok(Some(()))
        })
        .await?;
        // No controller has to handle the other objects, so this does not wait: a namespace's content is deleted only
        // after 5 s.
        let namespaces: Api<Namespace> = Api::all(self.plane.client());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Kills the hooks, and returns the plane.
    pub(crate) fn end(self) -> Plane {
        self.plane
    }

    pub(crate) async fn start_hook(&mut self, index: usize) -> Result<()> {
        let config = self.config_of(HOOKS[index]).await?;
        self.start_hook_with(index, config)
    }

    /// Starts a hook that runs as the user of the configuration.
    pub(crate) fn start_hook_with(&mut self, index: usize, config: Config) -> Result<()> {
        self.hooks[index] = Some(Hook::start(config)?);
        Ok(())
    }

    /// The client configuration of a user of the plane.
    pub(crate) async fn config_of(&self, user: &str) -> Result<Config> {
        let kubeconfig = Kubeconfig::read_from(self.plane.kubeconfig_for(user)?)?;
        Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
    }

    /// Kills a hook at any point, between any two requests.
    pub(crate) fn kill_hook(&mut self, index: usize) {
        self.hooks[index] = None;
    }

    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Cluster" | "Machine" => ("cluster.x-k8s.io", "v1beta2"),
            "KubeadmControlPlane" => ("controlplane.cluster.x-k8s.io", "v1beta2"),
            "LocalCluster" | "LocalMachineTemplate" => ("infrastructure.cluster.x-k8s.io", "v1alpha1"),
            "EtcdCluster" => ("etcdcluster.cluster.x-k8s.io", "v1beta1"),
            "Secret" => ("", "v1"),
            _ => ("example.org", "v1"),
        };
        let resource = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.plane.client(), &self.namespace, &resource)
    }

    /// Applies a Cluster with everything except etcd. Its infrastructure is provisioned. `change` may change the
    /// documents.
    pub(crate) async fn apply_cluster(&self, name: &str, change: impl Fn(&mut Value)) -> Result<()> {
        for mut document in documents(name) {
            change(&mut document);
            self.apply(document).await?;
        }
        let body = json!({"status": {"ready": true, "initialization": {"provisioned": true}}});
        self.api("LocalCluster").patch_status(name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        Ok(())
    }

    pub(crate) async fn apply_etcd(&self, cluster: &str) -> Result<()> {
        self.apply(json!({"apiVersion": "example.org/v1", "kind": "OtherEtcd",
            "metadata": {"name": format!("{cluster}-etcd")}, "spec": {}}))
            .await
    }

    /// Applies an object of a namespaced kind.
    pub(crate) async fn apply(&self, mut document: Value) -> Result<()> {
        document["metadata"]["namespace"] = json!(self.namespace);
        apply_object(&self.plane.client(), &document).await?;
        Ok(())
    }

    /// Reports a status as the provider. Its condition says `message` while it is not ready.
    pub(crate) async fn report(&self, cluster: &str, ready: bool, endpoints: &str, message: &str) -> Result<()> {
        let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "ScalingUp", "message": message});
        let body = json!({"status": {"ready": ready, "endpoints": endpoints, "conditions": [condition]}});
        self.api("OtherEtcd")
            .patch_status(&format!("{cluster}-etcd"), &PatchParams::default(), &Patch::Merge(&body))
            .await?;
        Ok(())
    }

    /// Makes a Secret as the provider. Only with the label does the hook watch it.
    pub(crate) async fn make_secret(&self, cluster: &str, suffix: &str, labelled: bool, content: &str) -> Result<()> {
        let mut labels = json!({"cluster.x-k8s.io/cluster-name": cluster});
        if labelled {
            labels["cluster.x-k8s.io/etcd-cluster"] = json!(format!("{cluster}-etcd"));
        }
        let mut data = json!({"tls.crt": content});
        if suffix != "etcd" {
            data["tls.key"] = json!(content);
        }
        let name = format!("{cluster}-{suffix}");
        self.apply(json!({"apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"name": name, "labels": labels}}))
            .await
    }

    /// Waits until the condition reads `status reason message`, beginning with `wanted`.
    pub(crate) async fn until_says(&self, cluster: &str, wanted: &str) -> Result<()> {
        self.until_tells("Cluster", cluster, "ManagedExternalEtcdReady", wanted).await
    }

    /// The same for any condition of any object.
    pub(crate) async fn until_tells(&self, kind: &str, name: &str, type_: &str, wanted: &str) -> Result<()> {
        until(format!("{type_} of {kind} {name} says {wanted:?}"), SOON, async || {
            let says = self.tells(kind, name, type_).await?.context("there is no condition")?;
            ensure!(says.starts_with(wanted), "it says {says:?}");
            Ok(Some(()))
        })
        .await
    }

    pub(crate) async fn says(&self, cluster: &str) -> Result<Option<String>> {
        self.tells("Cluster", cluster, "ManagedExternalEtcdReady").await
    }

    pub(crate) async fn tells(&self, kind: &str, name: &str, type_: &str) -> Result<Option<String>> {
        let object = self.api(kind).get(name).await?;
        let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array).cloned();
        let text = |condition: &Value, key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        Ok(conditions
            .unwrap_or_default()
            .iter()
            .find(|condition| condition["type"] == type_)
            .map(|c| format!("{} {} {}", text(c, "status"), text(c, "reason"), text(c, "message"))))
    }

    /// Waits until exactly these lists of endpoints are recorded on the etcd object as in use.
    pub(crate) async fn until_in_use(&self, cluster: &str, lists: &[&[&str]]) -> Result<()> {
        let wanted = lists.iter().map(|list| list.join(",")).collect::<Vec<_>>().join(";");
        until(format!("{cluster}-etcd has {wanted} in use"), SOON, async || {
            let told = self.in_use(cluster).await?;
            ensure!(told.as_deref() == Some(wanted.as_str()), "it has {told:?}");
            Ok(Some(()))
        })
        .await
    }

    pub(crate) async fn in_use(&self, cluster: &str) -> Result<Option<String>> {
        let etcd = self.api("OtherEtcd").get(&format!("{cluster}-etcd")).await?;
        Ok(etcd.annotations().get("etcdcluster.cluster.x-k8s.io/endpoints-in-use").cloned())
    }

    /// Does everything that a provider has to do: an etcd object, its Secrets, and a status that says Ready.
    pub(crate) async fn provide_etcd(&self, cluster: &str, endpoints: &str) -> Result<()> {
        self.apply_etcd(cluster).await?;
        self.make_secret(cluster, "etcd", true, "ca").await?;
        self.make_secret(cluster, "managed-etcd-apiserver-client", true, "client").await?;
        self.report(cluster, true, endpoints, "").await
    }

    /// A merge patch of the status, as its controller makes it.
    pub(crate) async fn set_status(&self, kind: &str, name: &str, status: Value) -> Result<()> {
        let body = json!({"status": status});
        self.api(kind).patch_status(name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        Ok(())
    }

    /// A merge patch of anything except the status.
    pub(crate) async fn change(&self, kind: &str, name: &str, body: Value) -> Result<()> {
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        Ok(())
    }

    pub(crate) async fn control_plane(&self, cluster: &str) -> Result<ControlPlane> {
        Ok(ControlPlane::of(&self.api("KubeadmControlPlane").get(&format!("{cluster}-cp")).await?))
    }

    pub(crate) async fn until_control_plane(&self, cluster: &str, paused: bool, endpoints: &[&str]) -> Result<()> {
        until(format!("{cluster}-cp has paused={paused} and {endpoints:?}"), SOON, async || {
            let seen = self.control_plane(cluster).await?;
            ensure!(seen.paused == paused && seen.endpoints == endpoints, "it is {seen:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Pauses the control plane as a person does, or lifts the pause.
    pub(crate) async fn pause(&self, cluster: &str, value: Option<&str>) -> Result<()> {
        let body = json!({"metadata": {"annotations": {PAUSED: value}}});
        let name = format!("{cluster}-cp");
        self.api("KubeadmControlPlane").patch(&name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        Ok(())
    }

    pub(crate) async fn control_plane_machines(&self, cluster: &str) -> Result<usize> {
        let selector = format!("cluster.x-k8s.io/cluster-name={cluster},cluster.x-k8s.io/control-plane");
        Ok(self.api("Machine").list(&ListParams::default().labels(&selector)).await?.items.len())
    }

    pub(crate) async fn secret(&self, name: &str, key: &str) -> Result<Option<String>> {
        Ok(self.api("Secret").get_opt(name).await?.and_then(|secret| secret_text(&secret, key)))
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.api(kind).delete(name, &DeleteParams::background()).await?;
        Ok(())
    }

    pub(crate) async fn until_gone(&self, cluster: &str) -> Result<()> {
        let etcd = format!("{cluster}-etcd");
        until(format!("Cluster {cluster} and {etcd} are gone"), Duration::from_secs(90), async || {
            for (kind, name) in [("Cluster", cluster), ("OtherEtcd", &etcd)] {
                let left = self.api(kind).get_opt(name).await?;
                ensure!(left.is_none(), "{kind}: {}", left.map(|left| left.data.to_string()).unwrap_or_default());
            }
            Ok(Some(()))
        })
        .await
    }
}

#[derive(Debug)]
pub(crate) struct ControlPlane {
    pub(crate) paused: bool,
    pub(crate) endpoints: Vec<String>,
}

impl ControlPlane {
    pub(crate) fn of(object: &DynamicObject) -> Self {
        let endpoints = object.data.pointer("/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external/endpoints");
        let endpoints = serde_json::from_value(endpoints.cloned().unwrap_or_default()).unwrap_or_default();
        Self { paused: object.annotations().contains_key(PAUSED), endpoints }
    }
}

/// Changes the documents of a Cluster so that its API servers have no endpoint.
pub(crate) fn without_endpoint(document: &mut Value) {
    if document["kind"] == "Cluster"
        && let Some(spec) = document["spec"].as_object_mut()
    {
        spec.remove("controlPlaneEndpoint");
    }
}

/// The CRD of an etcd provider.
pub(crate) fn crd(kind: &str) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{singular}s.example.org"),
            "labels": {"etcdcluster.cluster.x-k8s.io/provider-contract-v1": "v1"},
        },
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"kind": kind, "plural": format!("{singular}s"), "singular": singular},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
            }],
        },
    })
}

fn documents(name: &str) -> [Value; 4] {
    let metadata = |name: &str| json!({"name": name});
    let cp = format!("{name}-cp");
    let infrastructure =
        |kind: &str, name: &str| json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name});
    let mut cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata(name),
        "spec": {
            "controlPlaneEndpoint": {"host": "10.99.0.1", "port": 6443},
            "infrastructureRef": infrastructure("LocalCluster", name),
            "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": cp},
        },
    });
    cluster["metadata"]["annotations"] =
        json!({"etcdcluster.cluster.x-k8s.io/managed-external-etcd": format!("OtherEtcd.example.org/{name}-etcd")});
    let external = json!({
        "endpoints": [PLACEHOLDER],
        "caFile": "/etc/kubernetes/pki/etcd/ca.crt",
        "certFile": "/etc/kubernetes/pki/apiserver-etcd-client.crt",
        "keyFile": "/etc/kubernetes/pki/apiserver-etcd-client.key",
    });
    let template = infrastructure("LocalMachineTemplate", &cp);
    [
        cluster,
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "LocalCluster",
            "metadata": metadata(name), "spec": {}}),
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "LocalMachineTemplate",
            "metadata": metadata(&cp), "spec": {"template": {"spec": {}}}}),
        json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
        "metadata": metadata(&cp),
        "spec": {
            "replicas": 1, "version": "v1.36.3",
            "machineTemplate": {"spec": {"infrastructureRef": template}},
            "kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": external}}},
        }}),
    ]
}
