//! The spec is changed, and at the writes that follow our manager is killed before them, killed after them, or loses
//! the answer. Each time the change is carried out once, nothing is left over, and nothing that was acknowledged
//! meanwhile is lost.

mod used;

use crate::deletion::all_is_gone;
use crate::departures::only_theirs;
use crate::load::LowLoad;
use crate::places::{Told, strikes};
use crate::records::warnings;
use crate::rolls::another_spec;
use crate::shrinks::are_well;
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, ControlPlaneStub, Manifests};
use e2e::faults::{FaultyManager, How, Place, Sweep};
use e2e::until::until;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::ops::Range;
use std::time::Duration;
use used::Servers;

/// Clusters side by side. Each has a manager of its own, which sees no other's.
const AT_ONCE: usize = 3;
/// The same where there are API servers, and up to six members.
const AT_ONCE_USED: usize = 2;
/// How long a cluster may take to come up beside others, and a change to be carried out.
const PATIENCE: Duration = Duration::from_secs(300);

/// What is written when the control plane is told: other endpoints are published, recorded as in use, and given to it, after
/// a dry run. In the end the record changes again.
const PUBLISHES: &str = "patch etcdclusters/status demo-etcd";
const RECORDS: &str = "patch etcdclusters demo-etcd";
const TELLS: &str = "patch stubcontrolplanes demo-control-plane";
/// Writes before it is told that belong to it.
const BEFORE: usize = 4;

/// Another configuration: every member of three is replaced by another one, which joins before.
pub(crate) async fn of_the_configuration(bed: &mut Bed) -> Result<()> {
    sweep(bed, Change::rollout("rolled", json!({}))).await
}

/// The same beside a control plane, whose API servers use the endpoints: three members become six, it is told once, and the
/// old ones leave when it has rolled out. Each write is a place from when it is told until the first one may go.
pub(crate) async fn beside_a_control_plane(bed: &mut Bed) -> Result<()> {
    sweep(bed, Change { servers: 1, ..Change::rollout("used", json!({})) }).await
}

/// The same where there is no room for another Machine: every member of three leaves before another one joins.
pub(crate) async fn without_room(bed: &mut Bed) -> Result<()> {
    let before = json!({"rolloutStrategy": {"rollingUpdate": {"maxSurge": 0}}});
    sweep(bed, Change::rollout("in-place", before)).await
}

/// Fewer replicas, beside a control plane too: it is told once, and two of three members leave when it has rolled out.
pub(crate) async fn of_the_number(bed: &mut Bed) -> Result<()> {
    let after = json!({"replicas": 1});
    sweep(bed, Change { name: "lowered", had: 3, before: json!({}), after, has: 1, stay: 1, servers: 1 }).await
}

/// More replicas: two members join one.
pub(crate) async fn to_more(bed: &mut Bed) -> Result<()> {
    let after = json!({"replicas": 3});
    sweep(bed, Change { name: "raised", had: 1, before: json!({}), after, has: 3, stay: 1, servers: 0 }).await
}

/// What is changed for a cluster.
struct Change {
    name: &'static str,
    /// How many members there are before.
    had: i64,
    /// The spec before, beside that of the manifests.
    before: Value,
    /// What is changed.
    after: Value,
    /// How many members there are in the end, and how many of them were there before.
    has: usize,
    stay: usize,
    /// API servers that use it. Without any, clients follow what is published.
    servers: usize,
}

impl Change {
    /// Another configuration of three, which replaces all of them.
    fn rollout(name: &'static str, before: Value) -> Self {
        Self { name, had: 3, before, after: another_spec(), has: 3, stay: 0, servers: 0 }
    }
}

/// Changes the spec once without a fault, which says how many places there are; then once for each place of a sample, or with
/// `E2E_EVERY_PLACE` set for all of them.
async fn sweep(bed: &mut Bed, change: Change) -> Result<()> {
    bed.kill_manager(0).await?;
    let name = change.name;
    let counted = tell(bed, &change, &format!("{name}-counted"), None).await.context("without a fault")?.writes;
    let told = async |place: Place| {
        anyhow::Ok(tell(bed, &change, &format!("{name}-{}", place.slug()), Some(place)).await?.ending())
    };
    if change.servers > 0 {
        let part = telling(&counted)?;
        let sweep = Sweep { name, writes: counted, at_once: AT_ONCE_USED };
        sweep.run_part(part, &[PUBLISHES, RECORDS, TELLS], &How::DEATHS, told).await?;
    } else {
        let sweep = Sweep { name, writes: counted, at_once: AT_ONCE };
        sweep.run_wanted(&How::DEATHS, told).await?;
    }
    bed.start_manager(0).await
}

