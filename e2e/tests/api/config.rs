//! The folders of `config/`: kubectl renders each of them, a real API server accepts the result, and roles permit what
//! they say.

use crate::server::{Server, try_create};
use anyhow::{Context, Result, ensure};
use e2e::apply::{apply, apply_object, documents};
use e2e::process::output_of;
use e2e::until::until;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const VIEW: &str = include_str!("../../../config/rbac/people/view_role.yaml");
const EDIT: &str = include_str!("../../../config/rbac/people/edit_role.yaml");
/// Our resources, in the form of [`may`].
const ETCD: &str = "etcdcluster.cluster.x-k8s.io/etcdclusters";
const TEMPLATE: &str = "bootstrap.cluster.x-k8s.io/etcdadmconfigtemplates";
const CONFIG: &str = "bootstrap.cluster.x-k8s.io/etcdadmconfigs";
/// A binding takes effect a moment after it is written.
const SOON: Duration = Duration::from_secs(20);
/// Kinds of cluster-api-operator, cert-manager and the Prometheus operator, whose CRDs are not ours. Then the folders
/// that contain such objects.
const OF_OTHERS: [&str; 6] =
    ["BootstrapProvider", "Certificate", "Issuer", "PrometheusRule", "ScrapeConfig", "ServiceMonitor"];
const WITH_THEM: [&str; 2] = ["cert-manager", "prometheus"];
/// Files that are applied one by one, and are in no folder of kustomize.
const SAMPLES: [&str; 2] = [
    include_str!("../../../config/operator/bootstrapprovider.yaml"),
    include_str!("../../../config/prometheus/samples/etcd-scrape-config.yaml"),
];

pub(crate) async fn every_folder_is_accepted(server: &Server) -> Result<()> {
    let mut rendered = Vec::new();
    for folder in folders()? {
        let name = folder.file_name().unwrap_or_default().display().to_string();
        let documents = documents_of(server, &folder).await.with_context(|| name.clone())?;
        ensure!(!documents.is_empty(), "{name} is empty");
        // Cluster API accepts one extension that updates Machines. If we registered ours, no other could be used.
        let has = |kind: &str| documents.iter().any(|document| document["kind"] == kind);
        ensure!(!has("ExtensionConfig"), "{name} registers an extension");
        make_namespaces(server, &documents).await?;
        if name == "cert-manager" {
            shows_a_certificate_that_is_verified(&documents)?;
        }
        let mut apply = apply_from(server, "-k", &folder);
        apply.args(["--force-conflicts", "--dry-run=server"]);
        output_of(apply).await?;
        rendered.push(name);
    }
    ensure!(rendered.len() > 8, "only {rendered:?}");
    // Its namespace is that of config/default.
    let mut apply = apply_from(server, "-f", &config().join("release/network-policy.yaml"));
    apply.args(["--force-conflicts", "--dry-run=server"]);
    output_of(apply).await.map(drop)
}

/// The CRDs of the other projects judge these objects. Each object is accepted as it is, and refused with an unknown
/// field: otherwise, the CRDs would accept anything.
pub(crate) async fn objects_for_others_are_what_they_take(server: &Server) -> Result<()> {
    let mut judged = SAMPLES.map(documents).into_iter().collect::<Result<Vec<_>>>()?.concat();
    for folder in folders()?.iter().filter(|folder| WITH_THEM.iter().any(|name| folder.ends_with(name))) {
        judged.extend(documents_of(server, folder).await?);
    }
    judged.retain(|document| OF_OTHERS.iter().any(|kind| document["kind"] == *kind));
    make_namespaces(server, &judged).await?;
    for mut document in judged.clone() {
        let what = format!("{} {}", document["kind"], document["metadata"]["name"]);
        let accepted = try_create(&server.client, &document, &document.to_string()).await?;
        ensure!(accepted.is_ok(), "{what}: {accepted:?}");
        document["spec"]["noSuchField"] = json!(true);
        let refused = try_create(&server.client, &document, &document.to_string()).await?;
        let tells = |refusal: &String| refusal.contains("unknown field \"spec.noSuchField\"");
        ensure!(refused.as_ref().is_err_and(tells), "{what} with a field that is none: {refused:?}");
    }
    let kinds: BTreeSet<&str> = judged.iter().filter_map(|document| document["kind"].as_str()).collect();
    ensure!(kinds == BTreeSet::from(OF_OTHERS), "only {kinds:?} were judged");
    Ok(())
}

/// The documents that kustomize makes of a folder.
async fn documents_of(server: &Server, folder: &Path) -> Result<Vec<Value>> {
    let mut kustomize = Command::new(&server.kubectl);
    kustomize.arg("kustomize").arg(folder);
    documents(&output_of(kustomize).await?)
}

/// Makes the namespaces of these documents. Without them, the server would refuse the documents unread.
async fn make_namespaces(server: &Server, documents: &[Value]) -> Result<()> {
    let names = documents.iter().filter_map(|document| document.pointer("/metadata/namespace")?.as_str());
    for name in BTreeSet::from_iter(names) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        apply_object(&server.client, &namespace).await?;
    }
    Ok(())
}

