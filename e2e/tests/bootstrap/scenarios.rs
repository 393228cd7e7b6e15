//! The promises of the bootstrap provider.

use crate::lag::LaggingSecrets;
use crate::stage::{SECOND, SOON, Stage, etcd_cluster};
use anyhow::{Context, Result, ensure};
use api::etcdadm_config::EtcdadmConfig;
use e2e::plane::users;
use e2e::until::until;
use e2e::world::World;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for a reconcile that should not happen.
const A_WHILE: Duration = Duration::from_secs(3);

/// There are two configs at the same time, and two controllers that do not know of each other.
pub(crate) async fn one_initializes(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.run().await?;
    stage.run_as(SECOND).await?;
    let spec = json!({});
    tokio::try_join!(stage.machine("demo-etcd-0", &spec), stage.machine("demo-etcd-1", &spec))?;
    stage.until_reason("demo-etcd-0", "WaitingForCertificates").await?;
    stage.certificates().await?;

    let (first, second) = until("one of the two has bootstrap data", SOON, async || {
        let ready =
            async |name: &str| anyhow::Ok(stage.configs().get(name).await?.status.is_some_and(|status| status.ready));
        Ok(match (ready("demo-etcd-0").await?, ready("demo-etcd-1").await?) {
            (false, false) => None,
            (true, _) => Some(("demo-etcd-0", "demo-etcd-1")),
            (false, true) => Some(("demo-etcd-1", "demo-etcd-0")),
        })
    })
    .await?;
    let data = stage.until_data(first).await?;
    ensure!(data.contains(&format!("etcdadm init --init-system systemd --name {first} ")), "{data}");
    let message = stage.until_reason(second, "WaitingForInitialization").await?;
    ensure!(message.contains(first), "{message}");
    ensure!(stage.secrets().get_opt(second).await?.is_none());

    stage.initialized("https://10.0.0.1:2379").await?;
    let data = stage.until_data(second).await?;
    ensure!(data.contains("etcdadm join https://10.0.0.1:2379 "), "{data}");

    // A Secret that is lost before it was used is made again. By then, even the first Machine joins.
    stage.secrets().delete(first, &DeleteParams::default()).await?;
    until("the lost Secret is there again", SOON, async || Ok(stage.secrets().get_opt(first).await?)).await?;
    ensure!(stage.until_data(first).await?.contains("etcdadm join "));
    stage.stop().await
}

pub(crate) async fn costs_little(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.certificates().await?;
    stage.run().await?;
    // The watches are established once something has been reconciled.
    stage.machine("demo-etcd-0", &json!({})).await?;
    stage.until_data("demo-etcd-0").await?;
    let start = stage.plane.mark();
    let ours = |stage: &Stage, since| {
        let requests = stage.plane.requests_since(since)?.user(users::PROVIDER);
        anyhow::Ok(requests.filter(|request| request.verb != "watch"))
    };

    stage.initialized("https://10.0.0.1:2379").await?;
    for name in ["demo-etcd-1", "demo-etcd-2"] {
        let before = stage.plane.mark();
        stage.machine(name, &json!({})).await?;
        stage.until_data(name).await?;
        let spent = until("the event of the new data", SOON, async || {
            let spent = ours(&stage, before)?;
            Ok((!spent.resource("events").is_empty()).then_some(spent))
        })
        .await?;
        for request in spent.iter() {
            println!("{name}: {} {} {}", request.verb, request.resource, request.subresource);
        }
        ensure!(spent.len() <= 5, "{} requests for {name}", spent.len());
    }

    let idle = stage.plane.mark();
    tokio::time::sleep(A_WHILE).await;
    let spent = ours(&stage, idle)?;
    ensure!(spent.is_empty(), "{:?}", spent.iter().collect::<Vec<_>>());
    println!("{} requests for two joins", ours(&stage, start)?.len());
    stage.stop().await
}

