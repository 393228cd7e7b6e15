//! Random stories with random faults in our requests, in their answers and in our watches. Meanwhile small clusters
//! grow, shrink, roll out and lose members, and in the end each cluster matches its spec. The members are simulated, so
//! that many stories fit into a run. Our manager, the API server and Cluster API are the real ones. In half of the
//! stories, API servers use the endpoints, and a task plays their part.

mod in_use;

use crate::rolls::changed;
use crate::shrinks::wanted;
use anyhow::{Context, Result, ensure};
use api::conditions::{MACHINES_DELETING, MACHINES_UP_TO_DATE};
use api::endpoints::{EndpointLists, parse_list};
use api::etcd_cluster::{Health, MemberRole};
use e2e::bed::{Bed, ClusterHandle, Manifests, first_address};
use e2e::faults::{ApiCall, EtcdCall, EtcdCalls, EtcdProxy, Fault, FaultyManager, Rule, Verb};
use e2e::plane::users;
use e2e::scenarios::seed;
use e2e::until::until;
use futures::{StreamExt, TryStreamExt, stream};
use in_use::{ControlPlane, recorded};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// How many stories there are, and how many of them run side by side, each with a manager of its own that does not see
/// the other stories' objects.
const STORIES: usize = 12;
const AT_ONCE: usize = 4;
/// Chapters of a story: in each, one or two things are changed.
const CHAPTERS: usize = 4;
/// How many faults of a chapter strike our writes, and within how many writes: a chapter takes twenty writes or more.
const AT_WRITES: usize = 4;
const AHEAD: usize = 24;
/// How many faults of a chapter strike our changes of etcd, and within how many changes, of which there are few.
const AT_ETCD: usize = 2;
const AHEAD_AT_ETCD: usize = 3;
/// How long a cluster may take, beside others, to match its spec: after some errors, our manager retries only after a
/// minute.
const PATIENCE: Duration = Duration::from_secs(400);
/// Time between two checks.
const CALM: Duration = Duration::from_millis(500);
/// Seconds until a member counts as unhealthy, and the grace of a Machine.
const UNHEALTHY: i64 = 8;
const GRACE: i64 = 60;
/// The resources that our manager watches and bases decisions on.
const WATCHES: [&str; 5] = ["machines", "secrets", "etcdclusters", "clusters", "etcdadmconfigs"];
/// gRPC's code for a server that is not available.
const UNAVAILABLE: u16 = 14;

