//! The programs `kubectl etcdcluster doctor`, `report` and `logs`: what they read from a real API server.

use crate::etcd_cases::cluster;
use crate::kubelet::Kubelet;
use crate::plugin::{cluster_api, run};
use crate::served::accepted;
use crate::server::{Server, object};
use anyhow::{Context, Result, ensure};
use e2e::apply::{api_for, apply_object, documents};
use e2e::bed::reader;
use e2e::until::until;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The manager's ClusterRole, of which `config/namespaced` makes a Role.
const ROLE: &str = include_str!("../../../config/rbac/manager_role.yaml");
/// The API server uses a new binding after a moment.
const SOON: Duration = Duration::from_secs(20);

/// A text that must not be in a report. It looks like a key.
const SECRET: &str = "Zq7Kx0pV3mT9wYb2RsLe5NuHdJ8cAf1G";

pub(crate) async fn doctor_says_what_is_wrong_before_and_after_an_apply(server: &Server) -> Result<()> {
    cluster_api(server).await?;
    let installation = run(server, &["doctor"], &Value::Null)?;
    ensure!(installation.success, "{}{}", installation.out, installation.error);
    for says in ["ok       CRDs", "ok       clocks", "no Deployment of the manager is found"] {
        ensure!(installation.out.contains(says), "{says}: {}", installation.out);
    }

    let template = json!({"infrastructureTemplate": {"apiGroup": "infrastructure.cluster.x-k8s.io",
        "kind": "LocalMachineTemplate", "name": "examined"}});
    let etcd = cluster("examined", &template);
    let before = run(server, &["doctor", "-f", "-"], &etcd)?;
    ensure!(!before.success, "{}{}", before.out, before.error);
    for says in [
        "LocalMachineTemplate examined does not exist in namespace default",
        "no Cluster in namespace default names EtcdCluster examined",
        "3 members survive 1 failing",
    ] {
        ensure!(before.out.contains(says), "{says}: {}", before.out);
    }

    let spec = json!({"template": {"spec": {}}});
    accepted(server.create(&object("LocalMachineTemplate", "examined", &spec)).await?)?;
    apply_object(&server.client, &named_cluster("examined")).await?;
    accepted(server.create(&etcd).await?)?;
    let after = run(server, &["doctor", "examined"], &Value::Null)?;
    ensure!(after.success, "{}{}", after.out, after.error);
    for says in ["LocalMachineTemplate examined is there", "Cluster examined names it", "no member has answered yet"] {
        ensure!(after.out.contains(says), "{says}: {}", after.out);
    }
    let missing = run(server, &["doctor", "missing"], &Value::Null)?;
    ensure!(
        !missing.success && missing.error.contains("EtcdCluster default/missing does not exist"),
        "{}",
        missing.error
    );
    Ok(())
}

/// There are two managers, each for one namespace. The doctor judges the one of this namespace; its Role does not count
/// in the other. A user who may read only that namespace gets the same result.
pub(crate) async fn doctor_judges_the_manager_of_the_namespace(server: &Server) -> Result<()> {
    cluster_api(server).await?;
    let (without, with) = ("doctor-a", "doctor-b");
    let mut deployments = Vec::new();
    for namespace in [without, with] {
        let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        apply_object(&server.client, &made).await?;
        let labels = json!({"app.kubernetes.io/name": "cluster-api-provider-etcdadm"});
        let container = json!({"name": "manager", "image": "manager", "args": ["--namespace=$(POD_NAMESPACE)"]});
        let pod = json!({"serviceAccountName": "manager", "containers": [container]});
        let template = json!({"metadata": {"labels": labels}, "spec": pod});
        deployments.push(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "manager", "namespace": namespace, "labels": labels},
            "spec": {"selector": {"matchLabels": labels}, "template": template}}));
    }
    let mut role = documents(ROLE)?.into_iter().next().context("a ClusterRole")?;
    role["kind"] = json!("Role");
    role["metadata"] = json!({"name": "manager", "namespace": with});
    let look = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "tenant", "namespace": with},
        "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]}]});
    let binding = |name: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": with},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": with}]})
    };
    for made in deployments.iter().chain(&[look, binding("tenant"), role, binding("manager")]) {
        apply_object(&server.client, made).await?;
    }

    let says = |server: &Server, namespace: &str| {
        run(server, &["doctor", "--namespace", namespace], &Value::Null).map(|run| run.out + &run.error)
    };
    until("the manager with a Role may do all", SOON, async || {
        let said = says(server, with)?;
        ensure!(said.contains("the manager may do all of "), "{said}");
        Ok(Some(()))
    })
    .await?;
    let said = says(server, with)?;
    let only = "doctor-b/manager looks after objects of namespace doctor-b only";
    ensure!(said.contains(only) && !said.contains("looks after namespace"), "{said}");
    let said = says(server, without)?;
    ensure!(said.contains("the manager may not: "), "{said}");
    let said = says(server, "default")?;
    let nobody = "no manager that is found looks after namespace default";
    ensure!(said.contains(nobody) && !said.contains("the manager may not: "), "{said}");

    let token = reader(&server.client, with, "tenant", None).await?;
    let kubeconfig = server.kubeconfig_with(&token, "tenant.kubeconfig")?;
    let tenant = Server::new(server.client.clone(), &kubeconfig, &server.kubectl);
    let said = says(&tenant, with)?;
    ensure!(said.contains(only) && !said.contains("doctor-a/manager"), "{said}");

    for deployment in &deployments {
        let (deployments, name) = api_for(&server.client, deployment).await?;
        deployments.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

pub(crate) async fn a_report_has_no_secret_in_it(server: &Server) -> Result<()> {
    cluster_api(server).await?;
    let files = json!([{"path": "/etc/a", "content": SECRET}]);
    let commands = json!([format!("login --password {SECRET}")]);
    let etcd = cluster("reported", &json!({"etcdadmConfigSpec": {"files": files, "preEtcdadmCommands": commands}}));
    accepted(server.create(&etcd).await?)?;
    apply_object(&server.client, &named_cluster("reported")).await?;
    let labels = json!({"cluster.x-k8s.io/cluster-name": "reported"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"tls.key": SECRET},
        "metadata": {"name": "reported-managed-etcd", "labels": labels}});
    apply_object(&server.client, &secret).await?;

    let folder = tempfile::tempdir()?;
    let out = folder.path().join("report");
    let path = out.to_str().context("a path that is not text")?;
    let made = run(server, &["report", "reported", "--out", path], &Value::Null)?;
    ensure!(made.success, "{}{}", made.out, made.error);
    let text = |file: &str| std::fs::read_to_string(out.join(file)).with_context(|| format!("read {file}"));
    let encoded = serde_json::to_value(k8s_openapi::ByteString(SECRET.into()))?;
    let all = everything(&out)?;
    ensure!(all.len() > 1000 && !all.contains(SECRET), "the secret is in the report");
    ensure!(!all.contains(encoded.as_str().context("no encoding")?), "the encoded secret is in the report");
    ensure!(text("secrets.yaml")?.contains("reported-managed-etcd") && text("secrets.yaml")?.contains("bytes: 32"));
    ensure!(text("objects/EtcdCluster/default.reported.yaml")?.contains("(redacted: 32 bytes)"));
    ensure!(text("objects/Cluster/default.reported.yaml")?.contains("managed-external-etcd: reported"));
    ensure!(text("versions.yaml")?.contains("etcdclusters.etcdcluster.cluster.x-k8s.io"));
    ensure!(text("README.md")?.contains("What was left out"));

    let again = run(server, &["report", "reported", "--out", path], &Value::Null)?;
    ensure!(!again.success && again.error.contains("exists already"), "{}{}", again.out, again.error);
    let archive = folder.path().join("report.tar.gz");
    let packed = run(
        server,
        &["report", "reported", "--out", archive.to_str().context("a path that is not text")?],
        &Value::Null,
    )?;
    ensure!(packed.success && archive.metadata()?.len() > 100, "{}{}", packed.out, packed.error);
    Ok(())
}

