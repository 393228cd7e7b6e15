//! What the manager reports if it lacks a permission: it does so once, at the pace of its back-off, and no longer than
//! that.

use crate::etcd_cases::cluster;
use crate::plugin::cluster_api;
use crate::served::accepted;
use crate::server::{Server, merged, object};
use anyhow::{Context, Result, bail, ensure};
use api::names::{CLUSTER_NAME_LABEL, ETCD_CLUSTER_LABEL, ca_secret, init_lock};
use e2e::apply::{apply, apply_object, documents};
use e2e::bed::{programs, reader};
use e2e::process::Command;
use e2e::until::until;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const ROLE: &str = include_str!("../../../config/rbac/manager_role.yaml");
const CRD_READER_ROLE: &str = include_str!("../../../config/rbac/crd_reader_role.yaml");
const CA: [&str; 2] = [
    include_str!("../../../etcdadm-bootstrap/src/build/testdata/rsa-ca.crt"),
    include_str!("../../../etcdadm-bootstrap/src/build/testdata/rsa-ca.key"),
];
/// No other test has objects there.
const NAMESPACE: &str = "forbidden";
/// The manager's ClusterRole.
const OWN_ROLE: &str = "forbidden-manager";
/// Two of its longest delays, plus the time for its start and its watches.
const PATIENCE: Duration = Duration::from_secs(90);
/// In this time it tries more than once, because its back-off has just begun.
const A_WHILE: Duration = Duration::from_secs(5);

/// The conditions of an EtcdCluster and an EtcdadmConfig are Unknown with the API server's answer. There is one warning
/// about each, and nothing is written again. With the permissions, everything goes on.
pub(crate) async fn is_said_once_and_until_it_is_permitted(server: &Server) -> Result<()> {
    cluster_api(server).await?;
    let kubeconfig = manager_of_its_own(server).await?;
    permit(server, &[("secrets", "list"), ("configmaps", "create")]).await?;
    let (etcd, config) = objects(server).await?;
    let logs = server.kubeconfig.parent().unwrap_or(Path::new("."));
    let mut manager = Command::new("manager-forbidden", programs()?.join("manager"), logs)
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args(["--controllers=etcd-cluster,etcdadm-bootstrap", "--leader-elect=false"])
        .arg(format!("--namespace={NAMESPACE}"))
        .args(["--admin-address", "127.0.0.1:0"])
        .spawn()?;
    let listed = "secrets cannot be listed";
    until_says(server, &etcd, "Ready", "Unknown RefusedByApiServer", listed).await?;
    until_says(server, &config, "DataSecretAvailable", "Unknown RefusedByApiServer", listed).await?;
    stays_as_it_is(server, &[&etcd, &config]).await?;

    permit(server, &[("configmaps", "create")]).await?;
    until_says(server, &etcd, "Ready", "False WaitingForCluster", "").await?;
    let created = format!("creating {}", init_lock("demo"));
    until_says(server, &config, "DataSecretAvailable", "Unknown RefusedByApiServer", &created).await?;
    stays_as_it_is(server, &[&etcd, &config]).await?;
    for (kind, name) in [("EtcdCluster", "demo-etcd"), ("EtcdadmConfig", "demo-etcd-0")] {
        let warnings = warnings(server, kind, name).await?;
        ensure!(warnings.len() == 1 && warnings[0].starts_with("RefusedByApiServer: "), "{kind}: {warnings:?}");
    }

    permit(server, &[]).await?;
    until_says(server, &config, "DataSecretAvailable", "True DataSecretAvailable", "").await?;
    manager.terminate(PATIENCE).await?;
    Ok(())
}

/// The kubeconfig of a service account with the permissions of [`permit`].
async fn manager_of_its_own(server: &Server) -> Result<PathBuf> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    apply_object(&server.client, &namespace).await?;
    apply(&server.client, CRD_READER_ROLE).await?;
    let token = reader(&server.client, NAMESPACE, "manager", None).await?;
    for role in [OWN_ROLE, "capi-etcdadm-crd-reader"] {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{NAMESPACE}-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "manager", "namespace": NAMESPACE}]});
        apply_object(&server.client, &binding).await?;
    }
    server.kubeconfig_with(&token, "forbidden-manager.kubeconfig")
}