/// The seed decides sizes, changes and faults. Their timing also depends on the computer.
pub(crate) async fn of_faults_and_changes(bed: &mut Bed) -> Result<()> {
    let seed = seed()?;
    println!("chance::of_faults_and_changes: E2E_SEED={seed} repeats the stories");
    bed.kill_manager(0).await?;
    let proxy = EtcdProxy::start(bed).await?;
    let (shared, proxy_of_all) = (&*bed, &proxy);
    stream::iter(0..STORIES)
        .map(|number| async move {
            let told = tell(shared, proxy_of_all, seed, number).await;
            told.with_context(|| format!("story {number} of E2E_SEED={seed}"))
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    drop(proxy);
    bed.start_manager(0).await
}

/// Something that a person changes, or that happens to a machine.
enum Change {
    Resize(usize),
    RollOut,
    Delete(String),
    Die(String),
}

struct Story<'a> {
    bed: &'a Bed,
    handle: ClusterHandle,
    manager: FaultyManager,
    calls: EtcdCalls,
    /// The control plane that uses the endpoints, if there is one.
    control_plane: Option<ControlPlane>,
    random: StdRng,
    /// The wanted number of members.
    size: usize,
    /// Changes of the configuration so far.
    configurations: usize,
    /// How many Machines may be made at most.
    most: usize,
    /// What has happened, for the output.
    told: Vec<String>,
}

async fn tell(bed: &Bed, proxy: &EtcdProxy, seed: u64, number: usize) -> Result<()> {
    let (begun, mark, namespace) = (Instant::now(), bed.plane.mark(), format!("chance-{number}"));
    let mut random = StdRng::seed_from_u64(seed.wrapping_add(number as u64));
    let size = if random.random_bool(0.5) { 1 } else { 3 };
    ClusterHandle::make_namespace(&bed.client(), &namespace).await?;
    let manager = FaultyManager::start(bed, &namespace, Some(&namespace), Vec::new()).await?;
    // Control planes here never get a Node, so they would never roll out with the endpoints of other members.
    let manifests = Manifests::new(&namespace, "demo")?.replicas(i64::try_from(size)?).without_control_plane();
    let manifests = manifests.with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] =
            json!({"intervalSeconds": 1, "unhealthyAfterSeconds": UNHEALTHY, "startupGraceSeconds": GRACE});
    });
    let handle = ClusterHandle::new(&bed.client(), &manifests);
    let calls = proxy.between(&manager, &handle, Vec::new());
    let in_use = !number.is_multiple_of(2);
    let control_plane = in_use.then(|| {
        let random = StdRng::seed_from_u64(seed.wrapping_add((STORIES + number) as u64));
        ControlPlane::begin(bed, &handle, random)
    });
    let told = vec![format!("{size} members{}", if in_use { " that API servers use" } else { "" })];
    let mut story =
        Story { bed, handle, manager, calls, control_plane, random, size, configurations: 0, most: size, told };
    story.faults();
    manifests.apply(&bed.client()).await?;
    let lived = story.live().await;
    println!("  story {number}: {}; {:.0} s", story.told.join(", "), begun.elapsed().as_secs_f32());
    lived.with_context(|| story.strikes())?;
    made_once(bed, &namespace, mark, story.most)?;
    story.faults();
    story.handle.delete("Cluster", &story.handle.cluster).await?;
    if story.random.random_bool(0.5) {
        story.watch_lags().await;
    }
    story.is_gone().await.with_context(|| story.strikes())?;
    story.manager.stop().await?;
    Ok(())
}

