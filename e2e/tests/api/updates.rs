//! What may change, and what may not.

use crate::etcd_cases::cluster;
use crate::served::accepted;
use crate::server::{Server, object};
use anyhow::{Context, Result, ensure};
use serde_json::json;

pub(crate) async fn of_replicas(server: &Server) -> Result<()> {
    let etcd = cluster("resized", &json!({"replicas": 3}));
    accepted(server.create(&etcd).await?)?;
    let to = |replicas: i32| json!({"spec": {"replicas": replicas}});
    for replicas in [0, 2, 4] {
        let refusal = server.patch(&etcd, "", &to(replicas)).await?.err().context("it is accepted")?;
        ensure!(refusal.contains("spec.replicas") && refusal.contains("must be 1, 3, 5 or 7"), "{refusal}");
    }
    for replicas in [3, 5, 7, 5, 3, 1, 7, 1] {
        let now = accepted(server.patch(&etcd, "", &to(replicas)).await?)?;
        ensure!(now["spec"]["replicas"] == replicas, "{now}");
    }
    Ok(())
}

/// The bootstrap data of a Machine is made once, so a later change would be accepted and then ignored.
pub(crate) async fn of_configs_with_bootstrap_data(server: &Server) -> Result<()> {
    let config =
        object("EtcdadmConfig", "frozen", &json!({"version": "3.6.16", "files": [{"path": "/a", "content": "a"}]}));
    accepted(server.create(&config).await?)?;
    let version = |version: &str| json!({"spec": {"version": version}});
    // Until then it may change, even while the status says that it waits for something.
    accepted(server.patch(&config, "", &version("3.6.15")).await?)?;
    let waiting = json!({"status": {"ready": false, "observedGeneration": 1}});
    accepted(server.patch(&config, "/status", &waiting).await?)?;
    accepted(server.patch(&config, "", &version("3.6.16")).await?)?;

    let made = json!({"status": {"ready": true, "dataSecretName": "frozen"}});
    let before = accepted(server.patch(&config, "/status", &made).await?)?;
    for change in
        [version("3.6.15"), json!({"spec": {"files": null}}), json!({"spec": {"preEtcdadmCommands": ["true"]}})]
    {
        let refusal = server.patch(&config, "", &change).await?.err().with_context(|| format!("accepted: {change}"))?;
        ensure!(refusal.contains("spec can no longer change"), "{refusal}");
        ensure!(refusal.contains("status.dataSecretName") && refusal.contains("EtcdCluster"), "{refusal}");
    }
    let after = server.get(&config, "").await?;
    ensure!(after == before, "{after}\n{before}");

    // Anything but the spec may change, and applying the same object again changes nothing.
    accepted(server.patch(&config, "", &json!({"metadata": {"labels": {"a": "b"}}})).await?)?;
    accepted(server.apply(&config).await?)?;
    let again = json!({"status": {"observedGeneration": 3}});
    accepted(server.patch(&config, "/status", &again).await?)?;
    Ok(())
}

pub(crate) async fn that_are_refused_change_nothing(server: &Server) -> Result<()> {
    let good = json!({"replicas": 5, "etcdadmConfigSpec": {"version": "3.6.16"}});
    let etcd = cluster("kept", &good);
    let before = accepted(server.create(&etcd).await?)?;
    for change in [
        json!({"replicas": 2}),
        json!({"infrastructureTemplate": null}),
        json!({"infrastructureTemplate": {"kind": "LocalMachine"}}),
        json!({"etcdadmConfigSpec": {"version": "latest"}}),
        json!({"etcdadmConfigSpec": {"etcdadmArgs": {"name": "x"}}}),
        // If one field is bad, the good field beside it does not change either.
        json!({"replicas": 7, "healthCheck": {"intervalSeconds": 0}}),
        json!({"replicas": 3, "remediation": {"mode": "Never"}}),
        json!({"replicas": 7, "nonsense": true}),
    ] {
        let answer = server.patch(&etcd, "", &json!({"spec": change})).await?;
        ensure!(answer.is_err(), "accepted: {change}");
    }
    let after = server.get(&etcd, "").await?;
    ensure!(after == before, "{after}\n{before}");
    Ok(())
}