pub(crate) async fn takes_over(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.certificates().await?;
    stage.run().await?;
    stage.machine("demo-etcd-0", &json!({})).await?;
    stage.until_data("demo-etcd-0").await?;
    stage.machine("demo-etcd-1", &json!({})).await?;
    stage.until_reason("demo-etcd-1", "WaitingForInitialization").await?;

    let machine =
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "demo-etcd-0"}});
    let (machines, name) = e2e::apply::api_for(&stage.client, &machine).await?;
    machines.delete(&name, &DeleteParams::default()).await?;
    ensure!(stage.until_data("demo-etcd-1").await?.contains("etcdadm init "));
    ensure!(lock(&stage).await?.contains("demo-etcd-1"));
    // The config and its Secret are deleted with the Machine that owns them.
    until("nothing is left of the first Machine", SOON, async || {
        ensure!(stage.secrets().get_opt("demo-etcd-0").await?.is_none(), "its Secret is there");
        Ok(Some(()))
    })
    .await?;

    // A later Machine of the same name does not hold the lock of the earlier one.
    machines.delete("demo-etcd-1", &DeleteParams::default()).await?;
    until("the second Machine's config is gone", SOON, async || {
        Ok(stage.configs().get_opt("demo-etcd-1").await?.is_none().then_some(()))
    })
    .await?;
    stage.machine("demo-etcd-1", &json!({})).await?;
    ensure!(stage.until_data("demo-etcd-1").await?.contains("etcdadm init "));
    stage.stop().await
}

/// The lock and the init Secret are lost, but the EtcdCluster remembers.
pub(crate) async fn never_twice(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.certificates().await?;
    let initialized = json!({"initialized": true, "ready": false, "replicas": 1, "conditions": []});
    stage.status(&etcd_cluster(), &initialized).await?;
    stage.run().await?;
    stage.machine("demo-etcd-3", &json!({})).await?;
    let message = stage.until_reason("demo-etcd-3", "WaitingForInitialization").await?;
    ensure!(message.contains("demo-etcd-init"), "{message}");
    stage.initialized("https://10.0.0.1:2379,https://10.0.0.2:2379").await?;
    let data = stage.until_data("demo-etcd-3").await?;
    ensure!(data.contains("etcdadm join https://10.0.0.1:2379,https://10.0.0.2:2379 "), "{data}");
    stage.stop().await
}

/// The lock is lost while the first Machine boots, before the EtcdCluster can remember anything.
pub(crate) async fn lock_lost_in_between(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.certificates().await?;
    stage.run().await?;
    stage.machine("demo-etcd-0", &json!({})).await?;
    ensure!(stage.until_data("demo-etcd-0").await?.contains("etcdadm init "));
    stage.machine("demo-etcd-1", &json!({})).await?;
    stage.until_reason("demo-etcd-1", "WaitingForInitialization").await?;
    let locks: Api<ConfigMap> = Api::default_namespaced(stage.client.clone());
    locks.delete("demo-etcd-lock", &DeleteParams::default()).await?;
    until("the second Machine has the lock and says why it does nothing with it", SOON, async || {
        ensure!(lock(&stage).await?.contains("demo-etcd-1"), "the lock is not its");
        let message = stage.until_reason("demo-etcd-1", "WaitingForInitialization").await?;
        ensure!(message.contains("Machine demo-etcd-0 has bootstrap data already"), "{message}");
        Ok(Some(()))
    })
    .await?;
    ensure!(stage.secrets().get_opt("demo-etcd-1").await?.is_none(), "two Machines initialize");
    stage.initialized("https://10.0.0.1:2379").await?;
    ensure!(stage.until_data("demo-etcd-1").await?.contains("etcdadm join https://10.0.0.1:2379 "));
    stage.stop().await
}

/// Without an EtcdCluster, nothing remembers. First the Machine that initializes is lost, then the lock.
pub(crate) async fn free_standing(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.certificates().await?;
    stage.run().await?;
    stage.free_standing_machine("demo-etcd-0").await?;
    ensure!(stage.until_data("demo-etcd-0").await?.contains("etcdadm init "));
    stage.free_standing_machine("demo-etcd-1").await?;
    stage.until_reason("demo-etcd-1", "WaitingForInitialization").await?;

    let machine =
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "demo-etcd-0"}});
    let (machines, name) = e2e::apply::api_for(&stage.client, &machine).await?;
    machines.delete(&name, &DeleteParams::default()).await?;
    until("the second Machine says that a person has to decide", SOON, async || {
        let message = stage.until_reason("demo-etcd-1", "WaitingForInitialization").await?;
        ensure!(message.contains("Machine demo-etcd-0 was to initialize etcd and no longer exists"), "{message}");
        Ok(Some(()))
    })
    .await?;
    tokio::time::sleep(A_WHILE).await;
    ensure!(stage.secrets().get_opt("demo-etcd-1").await?.is_none(), "etcd is initialized a second time");

    let locks: Api<ConfigMap> = Api::default_namespaced(stage.client.clone());
    locks.delete("demo-etcd-lock", &DeleteParams::default()).await?;
    ensure!(stage.until_data("demo-etcd-1").await?.contains("etcdadm init "), "a person has decided");

    stage.free_standing_machine("demo-etcd-2").await?;
    stage.until_reason("demo-etcd-2", "WaitingForInitialization").await?;
    locks.delete("demo-etcd-lock", &DeleteParams::default()).await?;
    until("the third Machine has the lock and does nothing with it", SOON, async || {
        ensure!(lock(&stage).await?.contains("demo-etcd-2"), "the lock is not its");
        let message = stage.until_reason("demo-etcd-2", "WaitingForInitialization").await?;
        ensure!(message.contains("Machine demo-etcd-1 has bootstrap data already"), "{message}");
        Ok(Some(()))
    })
    .await?;
    ensure!(stage.secrets().get_opt("demo-etcd-2").await?.is_none(), "two Machines initialize");
    stage.initialized("https://10.0.0.1:2379").await?;
    ensure!(stage.until_data("demo-etcd-2").await?.contains("etcdadm join https://10.0.0.1:2379 "));
    stage.stop().await
}

