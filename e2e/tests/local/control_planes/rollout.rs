//! A control plane of real API servers, and etcd whose spec is about to change: what each step has to bring about.

use crate::bring_up::PATIENCE;
use crate::deletion::all_is_gone;
use crate::departures::only_theirs;
use crate::records::warnings;
use crate::repair::dies;
use crate::rolls::{ROLLOUT, changed, explained, is_voter, shared, up_to_date};
use crate::shrinks::{are_well, wanted};
use anyhow::{Context, Result, ensure};
use api::EtcdClusterStatus;
use api::names::ENDPOINTS_IN_USE_ANNOTATION;
use e2e::bed::{Bed, ClusterHandle, ControlPlaneStub, Manifests};
use e2e::history::objects::{ObjectLoad, ObjectWriters};
use e2e::plane::{Mark, users};
use e2e::until::until;
use futures::try_join;
use kube::ResourceExt;
use serde_json::json;
use std::time::Duration;

/// The fewest acknowledged writes that prove something.
const WRITES: usize = 100;
/// How long the scenario watches that the old members stay while the control plane gets no further.
pub(super) const WAIT: Duration = Duration::from_secs(5);
/// The longest time without an acknowledged write of any client: at most a move of leadership.
const STALL: Duration = Duration::from_millis(1_500);

/// What a control plane is told, and when.
#[derive(Clone, Copy)]
pub(super) struct Told {
    /// How many endpoints there are, and how many of them were in the list before.
    pub(super) endpoints: usize,
    pub(super) known: usize,
    /// How many members there are until it has rolled out with these.
    pub(super) members: usize,
}

/// A cluster whose spec is about to change, with its control plane, and writers of objects in it.
pub(super) struct Rollout {
    pub(super) handle: ClusterHandle,
    pub(super) stub: ControlPlaneStub,
    /// How many API servers the control plane has.
    servers: usize,
    writers: ObjectWriters,
    /// The Machines before the change, and the endpoints that API servers have.
    old: Vec<String>,
    pub(super) before: String,
    mark: Mark,
    /// How often the control plane was told of other endpoints since then, and has rolled out with them.
    rolled: usize,
    /// How often an API server has ended, leadership was moved, or a member that API servers use has left.
    pub(super) moments: usize,
}

impl Rollout {
    pub(super) async fn begin(bed: &Bed, manifests: Manifests, servers: usize) -> Result<Self> {
        let (client, manifests) = (bed.client(), manifests.with_control_plane_stub(servers));
        ClusterHandle::make_namespace(&client, &manifests.namespace).await?;
        manifests.apply(&client).await?;
        let handle = ClusterHandle::new(&client, &manifests);
        let stub = ControlPlaneStub::start(bed, &handle).await?;
        let before = handle.until_ready(PATIENCE).await?.endpoints;
        stub.until_all_use(&before, PATIENCE).await?;
        handle.until_cluster_condition("ManagedExternalEtcdReady", "True", "Ready", PATIENCE).await?;
        let writers = ObjectWriters::begin(&stub.kubeconfig, "kube-system", ObjectLoad::default()).await?;
        let old = handle.etcd_machines().await?;
        Ok(Self { stub, servers, writers, old, before, mark: bed.plane.mark(), rolled: 0, moments: 0, handle })
    }

    /// Asks for another version of etcd.
    pub(super) async fn goes_to(&self, version: &str) -> Result<()> {
        changed(&self.handle, &json!({"etcdadmConfigSpec": {"version": version}})).await
    }

    pub(super) async fn until_a_member_runs(&self, version: &str) -> Result<()> {
        until(format!("a member of {version} votes"), ROLLOUT, async || {
            let members = self.handle.status().await?.members;
            let runs = members.iter().any(|member| member.version == version && is_voter(member));
            Ok(runs.then_some(()))
        })
        .await
    }

    /// Waits until the members are those before the change, and checks that no API server was told of any other.
    pub(super) async fn is_taken_back(&self, bed: &Bed, version: &str) -> Result<()> {
        let handle = &self.handle;
        until("the new members are gone", ROLLOUT, async || {
            let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
            ensure!(machines == self.old, "the Machines are {machines:?}: {:?}", status.conditions);
            ensure!(up_to_date(&status)?.0 == "True", "{:?}", status.conditions);
            Ok(Some(()))
        })
        .await?;
        let (machines, status) = self.rests(bed, version).await?;
        ensure!(machines == self.old && status.endpoints == self.before, "{machines:?}: {}", status.endpoints);
        self.has_started_as_often()?;
        self.is_told(bed)
    }