/// kustomize does not report a patch whose target does not exist.
fn shows_a_certificate_that_is_verified(documents: &[Value]) -> Result<()> {
    let of = |kind: &str| {
        let found = documents.iter().find(|document| document["kind"] == kind);
        found.with_context(|| format!("cert-manager: no {kind}"))
    };
    let container = &of("Deployment")?["spec"]["template"]["spec"]["containers"][0];
    let args = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    ensure!(args.clone().any(|arg| arg.starts_with("--diagnostics-cert-dir=")), "{container}");
    ensure!(args.count() > 2 && container["volumeMounts"].is_array(), "{container}");
    let tls = &of("ServiceMonitor")?["spec"]["endpoints"][0]["tlsConfig"];
    ensure!(tls["ca"].is_object() && tls["insecureSkipVerify"].is_null(), "{tls}");
    let namespace = &of("Deployment")?["metadata"]["namespace"];
    for kind in ["Service", "ServiceMonitor", "Issuer", "Certificate"] {
        ensure!(&of(kind)?["metadata"]["namespace"] == namespace, "{kind} is not beside the Deployment");
    }
    Ok(())
}

/// The folders that kustomize can render.
fn folders() -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for folder in fs::read_dir(config())? {
        let folder = folder?.path();
        if folder.join("kustomization.yaml").exists() {
            folders.push(folder);
        }
    }
    Ok(folders)
}

fn config() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config")
}

/// A kubectl command that applies a file (`-f`) or a folder (`-k`).
fn apply_from(server: &Server, option: &str, path: &Path) -> Command {
    let mut apply = Command::new(&server.kubectl);
    apply.arg("--kubeconfig").arg(&server.kubeconfig);
    apply.args(["apply", "--server-side", "--validate=strict", option]).arg(path);
    apply
}

/// With the view role, a user reads all our objects and changes nothing. With the edit role, a user does not get the
/// manager's permissions.
pub(crate) async fn people_may_look_or_change(server: &Server) -> Result<()> {
    for (role, manifest) in [("capi-etcdadm-view", VIEW), ("capi-etcdadm-edit", EDIT)] {
        apply(&server.client, manifest).await?;
        bind(server, role).await?;
    }
    let (viewer, editor) = ("capi-etcdadm-view", "capi-etcdadm-edit");
    until_may(server, viewer, "get", ETCD).await?;
    until_may(server, editor, "patch", ETCD).await?;
    for (user, verb, resource, expected) in [
        (viewer, "watch", ETCD, true),
        (viewer, "get", "etcdcluster.cluster.x-k8s.io/etcdclusters/scale", true),
        (viewer, "list", CONFIG, true),
        (viewer, "list", TEMPLATE, true),
        (viewer, "patch", ETCD, false),
        (viewer, "delete", ETCD, false),
        (viewer, "get", "/secrets", false),
        (editor, "create", ETCD, true),
        (editor, "delete", ETCD, true),
        (editor, "patch", "etcdcluster.cluster.x-k8s.io/etcdclusters/scale", true),
        (editor, "create", TEMPLATE, true),
        (editor, "patch", "etcdcluster.cluster.x-k8s.io/etcdclusters/status", false),
        (editor, "create", CONFIG, false),
        (editor, "get", "/secrets", false),
    ] {
        ensure!(may(server, user, verb, resource).await? == expected, "{user}: {verb} {resource}");
    }
    Ok(())
}

/// Kubernetes' own roles permit nothing of ours, until `config/aggregate-to-people` is applied.
pub(crate) async fn kubernetes_own_roles_take_ours_in(server: &Server) -> Result<()> {
    let own = ["view", "edit", "admin"];
    for role in own {
        bind(server, role).await?;
        until_may(server, role, "get", "/configmaps").await?;
        ensure!(!may(server, role, "get", ETCD).await?, "{role} permits what nobody has granted");
    }
    output_of(apply_from(server, "-k", &config().join("aggregate-to-people"))).await?;
    for role in own {
        until_may(server, role, "get", ETCD).await?;
    }
    for role in ["edit", "admin"] {
        until_may(server, role, "patch", ETCD).await?;
    }
    for (user, verb, resource, expected) in [
        ("view", "list", CONFIG, true),
        ("view", "patch", ETCD, false),
        ("view", "create", TEMPLATE, false),
        ("edit", "list", CONFIG, true),
        ("edit", "create", TEMPLATE, true),
        ("edit", "create", CONFIG, false),
        ("edit", "patch", "etcdcluster.cluster.x-k8s.io/etcdclusters/status", false),
        ("admin", "delete", ETCD, true),
        ("admin", "create", CONFIG, false),
    ] {
        ensure!(may(server, user, verb, resource).await? == expected, "{user}: {verb} {resource}");
    }
    Ok(())
}

/// Binds a ClusterRole to the user of the same name.
async fn bind(server: &Server, role: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("people-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}],
    });
    apply_object(&server.client, &binding).await.map(drop)
}

/// Waits until a user has a permission.
async fn until_may(server: &Server, user: &str, verb: &str, resource: &str) -> Result<()> {
    until(format!("{user} may {verb} {resource}"), SOON, async || {
        Ok(may(server, user, verb, resource).await?.then_some(()))
    })
    .await
}

/// Whether a user has a permission in namespace default. `resource`: `GROUP/PLURAL`, or `GROUP/PLURAL/SUBRESOURCE`.
async fn may(server: &Server, user: &str, verb: &str, resource: &str) -> Result<bool> {
    let parts: Vec<&str> = resource.split('/').collect();
    let review: SubjectAccessReview = serde_json::from_value(json!({"metadata": {}, "spec": {
        "user": user,
        "resourceAttributes": {
            "namespace": "default", "verb": verb, "group": parts.first(), "resource": parts.get(1),
            "subresource": parts.get(2),
        },
    }}))?;
    let answer = Api::all(server.client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.context("no answer")?.allowed)
}