/// etcd was restored from a snapshot, and the watch still shows the old etcd cluster. Data with the old ID would never
/// join.
pub(crate) async fn joins_what_is_there_now(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.certificates().await?;
    let restored = json!({"clientUrls": "https://10.0.0.9:2379", "clusterId": "c2"});
    stage.secret("demo-etcd-init", &json!({"clientUrls": "https://10.0.0.1:2379", "clusterId": "c1"})).await?;
    let watch = LaggingSecrets::start(stage.plane.client_for(users::PROVIDER).await?).await?;
    stage.run_with(watch.client.clone());
    let joins = async |name: &str, cluster_id: &str, client_url: &str| {
        let data = stage.until_data(name).await?;
        ensure!(data.contains(&format!("ETCDADM_CLUSTER_ID={cluster_id} ")), "{data}");
        ensure!(data.contains(&format!("etcdadm join {client_url} ")), "{data}");
        anyhow::Ok(())
    };
    stage.machine("demo-etcd-1", &json!({})).await?;
    joins("demo-etcd-1", "c1", "https://10.0.0.1:2379").await?;

    watch.hold();
    stage.secret("demo-etcd-init", &restored).await?;
    watch.lags().await?;
    stage.machine("demo-etcd-2", &json!({})).await?;
    joins("demo-etcd-2", "c2", "https://10.0.0.9:2379").await?;

    // According to the lagging watch, every Machine may join.
    let mut held_back = restored.clone();
    held_back["admitted"] = json!("another@2026-01-01T00:00:00Z");
    stage.secret("demo-etcd-init", &held_back).await?;
    stage.machine("demo-etcd-3", &json!({})).await?;
    stage.until_reason("demo-etcd-3", "WaitingForAdmission").await?;

    stage.secrets().delete("demo-etcd-init", &DeleteParams::default()).await?;
    stage.machine("demo-etcd-4", &json!({})).await?;
    stage.until_reason("demo-etcd-4", "WaitingForInitialization").await?;
    for name in ["demo-etcd-3", "demo-etcd-4"] {
        ensure!(stage.secrets().get_opt(name).await?.is_none(), "{name} has bootstrap data");
    }

    stage.secret("demo-etcd-init", &restored).await?;
    watch.release();
    for name in ["demo-etcd-3", "demo-etcd-4"] {
        joins(name, "c2", "https://10.0.0.9:2379").await?;
    }
    stage.stop().await
}

/// A Secret that the controller wrote just before it ended is not written again.
pub(crate) async fn goes_on(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.certificates().await?;
    stage.machine("demo-etcd-0", &json!({})).await?;
    let config = stage.configs().get("demo-etcd-0").await?;
    let mut secret = Secret::default();
    secret.metadata.name = Some(config.name_any());
    secret.metadata.owner_references = Some(config.controller_owner_ref(&()).into_iter().collect());
    secret.string_data = Some([("value".to_owned(), "made before".to_owned())].into());
    let written = stage.secrets().create(&PostParams::default(), &secret).await?;
    stage.run().await?;
    ensure!(stage.until_data("demo-etcd-0").await? == "made before");
    let now = stage.secrets().get("demo-etcd-0").await?;
    ensure!(now.resource_version() == written.resource_version(), "the Secret has been written again");
    stage.stop().await
}

