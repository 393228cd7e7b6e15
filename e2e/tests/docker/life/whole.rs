//! The whole life of an etcd below a control plane of three nodes, which is written to all the time.

use super::{GAP, is_named, lap};
use crate::clusters::{PATIENCE, change, control_plane_machines, gone, is_recorded, servers, writes_of_endpoints};
use crate::writes::Writer;
use anyhow::{Context, Error, Result, anyhow, ensure};
use e2e::bed::{ClusterHandle, Manifests};
use e2e::docker::{DockerBed, Workload};
use e2e::plane::Mark;
use e2e::tools::Etcd;
use e2e::until::until;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Nodes of the control plane.
const NODES: usize = 3;
/// How long one step may take: members join, three nodes are replaced one after the other, and members leave.
const STEP: Duration = Duration::from_secs(1200);
/// Time between two rounds of checks of all API servers.
const LOOKS: Duration = Duration::from_secs(2);
/// What a check finds has to be found again after this time. Otherwise, it was about an API server that was about to
/// end.
const CONFIRMED: Duration = Duration::from_secs(3);
/// Fewer checks of an API server show little.
const FEWEST: usize = 150;
/// The number of endpoints in the shortest list of this life.
const SHORTEST: usize = 3;
/// How long a member may take to accept a connection.
const ACCEPTS: Duration = Duration::from_secs(1);

/// Another version of etcd is rolled out, etcd grows from three members to five and shrinks to three again, and the
/// machine of one is destroyed. The control plane rolls out once for each of these. All along, every API server has
/// enough endpoints that answer, and its list is recorded as in use. No write is lost.
pub(crate) async fn of_one_etcd(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "whole").await?;
    let manifests = Manifests::of("examples/docker/three-control-planes.yaml", "whole", "whole")?.without(|document| {
        document["kind"] == "MachineDeployment"
            || document["kind"] == "MachineHealthCheck"
            || is_named(document, "whole-md-0")
    });
    let handle = ClusterHandle::new(&client, &manifests);
    let mark = bed.plane.mark();
    manifests.apply(&client).await?;
    let workload = Workload::until_ready(bed, &handle, PATIENCE).await?;
    workload.until_nodes(NODES, STEP).await?;
    let life = Life { bed, handle, workload, mark };
    life.settles(3).await.context("it comes up")?;
    let writer = Writer::start(&life.workload).await?;
    let mut checked = 0;
    tokio::select! {
        lived = life.lives() => lived?,
        broken = too_few(bed, &life.handle, &mut checked) => return Err(broken),
    }
    println!("  API servers were checked {checked} times");
    ensure!(checked >= FEWEST, "API servers were checked {checked} times only");
    writer.stop(GAP).await?;
    life.has_all_that_was_stored().await?;
    life.handle.delete("Cluster", &life.handle.cluster).await?;
    gone(bed, &life.handle).await
}

struct Life<'a> {
    bed: &'a DockerBed,
    handle: ClusterHandle,
    workload: Workload,
    /// Before the cluster was applied.
    mark: Mark,
}

/// The names of the steps. Each step stores an object of its name.
const STEPS: [&str; 4] = ["another-version", "from-three-to-five", "from-five-to-three", "a-machine-is-destroyed"];

