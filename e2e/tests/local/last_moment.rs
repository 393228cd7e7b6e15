//! One of three members fails between the look that permits the removal of another one and the removal itself. With one
//! member wanted, a healthy voter may leave as long as all three are well, and not a moment longer: only one of two
//! voters would be left, which is not a quorum.

use crate::bring_up::PATIENCE;
use crate::departures::only_theirs;
use crate::ill::STALL;
use crate::rolls::{FOLLOWERS, nothing_is_lost};
use crate::scale::data_of;
use crate::shrinks::{are_well, wanted};
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::MemberStatus;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::faults::{ApiCall, EtcdCall, EtcdCalls, EtcdProxy, Fault, FaultyManager, Rule, Verb};
use e2e::history::History;
use e2e::observer::Silence;
use e2e::until::until;
use futures::{StreamExt, TryStreamExt, stream};
use local_infrastructure::machine::Machine;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many clusters there are side by side. Each has a manager of its own, which does not see the others.
const AT_ONCE: usize = 3;
/// How long a request is held up: longer than the members need for an election and than the manager waits for the second
/// list, and shorter than it waits for other answers. After some four seconds, etcd itself refuses a removal.
const HELD_UP: Duration = Duration::from_secs(3);
/// Until its members have been connected for five seconds, etcd itself refuses a removal.
const SETTLED: Duration = Duration::from_secs(8);
/// From the record of a removal until its look has asked the members, with much to spare.
const ASKED: Duration = Duration::from_millis(700);
/// How long the scenario watches that no member leaves. Until the manager has decided, up to 18 s pass: it waits for the
/// API server, for the leader's list, for the leader's status, and for the API server again.
const STEADY: Duration = Duration::from_secs(25);

/// Where the manager is held up while a voter fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// After the look has asked the members, the API server is slow to answer.
    Look,
    /// The member that is connected to is slow to list the members.
    FirstList,
    /// It is slow to list them the second time, after the members were asked again.
    SecondList,
}

/// The voter that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// The leader, which is asked for the removal.
    Leader,
    /// The other voter that does not leave now.
    Follower,
}

/// A voter that does not leave now is cut off at each of these moments. It is not killed: its peers would notice at
/// once, and etcd itself would refuse the removal.
pub(crate) async fn a_voter_fails(bed: &mut Bed) -> Result<()> {
    bed.kill_manager(0).await?;
    let proxy = EtcdProxy::start(bed).await?;
    let stories = [
        ("look-leader", Moment::Look, Victim::Leader),
        ("look-follower", Moment::Look, Victim::Follower),
        ("first-leader", Moment::FirstList, Victim::Leader),
        ("first-follower", Moment::FirstList, Victim::Follower),
        // Not the leader: it takes the call for the removal itself.
        ("second-follower", Moment::SecondList, Victim::Follower),
    ];
    let told = stream::iter(stories).map(|(name, moment, victim)| {
        let story = Story { bed, proxy: &proxy, name: format!("last-{name}"), moment, victim };
        async move { story.tell().await.with_context(|| story.name.clone()) }
    });
    told.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    drop(proxy);
    bed.start_manager(0).await
}

struct Story<'a> {
    bed: &'a Bed,
    proxy: &'a EtcdProxy,
    name: String,
    moment: Moment,
    victim: Victim,
}