    /// Checks that the control plane was told and, as far as our manager knows, has got as far as `how_far` and gets no
    /// further: no old member leaves, and the conditions of the Cluster and the EtcdCluster say why. `servers` is how
    /// many API servers were started so far.
    pub(super) async fn is_held_up(&self, bed: &Bed, how_far: &str, servers: usize) -> Result<()> {
        until(format!("the Cluster says {how_far}"), ROLLOUT, async || {
            let says = self.handle.cluster_condition("ManagedExternalEtcdReady").await?;
            let message = says["message"].as_str().unwrap_or_default();
            ensure!(says["reason"] == "ControlPlaneRollingOut" && message.contains(how_far), "it says {says}");
            Ok(Some(()))
        })
        .await?;
        self.nobody_leaves(bed, servers).await
    }

    /// Waits until a condition says that the old members wait for the control plane, and checks that all of them are
    /// still there beside the new ones.
    pub(super) async fn nobody_leaves(&self, bed: &Bed, servers: usize) -> Result<()> {
        until("the old members say what they wait for", PATIENCE, async || {
            let status = self.handle.status().await?;
            let deleting = status.conditions.iter().find(|c| c.type_ == "MachinesDeleting").context("no condition")?;
            let waits = deleting.message.contains("when the control plane has rolled out");
            ensure!(deleting.status == "True" && waits, "{deleting:?}");
            Ok(Some(()))
        })
        .await?;
        tokio::time::sleep(WAIT).await;
        let (status, machines) = (self.handle.status().await?, self.handle.etcd_machines().await?);
        ensure!(status.operation.is_none() && status.ready, "{:?}", status.conditions);
        ensure!(self.old.iter().all(|name| machines.contains(name)), "of {:?} there are {machines:?}", self.old);
        let etcd = self.handle.membership(&bed.machines, &machines).await?;
        ensure!(etcd.voters() == machines && machines.len() == 2 * self.old.len(), "there are {:?}", etcd.members);
        let in_use = self.handle.etcds().get(&self.handle.etcd).await?;
        let in_use = in_use.annotations().get(ENDPOINTS_IN_USE_ANNOTATION).cloned().unwrap_or_default();
        let mut lists: Vec<&str> = in_use.split(';').collect();
        lists.sort_unstable();
        let mut wanted = [self.before.as_str(), status.endpoints.as_str()];
        wanted.sort_unstable();
        ensure!(lists == wanted && self.before != status.endpoints, "in use are {lists:?}, not {wanted:?}");
        let seen = self.stub.seen();
        ensure!(seen.started == servers && seen.ready == self.servers, "of the control plane there is {seen:?}");
        Ok(())
    }

    /// Waits until other endpoints are published, and returns them.
    pub(super) async fn is_told_next(&self, wanted: Told) -> Result<String> {
        let status = until("other endpoints are published", ROLLOUT, async || {
            let status = self.handle.status().await?;
            ensure!(status.ready && status.endpoints != self.before, "{}: {:?}", status.endpoints, status.conditions);
            // A member that makes room for the last new one may leave a moment later.
            ensure!(status.members.len() == wanted.members, "the members are {:?}", status.members);
            Ok(Some(status))
        })
        .await?;
        let found = (status.endpoints.split(',').count(), shared(&status.endpoints, &self.before));
        ensure!(found == (wanted.endpoints, wanted.known), "published were {}: {}", self.before, status.endpoints);
        Ok(status.endpoints)
    }

    /// Checks that the control plane is told of the members that are there while others have yet to be replaced, and
    /// rolls out with them.
    pub(super) async fn is_told_halfway(&mut self, bed: &Bed, wanted: Told) -> Result<()> {
        let endpoints = self.is_told_next(wanted).await?;
        self.uses(bed, endpoints).await?;
        // An old member has left before that.
        self.moments += self.servers + 1;
        Ok(())
    }

    /// Waits until all members are healthy, and checks that there are no others and that they run this version. Returns
    /// the Machines and the status.
    async fn rests(&self, bed: &Bed, version: &str) -> Result<(Vec<String>, EtcdClusterStatus)> {
        let machines = are_well(bed, &self.handle, self.old.len()).await?;
        only_theirs(bed, &self.handle, &machines).await?;
        let status = self.handle.status().await?;
        ensure!(status.version == version, "it runs {}", status.version);
        Ok((machines, status))
    }