/// The writes from when the control plane is told until the first old Machine is let go: that is the first one that is
/// patched after the record of what is in use has changed again.
fn telling(writes: &[String]) -> Result<Range<usize>> {
    let tells = next(writes, 0, |write| write == TELLS)?;
    let retires = next(writes, tells, |write| write == RECORDS)?;
    let leaves = next(writes, retires, |write| write.starts_with("patch machines "))?;
    Ok(tells.saturating_sub(BEFORE)..leaves + 1)
}

fn next(writes: &[String], from: usize, is_it: impl Fn(&str) -> bool) -> Result<usize> {
    let found = (from..writes.len()).find(|index| is_it(&writes[*index]));
    found.with_context(|| format!("after the first {from} of these something is missing: {writes:#?}"))
}

/// One change, with its writes and what the fault happened to. `place` is counted from the change on.
async fn tell(bed: &Bed, change: &Change, namespace: &str, place: Option<Place>) -> Result<Told> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manager = FaultyManager::start(bed, namespace, Some(namespace), Vec::new()).await?;
    let manifests = Manifests::new(namespace, "demo")?.replicas(change.had);
    // Here no control plane of kubeadm's gets a Node, and so none would ever roll out with the endpoints of other members.
    let manifests = match change.servers {
        0 => manifests.without_control_plane(),
        servers => manifests.with_control_plane_stub(servers),
    };
    let manifests = manifests.with("EtcdCluster", |etcd: &mut Value| merge(&mut etcd["spec"], &change.before));
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    let old = handle.etcd_machines().await?;
    let before = handle.membership(&bed.machines, &old).await?;
    let clients = Clients::begin(bed, &handle, change.servers).await?;
    let up = strikes(&manager, place.as_ref());
    let spec = Patch::Merge(json!({"spec": change.after}));
    handle.etcds().patch(&handle.etcd, &PatchParams::default(), &spec).await?;
    let machines = carried_out(bed, &handle, change, &old).await?;
    let after = handle.membership(&bed.machines, &machines).await?;
    ensure!(after.cluster_id == before.cluster_id, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &handle, &machines).await?;
    let stub = clients.end(&handle).await?;
    let warnings = warnings(&client, namespace).await?;
    ensure!(warnings.is_empty(), "{} warnings: {warnings:#?}", warnings.len());
    let told = Told::until_now(&manager, up);
    handle.delete("Cluster", &handle.cluster).await?;
    all_is_gone(bed, &handle).await.context("the deletion")?;
    if let Some(stub) = stub {
        stub.until_gone(PATIENCE).await?;
    }
    manager.stop().await?;
    Ok(told)
}

/// Who uses etcd while it is changed: one of the two.
struct Clients {
    load: Option<LowLoad>,
    servers: Option<Servers>,
}

impl Clients {
    async fn begin(bed: &Bed, handle: &ClusterHandle, servers: usize) -> Result<Self> {
        Ok(match servers {
            0 => Self { load: Some(LowLoad::begin(bed, handle).await?), servers: None },
            number => Self { load: None, servers: Some(Servers::begin(bed, handle, number).await?) },
        })
    }

    /// Nothing that was acknowledged is lost. Gives the control plane, where there is one.
    async fn end(self, handle: &ClusterHandle) -> Result<Option<ControlPlaneStub>> {
        if let Some(load) = self.load {
            load.judged().await?;
        }
        match self.servers {
            Some(servers) => servers.have_rolled(handle).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Waits until there are as many members as wanted, and nothing is being done any more. Gives the names of their Machines.
async fn carried_out(bed: &Bed, handle: &ClusterHandle, change: &Change, old: &[String]) -> Result<Vec<String>> {
    until(format!("the change of {} is carried out", handle.namespace), PATIENCE, async || {
        let machines = handle.etcd_machines().await?;
        let stay = machines.iter().filter(|name| old.contains(name)).count();
        ensure!((machines.len(), stay) == (change.has, change.stay), "the Machines are {machines:?}");
        Ok(Some(()))
    })
    .await?;
    are_well(bed, handle, change.has).await
}

fn merge(spec: &mut Value, more: &Value) {
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
}
