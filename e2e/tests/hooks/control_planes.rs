//! Control planes of other kinds. Their CRDs say where the endpoints belong, and no code knows these kinds.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::apply::apply_object;
use e2e::plane::users::ADMIN;
use e2e::until::until;
use kube::Config;
use serde_json::{Value, json};

use crate::stage::{HOOKS, PLACEHOLDER, SOON, Stage, without_endpoint};

/// A CRD is read again after 10 to 60 s.
const LOOKED_AGAIN: Duration = Duration::from_secs(75);
/// A user that is not an administrator.
const LIMITED: &str = "limited";
const PATH: &str = "etcdcluster.cluster.x-k8s.io/external-etcd-path";

/// What a CRD says about its control planes.
#[derive(Default)]
pub(crate) struct Announces {
    pub(crate) path: Option<&'static str>,
    pub(crate) condition: Option<&'static str>,
}

/// The CRD of a control-plane provider that satisfies one of Cluster API's contracts.
pub(crate) fn control_plane_crd(kind: &str, contract: &str, announces: &Announces) -> Value {
    let mut crd = crate::stage::crd(kind);
    crd["metadata"]["labels"] = json!({format!("cluster.x-k8s.io/{contract}"): "v1"});
    let condition = ("etcdcluster.cluster.x-k8s.io/external-etcd-condition", announces.condition);
    for (annotation, value) in [(PATH, announces.path), condition] {
        if let Some(value) = value {
            crd["metadata"]["annotations"][annotation] = json!(value);
        }
    }
    crd
}

/// Changes the documents of a Cluster so that its control plane is of that kind.
pub(crate) fn with_control_plane(kind: &str) -> impl Fn(&mut Value) {
    move |document| match document["kind"].as_str() {
        Some("Cluster") => {
            document["spec"]["controlPlaneRef"]["apiGroup"] = json!("example.org");
            document["spec"]["controlPlaneRef"]["kind"] = json!(kind);
        }
        Some("KubeadmControlPlane") => {
            document["apiVersion"] = json!("example.org/v1");
            document["kind"] = json!(kind);
            document["spec"] = json!({"replicas": 3, "etcd": {"external": {"endpoints": [PLACEHOLDER]}}});
        }
        _ => {}
    }
}

pub(crate) async fn any_kind(stage: &mut Stage) -> Result<()> {
    plain(stage).await?;
    corrected(stage).await?;
    forbidden(stage).await
}

/// The CRD announces only a path. So the hook does not require what only kubeadm needs, and writes no condition.
async fn plain(stage: &mut Stage) -> Result<()> {
    let announces = Announces { path: Some("spec.etcd.external"), ..Announces::default() };
    stage.plane.apply_crds(&[control_plane_crd("PlainControlPlane", "v1beta2", &announces)]).await?;
    let mark = stage.plane.mark();
    let change = with_control_plane("PlainControlPlane");
    stage
        .apply_cluster("plain", |document| {
            change(document);
            without_endpoint(document);
        })
        .await?;
    stage.until_says("plain", "False EtcdNotFound").await?;
    // The pause comes right after the condition.
    until("it is held back", SOON, async || Ok(paused(stage, "PlainControlPlane", "plain").await?.then_some(())))
        .await?;
    stage.provide_etcd("plain", "http://10.0.0.1:2379").await?;
    stage.until_says("plain", "True Ready").await?;
    let control_plane = stage.api("PlainControlPlane").get("plain-cp").await?;
    let external = &control_plane.data["spec"]["etcd"]["external"];
    ensure!(*external == json!({"endpoints": ["http://10.0.0.1:2379"]}), "{external}");
    ensure!(!paused(stage, "PlainControlPlane", "plain").await?, "it is let go");
    ensure!(stage.secret("plain-apiserver-etcd-client", "tls.crt").await?.is_some(), "the gate is shut");
    let ours = stage.plane.requests_since(mark)?.user(HOOKS[0]).resource("plaincontrolplanes");
    ensure!(ours.filter(|request| request.subresource == "status").is_empty(), "{ours}");
    stage.delete("Cluster", "plain").await?;
    stage.until_gone("plain").await
}

