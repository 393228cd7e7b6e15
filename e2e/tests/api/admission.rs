//! The admission policies of `config/admission`, in both directions.

use crate::etcd_cases::cluster;
use crate::served::accepted;
use crate::server::Server;
use anyhow::{Context, Result, ensure};
use e2e::apply::{apply, apply_object};
use e2e::until::until;
use http::Request;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::time::Duration;

const ENDPOINTS: &str = include_str!("../../../config/admission/etcd-endpoints.yaml");
const DELETION: &str = include_str!("../../../config/admission/etcdcluster-deletion.yaml");
const PLACEHOLDER: &str = "https://placeholder.invalid:2379";
const ONE: &str = "https://10.0.0.1:2379";
const TWO: &str = "https://10.0.0.2:2379";
/// A policy takes effect a moment after it is written.
const SOON: Duration = Duration::from_secs(20);
/// The users of the garbage collector: with --use-service-account-credentials of kube-controller-manager, and without.
const GARBAGE_COLLECTORS: [&str; 2] =
    ["system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"];

/// A KubeadmControlPlane without Cluster API's schema and webhooks, which do not matter here.
fn control_planes() -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1beta2",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any}}}})
    };
    let names =
        json!({"kind": "KubeadmControlPlane", "plural": "kubeadmcontrolplanes", "singular": "kubeadmcontrolplane"});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io"},
        "spec": {"group": "controlplane.cluster.x-k8s.io", "scope": "Namespaced", "names": names,
            "versions": [version("v1beta1"), version("v1beta2")]}})
}

fn external(external: &Value) -> Value {
    json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": external}}}}})
}

fn endpoints(endpoints: &[&str]) -> Value {
    external(&json!({"endpoints": endpoints}))
}

struct ControlPlane(Api<DynamicObject>);

impl ControlPlane {
    async fn patch(&self, body: &Value) -> Result<DynamicObject> {
        Ok(self.0.patch("kept", &PatchParams::default(), &Patch::Merge(body)).await?)
    }

    /// Sets one list after another, and returns the list in the end.
    async fn after(&self, first: &[&str], then: &Value) -> Result<Value> {
        self.patch(&endpoints(first)).await?;
        let object = self.patch(then).await?;
        Ok(object.data["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"].clone())
    }
}

pub(crate) async fn real_endpoints_are_kept_against_the_placeholder(server: &Server) -> Result<()> {
    apply_object(&server.client, &control_planes()).await?;
    apply(&server.client, ENDPOINTS).await?;
    for version in ["v1beta1", "v1beta2"] {
        let gvk = GroupVersionKind::gvk("controlplane.cluster.x-k8s.io", version, "KubeadmControlPlane");
        let resource = ApiResource::from_gvk(&gvk);
        let api = Api::namespaced_with(server.client.clone(), "default", &resource);
        let mut manifest = endpoints(&[PLACEHOLDER]);
        manifest["apiVersion"] = json!(gvk.api_version());
        manifest["kind"] = json!(gvk.kind);
        manifest["metadata"] = json!({"name": "kept", "namespace": "default"});
        let created = until("the kind is served", SOON, async || {
            Ok(Some(api.create(&Default::default(), &serde_json::from_value(manifest.clone())?).await?))
        })
        .await?;
        let control_plane = ControlPlane(api);
        let etcd = &created.data["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"];
        ensure!(etcd["external"]["endpoints"] == json!([PLACEHOLDER]), "created with the placeholder: {etcd}");
        until("the policy is in force", SOON, async || {
            let kept = control_plane.after(&[ONE], &endpoints(&[PLACEHOLDER])).await?;
            ensure!(kept["external"]["endpoints"] == json!([ONE]), "{kept}");
            Ok(Some(()))
        })
        .await?;

        let before = control_plane.patch(&json!({})).await?.metadata;
        for _ in 0..200 {
            control_plane.patch(&endpoints(&[PLACEHOLDER])).await?;
        }
        let after = control_plane.patch(&json!({})).await?.metadata;
        ensure!(after.generation == before.generation, "{:?} {:?}", before.generation, after.generation);
        ensure!(after.resource_version == before.resource_version, "it is written all the same");

        // Everything else passes.
        for then in [&[TWO][..], &[ONE, TWO], &[PLACEHOLDER, ONE]] {
            let now = control_plane.after(&[ONE], &endpoints(then)).await?;
            ensure!(now["external"]["endpoints"] == json!(then), "{now}");
        }
        let null = json!({"endpoints": null});
        for without in [null, json!({"endpoints": null, "caFile": "/ca"}), json!({"endpoints": []})] {
            let now = control_plane.after(&[ONE], &external(&without)).await?;
            ensure!(now["external"]["endpoints"] == json!([ONE]), "a manifest without them takes them away: {now}");
        }
        let mut scaled = endpoints(&[PLACEHOLDER]);
        scaled["spec"]["replicas"] = json!(5);
        let now = control_plane.after(&[ONE], &scaled).await?;
        ensure!(now["external"]["endpoints"] == json!([ONE]), "{now}");
        ensure!(control_plane.patch(&json!({})).await?.data["spec"]["replicas"] == 5, "what else is changed is lost");
        let now = control_plane.after(&[ONE], &external(&Value::Null)).await?;
        ensure!(now["external"].is_null(), "{now}");
        control_plane.0.delete("kept", &Default::default()).await?;
    }
    Ok(())
}