impl Life<'_> {
    async fn lives(&self) -> Result<()> {
        for (number, step) in STEPS.into_iter().enumerate() {
            let lap = lap(step);
            self.step(number).await.with_context(|| step)?;
            self.rolled_once_for_each(number + 1).with_context(|| step)?;
            self.stores(step).await?;
            lap();
        }
        Ok(())
    }

    /// Tries again if the load balancer has led to an API server that was about to end.
    async fn stores(&self, step: &str) -> Result<()> {
        until(format!("{step} is stored"), PATIENCE, async || match self.workload.store(step).await {
            Err(error) if format!("{error:#}").contains("already exists") => Ok(Some(())),
            stored => stored.map(Some),
        })
        .await
    }

    async fn step(&self, number: usize) -> Result<()> {
        let old = self.handle.etcd_machines().await?;
        match number {
            0 => {
                let version = Etcd::V3_7.version()?;
                self.change(&json!({"etcdadmConfigSpec": {"version": version}})).await?;
                let machines = self.settles(3).await?;
                ensure!(!machines.iter().any(|name| old.contains(name)), "{old:?} were to leave: {machines:?}");
                let runs = self.handle.status().await?.version;
                ensure!(runs == version, "it runs {runs}");
            }
            1 => {
                self.change(&json!({"replicas": 5})).await?;
                let machines = self.settles(5).await?;
                ensure!(old.iter().all(|name| machines.contains(name)), "{old:?} were to stay: {machines:?}");
            }
            2 => {
                self.change(&json!({"replicas": 3})).await?;
                let machines = self.settles(3).await?;
                ensure!(machines.iter().all(|name| old.contains(name)), "{machines:?} are not of {old:?}");
            }
            _ => {
                let status = self.handle.status().await?;
                let victim = status.members.iter().find(|member| !member.leader).context("there is no follower")?;
                self.bed.destroy(&victim.machine).await?;
                until(format!("{} is replaced", victim.machine), STEP, async || {
                    let machines = self.handle.etcd_machines().await?;
                    ensure!(!machines.contains(&victim.machine), "the Machines are {machines:?}");
                    Ok(Some(()))
                })
                .await?;
                let machines = self.settles(3).await?;
                let stayed = machines.iter().filter(|name| old.contains(name)).count();
                ensure!(stayed == 2, "of {old:?} two were to stay: {machines:?}");
            }
        }
        Ok(())
    }

    async fn change(&self, spec: &serde_json::Value) -> Result<()> {
        let before = self.handle.status().await?.observed_generation;
        change(&self.handle, "EtcdCluster", &self.handle.etcd, &json!({"spec": spec})).await?;
        until("the change is seen", PATIENCE, async || {
            Ok((self.handle.status().await?.observed_generation > before).then_some(()))
        })
        .await
    }

    /// Waits until there are this many members, nothing else is going on, and every API server was started with their
    /// endpoints. Returns the Machines of the members.
    async fn settles(&self, members: usize) -> Result<Vec<String>> {
        let handle = &self.handle;
        let settled = until(format!("{members} members and {NODES} API servers are settled"), STEP, async || {
            let (machines, status) = (handle.etcd_machines().await?, handle.status().await?);
            let all = machines.len() == members && status.members.len() == members;
            ensure!(status.ready && all, "{machines:?}: {:?}", status.conditions);
            ensure!(status.operation.is_none() && status.removed_members.is_empty(), "{:?}", status.conditions);
            for (condition, wanted) in [("MachinesUpToDate", "True"), ("MachinesDeleting", "False")] {
                let found = status.conditions.iter().find(|found| found.type_ == condition);
                ensure!(found.is_some_and(|found| found.status == wanted), "{condition} is {found:?}");
            }
            let endpoints = handle.control_plane_endpoints().await?;
            ensure!(endpoints.join(",") == status.endpoints, "the control plane has {endpoints:?}");
            let planes = handle.control_plane_machines().await?;
            ensure!(planes.len() == NODES, "its Machines are {planes:?}");
            for plane in planes {
                ensure!(servers(self.bed, &plane).await? == endpoints, "{plane} has other endpoints");
            }
            Ok(Some(machines))
        })
        .await?;
        self.workload.until_nodes(NODES, STEP).await?;
        Ok(settled)
    }

    /// According to the API server's audit log, endpoints were written to the control plane once for each step, and it
    /// made as many Machines as one rollout takes each time.
    fn rolled_once_for_each(&self, steps: usize) -> Result<()> {
        let requests = self.bed.plane.requests_since(self.mark)?;
        let written = writes_of_endpoints(&requests, &self.handle).len();
        ensure!(written == steps + 1, "endpoints were written {written} times: the first ones, and {steps} changes");
        let made = control_plane_machines(&requests, &self.handle).len();
        ensure!(made == NODES * (steps + 1), "the control plane made {made} Machines in {steps} rollouts");
        Ok(())
    }

    async fn has_all_that_was_stored(&self) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.workload.client(), "kube-system");
        for step in STEPS {
            until(format!("what was stored after {step} is read"), PATIENCE, async || {
                Ok(maps.get(step).await.map(|_| Some(()))?)
            })
            .await?;
        }
        Ok(())
    }
}

/// Checks every API server again and again, until one lacks something. Counts the checks that found nothing.
async fn too_few(bed: &DockerBed, handle: &ClusterHandle, checked: &mut usize) -> Error {
    loop {
        sleep(LOOKS).await;
        let Ok(planes) = handle.control_plane_machines().await else { continue };
        for plane in planes {
            let found = check(bed, handle, &plane).await;
            match &found {
                Some(Ok(())) => *checked += 1,
                Some(Err(lacks)) => {
                    sleep(CONFIRMED).await;
                    if check(bed, handle, &plane).await == found {
                        return anyhow!("{lacks}");
                    }
                }
                None => {}
            }
        }
    }
}

/// What an API server lacks, as an error. The list that it was started with has to be recorded as in use, and f + 1 of
/// these endpoints have to answer, where f is the fault tolerance of as many members as the list has. The number of
/// members that are wanted now does not matter: a list of five stays one until the control plane has rolled out. `None`
/// if no API server runs there, or if nothing could be asked.
async fn check(bed: &DockerBed, handle: &ClusterHandle, plane: &str) -> Option<Result<(), String>> {
    let endpoints = servers(bed, plane).await.ok()?;
    if !is_recorded(handle, &endpoints).await.ok()? {
        return Some(Err(format!("{endpoints:?} of the API server on {plane} are not on record as in use")));
    }
    let wanted = live_at_least(endpoints.len());
    let mut live = 0;
    for endpoint in &endpoints {
        live += usize::from(answers(endpoint).await);
    }
    if live < wanted {
        return Some(Err(format!("of {endpoints:?} of the API server on {plane}, {live} answer, not {wanted}")));
    }
    Some(Ok(()))
}

/// How many of this many endpoints have to answer: one more than a healthy cluster of that size can lose. No list is
/// shorter than `SHORTEST`.
fn live_at_least(endpoints: usize) -> usize {
    (endpoints.max(SHORTEST) - 1) / 2 + 1
}

async fn answers(endpoint: &str) -> bool {
    let address = endpoint.trim_start_matches("https://");
    matches!(timeout(ACCEPTS, TcpStream::connect(address)).await, Ok(Ok(_)))
}
