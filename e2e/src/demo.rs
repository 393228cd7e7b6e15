//! The demo: one apply, a cluster that comes up as a live tree, and a proof that it works.

pub mod screen;
pub mod snapshot;
pub mod tree;

use crate::apply::{apply_object, documents};
use crate::bed::{Bed, EXAMPLE, Look, Manifests, repository};
use crate::plane::workload::WorkloadApiServer;
use crate::world::World;
use anyhow::{Context, Result, bail};
use screen::Screen;
use snapshot::Snapshot;
use std::time::{Duration, Instant};

/// How long the cluster may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time between two looks at the cluster.
const FRAME: Duration = Duration::from_millis(100);

/// Runs the demo in a world. `once`: end when it has been shown.
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
    let look = Look::at(&bed.client(), &Manifests::new("default", "demo")?);
    let times = watch(&look, begun).await?;

    println!("\nProof: a kube-apiserver with nothing but the published endpoints and Secrets");
    let ready_after = prove(&bed, &look).await?;
    summary(&bed, &look, &times, ready_after).await?;
    if !once {
        println!("\nIt stays until Ctrl-C.");
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// When what was reached, from the apply on.
struct Times {
    members: Vec<(String, Duration)>,
    ready: Duration,
    control_plane: Duration,
}

/// Shows the cluster until etcd is ready and the control plane has made its first Machine with bootstrap data.
async fn watch(look: &Look, begun: Instant) -> Result<Times> {
    let mut screen = Screen::default();
    let (mut members, mut ready) = (Vec::<(String, Duration)>::new(), None);
    loop {
        let snapshot = Snapshot::take(look).await?;
        let elapsed = begun.elapsed();
        for member in snapshot.healthy_voters() {
            if !members.iter().any(|(known, _)| known == member) {
                members.push((member.to_owned(), elapsed));
            }
        }
        if snapshot.etcd_ready() {
            ready.get_or_insert(elapsed);
        }
        screen.show(&tree::lines(&snapshot, elapsed));
        if let (Some(ready), true) = (ready, snapshot.control_plane_has_data()) {
            return Ok(Times { members, ready, control_plane: elapsed });
        }
        if elapsed > PATIENCE {
            bail!("the cluster has not come up in {} s; the tree above says what it waits for", PATIENCE.as_secs());
        }
        tokio::time::sleep(FRAME).await;
    }
}

/// Starts an API server on the new etcd and stores an object in it.
async fn prove(bed: &Bed, look: &Look) -> Result<Duration> {
    let begun = Instant::now();
    let access = look.etcd_access().await?;
    let server = WorkloadApiServer::start(bed.world(), &access).await?;
    let after = begun.elapsed();
    println!("  ready after {:.1} s, on {}", after.as_secs_f32(), access.endpoints.join(", "));
    server.store_an_object().await?;
    println!("  ConfigMap kube-system/it-works stored and read back");
    Ok(after)
}

async fn summary(bed: &Bed, look: &Look, times: &Times, apiserver: Duration) -> Result<()> {
    let seconds = |duration: &Duration| format!("{:>5.1} s", duration.as_secs_f32());
    println!("\nTimes");
    println!("  management plane ready             {}", seconds(&bed.started_in));
    for (index, (name, after)) in times.members.iter().enumerate() {
        println!("  apply → member {} healthy ({name}) {}", index + 1, seconds(after));
    }
    println!("  apply → EtcdCluster Ready          {}", seconds(&times.ready));
    println!("  apply → control-plane Machine data {}", seconds(&times.control_plane));
    println!("  API server on the new etcd ready   {}", seconds(&apiserver));
    println!("\nWhere things are");
    println!("  look around   hack/enter.sh kubectl get clusters,etcdclusters,machines");
    println!("                hack/enter.sh local-infrastructure machine list");
    println!("  endpoints     {}", look.status().await?.endpoints);
    println!("  Secrets       {}", look.secret_names().await?.join(", "));
    println!("  logs          {}", bed.world().logs().display());
    Ok(())
}