/// Grants the permissions of the manager's role, except these verbs of these resources.
async fn permit(server: &Server, but: &[(&str, &str)]) -> Result<()> {
    let mut role = documents(ROLE)?.into_iter().next().context("a ClusterRole")?;
    role["metadata"]["name"] = json!(OWN_ROLE);
    for rule in role["rules"].as_array_mut().context("rules")? {
        let resources = rule["resources"].clone();
        let is_of = |resource: &str| resources.as_array().is_some_and(|all| all.iter().any(|one| one == resource));
        let taken: Vec<&str> = but.iter().filter(|(resource, _)| is_of(resource)).map(|(_, verb)| *verb).collect();
        let verbs = rule["verbs"].as_array_mut().context("verbs")?;
        verbs.retain(|verb| !verb.as_str().is_some_and(|verb| taken.contains(&verb)));
    }
    apply_object(&server.client, &role).await?;
    Ok(())
}

/// An EtcdCluster that no Cluster names, and an EtcdadmConfig that has everything it needs.
async fn objects(server: &Server) -> Result<(Value, Value)> {
    let there = |labels: Value| json!({"metadata": {"namespace": NAMESPACE, "labels": labels}});
    let of_demo = json!({CLUSTER_NAME_LABEL: "demo", ETCD_CLUSTER_LABEL: "demo-etcd"});
    let config_ref = json!({"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "EtcdadmConfig", "name": "demo-etcd-0"});
    let any = |kind: &str, name: &str, spec: Value| {
        let plain = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}});
        merged(&merged(&plain, &there(of_demo.clone())), &json!({"spec": spec}))
    };
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": ca_secret("demo")},
        "stringData": {"tls.crt": CA[0], "tls.key": CA[1]}});
    for made in [
        any("Cluster", "demo", json!({})),
        any("Machine", "demo-etcd-0", json!({"clusterName": "demo", "bootstrap": {"configRef": config_ref}})),
        merged(&secret, &there(of_demo.clone())),
    ] {
        apply_object(&server.client, &made).await?;
    }
    let etcd = merged(&cluster("demo-etcd", &json!({})), &there(json!({})));
    let config = merged(&object("EtcdadmConfig", "demo-etcd-0", &json!({})), &there(of_demo));
    for made in [&etcd, &config] {
        accepted(server.create(made).await?)?;
    }
    Ok((etcd, config))
}

/// Waits until a condition has this status and reason, and a message that contains `says`.
async fn until_says(server: &Server, of: &Value, type_: &str, wanted: &str, says: &str) -> Result<()> {
    until(format!("{type_} of {} is {wanted}: {says}", of["kind"]), PATIENCE, async || {
        let found = server.get(of, "").await?;
        let conditions = found.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let condition = conditions.iter().find(|one| one["type"] == type_).context("there is no such condition")?;
        let text = |name: &str| condition[name].as_str().unwrap_or_default();
        let is = format!("{} {}", text("status"), text("reason"));
        if is != wanted || !text("message").contains(says) {
            bail!("it is {is}: {}", text("message"));
        }
        Ok(Some(()))
    })
    .await
}

/// Checks that nothing writes to these objects for a while.
async fn stays_as_it_is(server: &Server, objects: &[&Value]) -> Result<()> {
    let mut before = Vec::new();
    for object in objects {
        before.push(server.get(object, "").await?);
    }
    tokio::time::sleep(A_WHILE).await;
    for (object, before) in objects.iter().zip(before) {
        let now = server.get(object, "").await?;
        let version = "/metadata/resourceVersion";
        ensure!(now.pointer(version) == before.pointer(version), "it was written again: {before}\nand then {now}");
    }
    Ok(())
}

/// Warnings about an object, as `<reason>: <note>`.
async fn warnings(server: &Server, kind: &str, name: &str) -> Result<Vec<String>> {
    let events: Api<Event> = Api::namespaced(server.client.clone(), NAMESPACE);
    let mut list = events.list(&ListParams::default()).await?.items;
    list.retain(|event| {
        let about = event.regarding.as_ref();
        let is_it = |about: &k8s_openapi::api::core::v1::ObjectReference| {
            about.kind.as_deref() == Some(kind) && about.name.as_deref() == Some(name)
        };
        event.type_.as_deref() == Some("Warning") && about.is_some_and(is_it)
    });
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Ok(list.iter().map(|event| format!("{}: {}", text(&event.reason), text(&event.note))).collect())
}