/// The names are taken by a Secret of a person, and by the lock with which Cluster `demo-etcd` initializes Kubernetes.
pub(crate) async fn leaves_foreign_alone(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.certificates().await?;
    stage.secret("demo-etcd-0", &json!({"mine": "yes"})).await?;
    let labels = json!({"cluster.x-k8s.io/cluster-name": "demo-etcd"});
    stage
        .apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "demo-etcd-lock", "labels": labels},
            "data": {"lock-information": json!({"machineName": "demo-etcd-4kxz7"}).to_string()}
        }))
        .await?;
    stage.run().await?;
    stage.machine("demo-etcd-0", &json!({})).await?;
    let message = stage.until_reason("demo-etcd-0", "NameTaken").await?;
    ensure!(message.contains("Secret demo-etcd-0"), "{message}");
    ensure!(stage.secrets().get("demo-etcd-0").await?.data.unwrap_or_default().contains_key("mine"));
    stage.secrets().delete("demo-etcd-0", &DeleteParams::default()).await?;
    until("the message is about the lock", SOON, async || {
        let message = stage.until_reason("demo-etcd-0", "NameTaken").await?;
        ensure!(message.starts_with("ConfigMap demo-etcd-lock belongs to Cluster demo-etcd: "), "{message}");
        Ok(Some(()))
    })
    .await?;
    ensure!(lock(&stage).await?.contains("demo-etcd-4kxz7"), "the lock was taken over");
    let locks: Api<ConfigMap> = Api::default_namespaced(stage.client.clone());
    locks.delete("demo-etcd-lock", &DeleteParams::default()).await?;
    ensure!(stage.until_data("demo-etcd-0").await?.contains("etcdadm init "));
    stage.stop().await
}

pub(crate) async fn waits_for_files(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.certificates().await?;
    stage.run().await?;
    let source = json!({"secret": {"name": "files", "key": "motd"}});
    let spec = json!({"files": [{"path": "/etc/motd", "contentFrom": source}]});
    stage.machine("demo-etcd-0", &spec).await?;
    let message = stage.until_reason("demo-etcd-0", "WaitingForFileSecret").await?;
    ensure!(message == "spec.files[0].contentFrom.secret: Secret files does not exist", "{message}");
    ensure!(lock(&stage).await.is_err(), "it holds the lock while it waits");
    let files = |values: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "files"}, "stringData": values});
    stage.apply(&files(json!({"other": "x"}))).await?;
    until("the message is about the key", SOON, async || {
        let message = stage.until_reason("demo-etcd-0", "WaitingForFileSecret").await?;
        ensure!(message.ends_with("Secret files has no key motd"), "{message}");
        Ok(Some(()))
    })
    .await?;
    stage.apply(&files(json!({"motd": "hello"}))).await?;
    ensure!(stage.until_data("demo-etcd-0").await?.contains("aGVsbG8="));
    stage.stop().await
}

pub(crate) async fn respects_pause(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.certificates().await?;
    stage.run().await?;
    let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "demo"}});
    let (clusters, name) = e2e::apply::api_for(&stage.client, &cluster).await?;
    let pause = async |paused: bool| {
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        clusters.patch(&name, &PatchParams::default(), &patch).await
    };
    pause(true).await?;
    stage.machine("demo-etcd-0", &json!({})).await?;
    stage.until_reason("demo-etcd-0", "Paused").await?;
    ensure!(stage.secrets().get_opt("demo-etcd-0").await?.is_none());
    ensure!(lock(&stage).await.is_err());
    pause(false).await?;
    stage.until_data("demo-etcd-0").await?;
    until("it says that it is not paused", SOON, async || {
        let config: EtcdadmConfig = stage.configs().get("demo-etcd-0").await?;
        let conditions = config.status.unwrap_or_default().conditions;
        ensure!(conditions.iter().any(|c| c.type_ == "Paused" && c.status == "False"), "{conditions:?}");
        Ok(Some(()))
    })
    .await?;
    stage.stop().await
}

/// The API server is away when the controller starts, and once more later.
pub(crate) async fn survives_an_outage(world: World) -> Result<()> {
    let mut stage = Stage::new(&world).await?;
    stage.machine("demo-etcd-0", &json!({})).await?;
    stage.plane.stop_apiserver().await?;
    stage.run().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.plane.start_apiserver().await?;
    stage.until_reason("demo-etcd-0", "WaitingForCertificates").await?;
    stage.plane.stop_apiserver().await?;
    stage.plane.start_apiserver().await?;
    stage.certificates().await?;
    ensure!(stage.until_data("demo-etcd-0").await?.contains("etcdadm init "));
    stage.stop().await
}

/// The content of the lock.
async fn lock(stage: &Stage) -> Result<String> {
    let api: Api<ConfigMap> = Api::default_namespaced(stage.client.clone());
    let lock = api.get("demo-etcd-lock").await?;
    lock.data.and_then(|data| data.get("lock-information").cloned()).context("the lock is empty")
}