/// The hook reports what is wrong, and correcting it is enough.
async fn corrected(stage: &mut Stage) -> Result<()> {
    let kind = "SilentControlPlane";
    stage.plane.apply_crds(&[control_plane_crd(kind, "v1beta2", &Announces::default())]).await?;
    stage.apply_cluster("silent", with_control_plane(kind)).await?;
    stage.provide_etcd("silent", "https://10.0.0.1:2379").await?;
    let prefix = format!("False ControlPlaneInvalid control plane {kind}.example.org cannot be told about etcd");
    says_in_time(stage, &prefix, &[PATH, "spec.etcd.external"]).await?;
    for (path, wanted) in
        [("etcd.external", "which is not a valid path"), ("spec.elsewhere.etcd", "is made for local etcd")]
    {
        stage
            .plane
            .apply_crds(&[control_plane_crd(kind, "v1beta2", &Announces { path: Some(path), condition: None })])
            .await?;
        says_in_time(stage, "False ControlPlaneInvalid", &[path, wanted]).await?;
    }
    keeps_nothing(stage).await?;
    // A valid path is not read again so soon, but the control plane is watched.
    let elsewhere = json!({"spec": {"elsewhere": {"etcd": {"endpoints": [PLACEHOLDER]}}}});
    stage.change(kind, "silent-cp", elsewhere).await?;
    stage.until_says("silent", "True Ready").await?;
    let control_plane = stage.api(kind).get("silent-cp").await?;
    let endpoints = &control_plane.data["spec"]["elsewhere"]["etcd"]["endpoints"];
    ensure!(*endpoints == json!(["https://10.0.0.1:2379"]), "{endpoints}");
    Ok(())
}

/// The path leads to an object without a field for endpoints: the API server accepts them, and drops them.
async fn keeps_nothing(stage: &mut Stage) -> Result<()> {
    let kind = "StrictControlPlane";
    let mut crd = control_plane_crd(kind, "v1beta2", &Announces { path: Some("spec.etcd"), condition: None });
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let etcd = object(json!({"external": object(json!({}))}));
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = object(json!({
        "spec": object(json!({"etcd": etcd, "replicas": {"type": "integer"}})),
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }));
    stage.plane.apply_crds(&[crd]).await?;
    let change = with_control_plane(kind);
    let mark = stage.plane.mark();
    stage.apply_cluster("strict", change).await?;
    stage.provide_etcd("strict", "https://10.0.0.1:2379").await?;
    stage
        .until_says(
            "strict",
            "False ControlPlaneInvalid StrictControlPlane strict-cp does not keep spec.etcd.endpoints",
        )
        .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let says = stage.says("strict").await?.unwrap_or_default();
    ensure!(says.contains("does not keep"), "nobody overwrites what was never there: {says}");
    let ours = stage.plane.requests_since(mark)?.user(HOOKS[0]).resource("strictcontrolplanes").verb("patch");
    // One pause, and endpoints once for each change of the Cluster. If the hook wrote again and again, there would be
    // eight writes in a fifth of a second.
    ensure!((2..=12).contains(&ours.len()), "they are written again and again:\n{ours}");
    Ok(())
}

/// The permission for the kind is missing. The hook reports that, and a Cluster can be deleted nevertheless. Granting
/// it is enough.
async fn forbidden(stage: &mut Stage) -> Result<()> {
    let kind = "ForbiddenControlPlane";
    let announces = Announces { path: Some("spec.etcd.external"), ..Announces::default() };
    stage.plane.apply_crds(&[control_plane_crd(kind, "v1beta2", &announces)]).await?;
    allow(stage, &["otheretcds"]).await?;
    stage.kill_hook(0);
    let limited = as_limited(stage).await?;
    stage.start_hook_with(0, limited)?;
    for cluster in ["forbidden", "deleted"] {
        stage.apply_cluster(cluster, with_control_plane(kind)).await?;
        stage.provide_etcd(cluster, "https://10.0.0.1:2379").await?;
        let answer = "Unknown RefusedByApiServer forbiddencontrolplanes cannot be listed: \
                      forbiddencontrolplanes.example.org is forbidden: User \"limited\" cannot list";
        stage.until_says(cluster, answer).await?;
    }
    stage.delete("Cluster", "deleted").await?;
    stage.until_gone("deleted").await?;
    ensure!(stage.api("OtherEtcd").get_opt("forbidden-etcd").await?.is_some(), "another Cluster's etcd is deleted");

    allow(stage, &["otheretcds", "forbiddencontrolplanes"]).await?;
    stage.until_says("forbidden", "True Ready").await?;
    ensure!(stage.secret("forbidden-apiserver-etcd-client", "tls.crt").await?.is_some(), "the gate is shut");
    stage.delete("Cluster", "forbidden").await?;
    stage.until_gone("forbidden").await?;
    etcd_no_longer_listed(stage, kind).await?;
    stage.kill_hook(0);
    stage.start_hook(0).await
}