impl Story<'_> {
    async fn tell(&self) -> Result<()> {
        let (bed, client) = (self.bed, self.bed.client());
        ClusterHandle::make_namespace(&client, &self.name).await?;
        let manager = FaultyManager::start(bed, &self.name, Some(&self.name), Vec::new()).await?;
        let manifests = Manifests::new(&self.name, "demo")?.without_control_plane();
        let handle = ClusterHandle::new(&client, &manifests);
        let calls = self.proxy.between(&manager, &handle, Vec::new());
        manifests.apply(&client).await?;
        handle.until_ready(PATIENCE).await?;
        let before = handle.etcd_machines().await?;
        let writers = History::begin(bed.world(), &self.name, &handle.staged_etcd_access().await?, FOLLOWERS).await?;

        tokio::time::sleep(SETTLED).await;
        match self.moment {
            // The Cluster is read after the members were asked.
            Moment::Look => {
                let is_it = |call: &ApiCall| call.verb == Verb::List && call.resource == "clusters";
                manager.add(Rule::at_call(is_it, Fault::Delay(HELD_UP)).times(usize::MAX));
            }
            Moment::FirstList => calls.add(lists_from(0)),
            Moment::SecondList => calls.add(lists_from(1)),
        }
        // Notes where members are listed.
        calls.add(Rule::at_call(is_list, Fault::Delay(Duration::ZERO)).times(usize::MAX));
        wanted(&handle, 1).await?;
        let victim = self.fails(&handle, &calls).await?;
        let lists = calls.strikes().len();
        let members = handle.status().await?.members.into_iter().filter(|member| member.machine != victim.spec().name);
        let (others, urls): (Vec<_>, Vec<_>) = members.map(|member| (member.machine, member.client_url)).unzip();
        writers.endpoints(urls);
        tokio::time::sleep(STEADY).await;
        let etcd =
            until("the others answer", PATIENCE, async || Ok(Some(handle.membership(&bed.machines, &others).await?)))
                .await?;
        let voters = etcd.voters();
        // The voter that fails is surplus too if it does not lead, and may leave itself.
        let stay = others.iter().all(|name| voters.contains(&name.as_str()));
        ensure!(stay, "there were {before:?}, and there are {:?}", etcd.members);
        // Otherwise the look itself has seen the fault, and nothing is shown.
        let came_to_it = self.moment != Moment::Look || calls.strikes().len() > lists;
        ensure!(came_to_it, "no list was asked for after the fault");
        let figures = nothing_is_lost(&handle, writers, &data_of(bed, &handle, &others)?).await?;
        ensure!(figures.longest_stall <= STALL, "{figures}");

        if voters.contains(&victim.spec().name.as_str()) {
            bed.fault_is_over(&format!("{}: that is over", self.name), &[&victim]);
            victim.reconnect()?;
        }
        let machines = are_well(bed, &handle, 1).await?;
        only_theirs(bed, &handle, &machines).await?;
        manager.stop().await.map(drop)
    }

    /// Waits for the moment, and lets the victim fail.
    async fn fails(&self, handle: &ClusterHandle, calls: &EtcdCalls) -> Result<Machine> {
        let begun = until(format!("a member of {} is about to leave", self.name), PATIENCE, async || {
            let status = handle.status().await?;
            let is_held_up = match self.moment {
                Moment::Look => true,
                Moment::FirstList | Moment::SecondList => calls.strikes().iter().any(|strike| strike.fault == HOLD),
            };
            Ok(status.operation.clone().filter(|_| is_held_up).map(|operation| (status, operation)))
        });
        let (status, operation) = begun.await?;
        if self.moment == Moment::Look {
            tokio::time::sleep(ASKED).await;
        }
        let is_it = |member: &&MemberStatus| match self.victim {
            Victim::Leader => member.leader,
            Victim::Follower => !member.leader && member.id != operation.member_id,
        };
        let found = status.members.iter().find(is_it).context("there is nobody to fail")?;
        let machine = self.bed.machines.get(&handle.namespace, &found.machine)?;
        self.bed.fault(&format!("{}: {} is cut off", self.name, found.machine), &[&machine], Silence::Lasting);
        machine.cut_off()?;
        let called = calls.writes().iter().any(|write| write.call.method == "MemberRemove");
        ensure!(!called, "it has failed too late: a removal was called already");
        Ok(machine)
    }
}

/// What happens to a list that is held up.
const HOLD: Fault = Fault::Delay(HELD_UP);

fn is_list(call: &EtcdCall) -> bool {
    call.method == "MemberList"
}

/// Holds up the list with this number, counted from 0, and the next one: a manager that does not wait for the first asks
/// for it.
fn lists_from(number: usize) -> Rule<EtcdCall> {
    let lists = AtomicUsize::new(0);
    Rule::at_call(move |call| is_list(call) && lists.fetch_add(1, Ordering::Relaxed) >= number, HOLD).times(2)
}