impl Story<'_> {
    async fn live(&mut self) -> Result<()> {
        self.as_wanted(&[]).await.context("it comes up")?;
        for chapter in 0..CHAPTERS {
            self.faults();
            let machines = self.handle.etcd_machines().await?;
            let changes = self.changes(&machines);
            let mut gone = Vec::new();
            for change in &changes {
                self.happens(change, &machines, &mut gone).await?;
            }
            if self.random.random_bool(0.5) {
                self.watch_lags().await;
            }
            self.as_wanted(&gone).await.with_context(|| format!("chapter {chapter}: {}", self.told.join(", ")))?;
        }
        Ok(())
    }

    /// One or two changes. At most one member goes without our own decision: two of three would be the quorum.
    fn changes(&mut self, machines: &[String]) -> Vec<Change> {
        let victim = machines[self.random.random_range(0..machines.len())].clone();
        let sizes = [1, 3, 5, 7];
        let size = sizes[self.random.random_range(0..sizes.len())];
        let first = match self.random.random_range(0..4) {
            0 if self.size >= 3 => Change::Die(victim),
            0 | 1 => Change::Delete(victim),
            _ => Change::RollOut,
        };
        match (self.random.random_range(0..3), size == self.size) {
            (0, false) => vec![Change::Resize(size)],
            (1, false) => vec![first, Change::Resize(size)],
            _ => vec![first],
        }
    }

    /// Makes a change happen. Adds the Machines that must be gone in the end to `gone`.
    async fn happens(&mut self, change: &Change, machines: &[String], gone: &mut Vec<String>) -> Result<()> {
        match change {
            Change::Resize(size) => {
                self.told.push(format!("{size} are wanted"));
                self.most += size.saturating_sub(self.size);
                self.size = *size;
                // One member cannot be replaced without an extra Machine.
                changed(&self.handle, &json!({"rolloutStrategy": Value::Null})).await?;
                wanted(&self.handle, *size).await
            }
            Change::RollOut => {
                self.told.push("another configuration".to_owned());
                self.configurations += 1;
                gone.extend(machines.iter().cloned());
                self.most += machines.len();
                let command = format!("echo {}", self.configurations);
                let strategy = self.strategy();
                let spec = json!({"etcdadmConfigSpec": {"preEtcdadmCommands": [command]}, "rolloutStrategy": strategy});
                changed(&self.handle, &spec).await
            }
            Change::Delete(machine) => {
                self.told.push(format!("{machine} is deleted"));
                self.most += 1;
                gone.push(machine.clone());
                self.handle.delete("Machine", machine).await
            }
            Change::Die(machine) => {
                self.told.push(format!("{machine} hangs"));
                self.most += 1;
                gone.push(machine.clone());
                let found = self.handle.api("LocalMachine").get(machine).await?;
                let address: Ipv4Addr = first_address(&found).context("it has no address")?.parse()?;
                let what = format!("{machine}: its machine hangs");
                self.bed.fault_of_simulated(&what, &self.handle.namespace, machine);
                self.bed.frozen().context("machines are not simulated")?.freeze(address)
            }
        }
    }

    /// The strategy of a rollout: often the default, and else with little room. Without an extra Machine, there has to
    /// be more than one member.
    fn strategy(&mut self) -> Value {
        let max_surge = match self.random.random_range(0..4) {
            0 => 1,
            1 if self.size > 1 => 0,
            _ => return Value::Null,
        };
        self.told.push(format!("maxSurge {max_surge}"));
        json!({"rollingUpdate": {"maxSurge": max_surge}})
    }

    /// Adds faults that strike from now on.
    fn faults(&mut self) {
        let written = self.manager.writes().len();
        for _ in 0..AT_WRITES {
            let (at, fault) = (written + self.random.random_range(1..=AHEAD), self.fault());
            self.manager.add(Rule::at_write(at, fault));
        }
        let resource = WATCHES[self.random.random_range(0..WATCHES.len())];
        let refused = Fault::Answer(if self.random.random_bool(0.5) { 429 } else { 500 });
        let reads = move |call: &ApiCall| matches!(call.verb, Verb::Get | Verb::List) && call.resource == resource;
        self.manager.add(Rule::at_call(reads, refused).times(self.random.random_range(1..4)));
        let written = self.calls.writes().len();
        for _ in 0..AT_ETCD {
            let at = written + self.random.random_range(1..=AHEAD_AT_ETCD);
            let fault = match self.fault() {
                Fault::Answer(_) => Fault::Answer(UNAVAILABLE),
                fault => fault,
            };
            self.calls.add(Rule::at_write(at, fault));
        }
        let late = Fault::Delay(Duration::from_millis(self.random.random_range(500..3_000)));
        let status = |call: &EtcdCall| call.method.ends_with("/status");
        self.calls.add(Rule::at_call(status, late).times(self.random.random_range(1..6)));
    }

    /// What may happen to a write.
    fn fault(&mut self) -> Fault {
        match self.random.random_range(0..8) {
            0 => Fault::Answer(403),
            1 => Fault::Answer(409),
            2 => Fault::Answer(429),
            3 => Fault::Answer(500),
            4 => Fault::LoseAnswer,
            5 => Fault::KillBefore,
            6 => Fault::KillAfter,
            _ => Fault::Delay(Duration::from_millis(self.random.random_range(100..3_000))),
        }
    }

    async fn watch_lags(&mut self) {
        let resource = WATCHES[self.random.random_range(0..WATCHES.len())];
        let lags = Duration::from_millis(self.random.random_range(500..8_000));
        self.told.push(format!("the watch of {resource} lags {:.1} s", lags.as_secs_f32()));
        self.manager.hold_watch(resource);
        tokio::time::sleep(lags).await;
        self.manager.release_watch(resource);
    }

    /// Waits until there are as many members as wanted, all of them healthy voters on up-to-date Machines, nothing is
    /// left to do, and no other infrastructure machine or config is there.
    async fn as_wanted(&self, gone: &[String]) -> Result<()> {
        let (handle, size) = (&self.handle, self.size);
        until(format!("{size} members of {} are well", handle.namespace), PATIENCE, async || {
            tokio::time::sleep(CALM).await;
            let machines = handle.etcd_machines().await?;
            let etcd = handle.etcds().get(&handle.etcd).await?;
            let in_use = recorded(&etcd);
            let status = etcd.status.unwrap_or_default();
            let has =
                |type_: &str, value: &str| status.conditions.iter().any(|c| c.type_ == type_ && c.status == value);
            ensure!(status.observed_generation == etcd.metadata.generation, "the spec is not observed");
            ensure!(status.ready && machines.len() == size, "{machines:?}: {:?}", status.conditions);
            ensure!(!machines.iter().any(|name| gone.contains(name)), "{machines:?}: {:?}", status.conditions);
            ensure!(status.operation.is_none(), "it still does {:?}", status.operation);
            ensure!(status.removed_members.is_empty(), "removed are {:?}", status.removed_members);
            let is_done = has(MACHINES_UP_TO_DATE, "True") && has(MACHINES_DELETING, "False");
            ensure!(is_done, "{:?}", status.conditions);
            let well = |member: &&api::etcd_cluster::MemberStatus| {
                member.role == MemberRole::Voter && member.health == Health::Healthy
            };
            let mut voters: Vec<&String> = status.members.iter().filter(well).map(|member| &member.machine).collect();
            voters.sort();
            ensure!(voters.iter().copied().eq(&machines), "Machines {machines:?}, members {:?}", status.members);
            ensure!(status.members.len() == size, "members {:?}", status.members);
            if self.control_plane.is_some() {
                let published = EndpointLists::from_iter([parse_list(&status.endpoints)]);
                ensure!(in_use == published, "in use is {in_use}, and published {published}");
            }
            for kind in ["LocalMachine", "EtcdadmConfig"] {
                let found = handle.names(kind, "").await?;
                ensure!(found == machines, "of {kind} there are {found:?}, and the Machines are {machines:?}");
            }
            Ok(Some(()))
        })
        .await
    }

    /// Waits until nothing that runs is left. A template stays if a fault kept us from becoming its owner.
    async fn is_gone(&self) -> Result<()> {
        let handle = &self.handle;
        until(format!("all of {} is gone", handle.namespace), PATIENCE, async || {
            tokio::time::sleep(CALM).await;
            for kind in ["Cluster", "EtcdCluster", "Machine", "LocalMachine", "EtcdadmConfig", "LocalCluster"] {
                let left = handle.names(kind, "").await?;
                ensure!(left.is_empty(), "of {kind} there are {left:?}");
            }
            Ok(Some(()))
        })
        .await
    }

    /// The faults that have happened, for messages.
    fn strikes(&self) -> String {
        let api = self.manager.strikes().into_iter().map(|strike| format!("{:?}: {}", strike.fault, strike.call));
        let etcd = self.calls.strikes().into_iter().map(|strike| format!("{:?}: {}", strike.fault, strike.call));
        format!("{}; the faults were:\n{}", self.told.join(", "), api.chain(etcd).collect::<Vec<_>>().join("\n"))
    }
}

/// Checks in the audit log that no Machine was made twice, and that this many were made at most.
fn made_once(bed: &Bed, namespace: &str, mark: e2e::plane::Mark, most: usize) -> Result<()> {
    let ours = bed.plane.requests_since(mark)?.user(users::PROVIDER);
    let ours = ours.filter(|request| request.namespace == namespace && request.code == 201);
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for request in ours.verb("create").resource("machines").iter() {
        *made.entry(request.name.clone()).or_default() += 1;
    }
    ensure!(!made.is_empty() && made.values().all(|count| *count == 1), "made were {made:?}");
    ensure!(made.len() <= most, "{most} Machines were to be made at most, and made were {made:?}");
    Ok(())
}