pub(crate) async fn logs_say_where_to_look_without_a_manager(server: &Server) -> Result<()> {
    cluster_api(server).await?;
    accepted(server.create(&cluster("logged", &json!({}))).await?)?;
    let logs = run(server, &["logs", "logged"], &Value::Null)?;
    ensure!(logs.success && logs.out.is_empty(), "{}{}", logs.out, logs.error);
    ensure!(logs.error.contains("No Pod of the manager is found"), "{}", logs.error);
    Ok(())
}

/// Prints only lines about this EtcdCluster, from the manager's Pods only. If a log cannot be read, its name is
/// printed.
pub(crate) async fn logs_are_those_of_the_managers_pods(server: &Server) -> Result<()> {
    cluster_api(server).await?;
    accepted(server.create(&cluster("told", &json!({}))).await?)?;
    let line = |name: &str| {
        let object = format!("EtcdCluster.v1beta1.etcdcluster.cluster.x-k8s.io/{name}.default");
        json!({"level": "INFO", "span": {"object": object}}).to_string()
    };
    let log = ["told", "untold", "told-later"].map(|name| line(name) + "\n").concat();
    let kubelet = Kubelet::start(server, "node-of-the-manager", &log).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "capi-etcdadm-system"}});
    apply_object(&server.client, &namespace).await?;
    let pod = |name: &str, program: &str| {
        let spec = json!({"nodeName": "node-of-the-manager", "containers": [{"name": "manager", "image": "manager"}]});
        json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {"name": name,
            "namespace": "capi-etcdadm-system", "labels": {"app.kubernetes.io/name": program}}})
    };
    let pods = [pod("manager-a", "cluster-api-provider-etcdadm"), pod("other", "another-provider")];
    for pod in &pods {
        apply_object(&server.client, pod).await?;
    }
    let logs = || run(server, &["logs", "told", "--tail", "50"], &Value::Null);
    let told = logs()?;
    ensure!(told.success && told.out == format!("{}\n", line("told")), "{}{}", told.out, told.error);
    let asked = kubelet.asked();
    let of_the_manager = "GET /containerLogs/capi-etcdadm-system/manager-a/manager?";
    let is_it = |asked: &String| asked.starts_with(of_the_manager) && asked.contains("tailLines=50");
    ensure!(asked.len() == 1 && asked.iter().all(is_it), "the kubelet was asked {asked:?}");

    drop(kubelet);
    let away = logs()?;
    ensure!(away.success && away.out.is_empty(), "{}{}", away.out, away.error);
    let says = "Not read: the log of Pod capi-etcdadm-system/manager-a";
    ensure!(away.error.contains(says), "{}", away.error);
    for pod in &pods {
        let (pods, name) = api_for(&server.client, pod).await?;
        pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
    }
    Ok(())
}

/// A Cluster that names the EtcdCluster of the same name.
fn named_cluster(name: &str) -> Value {
    let annotations = json!({"etcdcluster.cluster.x-k8s.io/managed-external-etcd": name});
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": {},
        "metadata": {"name": name, "annotations": annotations}})
}

/// The text of every file below a folder.
fn everything(folder: &Path) -> Result<String> {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        all += &if path.is_dir() { everything(&path)? } else { std::fs::read_to_string(&path)? };
    }
    Ok(all)
}
