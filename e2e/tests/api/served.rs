//! What the API server makes of good documents: defaults, versions and columns.

use crate::etcd_cases::cluster;
use crate::server::{Server, merged, object};
use anyhow::{Context, Result, ensure};
use e2e::apply::documents;
use e2e::bed::Manifests;
use serde_json::{Value, json};

/// The EtcdCluster of the managed-external-etcd proposal.
const PROPOSAL: &str = r#"
kind: EtcdCluster
apiVersion: etcdcluster.cluster.x-k8s.io/v1alpha4
metadata:
  name: "my-cluster-etcd-cluster"
  namespace: default
spec:
  etcdadmConfigSpec:
    version: 3.4.13 #optional
    # etcdadmArgs:
    # users:
  replicas: 3
  infrastructureTemplate:
    kind: DockerMachineTemplate
    apiVersion: infrastructure.cluster.x-k8s.io/v1alpha4
    name: "etcd-plane"
    namespace: "default"
"#;

pub(crate) async fn one_object_is_read_in_both_versions(server: &Server) -> Result<()> {
    let config = json!({"version": "3.6.16", "preEtcdadmCommands": ["true"]});
    for written in [
        cluster("both", &json!({"replicas": 5, "etcdadmConfigSpec": config})),
        object("EtcdadmConfig", "both", &config),
        object("EtcdadmConfigTemplate", "both", &json!({"template": {"spec": config}})),
    ] {
        let new = accepted(server.create(&written).await?)?;
        let mut old = written.clone();
        old["apiVersion"] = json!(written["apiVersion"].as_str().unwrap_or_default().replace("v1beta1", "v1alpha4"));
        let seen = server.get(&old, "").await?;
        ensure!(seen["apiVersion"] == old["apiVersion"], "{seen}");
        ensure!(seen["spec"] == new["spec"] && seen["metadata"]["uid"] == new["metadata"]["uid"], "{seen}\n{new}");
        // And back: what is written in the old version is visible in the new one.
        let label = json!({"metadata": {"labels": {"written": "old"}}});
        accepted(server.patch(&old, "", &label).await?)?;
        let seen = server.get(&written, "").await?;
        ensure!(seen["metadata"]["labels"]["written"] == "old" && seen["apiVersion"] == new["apiVersion"], "{seen}");
    }
    Ok(())
}

pub(crate) async fn the_documents_of_the_proposal_and_the_example_apply(server: &Server) -> Result<()> {
    let proposal = documents(PROPOSAL)?.pop().context("a document")?;
    let applied = accepted(server.apply(&proposal).await?)?;
    ensure!(applied["spec"]["etcdadmConfigSpec"]["version"] == "3.4.13", "{applied}");
    let mut count = 0;
    for document in Manifests::new("default", "example")?.documents() {
        let group = document["apiVersion"].as_str().unwrap_or_default();
        // Cluster API's own kinds are not installed here.
        if !["cluster.x-k8s.io/", "controlplane."].iter().any(|theirs| group.starts_with(theirs)) {
            accepted(server.apply(document).await?)?;
            count += 1;
        }
    }
    ensure!(count == 4, "{count} documents of the example");
    Ok(())
}

