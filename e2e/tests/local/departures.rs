//! A member leaves etcd because its Machine was deleted. At every call to etcd that this takes, our manager is killed,
//! loses the answer or gets an error. At the writes to the API server, it is killed or loses the answer. Each time, the
//! member leaves once, and the cluster has as many members as before.

use crate::account::changed_machines;
use crate::deletion::all_is_gone;
use crate::load::LowLoad;
use crate::records::warnings;
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::faults::{
    Call, Ending, EtcdCall, EtcdCalls, EtcdProxy, Fault, FaultyManager, How, Place, Rule, Sweep, Writes,
};
use e2e::until::until;
use futures::try_join;
use std::collections::BTreeSet;
use std::time::Duration;

/// How many clusters there are side by side. Each has a manager of its own, which does not see the others.
const AT_ONCE: usize = 3;
/// How long a cluster may take to come up beside others, and a member to be replaced.
const PATIENCE: Duration = Duration::from_secs(300);
/// What is refused: the method, the answer, and how often.
type Refused = (&'static str, u16, usize);
/// Reads that are refused while a member leaves: lists and statuses through the gateway, with an HTTP status, and the
/// list before each change, with a gRPC code.
static REFUSED: [Refused; 3] =
    [("/v3/cluster/member/list", 503, 3), ("/v3/maintenance/status", 503, 3), ("MemberList", 14, 3)];
/// A leader whose health can be checked, but through which no list can be read before a change: as one that accepts no
/// new connection.
static BY_THE_LEADER: [Refused; 1] = [("MemberList", 14, usize::MAX)];

/// Faults at all calls that change etcd: leadership moves to another voter, and the member is removed.
pub(crate) async fn calls_to_etcd(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let proxy = EtcdProxy::start(bed).await?;
    let story = Story { bed, proxy: Some(&proxy), refused: &[], victim: Victim::Leader };
    let counted = story.tell("calls-counted", None).await.context("without a fault")?.etcd;
    let times = |call: &str| counted.iter().filter(|write| write.call.method == call).count();
    // etcd refuses a removal until its members have been connected for five seconds.
    let as_expected = times("MoveLeader") == 1 && times("MemberRemove") > 0;
    ensure!(as_expected, "without a fault these were called:\n{counted}");
    let told = async |place: Place| Ok(story.tell(&format!("calls-{}", place.slug()), Some(place)).await?.ending());
    let mut writes = counted.names();
    writes.dedup();
    let sweep = Sweep { name: "departures::calls_to_etcd", writes, at_once: AT_ONCE };
    sweep.run_all(&[&How::DEATHS[..], &How::FAILURES[..]].concat(), told).await?;
    drop(proxy);
    bed.start_manager(0).await
}

/// Some reads from etcd are refused meanwhile, or all lists by the leader: the member still leaves once, and no other
/// member does.
pub(crate) async fn refused_reads(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let proxy = EtcdProxy::start(bed).await?;
    let story = |refused, victim| Story { bed, proxy: Some(&proxy), refused, victim };
    let (some, by_the_leader) = (story(&REFUSED, Victim::Leader), story(&BY_THE_LEADER, Victim::Follower));
    try_join!(some.tell("reads-refused", None), by_the_leader.tell("lists-refused", None))?;
    drop(proxy);
    bed.start_manager(0).await
}

/// Faults at the writes from the deletion of the Machine on: at a sample of them, or at all of them if
/// `E2E_EVERY_PLACE` is set.
pub(crate) async fn writes(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let story = Story { bed, proxy: None, refused: &[], victim: Victim::Leader };
    let counted = story.tell("leaving-counted", None).await.context("without a fault")?.api;
    let told = async |place: Place| Ok(story.tell(&format!("leaving-{}", place.slug()), Some(place)).await?.ending());
    let sweep = Sweep { name: "departures::writes", writes: counted, at_once: AT_ONCE };
    sweep.run_wanted(&How::DEATHS, told).await?;
    bed.start_manager(0).await
}

/// What one manager has done.
struct Told {
    /// Its writes since the deletion of the Machine.
    api: Vec<String>,
    etcd: Writes<EtcdCall>,
    /// The call that the fault struck.
    struck: Option<String>,
}

impl Told {
    fn ending(self) -> Ending {
        self.struck.map_or(Ending::NotReached, Ending::AfterFault)
    }
}

/// The member whose Machine is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// The leader. Some reads are refused by all members.
    Leader,
    /// One that does not lead. Some reads are refused by the leader.
    Follower,
}

/// Three members come up, the Machine of one is deleted, and another one takes its place.
struct Story<'a> {
    bed: &'a Bed,
    /// Where faults happen. `None` means at the writes to the API server.
    proxy: Option<&'a EtcdProxy>,
    /// The reads from etcd that are refused from the deletion of the Machine on.
    refused: &'static [Refused],
    victim: Victim,
}

