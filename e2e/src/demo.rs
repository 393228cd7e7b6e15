//! The demo: one apply, a live tree of the cluster that comes up, and a proof that it works.

pub mod docker;
pub mod milestones;
pub mod screen;
pub mod snapshot;
pub mod tree;

use crate::apply::{apply_object, documents};
use crate::bed::{Bed, ClusterHandle, EXAMPLE, Manifests, repository};
use crate::plane::workload::WorkloadApiServer;
use crate::world::World;
use anyhow::{Context, Result, bail};
use milestones::Milestones;
use screen::Screen;
use snapshot::Snapshot;
use std::time::{Duration, Instant};

/// How long the cluster may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time between two reads of the cluster.
const FRAME: Duration = Duration::from_millis(100);

/// Runs the demo in a world. With `once`, it ends when everything has been shown.
///
/// # Errors
/// If anything does not come up as it should.
pub async fn run(world: &World, once: bool) -> Result<()> {
    println!("Starting a management plane of real parts: etcd, kube-apiserver, Cluster API's managers, and ours");
    let bed = Bed::start(world).await?;
    println!("  ready after {:.1} s", bed.started_in.as_secs_f32());

    println!("Applying {EXAMPLE}");
    let path = repository(EXAMPLE);
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let begun = Instant::now();
    for document in documents(&text)? {
        apply_object(&bed.client(), &document).await?;
    }
    let handle = ClusterHandle::new(&bed.client(), &Manifests::new("default", "demo")?);
    let mut milestones = Milestones::default();
    watch(&handle, begun, &mut milestones).await?;

    println!("\nProof: a kube-apiserver with nothing but the published endpoints and Secrets");
    prove(&bed, &handle).await?;
    summary(&bed, &handle, &milestones).await?;
    stay(once).await;
    Ok(())
}

/// Returns with `once`. Otherwise, never returns, so that a person can look around.
async fn stay(once: bool) {
    if !once {
        println!("\nIt stays until Ctrl-C.");
        std::future::pending::<()>().await;
    }
}

/// Records the milestones of etcd, and those of the control plane that follow from it.
fn note_etcd(milestones: &mut Milestones, snapshot: &Snapshot, elapsed: Duration) {
    for member in snapshot.healthy_voters() {
        milestones.reach(&format!("member {member} healthy"), elapsed);
    }
    if snapshot.etcd_ready() {
        milestones.reach("EtcdCluster Ready", elapsed);
    }
    if snapshot.control_plane_has_data() {
        milestones.reach("control-plane Machine data", elapsed);
    }
}

/// Shows the cluster until etcd is ready and the control plane has made its first Machine with bootstrap data.
async fn watch(handle: &ClusterHandle, begun: Instant, milestones: &mut Milestones) -> Result<()> {
    let mut screen = Screen::default();
    loop {
        let snapshot = Snapshot::take(handle).await?;
        let elapsed = begun.elapsed();
        note_etcd(milestones, &snapshot, elapsed);
        screen.show(&tree::lines(&snapshot, elapsed, screen.is_watched()));
        if snapshot.etcd_ready() && snapshot.control_plane_has_data() {
            return Ok(());
        }
        if elapsed > PATIENCE {
            bail!("the cluster has not come up in {} s; the tree above says what it waits for", PATIENCE.as_secs());
        }
        tokio::time::sleep(FRAME).await;
    }
}

/// Starts an API server on the new etcd and stores an object in it.
async fn prove(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    let begun = Instant::now();
    let access = handle.etcd_access().await?;
    let server = WorkloadApiServer::start(bed.world(), &access).await?;
    println!("  ready after {:.1} s, on {}", begun.elapsed().as_secs_f32(), access.endpoints.join(", "));
    server.store_an_object().await?;
    println!("  ConfigMap kube-system/it-works stored and read back");
    Ok(())
}

async fn summary(bed: &Bed, handle: &ClusterHandle, milestones: &Milestones) -> Result<()> {
    println!("\nTimes");
    milestones.table().iter().for_each(|line| println!("{line}"));
    println!("\nWhere things are");
    println!("  look around   hack/enter.sh kubectl get clusters,etcdclusters.etcdcluster.cluster.x-k8s.io,machines");
    println!("                hack/enter.sh local-infrastructure machine list");
    println!("  endpoints     {}", handle.status().await?.endpoints);
    println!("  Secrets       {}", handle.secret_names().await?.join(", "));
    println!("  logs          {}", bed.world().logs().display());
    Ok(())
}