    /// Waits until every member and every API server is replaced, each once.
    pub(super) async fn is_carried_out(&mut self, bed: &Bed, version: &str) -> Result<()> {
        let handle = &self.handle;
        until(format!("the members of {} are replaced", handle.namespace), ROLLOUT, async || {
            let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
            let left: Vec<&String> = machines.iter().filter(|name| self.old.contains(name)).collect();
            ensure!(left.is_empty(), "{left:?} of {machines:?}: {:?}; {:?}", status.conditions, self.stub.seen());
            ensure!(up_to_date(&status)?.0 == "True", "{:?}", status.conditions);
            Ok(Some(()))
        })
        .await?;
        let (machines, status) = self.rests(bed, version).await?;
        self.has_rolled(bed, machines, status.endpoints).await?;
        // Members leave when no API server uses them any more, so their departures do not count.
        self.moments += self.servers + 1;
        Ok(())
    }

    /// The machines of two members die at the same time: the leader's, and one of the other spec. Waits until two of the
    /// old members are left, and three new ones are there again.
    pub(super) async fn loses_two(&self, bed: &Bed) -> Result<()> {
        let handle = &self.handle;
        let before = handle.status().await?;
        let leader = before.members.iter().find(|member| member.leader).context("there is no leader")?;
        let is_old = |machine: &String| self.old.contains(machine);
        let other = before.members.iter().find(|member| is_old(&member.machine) != is_old(&leader.machine));
        let doomed = [&leader.machine, &other.context("there is no other")?.machine];
        try_join!(dies(bed, handle, doomed[0]), dies(bed, handle, doomed[1]))?;
        until("two old members and three new ones are there", ROLLOUT, async || {
            let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
            ensure!(!doomed.iter().any(|name| machines.contains(name)), "{machines:?}: {:?}", status.conditions);
            let old = machines.iter().filter(|name| is_old(name)).count();
            let voters = status.members.iter().filter(|member| is_voter(member)).count();
            ensure!((old, machines.len(), voters) == (2, 5, 5), "{machines:?}: {:?}", status.conditions);
            ensure!(status.ready, "{:?}", status.conditions);
            Ok(Some(()))
        })
        .await?;
        tokio::time::sleep(WAIT).await;
        let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
        let etcd = handle.membership(&bed.machines, &machines).await?;
        ensure!(machines.len() == 5 && etcd.voters() == machines, "{machines:?}: {:?}", etcd.members);
        let same = status.endpoints == before.endpoints;
        ensure!(same, "published were {}, and are {}", before.endpoints, status.endpoints);
        ensure!(self.stub.seen().started == self.servers, "the control plane has not stalled");
        Ok(())
    }

    /// Waits until every member and every API server is replaced. The API servers are replaced a second time, because a
    /// member that the control plane was told of has died.
    pub(super) async fn is_carried_out_in_two(&mut self, bed: &Bed, version: &str) -> Result<()> {
        let handle = &self.handle;
        let told = handle.status().await?.endpoints;
        let endpoints = until("the control plane is told of the replacement", ROLLOUT, async || {
            let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
            ensure!(status.endpoints != told && status.ready, "{machines:?}: {:?}", status.conditions);
            Ok(Some(status.endpoints))
        })
        .await?;
        ensure!(shared(&endpoints, &told) == 2, "published were {told}, and are {endpoints}");
        self.rolled += 1;
        until("no old member is left", ROLLOUT, async || {
            let machines = handle.etcd_machines().await?;
            ensure!(!machines.iter().any(|name| self.old.contains(name)), "the Machines are {machines:?}");
            Ok(Some(()))
        })
        .await?;
        let (machines, status) = self.rests(bed, version).await?;
        ensure!(status.endpoints == endpoints, "published were {endpoints}, and are {}", status.endpoints);
        self.has_rolled(bed, machines, endpoints).await
    }

    /// Scales etcd. As many of the earlier members as possible stay.
    pub(super) async fn scales_to(&mut self, bed: &Bed, size: usize) -> Result<()> {
        let handle = &self.handle;
        let before = handle.membership(&bed.machines, &self.old).await?;
        wanted(handle, size).await?;
        let endpoints = until(format!("the endpoints of {size} members are published"), ROLLOUT, async || {
            let status = handle.status().await?;
            let published = status.endpoints.split(',').count();
            ensure!(status.ready && published == size, "{}: {:?}", status.endpoints, status.conditions);
            Ok(Some(status.endpoints))
        })
        .await?;
        let machines = are_well(bed, handle, size).await?;
        only_theirs(bed, handle, &machines).await?;
        let after = handle.membership(&bed.machines, &machines).await?;
        let stay = self.old.len().min(size);
        let stayed = before.stayed(&after);
        ensure!(after.cluster_id == before.cluster_id && stayed == stay, "etcd was {before:?}, and is {after:?}");
        let kept = self.before.split(',').filter(|url| endpoints.split(',').any(|other| other == *url)).count();
        ensure!(kept == stay, "published were {}, and are {endpoints}", self.before);
        let left = self.old.len() - stay;
        self.has_rolled(bed, machines, endpoints).await?;
        self.moments += self.servers + 1 + left;
        Ok(())
    }

