//! The spec is changed, and at the writes that follow our manager is killed before them, killed after them, or loses the answer.
//! Each time the change is carried out once, nothing is left over, and nothing that was acknowledged meanwhile is lost.

use crate::deletion::all_is_gone;
use crate::departures::only_theirs;
use crate::load::LowLoad;
use crate::records::warnings;
use crate::shrinks::are_well;
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, Look, Manifests};
use e2e::faults::{Ending, FaultyManager, How, Place, Sweep};
use e2e::until::until;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

/// Clusters side by side. Each has a manager of its own, which sees no other's.
const AT_ONCE: usize = 3;
/// How long a cluster may take to come up beside others, and a change to be carried out.
const PATIENCE: Duration = Duration::from_secs(300);

/// Another configuration: every member of three is replaced by another one, which joins before.
pub(crate) async fn of_the_configuration(bed: &mut Bed) -> Result<()> {
    let change = Change { name: "rolled", had: 3, before: json!({}), after: another_configuration(), has: 3, stay: 0 };
    sweep(bed, change).await
}

/// The same where there is no room for another Machine: every member of three leaves before another one joins.
pub(crate) async fn without_room(bed: &mut Bed) -> Result<()> {
    let before = json!({"rolloutStrategy": {"rollingUpdate": {"maxSurge": 0}}});
    sweep(bed, Change { name: "in-place", had: 3, before, after: another_configuration(), has: 3, stay: 0 }).await
}

/// Fewer replicas: two of three members leave.
pub(crate) async fn of_the_number(bed: &mut Bed) -> Result<()> {
    let after = json!({"replicas": 1});
    sweep(bed, Change { name: "lowered", had: 3, before: json!({}), after, has: 1, stay: 1 }).await
}

/// More replicas: two members join one.
pub(crate) async fn to_more(bed: &mut Bed) -> Result<()> {
    let after = json!({"replicas": 3});
    sweep(bed, Change { name: "raised", had: 1, before: json!({}), after, has: 3, stay: 1 }).await
}

fn another_configuration() -> Value {
    json!({"etcdadmConfigSpec": {"preEtcdadmCommands": ["true"]}})
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
}

/// Changes the spec once without a fault, which says how many places there are; then once for each place of a sample, or with
/// `E2E_EVERY_PLACE` set for all of them.
async fn sweep(bed: &mut Bed, change: Change) -> Result<()> {
    bed.kill_manager(0).await?;
    let name = change.name;
    let counted = tell(bed, &change, &format!("{name}-counted"), None).await.context("without a fault")?.0;
    let told = async |place: Place| {
        let (_, struck) = tell(bed, &change, &format!("{name}-{}", place.slug()), Some(place)).await?;
        anyhow::Ok(struck.map_or(Ending::NotReached, Ending::AfterFault))
    };
    let sweep = Sweep { name, writes: counted, at_once: AT_ONCE };
    sweep.run_wanted(&How::DEATHS, told).await?;
    bed.start_manager(0).await
}

/// One change, with its writes and what the fault happened to. `place` is counted from the change on.
async fn tell(
    bed: &Bed,
    change: &Change,
    namespace: &str,
    place: Option<Place>,
) -> Result<(Vec<String>, Option<String>)> {
    let client = bed.client();
    Look::make_namespace(&client, namespace).await?;
    let manager = FaultyManager::start(bed, namespace, Some(namespace), Vec::new()).await?;
    // Here no control plane gets a Node, and so none would ever roll out with the endpoints of other members.
    let manifests = Manifests::new(namespace, "demo")?.replicas(change.had).without_control_plane();
    let manifests = manifests.with("EtcdCluster", |etcd: &mut Value| merge(&mut etcd["spec"], &change.before));
    let look = Look::at(&client, &manifests);
    manifests.apply(&client).await?;
    look.until_ready(PATIENCE).await?;
    let old = look.etcd_machines().await?;
    let before = look.membership(&bed.machines, &old).await?;
    let load = LowLoad::begin(bed, &look).await?;
    let up = manager.writes().len();
    if let Some(place) = &place {
        manager.add(place.rule(up));
    }
    let spec = Patch::Merge(json!({"spec": change.after}));
    look.etcds().patch(&look.etcd, &PatchParams::default(), &spec).await?;
    let machines = carried_out(bed, &look, change, &old).await?;
    let after = look.membership(&bed.machines, &machines).await?;
    ensure!(after.cluster_id == before.cluster_id, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &look, &machines).await?;
    load.judged().await?;
    let warnings = warnings(&client, namespace).await?;
    ensure!(warnings.is_empty(), "{} warnings: {warnings:#?}", warnings.len());
    let writes = manager.writes().names().split_off(up);
    let struck = manager.strikes().first().map(|strike| strike.call.to_string());
    look.delete("Cluster", &look.cluster).await?;
    all_is_gone(bed, &look).await.context("the deletion")?;
    manager.stop().await?;
    Ok((writes, struck))
}

/// Waits until there are as many members as wanted, and nothing is being done any more. Gives the names of their Machines.
async fn carried_out(bed: &Bed, look: &Look, change: &Change, old: &[String]) -> Result<Vec<String>> {
    until(format!("the change of {} is carried out", look.namespace), PATIENCE, async || {
        let machines = look.etcd_machines().await?;
        let stay = machines.iter().filter(|name| old.contains(name)).count();
        ensure!((machines.len(), stay) == (change.has, change.stay), "the Machines are {machines:?}");
        Ok(Some(()))
    })
    .await?;
    are_well(bed, look, change.has).await
}

fn merge(spec: &mut Value, more: &Value) {
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
}