/// The permission for the kind of the etcd goes with its provider, and then the hook is started again. A control plane
/// that the hook has paused is let go with its Cluster, or Cluster API could never delete it.
async fn etcd_no_longer_listed(stage: &mut Stage, kind: &str) -> Result<()> {
    stage.apply_cluster("uninstalled", with_control_plane(kind)).await?;
    stage.until_says("uninstalled", "False EtcdNotFound").await?;
    until("it is held back", SOON, async || Ok(paused(stage, kind, "uninstalled").await?.then_some(()))).await?;
    let held = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    stage.change(kind, "uninstalled-cp", held(json!(["example.org/hold"]))).await?;
    allow(stage, &["forbiddencontrolplanes"]).await?;
    stage.kill_hook(0);
    let limited = as_limited(stage).await?;
    stage.start_hook_with(0, limited)?;
    stage.delete("Cluster", "uninstalled").await?;
    until("it is let go", SOON, async || Ok((!paused(stage, kind, "uninstalled").await?).then_some(()))).await?;
    stage.change(kind, "uninstalled-cp", held(json!([]))).await?;
    stage.until_gone("uninstalled").await
}

/// Grants user `limited` the permissions of hooks, but in our example group only those for these resources.
async fn allow(stage: &Stage, resources: &[&str]) -> Result<()> {
    let groups = ["", "events.k8s.io", "apiextensions.k8s.io", "etcdcluster.cluster.x-k8s.io", "cluster.x-k8s.io"];
    let groups = [&groups[..], &["controlplane.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io"]].concat();
    let with_parts = |name: &&str| ["", "/status", "/finalizers"].map(|part| format!("{name}{part}"));
    let of_example: Vec<String> = resources.iter().flat_map(with_parts).collect();
    let rule = |groups: Value, resources: Value| json!({"apiGroups": groups, "resources": resources, "verbs": ["*"]});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": LIMITED},
        "rules": [rule(json!(groups), json!(["*"])), rule(json!(["example.org"]), json!(of_example))]});
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": LIMITED},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": LIMITED},
        "subjects": [{"apiGroup": group, "kind": "User", "name": LIMITED}]});
    for document in [role, binding] {
        apply_object(&stage.plane.client(), &document).await?;
    }
    Ok(())
}

/// The configuration of a client with only the permissions of [`allow`].
async fn as_limited(stage: &Stage) -> Result<Config> {
    let mut config = stage.config_of(ADMIN).await?;
    config.auth_info.impersonate = Some(LIMITED.to_owned());
    Ok(config)
}

async fn says_in_time(stage: &Stage, prefix: &str, parts: &[&str]) -> Result<()> {
    until(format!("the Cluster says {parts:?}"), LOOKED_AGAIN, async || {
        let says = stage.says("silent").await?.unwrap_or_default();
        ensure!(says.starts_with(prefix) && parts.iter().all(|part| says.contains(part)), "it says {says:?}");
        Ok(Some(()))
    })
    .await
}

async fn paused(stage: &Stage, kind: &str, cluster: &str) -> Result<bool> {
    let control_plane = stage.api(kind).get(&format!("{cluster}-cp")).await?;
    Ok(control_plane
        .metadata
        .annotations
        .is_some_and(|annotations| annotations.contains_key("cluster.x-k8s.io/paused")))
}
