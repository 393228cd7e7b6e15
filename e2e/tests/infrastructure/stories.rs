//! What happens to LocalMachines.

use crate::scene::{CLUSTER, LOCAL, SOON, Scene, reference};
use anyhow::{Context, Result, ensure};
use e2e::plane::users;
use e2e::until::until;
use e2e::world::World;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;
use std::time::{Duration, Instant};

const GOOD: &str = "#cloud-config\nruncmd:\n- mkdir -p /run/cluster-api && hostname > /root/name \
                    && echo success > /run/cluster-api/bootstrap-success.complete\n";

pub(crate) async fn life_of_a_machine(world: World) -> Result<()> {
    let scene = Scene::start(&world).await?;
    scene.machine("one", None).await?;
    scene.until_reason("one", "Ready", "WaitingForBootstrapData").await?;
    ensure!(scene.machines.list()?.is_empty(), "a machine without bootstrap data");

    scene.secret("one", GOOD).await?;
    let begin = Instant::now();
    scene
        .change("Machine", "one", json!({"spec": {"bootstrap": {"configRef": null, "dataSecretName": "one"}}}))
        .await?;
    let named = begin.elapsed();
    while !scene.machines.get("default", "one").is_ok_and(|machine| machine.is_running()) {
        ensure!(begin.elapsed() < SOON, "it does not start");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let started = begin.elapsed();
    let address = scene.until_provisioned("one").await?;
    let provisioned = begin.elapsed();
    scene.until_reason("one", "BootstrapSucceeded", "Succeeded").await?;
    println!("named {named:?}, started {started:?}, provisioned {provisioned:?}, booted {:?}", begin.elapsed());
    scene.until_reason("one", "Ready", "Ready").await?;
    let machine = scene.machines.get("default", "one")?;
    println!("the machine says {:?}", machine.bootstrap()?);
    ensure!(machine.address().to_string() == address, "{address}");
    ensure!(machine.exec(&["cat", "/root/name"])?.stdout == b"one\n");
    let seen = scene.get("Machine", "one").await?;
    ensure!(seen.data.pointer("/spec/providerID") == Some(&json!("local:////default/one")), "{}", seen.data);

    let mark = scene.plane.mark();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let idle = scene.plane.requests_since(mark)?.user(users::LOCAL_INFRASTRUCTURE);
    ensure!(idle.iter().all(|request| request.verb == "watch"), "requests of an idle controller: {}", idle.len());

    machine.kill()?;
    scene.until_reason("one", "Ready", "PoweredOff").await?;
    machine.power_on()?;
    scene.until_reason("one", "Ready", "Ready").await?;

    scene.delete("Machine", "one").await?;
    scene.until_gone("Machine", "one").await?;
    scene.until_gone("LocalMachine", "one").await?;
    ensure!(scene.machines.list()?.is_empty());
    scene.delete("Cluster", "demo").await?;
    scene.until_gone("Cluster", "demo").await?;
    scene.until_gone("LocalCluster", "demo").await?;
    let reserved = scene.machines.reservations().all()?;
    ensure!(reserved.is_empty(), "{reserved:?}");
    scene.plane.stop().await
}

pub(crate) async fn template(world: World) -> Result<()> {
    let scene = Scene::start(&world).await?;
    let metadata = json!({"labels": {"chosen": "yes"}, "annotations": {"also": "this"}});
    let template = json!({
        "apiVersion": LOCAL, "kind": "LocalMachineTemplate", "metadata": {"name": "t"},
        "spec": {"template": {"metadata": metadata, "spec": {}}},
    });
    scene.apply(template).await?;
    scene.secret("data", GOOD).await?;
    let deployment = json!({
        "apiVersion": CLUSTER, "kind": "MachineDeployment", "metadata": {"name": "workers"},
        "spec": {
            "clusterName": "demo", "replicas": 2, "selector": {"matchLabels": {}},
            "template": {"spec": {
                "clusterName": "demo", "bootstrap": {"dataSecretName": "data"},
                "infrastructureRef": reference("LocalMachineTemplate", "t"),
            }},
        },
    });
    scene.apply(deployment).await?;
    let api = scene.api("LocalMachine").await?;
    let names = until("two LocalMachines", SOON, async || {
        let machines = api.list(&ListParams::default().labels("chosen=yes")).await?.items;
        Ok((machines.len() == 2).then(|| machines.iter().map(ResourceExt::name_any).collect::<Vec<_>>()))
    })
    .await?;
    let mut addresses = Vec::new();
    for name in &names {
        scene.until_reason(name, "BootstrapSucceeded", "Succeeded").await?;
        addresses.push(scene.until_provisioned(name).await?);
    }
    ensure!(addresses[0] != addresses[1], "{addresses:?}");
    scene.delete("Cluster", "demo").await?;
    scene.until_gone("Cluster", "demo").await?;
    ensure!(scene.machines.list()?.is_empty());
    scene.plane.stop().await
}

pub(crate) async fn failing_data(world: World) -> Result<()> {
    let scene = Scene::start(&world).await?;
    scene.machine("bad", Some("#cloud-config\nruncmd:\n- echo these are its last words; exit 3\n")).await?;
    scene.until_provisioned("bad").await?;
    let message = scene.until_reason("bad", "BootstrapSucceeded", "BootstrapFailed").await?;
    ensure!(message.contains("these are its last words"), "{message}");
    scene.until_reason("bad", "Ready", "BootstrapFailed").await?;
    scene.plane.stop().await
}

pub(crate) async fn pause(world: World) -> Result<()> {
    let scene = Scene::start(&world).await?;
    scene.change("Cluster", "demo", json!({"spec": {"paused": true}})).await?;
    scene.machine("waits", None).await?;
    let paused = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    scene.change("LocalMachine", "waits", paused).await?;
    scene.change("Cluster", "demo", json!({"spec": {"paused": false}})).await?;
    scene.secret("waits", GOOD).await?;
    let data = json!({"spec": {"bootstrap": {"configRef": null, "dataSecretName": "waits"}}});
    scene.change("Machine", "waits", data).await?;
    scene.until_reason("waits", "Paused", "Paused").await?;
    // Another machine comes up meanwhile. So anything that could have happened to the paused one has had enough time.
    scene.machine("other", Some(GOOD)).await?;
    scene.until_reason("other", "BootstrapSucceeded", "Succeeded").await?;
    ensure!(scene.machines.get("default", "waits").is_err());
    let resumed = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}});
    scene.change("LocalMachine", "waits", resumed).await?;
    scene.until_reason("waits", "BootstrapSucceeded", "Succeeded").await?;
    scene.plane.stop().await
}

pub(crate) async fn controller_killed(world: World) -> Result<()> {
    let mut scene = Scene::start(&world).await?;
    scene.machine("early", Some(GOOD)).await?;
    scene.until_provisioned("early").await?;
    let first = scene.machines.get("default", "early")?.first_process();
    scene.provider.kill().await?;
    scene.machine("late", Some(GOOD)).await?;
    let machine = scene.machines.get("default", "early")?;
    until("the machine boots without its controller", SOON, async || Ok(machine.bootstrap()?)).await?;
    scene.provider.restart().await?;
    scene.until_reason("early", "BootstrapSucceeded", "Succeeded").await?;
    scene.until_reason("late", "BootstrapSucceeded", "Succeeded").await?;
    ensure!(machine.first_process() == first, "the machine was started again");
    scene.delete("Machine", "early").await?;
    scene.until_gone("LocalMachine", "early").await?;
    scene.machines.get("default", "early").err().context("it is still there")?;
    scene.plane.stop().await
}