impl Story<'_> {
    /// `place` is counted from the deletion of the Machine.
    async fn tell(&self, namespace: &str, place: Option<Place>) -> Result<Told> {
        let (bed, client) = (self.bed, self.bed.client());
        ClusterHandle::make_namespace(&client, namespace).await?;
        let manager = FaultyManager::start(bed, namespace, Some(namespace), Vec::new()).await?;
        // Control planes here never get a Node, so they would never roll out with the endpoints of other members.
        let manifests = Manifests::new(namespace, "demo")?.without_control_plane();
        let handle = ClusterHandle::new(&client, &manifests);
        let calls = self.proxy.map(|proxy| proxy.between(&manager, &handle, Vec::new()));
        manifests.apply(&client).await?;
        handle.until_ready(PATIENCE).await?;
        let leader = until(format!("a member of {namespace} leads"), PATIENCE, async || {
            Ok(handle.status().await?.members.into_iter().find(|member| member.leader).map(|member| member.name))
        })
        .await?;
        let follower = || handle.member_names(3).into_iter().find(|name| *name != leader);
        let doomed = match self.victim {
            Victim::Leader => leader.clone(),
            Victim::Follower => follower().context("there is only a leader")?,
        };
        let before = handle.membership(&bed.machines, std::slice::from_ref(&doomed)).await?;
        let load = LowLoad::begin(bed, &handle).await?;
        let (mark, up) = (bed.plane.mark(), manager.writes().len());
        match (&calls, &place) {
            (Some(calls), Some(place)) => calls.add(place.rule(calls.writes().len())),
            (None, Some(place)) => manager.add(place.rule(up)),
            (_, None) => {}
        }
        for (read, answer, times) in self.refused.iter().copied() {
            let calls = calls.as_ref().context("nobody is there to refuse anything")?;
            let by = (self.victim == Victim::Follower).then(|| leader.clone());
            let is_it = move |call: &EtcdCall| call.method == read && by.as_ref().is_none_or(|by| call.machine == *by);
            calls.add(Rule::at_call(is_it, Fault::Answer(answer)).times(times));
        }
        handle.delete("Machine", &doomed).await?;
        let machines = replaced(bed, &handle, &doomed).await?;
        let after = handle.membership(&bed.machines, &machines).await?;
        let stayed = before.stayed(&after);
        ensure!(after.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {after:?}");
        only_theirs(bed, &handle, &machines).await?;
        changed_machines(bed, &handle, mark, &[], 1)?;
        load.judged().await?;
        let strikes = calls.as_ref().map(EtcdCalls::strikes).unwrap_or_default();
        for (read, ..) in self.refused {
            let struck = strikes.iter().filter(|strike| strike.call.method == *read).count();
            println!("  {namespace}: {read} was refused {struck} times");
            ensure!(struck > 0, "{read} was never refused");
        }
        // A member whose status is refused is reported as unhealthy for as long as that lasts.
        let is_ill = |warning: &String| !self.refused.is_empty() && warning.starts_with("MemberUnhealthy");
        let warnings = warnings(&client, namespace).await?;
        ensure!(warnings.iter().all(is_ill), "{} warnings: {warnings:#?}", warnings.len());
        let api = manager.writes().names().split_off(up);
        let etcd = calls.as_ref().map_or_else(Writes::default, EtcdCalls::writes);
        let at_etcd = strikes.first().map(|strike| strike.call.name());
        let struck = at_etcd.or_else(|| Some(manager.strikes().first()?.call.to_string()));
        handle.delete("Cluster", &handle.cluster).await?;
        all_is_gone(bed, &handle).await.context("the deletion")?;
        manager.stop().await?;
        Ok(Told { api, etcd, struck })
    }
}

/// Waits until there are three Machines without `doomed`, all three are voters, and nothing is being done. Returns
/// their names.
pub(crate) async fn replaced(bed: &Bed, handle: &ClusterHandle, doomed: &str) -> Result<Vec<String>> {
    until(format!("{doomed} of {} is replaced", handle.namespace), PATIENCE, async || {
        let machines = handle.etcd_machines().await?;
        ensure!(machines.len() == 3 && !machines.iter().any(|name| name == doomed), "the Machines are {machines:?}");
        let status = handle.status().await?;
        ensure!(status.ready && status.ready_replicas == 3, "{:?}", status.conditions);
        ensure!(status.operation.is_none(), "it still does {:?}", status.operation);
        ensure!(status.removed_members.is_empty(), "removed are {:?}", status.removed_members);
        let etcd = handle.membership(&bed.machines, &machines).await?;
        ensure!(etcd.voters() == machines, "Machines {machines:?}, members {:?}", etcd.members);
        Ok(Some(machines))
    })
    .await
}

/// Waits until everything that belongs to a member belongs to one of these Machines. Objects of a control plane do not
/// count.
pub(crate) async fn only_theirs(bed: &Bed, handle: &ClusterHandle, machines: &[String]) -> Result<()> {
    let wanted: BTreeSet<&String> = machines.iter().collect();
    // Such as `demo-etcd-3`. Other names continue in another way.
    let is_of_a_member =
        |name: &&String| name.strip_prefix(&format!("{}-", handle.etcd)).is_some_and(|n| n.parse::<u32>().is_ok());
    until(format!("only what belongs to {machines:?} is there"), PATIENCE, async || {
        for kind in ["EtcdadmConfig", "LocalMachine"] {
            let found = handle.names(kind, "").await?;
            let found: BTreeSet<&String> = found.iter().filter(is_of_a_member).collect();
            ensure!(found == wanted, "of {kind} there are {found:?}");
        }
        let secrets = handle.secret_names().await?;
        let data: BTreeSet<&String> = secrets.iter().filter(is_of_a_member).collect();
        ensure!(data == wanted, "there is bootstrap data for {data:?}");
        let all = bed.machines.list()?;
        let names = all.iter().map(|machine| machine.spec()).filter(|spec| spec.namespace == handle.namespace);
        let running: BTreeSet<&String> = names.map(|spec| &spec.name).filter(is_of_a_member).collect();
        ensure!(running == wanted, "machines {running:?} run");
        Ok(Some(()))
    })
    .await
}