    /// Ends a change: checks that every API server was replaced, each once, by one that uses these endpoints.
    async fn has_rolled(&mut self, bed: &Bed, machines: Vec<String>, endpoints: String) -> Result<()> {
        self.uses(bed, endpoints).await?;
        self.handle.until_cluster_condition("ManagedExternalEtcdReady", "True", "Ready", PATIENCE).await?;
        self.old = machines;
        Ok(())
    }

    /// Waits until every API server is replaced, each once, by one that uses these endpoints.
    async fn uses(&mut self, bed: &Bed, endpoints: String) -> Result<()> {
        self.stub.until_all_use(&endpoints, PATIENCE).await?;
        self.rolled += 1;
        self.has_started_as_often()?;
        self.is_told(bed)?;
        self.before = endpoints;
        Ok(())
    }

    /// Checks that the control plane has started no more API servers than those of the beginning and of each rollout.
    fn has_started_as_often(&self) -> Result<()> {
        let (seen, wanted) = (self.stub.seen(), (1 + self.rolled) * self.servers);
        ensure!(seen.started == wanted, "{} API servers were started, and not {wanted}", seen.started);
        Ok(())
    }

    /// Checks that no write was lost, that no client waited for long, and that there was no warning. Then deletes the
    /// Cluster.
    pub(super) async fn ends_well(self, bed: &Bed) -> Result<()> {
        let handle = &self.handle;
        let told = warnings(&bed.client(), &handle.namespace).await?;
        ensure!(told.is_empty(), "the warnings are {told:#?}");

        let record = self.writers.end().await?;
        let figures = record.figures();
        println!("  {}: {figures}", handle.namespace);
        record.check()?;
        ensure!(figures.writes >= WRITES && figures.longest_stall <= STALL, "{figures}");
        // At each of these moments, one request of each writer may be under way.
        let moments = self.moments;
        ensure!(figures.unknown <= ObjectLoad::default().writers * moments, "{moments} times: {figures}");
        ensure!(figures.failed == 0 && figures.failed_twice == 0, "{figures}");
        explained(bed, handle, &record.unanswered())?;
        is_deleted(bed, handle, &self.stub).await
    }

    /// The same after so many members have died. API servers wait for an answer of a machine that is gone until their
    /// own time limits, so their clients may wait as well.
    pub(super) async fn ends_after_deaths(self, bed: &Bed, deaths: usize) -> Result<()> {
        let handle = &self.handle;
        let told = warnings(&bed.client(), &handle.namespace).await?;
        let others: Vec<&String> = told.iter().filter(|warning| !warning.starts_with("MemberUnhealthy")).collect();
        ensure!(others.is_empty() && told.len() == deaths, "the warnings are {told:#?}");

        let record = self.writers.end().await?;
        let figures = record.figures();
        println!("  {}: {figures}", handle.namespace);
        record.check()?;
        ensure!(figures.writes >= WRITES, "{figures}");
        is_deleted(bed, handle, &self.stub).await
    }

    /// Checks in the audit log that our manager has written endpoints into the control plane as often as it has rolled
    /// out. The dry run before each write does not count.
    fn is_told(&self, bed: &Bed) -> Result<()> {
        let ours = bed.plane.requests_since(self.mark)?.user(users::PROVIDER).done_in(&self.handle.namespace);
        let ours = ours.verb("patch").resource("stubcontrolplanes");
        let ours = ours.filter(|patch| !patch.uri.contains("dryRun=All"));
        let written = ours.filter(|patch| patch.body.pointer("/spec/etcd/external/endpoints").is_some()).len();
        ensure!(written == self.rolled, "endpoints were written {written} times:\n{ours}");
        Ok(())
    }
}

/// Deletes the Cluster, and waits until nothing is left.
async fn is_deleted(bed: &Bed, handle: &ClusterHandle, stub: &ControlPlaneStub) -> Result<()> {
    handle.delete("Cluster", &handle.cluster).await?;
    all_is_gone(bed, handle).await?;
    stub.until_gone(PATIENCE).await
}