pub(crate) async fn defaults(server: &Server) -> Result<()> {
    let sparse = merged(&cluster("sparse", &json!({})), &json!({"spec": {"replicas": null}}));
    let made = accepted(server.try_create(&sparse).await?)?;
    let template = made["spec"]["infrastructureTemplate"].clone();
    let expected = json!({
        "replicas": 3,
        "infrastructureTemplate": template,
        "etcdadmConfigSpec": {},
        "healthCheck": {"intervalSeconds": 10, "unhealthyAfterSeconds": 60, "startupGraceSeconds": 600},
        "remediation": {"mode": "Replace", "retryPeriodSeconds": 0, "minHealthyPeriodSeconds": 3600},
        "rolloutStrategy": {"type": "RollingUpdate"},
        "rolloutBefore": {"certificatesExpiryDays": 45},
        "metricsClientSecret": false,
        "addressTypes": ["InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "Hostname"],
    });
    ensure!(made["spec"] == expected, "{}", made["spec"]);
    let part = merged(&sparse, &json!({"spec": {"healthCheck": {"intervalSeconds": 5}}}));
    let made = accepted(server.try_create(&part).await?)?;
    let expected = json!({"intervalSeconds": 5, "unhealthyAfterSeconds": 60, "startupGraceSeconds": 600});
    ensure!(made["spec"]["healthCheck"] == expected, "{made}");
    let part = merged(&sparse, &json!({"spec": {"remediation": {"maxRetry": 2}}}));
    let made = accepted(server.try_create(&part).await?)?;
    let expected = json!({"mode": "Replace", "maxRetry": 2, "retryPeriodSeconds": 0, "minHealthyPeriodSeconds": 3600});
    ensure!(made["spec"]["remediation"] == expected, "{made}");

    let config = object("EtcdadmConfig", "sparse", &json!({"cloudInitConfig": {}}));
    let made = accepted(server.try_create(&config).await?)?;
    ensure!(made["spec"] == json!({"cloudInitConfig": {"modules": "All"}}), "{made}");
    let template = object("EtcdadmConfigTemplate", "sparse", &json!({"template": {}}));
    let made = accepted(server.try_create(&template).await?)?;
    ensure!(made["spec"]["template"]["spec"] == json!({}), "{made}");
    Ok(())
}

/// A template engine leaves such fields behind: `users:` without a value.
pub(crate) async fn a_null_is_no_value(server: &Server) -> Result<()> {
    let mut config = object("EtcdadmConfig", "null", &json!({"version": "3.6.16", "users": null, "etcdadmArgs": null}));
    config["spec"]["cloudInitConfig"] = json!({"version": null, "installDir": null});
    config["spec"]["etcdadmBuiltin"] = Value::Null;
    config["spec"]["files"] =
        json!([{"path": "/a", "content": null, "contentFrom": {"secret": {"name": "a", "key": "b"}}}]);
    let made = accepted(server.try_create(&config).await?)?;
    let expected = json!({
        "version": "3.6.16",
        "cloudInitConfig": {"modules": "All"},
        "files": [{"path": "/a", "contentFrom": {"secret": {"name": "a", "key": "b"}}}],
    });
    ensure!(made["spec"] == expected, "{}", made["spec"]);
    let mut sparse = cluster("null", &json!({}));
    for field in [
        "replicas",
        "etcdadmConfigSpec",
        "healthCheck",
        "remediation",
        "rolloutStrategy",
        "machineTemplate",
        "metricsClientSecret",
        "addressTypes",
    ] {
        sparse["spec"][field] = Value::Null;
    }
    let made = accepted(server.try_create(&sparse).await?)?;
    ensure!(made["spec"]["replicas"] == 3 && made["spec"]["machineTemplate"].is_null(), "{made}");
    ensure!(made["spec"]["remediation"]["mode"] == "Replace", "{made}");
    Ok(())
}

pub(crate) async fn scale_subresource(server: &Server) -> Result<()> {
    let etcd = cluster("scaled", &json!({"replicas": 3}));
    accepted(server.create(&etcd).await?)?;
    let status = json!({"status": {"replicas": 2, "selector": "cluster.x-k8s.io/etcd-cluster=scaled"}});
    accepted(server.patch(&etcd, "/status", &status).await?)?;
    let scale = server.get(&etcd, "/scale").await?;
    ensure!(scale["spec"]["replicas"] == 3 && scale["status"]["replicas"] == 2, "{scale}");
    ensure!(scale["status"]["selector"] == "cluster.x-k8s.io/etcd-cluster=scaled", "{scale}");
    let to = |replicas: i32| json!({"spec": {"replicas": replicas}});
    accepted(server.patch(&etcd, "/scale", &to(5)).await?)?;
    ensure!(server.get(&etcd, "").await?["spec"]["replicas"] == 5);
    for replicas in [6, 4, 0] {
        let refused = server.patch(&etcd, "/scale", &to(replicas)).await?.err().context("it is accepted")?;
        ensure!(refused.contains("spec.replicas") && refused.contains("must be 1, 3, 5 or 7"), "{refused}");
    }
    ensure!(server.get(&etcd, "").await?["spec"]["replicas"] == 5);
    for replicas in [3, 1] {
        accepted(server.patch(&etcd, "/scale", &to(replicas)).await?)?;
        ensure!(server.get(&etcd, "").await?["spec"]["replicas"] == replicas);
    }
    Ok(())
}

/// The default columns, without `--output=wide` or `describe`, show whether etcd is healthy, and if not, why.
pub(crate) async fn columns_answer_whether_it_is_well(server: &Server) -> Result<()> {
    let mut etcd = cluster("shown", &json!({"replicas": 3}));
    etcd["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "demo"});
    etcd["metadata"]["annotations"] = json!({"etcdcluster.cluster.x-k8s.io/etcd-version": "3.6.17"});
    accepted(server.create(&etcd).await?)?;
    let condition = |type_: &str, reason: &str| {
        json!({"type": type_, "status": "False", "reason": reason, "message": "Machine shown-2 has no address yet",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let status = json!({"status": {
        "readyReplicas": 2, "replicas": 3, "version": "3.6.16", "endpoints": "https://10.0.0.1:2379",
        "updatedReplicas": 1,
        "conditions": [
            condition("Available", "Other"), condition("Ready", "WaitingForMachineAddress"), condition("Paused", "NotPaused"),
            {"type": "MachinesUpToDate", "status": "False", "reason": "RollingOut", "message": "2 of 3 Machines are replaced",
                "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ],
    }});
    accepted(server.patch(&etcd, "/status", &status).await?)?;
    let columns = server.columns(&etcd).await?;
    let value = |name: &str| columns.iter().find(|column| column.0 == name).map(|column| column.1.clone());
    for (name, expected) in [
        ("Name", json!("shown")),
        ("Cluster", json!("demo")),
        ("Ready", json!("False")),
        ("Available", json!("False")),
        ("UpToDate", json!(1)),
        ("Paused", json!("False")),
        ("Reason", json!("WaitingForMachineAddress")),
        ("Desired", json!(3)),
        ("Healthy", json!(2)),
        ("Version", json!("3.6.16")),
        ("Endpoints", json!("https://10.0.0.1:2379")),
        ("Message", json!("Machine shown-2 has no address yet")),
        ("NewVersion", json!("3.6.17")),
        ("Rollout", json!("2 of 3 Machines are replaced")),
    ] {
        ensure!(value(name).as_ref() == Some(&expected), "column {name} is {:?}", value(name));
    }
    ensure!(value("Age").is_some_and(|age| age.as_str().is_some_and(|age| age.ends_with('s'))), "{columns:?}");

    let mut config = object("EtcdadmConfig", "shown", &json!({}));
    config["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "demo"});
    accepted(server.create(&config).await?)?;
    let status = json!({"status": {"conditions": [condition("DataSecretAvailable", "WaitingForCertificates")]}});
    accepted(server.patch(&config, "/status", &status).await?)?;
    let columns = server.columns(&config).await?;
    let shown: Vec<&Value> = columns.iter().take(4).map(|column| &column.1).collect();
    ensure!(shown == ["shown", "demo", "False", "WaitingForCertificates"], "{columns:?}");
    Ok(())
}

/// The server's answer, or an error if it refused the object.
pub(crate) fn accepted(answer: Result<Value, String>) -> Result<Value> {
    answer.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))
}
