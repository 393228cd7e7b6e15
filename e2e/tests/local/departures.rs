//! A member leaves etcd because its Machine was deleted, and our manager is killed or loses an answer at every call to etcd, and
//! at every write, that this takes. Each time it leaves once, and the cluster is as many as before.

use crate::bring_up::PATIENCE;
use crate::deletion::all_is_gone;
use crate::records::warnings;
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, Look, Manifests};
use e2e::faults::{ApiCall, Ending, EtcdCall, EtcdProxy, FaultyManager, How, Place, Rule, Sweep, Writes};
use e2e::until::until;
use std::collections::BTreeSet;

/// Clusters side by side. Each has a manager of its own, which sees no other's.
const AT_ONCE: usize = 6;

/// All calls that change etcd: leadership moves away, the member is removed.
pub(crate) async fn calls_to_etcd(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let proxy = EtcdProxy::start(bed).await?;
    let story = async |namespace: &str, rules| departure(bed, namespace, Some((&proxy, rules)), None).await;
    let counted = story("calls-counted", Vec::new()).await.context("without a fault")?.etcd;
    for call in ["MoveLeader", "MemberRemove"] {
        let times = counted.iter().filter(|write| write.call.method == call).count();
        ensure!(times == 1, "{call} was called {times} times without a fault:\n{counted}");
    }
    let places = Place::all(counted.len(), &How::DEATHS);
    Sweep { name: "departures::calls_to_etcd", writes: counted.len(), places, at_once: AT_ONCE }
        .run(async |place| {
            let rules = vec![Rule::at_write(place.write, place.how.fault())];
            let calls = story(&format!("calls-{}-{}", place.write, place.how), rules).await?.etcd;
            Ok(ending(&calls, place.write))
        })
        .await?;
    drop(proxy);
    bed.start_manager(0).await
}

/// All writes, from the deletion of the Machine on.
pub(crate) async fn writes(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let shared = &*bed;
    let counted = departure(shared, "leaving-counted", None, None).await.context("without a fault")?;
    let writes = counted.api.len() - counted.up;
    Sweep { name: "departures::writes", writes, places: Place::all(writes, &How::DEATHS), at_once: AT_ONCE }
        .run(async |place| {
            let namespace = format!("leaving-{}-{}", place.write, place.how);
            let writes = departure(shared, &namespace, None, Some(place)).await?;
            Ok(ending(&writes.api, writes.up + place.write))
        })
        .await?;
    bed.start_manager(0).await
}

fn ending<C: std::fmt::Display>(writes: &Writes<C>, number: usize) -> Ending {
    writes.iter().nth(number - 1).map_or(Ending::NotReached, |write| Ending::AfterFault(write.call.to_string()))
}

/// What one manager has written.
struct Written {
    api: Writes<ApiCall>,
    /// How much of it when the cluster was up.
    up: usize,
    etcd: Writes<EtcdCall>,
}

/// Three members come up, the leader's Machine is deleted, and another one takes its place. `place` is counted from there.
async fn departure(
    bed: &Bed,
    namespace: &str,
    etcd: Option<(&EtcdProxy, Vec<Rule<EtcdCall>>)>,
    place: Option<Place>,
) -> Result<Written> {
    let client = bed.client();
    Look::make_namespace(&client, namespace).await?;
    let manager = FaultyManager::start(bed, namespace, Some(namespace), Vec::new()).await?;
    // Here no control plane gets a Node, and so none would ever roll out with the endpoints of other members.
    let manifests = Manifests::new(namespace, "demo")?.without_control_plane();
    let look = Look::at(&client, &manifests);
    let etcd = etcd.map(|(proxy, rules)| proxy.between(&manager, &look, rules));
    manifests.apply(&client).await?;
    look.until_ready(PATIENCE).await?;
    let doomed = until(format!("a member of {namespace} leads"), PATIENCE, async || {
        Ok(look.status().await?.members.into_iter().find(|member| member.leader).map(|member| member.name))
    })
    .await?;
    let before = look.membership(&bed.machines, std::slice::from_ref(&doomed)).await?;
    let up = manager.writes().len();
    if let Some(place) = place {
        manager.add(Rule::at_write(up + place.write, place.how.fault()));
    }
    look.delete("Machine", &doomed).await?;
    let machines = replaced(bed, &look, &doomed).await?;
    let after = look.membership(&bed.machines, &machines).await?;
    let stayed = before.members.iter().filter(|member| after.members.contains(member)).count();
    ensure!(after.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &look, &machines).await?;
    let warnings = warnings(&client, namespace).await?;
    ensure!(warnings.is_empty(), "{} warnings: {warnings:#?}", warnings.len());
    let etcd = etcd.map_or_else(Writes::default, |calls| calls.writes());
    let api = manager.writes();
    look.delete("Cluster", &look.cluster).await?;
    all_is_gone(bed, &look).await.context("the deletion")?;
    manager.stop().await?;
    Ok(Written { api, up, etcd })
}

/// Waits until three Machines without the `doomed` one are three voters, and nothing is being done any more. Gives their names.
async fn replaced(bed: &Bed, look: &Look, doomed: &str) -> Result<Vec<String>> {
    until(format!("{doomed} of {} is replaced", look.namespace), PATIENCE * 2, async || {
        let machines = look.etcd_machines().await?;
        ensure!(machines.len() == 3 && !machines.iter().any(|name| name == doomed), "the Machines are {machines:?}");
        let status = look.status().await?;
        ensure!(status.ready && status.ready_replicas == 3, "{:?}", status.conditions);
        ensure!(status.operation.is_none(), "it still does {:?}", status.operation);
        ensure!(status.removed_members.is_empty(), "removed are {:?}", status.removed_members);
        let etcd = look.membership(&bed.machines, &machines).await?;
        ensure!(etcd.voters() == machines, "Machines {machines:?}, members {:?}", etcd.members);
        Ok(Some(machines))
    })
    .await
}

/// Everything of a member belongs to one of these Machines.
async fn only_theirs(bed: &Bed, look: &Look, machines: &[String]) -> Result<()> {
    let wanted: BTreeSet<&String> = machines.iter().collect();
    until(format!("only what belongs to {machines:?} is there"), PATIENCE, async || {
        for kind in ["EtcdadmConfig", "LocalMachine"] {
            let found = look.names(kind, "").await?;
            ensure!(found.iter().collect::<BTreeSet<_>>() == wanted, "of {kind} there are {found:?}");
        }
        let secrets = look.secret_names().await?;
        // Such as `demo-etcd-3`; others go on after the Cluster's name in another way.
        let number =
            |name: &&String| name.strip_prefix(&format!("{}-", look.etcd)).is_some_and(|n| n.parse::<u32>().is_ok());
        let data: BTreeSet<&String> = secrets.iter().filter(number).collect();
        ensure!(data == wanted, "there is bootstrap data for {data:?}");
        let running: Vec<String> = bed
            .machines
            .list()?
            .iter()
            .filter(|machine| machine.spec().namespace == look.namespace)
            .map(|machine| machine.spec().name.clone())
            .collect();
        ensure!(running.iter().collect::<BTreeSet<_>>() == wanted, "machines {running:?} run");
        Ok(Some(()))
    })
    .await
}