pub(crate) async fn a_begun_etcd_is_not_deleted_without_a_word(server: &Server) -> Result<()> {
    apply(&server.client, DELETION).await?;
    let mut etcd = cluster("begun", &json!({"replicas": 3}));
    etcd["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "demo"});
    let confirm =
        |name: Value| json!({"metadata": {"annotations": {"etcdcluster.cluster.x-k8s.io/confirm-deletion": name}}});
    let begun = json!({"status": {"initialized": true}});
    // One that has not begun has no data to lose.
    accepted(server.create(&etcd).await?)?;
    accepted(delete(&server.client, "begun", None).await?)?;

    accepted(server.create(&etcd).await?)?;
    let held = json!({"metadata": {"finalizers": ["example.org/hold"]}});
    accepted(server.patch(&etcd, "", &held).await?)?;
    accepted(server.patch(&etcd, "/status", &begun).await?)?;
    let dry = "begun?dryRun=All";
    let refusal = until("the policy is in force", SOON, async || {
        Ok(Some(delete(&server.client, dry, None).await?.err().context("it is deleted")?))
    })
    .await?;
    let wanted = [
        "EtcdCluster begun with 0 members",
        "the data of Cluster demo",
        "delete the Cluster demo",
        "kubectl -n default annotate",
        "etcdcluster.cluster.x-k8s.io/confirm-deletion=begun",
    ];
    for part in wanted {
        ensure!(refusal.contains(part), "{part:?} is not in {refusal}");
    }
    ensure!(delete(&server.client, "", None).await?.is_err(), "all at once");
    accepted(server.patch(&etcd, "", &confirm(json!("another"))).await?)?;
    ensure!(delete(&server.client, dry, None).await?.is_err(), "the name is another's");
    for collector in GARBAGE_COLLECTORS {
        accepted(delete(&server.client, dry, Some(collector)).await?)?;
    }
    accepted(server.patch(&etcd, "", &confirm(json!("begun"))).await?)?;
    accepted(delete(&server.client, "begun", None).await?)?;
    // An object that is being deleted may be deleted again.
    accepted(server.patch(&etcd, "", &confirm(Value::Null)).await?)?;
    accepted(delete(&server.client, "begun", None).await?)?;
    accepted(server.patch(&etcd, "", &json!({"metadata": {"finalizers": null}})).await?)?;

    // After a move, only the annotation shows that etcd has begun.
    let mut moved = cluster("moved", &json!({"replicas": 3}));
    moved["metadata"]["annotations"] = json!({"etcdcluster.cluster.x-k8s.io/cluster-id": "1c0ffee"});
    accepted(server.create(&moved).await?)?;
    ensure!(delete(&server.client, "moved", None).await?.is_err(), "it has begun elsewhere");
    accepted(server.patch(&moved, "", &confirm(json!("moved"))).await?)?;
    accepted(delete(&server.client, "moved", None).await?)?;

    // When clusterctl has created the object at the target, it deletes the one at the source, marked and paused.
    // Neither of the two alone is enough.
    let taken = cluster("taken", &json!({"replicas": 3}));
    accepted(server.create(&taken).await?)?;
    let paused = |status: &str, reason: &str| {
        let since = "2026-01-01T00:00:00Z";
        let condition =
            json!({"type": "Paused", "status": status, "reason": reason, "message": "", "lastTransitionTime": since});
        json!({"status": {"initialized": true, "conditions": [condition]}})
    };
    let mark = json!({"metadata": {"annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}}});
    accepted(server.patch(&taken, "/status", &paused("True", "Paused")).await?)?;
    ensure!(delete(&server.client, "taken", None).await?.is_err(), "it is paused, and not moved");
    accepted(server.patch(&taken, "", &mark).await?)?;
    for (status, reason) in [("False", "NotPaused"), ("True", "MovedAway")] {
        accepted(server.patch(&taken, "/status", &paused(status, reason)).await?)?;
        ensure!(delete(&server.client, "taken", None).await?.is_err(), "it is marked, and not paused: {reason}");
    }
    accepted(server.patch(&taken, "/status", &paused("True", "Paused")).await?)?;
    accepted(delete(&server.client, "taken", None).await?)?;

    // The object was replaced while it was paused, so only the status shows that etcd has begun.
    let replaced = cluster("replaced", &json!({"replicas": 3}));
    accepted(server.create(&replaced).await?)?;
    accepted(server.patch(&replaced, "/status", &json!({"status": {"clusterID": "1c0ffee"}})).await?)?;
    ensure!(delete(&server.client, "replaced", None).await?.is_err(), "its cluster ID is in the status");
    accepted(server.patch(&replaced, "", &confirm(json!("replaced"))).await?)?;
    accepted(delete(&server.client, "replaced", None).await?)?;
    Ok(())
}

/// Deletes an EtcdCluster, or all of them if `name` is empty, as a person or as `user`.
async fn delete(client: &Client, name: &str, user: Option<&str>) -> Result<Result<Value, String>> {
    let uri = format!("/apis/etcdcluster.cluster.x-k8s.io/v1beta1/namespaces/default/etcdclusters/{name}");
    let mut request = Request::delete(uri.trim_end_matches('/'));
    if let Some(user) = user {
        request = request.header("Impersonate-User", user).header("Impersonate-Group", "system:masters");
    }
    match client.request(request.body(Vec::new())?).await {
        Ok(answer) => Ok(Ok(answer)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Err(status.message)),
        Err(error) => Err(error.into()),
    }
}
