//! Two managers share a fleet, by label or by namespace. Neither touches what belongs to the other manager or to no
//! manager. Each manager has its own user, so the API server's audit log shows which of them did what.

use crate::bring_up::{PATIENCE, released};
use crate::load::LowLoad;
use anyhow::{Result, ensure};
use api::names::WATCH_FILTER_LABEL;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::plane::{Request, Requests, users};
use e2e::until::until;
use futures::future::try_join_all;
use kube::api::{Patch, PatchParams};
use serde_json::json;

/// By the label `cluster.x-k8s.io/watch-filter`, in one namespace.
pub(crate) async fn by_watch_filter(bed: &mut Bed) -> Result<()> {
    ClusterHandle::make_namespace(&bed.client(), "shards").await?;
    let shard = |index: usize, colour: &str| {
        let label = json!({WATCH_FILTER_LABEL: colour});
        let manifests = Manifests::new("shards", colour)?
            .replicas(1)
            .with("Cluster", |cluster| cluster["metadata"]["labels"] = label.clone())
            .with("EtcdCluster", |etcd| etcd["metadata"]["labels"] = label.clone());
        anyhow::Ok(Shard::new(bed, index, format!("--watch-filter={colour}"), manifests))
    };
    let shards = [shard(0, "blue")?, shard(1, "green")?];
    shared(bed, &shards, Manifests::new("shards", "nobodys")?).await?;
    for Shard { handle, .. } in &shards {
        let made = handle.names("Machine", &format!("{WATCH_FILTER_LABEL}={}", handle.cluster)).await?;
        ensure!(handle.etcd_machines().await?.iter().all(|machine| made.contains(machine)), "with the label: {made:?}");
    }
    Ok(())
}

/// By namespace, with Clusters of the same name. Neither manager even reads in another namespace.
pub(crate) async fn by_namespace(bed: &mut Bed) -> Result<()> {
    for namespace in ["team-blue", "team-green", "team-nobody"] {
        ClusterHandle::make_namespace(&bed.client(), namespace).await?;
    }
    let shard = |index: usize, namespace: &str| {
        let manifests = Manifests::new(namespace, "demo")?.replicas(1);
        anyhow::Ok(Shard::new(bed, index, format!("--namespace={namespace}"), manifests))
    };
    let shards = [shard(0, "team-blue")?, shard(1, "team-green")?];
    let mark = bed.plane.mark();
    shared(bed, &shards, Manifests::new("team-nobody", "demo")?).await?;
    let requests = bed.plane.requests_since(mark)?;
    for shard in &shards {
        // CRDs belong to no namespace, and a request without a resource is discovery.
        let inside = |request: &Request| {
            request.namespace == shard.handle.namespace
                || ["", "customresourcedefinitions"].contains(&request.resource.as_str())
        };
        let outside = requests.user(shard.user).filter(|request| !inside(request));
        ensure!(outside.is_empty(), "{} has looked elsewhere:\n{outside}", shard.user);
    }
    Ok(())
}

/// What one of the managers works on.
struct Shard {
    user: &'static str,
    /// The flag that limits the manager to this.
    flag: String,
    manifests: Manifests,
    handle: ClusterHandle,
}

impl Shard {
    fn new(bed: &Bed, index: usize, flag: String, manifests: Manifests) -> Self {
        Self { user: users::SHARDS[index], flag, handle: ClusterHandle::new(&bed.client(), &manifests), manifests }
    }

    fn owns(&self, request: &Request) -> bool {
        let name = request.name.strip_prefix(&self.handle.cluster);
        request.namespace == self.handle.namespace && name.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// Checks that everything that its manager has written belongs to its Cluster.
    fn has_kept_to_its_own(&self, requests: &Requests) -> Result<()> {
        // An event is named after its object, with a number appended. Events show nothing that the other writes do
        // not show.
        let writes = requests.user(self.user).writes().filter(|request| request.resource != "events");
        ensure!(!writes.is_empty(), "{} has written nothing", self.user);
        let foreign = writes.filter(|request| !self.owns(request));
        let foreign: Vec<String> = foreign
            .iter()
            .map(|request| format!("{} {} {}/{}", request.verb, request.resource, request.namespace, request.name))
            .collect();
        ensure!(foreign.is_empty(), "{} has touched what is not its own: {}", self.user, foreign.join(", "));
        Ok(())
    }

    async fn scale(&self, replicas: usize) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.handle.etcds().patch(&self.handle.etcd, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn until_it_has(&self, members: usize) -> Result<()> {
        until(format!("{} has {members} members", self.handle.etcd), PATIENCE, async || {
            let status = self.handle.status().await?;
            ensure!(status.ready && status.members.len() == members, "{:?}", status.conditions);
            Ok(Some(()))
        })
        .await
    }
}

/// Runs the scenario with two managers in place of the bed's manager.
async fn shared(bed: &mut Bed, shards: &[Shard; 2], nobodys: Manifests) -> Result<()> {
    bed.kill_manager(0).await?;
    let result = lived(bed, shards, &nobodys.replicas(1).without_control_plane()).await;
    for index in 0..shards.len() {
        if bed.manager(index).is_ok() {
            bed.kill_manager(index).await?;
        }
    }
    bed.start_manager(0).await?;
    result
}

/// Both clusters come up and are in use. Then one manager is down while both clusters are to grow: its cluster waits,
/// and the other one grows.
async fn lived(bed: &mut Bed, shards: &[Shard; 2], nobodys: &Manifests) -> Result<()> {
    let (client, mark) = (bed.client(), bed.plane.mark());
    for (index, shard) in shards.iter().enumerate() {
        bed.start_manager_as(index, shard.user, &[&shard.flag]).await?;
    }
    for manifests in [nobodys, &shards[0].manifests, &shards[1].manifests] {
        manifests.apply(&client).await?;
    }
    try_join_all(shards.iter().map(|shard| shard.handle.until_ready(PATIENCE))).await?;
    try_join_all(shards.iter().map(|shard| released(&shard.handle))).await?;
    let mut loads = Vec::new();
    for shard in shards {
        loads.push(LowLoad::begin(bed, &shard.handle).await?);
    }

    let [orphaned, other] = shards;
    bed.kill_manager(0).await?;
    for shard in shards {
        shard.scale(3).await?;
    }
    other.until_it_has(3).await?;
    let machines = orphaned.handle.etcd_machines().await?;
    ensure!(machines.len() == 1, "somebody has made Machines of {}: {machines:?}", orphaned.handle.etcd);
    bed.start_manager_as(0, orphaned.user, &[&orphaned.flag]).await?;
    orphaned.until_it_has(3).await?;
    try_join_all(loads.into_iter().map(LowLoad::judged)).await?;

    let requests = bed.plane.requests_since(mark)?;
    for shard in shards {
        shard.has_kept_to_its_own(&requests)?;
    }
    let handle = ClusterHandle::new(&client, nobodys);
    let etcd = handle.etcds().get(&handle.etcd).await?;
    ensure!(etcd.status.is_none() && etcd.metadata.finalizers.is_none(), "{} was looked after: {etcd:?}", handle.etcd);
    let machines = handle.etcd_machines().await?;
    ensure!(machines.is_empty(), "{} has Machines: {machines:?}", handle.etcd);
    Ok(())
}
