//! The demo on Cluster API's docker infrastructure: the same apply, which leads to a whole Kubernetes cluster.

use super::{FRAME, Milestones, Screen, Snapshot, note_etcd, stay, tree};
use crate::bed::{ClusterHandle, Manifests};
use crate::docker::{DockerBed, Workload};
use crate::world::World;
use anyhow::{Result, bail, ensure};
use std::time::{Duration, Instant};

/// The example that is applied.
const EXAMPLE: &str = "examples/docker/cluster.yaml";
/// How many control-plane nodes and workers it has together.
const NODES: usize = 2;
/// How long the cluster may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs the demo in a world. With `once`, it ends when everything has been shown.
///
/// # Errors
/// If anything does not come up as it should.
pub async fn run(world: &World, once: bool) -> Result<()> {
    println!(
        "Starting Docker, and a management plane of real parts: etcd, kube-apiserver, Cluster API's managers, and ours"
    );
    let begun = Instant::now();
    let bed = DockerBed::start(world).await?;
    println!("  ready after {:.1} s", begun.elapsed().as_secs_f32());

    println!("Applying {EXAMPLE}");
    let manifests = Manifests::of(EXAMPLE, "default", "demo")?;
    let begun = Instant::now();
    manifests.apply(&bed.client()).await?;
    let handle = ClusterHandle::new(&bed.client(), &manifests);
    let mut screen = Screen::default();
    let show =
        |snapshot: &Snapshot, elapsed: Duration| screen.show(&tree::lines(snapshot, elapsed, screen.is_watched()));
    let (workload, milestones) = travel(&bed, &handle, begun, NODES, show).await?;

    println!("\nProof: kubectl with the kubeconfig that the control plane has published");
    print!("{}", workload.kubectl(&["get", "nodes", "--output", "wide"])?);
    workload.store("it-works").await?;
    println!("ConfigMap kube-system/it-works stored and read back");
    for member in &handle.status().await?.members {
        let keys = ["/opt/bin/etcdctl.sh", "get", "--prefix", "/registry/", "--keys-only", "--consistency=s"];
        let count = bed.exec(&member.machine, &keys).await?.lines().filter(|line| !line.is_empty()).count();
        ensure!(count > 0, "etcd member {} has no keys of Kubernetes", member.name);
        println!("etcd member {} has {count} keys of Kubernetes", member.name);
    }

    println!("\nTimes");
    milestones.table().iter().for_each(|line| println!("{line}"));
    println!("\nWhere things are");
    println!("  look around   hack/enter.sh kubectl get clusters,etcdclusters.etcdcluster.cluster.x-k8s.io,machines");
    println!("                hack/enter.sh docker ps");
    println!("                hack/enter.sh docker exec demo-etcd-0 /opt/bin/etcdctl.sh member list");
    println!("  the cluster   hack/enter.sh kubectl --kubeconfig {} get nodes", workload.kubeconfig().display());
    println!("  endpoints     {}", handle.status().await?.endpoints);
    println!("  Secrets       {}", handle.secret_names().await?.join(", "));
    println!("  logs          {}", world.logs().display());
    stay(once).await;
    bed.stop().await
}

/// Reads a cluster again and again until etcd and this many Nodes are Ready, and records the milestones. `show` gets
/// every snapshot.
///
/// # Errors
/// When it has not come up after ten minutes.
pub async fn travel(
    bed: &DockerBed,
    handle: &ClusterHandle,
    begun: Instant,
    nodes: usize,
    mut show: impl FnMut(&Snapshot, Duration),
) -> Result<(Workload, Milestones)> {
    let mut milestones = Milestones::default();
    let mut workload = None;
    loop {
        let snapshot = Snapshot::take(handle).await?;
        let elapsed = begun.elapsed();
        note_etcd(&mut milestones, &snapshot, elapsed);
        if workload.is_none() && snapshot.control_plane_has_data() {
            workload = Workload::find(bed, handle).await.ok();
        }
        if workload.is_some() {
            milestones.reach("Kubernetes API server ready", elapsed);
        }
        let ready = snapshot.ready_nodes();
        if ready > 0 {
            milestones.reach("first Node Ready", elapsed);
        }
        show(&snapshot, elapsed);
        if ready == nodes
            && let Some(workload) = workload
        {
            milestones.reach("all Nodes Ready", elapsed);
            return Ok((workload, milestones));
        }
        if elapsed > PATIENCE {
            bail!("cluster {} has not come up in {} s", handle.cluster, PATIENCE.as_secs());
        }
        tokio::time::sleep(FRAME).await;
    }
}
