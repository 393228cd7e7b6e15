//! The spec changes. At one of the writes that follow, our manager is killed before the write, is killed after it, or
//! loses the answer. Each time, the change is carried out once, nothing is left over, and no write that was
//! acknowledged meanwhile is lost.

mod used;

use crate::account::changed_machines;
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

/// How many clusters there are side by side. Each has a manager of its own, which does not see the others.
const AT_ONCE: usize = 3;
/// The same for clusters with API servers and up to six members.
const AT_ONCE_USED: usize = 2;
/// How long a cluster may take to come up beside others, and a change to be carried out.
const PATIENCE: Duration = Duration::from_secs(300);

/// The writes that tell the control plane: other endpoints are published, recorded as in use, and written into the
/// control plane after a dry run. In the end, the record changes again.
const PUBLISHES: &str = "patch etcdclusters/status demo-etcd";
const RECORDS: &str = "patch etcdclusters demo-etcd";
const TELLS: &str = "patch stubcontrolplanes demo-control-plane";
/// How many writes before the control plane is told belong to this.
const BEFORE: usize = 4;

/// Another configuration: each of three members is replaced by another one, which joins first.
pub(crate) async fn of_the_configuration(bed: &mut Bed) -> Result<()> {
    sweep(bed, Change::rollout("rolled", json!({}))).await
}

/// The same beside a control plane whose API servers use the endpoints: three members become six, the control plane is
/// told once, and the old members leave when it has rolled out. The places are the writes from when it is told until
/// the first old member may go.
pub(crate) async fn beside_a_control_plane(bed: &mut Bed) -> Result<()> {
    sweep(bed, Change { servers: 1, ..Change::rollout("used", json!({})) }).await
}

/// The same without room for another Machine: each of three members leaves before another one joins.
pub(crate) async fn without_room(bed: &mut Bed) -> Result<()> {
    let before = json!({"rolloutStrategy": {"rollingUpdate": {"maxSurge": 0}}});
    sweep(bed, Change::rollout("in-place", before)).await
}

/// Fewer replicas, also beside a control plane: it is told once, and two of three members leave when it has rolled out.
pub(crate) async fn of_the_number(bed: &mut Bed) -> Result<()> {
    let after = json!({"replicas": 1});
    sweep(bed, Change { name: "lowered", had: 3, before: json!({}), after, has: 1, stay: 1, servers: 1 }).await
}

/// More replicas: two members join one.
pub(crate) async fn to_more(bed: &mut Bed) -> Result<()> {
    let after = json!({"replicas": 3});
    sweep(bed, Change { name: "raised", had: 1, before: json!({}), after, has: 3, stay: 1, servers: 0 }).await
}

/// A change of a cluster's spec.
struct Change {
    name: &'static str,
    /// How many members there are before.
    had: i64,
    /// The fields of the spec before the change, beside those of the manifests.
    before: Value,
    /// The fields that change.
    after: Value,
    /// How many members there are in the end, and how many of these were there before.
    has: usize,
    stay: usize,
    /// How many API servers use it. If there are none, clients follow the published endpoints.
    servers: usize,
}

impl Change {
    /// Another configuration of three members, which replaces all of them.
    fn rollout(name: &'static str, before: Value) -> Self {
        Self { name, had: 3, before, after: another_spec(), has: 3, stay: 0, servers: 0 }
    }
}

/// Changes the spec once without a fault, to count the places. Then changes it once for each place of a sample, or for
/// all places if `E2E_EVERY_PLACE` is set.
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

/// The writes from when the control plane is told until the first old Machine is released. That is the first patch of a
/// Machine after the record of the endpoints in use has changed again.
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

/// Carries out one change. Returns its writes and the call that the fault struck. `place` is counted from the change
/// on.
async fn tell(bed: &Bed, change: &Change, namespace: &str, place: Option<Place>) -> Result<Told> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manager = FaultyManager::start(bed, namespace, Some(namespace), Vec::new()).await?;
    let manifests = Manifests::new(namespace, "demo")?.replicas(change.had);
    // A kubeadm control plane here never gets a Node, so it would never roll out with the endpoints of other members.
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
    let (mark, clients) = (bed.plane.mark(), Clients::begin(bed, &handle, change.servers).await?);
    let up = strikes(&manager, place.as_ref());
    let spec = Patch::Merge(json!({"spec": change.after}));
    handle.etcds().patch(&handle.etcd, &PatchParams::default(), &spec).await?;
    let machines = carried_out(bed, &handle, change, &old).await?;
    let after = handle.membership(&bed.machines, &machines).await?;
    ensure!(after.cluster_id == before.cluster_id, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &handle, &machines).await?;
    let left: Vec<String> = old.iter().filter(|name| !machines.contains(name)).cloned().collect();
    changed_machines(bed, &handle, mark, &left, change.has - change.stay)?;
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

/// The clients of etcd while it changes: one of the two.
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

    /// Checks that no acknowledged write is lost. Returns the control plane, if there is one.
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

/// Waits until there are as many members as wanted, and nothing is being done. Returns the names of their Machines.
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
