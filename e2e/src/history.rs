//! A write load on etcd whose every request is recorded, and etcd's own judge of the record.
//!
//! ```ignore
//! let history = History::begin(&world, "members-fail", &access, Load::default()).await?;
//! // … members die, freeze, are cut off …
//! let record = history.end().await?;
//! println!("{}", record.figures());
//! record.judge(&members)?;
//! ```
//!
//! There are two groups of clients. One follows the current endpoints ([`History::endpoints`]); the other keeps the
//! endpoints of the beginning, as an API server does. Each group has one more client, which watches every key. A client
//! sends a [`request::Request`] once, to one endpoint, and records its [`record::Outcome`]. If a write is not answered,
//! the client makes another one like it, once ([`Figures::failed_twice`]). The judge is a program of the module
//! `e2e/tools/robustness`. It requires a database that is empty at the beginning, and to which only this history
//! writes.
//!
//! [`objects`] does the same with writes through a Kubernetes API server.

mod endpoints;
mod figures;
mod judge;
mod load;
mod mix;
pub mod objects;
pub mod record;
mod report;
pub mod request;
pub mod response;
pub mod session;
mod unanswered;
pub mod watcher;
mod wire;

use crate::plane::workload::EtcdAccess;
use crate::scenarios::seed;
use crate::tools::Judge;
use crate::until::until;
use crate::world::World;
use anyhow::{Context, Result, bail, ensure};
use endpoints::Endpoints;
use mix::Mix;
use record::{Clock, Operation, Outcome, Recorder};
use request::Request;
use response::Response;
use session::Session;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use watcher::{Watch, Watcher};

pub use figures::Figures;
pub use judge::{MemberData, Verdict};
pub use load::Load;
pub use unanswered::{Unanswered, each_is_explained};

/// How many acknowledged writes a history needs to show something.
const FEWEST: usize = 30;
/// How much longer a load goes on if it does not have that many yet.
const ENOUGH: Duration = Duration::from_secs(15);
/// How long the last read, which needs a quorum, may take to be answered.
const LAST_READ: Duration = Duration::from_secs(30);
/// How long the watches may take to report all changes, once the last revision is known.
const CAUGHT_UP: Duration = Duration::from_secs(15);

/// A running load. Dropping it stops it.
pub struct History {
    clock: Clock,
    access: EtcdAccess,
    directory: PathBuf,
    judge: Judge,
    seed: u64,
    /// The next client's number.
    next: usize,
    operations: Vec<Operation>,
    stop: Arc<AtomicBool>,
    /// Writes that were acknowledged so far.
    written: Arc<AtomicUsize>,
    current: watch::Sender<Vec<String>>,
    last: watch::Sender<Option<i64>>,
    clients: JoinSet<Vec<Operation>>,
    watchers: JoinSet<Vec<Watch>>,
}

/// Everything that was requested, answered and watched.
#[derive(Clone)]
pub struct Record {
    clock: Clock,
    directory: PathBuf,
    judge: Judge,
    seed: u64,
    operations: Vec<Operation>,
    /// When the clients were told to stop.
    ended: i64,
    watches: Vec<Watch>,
}

impl History {
    /// Begins to write to the etcd behind `access`. The files are in a directory called `name` beside the world's logs.
    ///
    /// # Errors
    /// When etcd does not answer, or is not empty.
    pub async fn begin(world: &World, name: &str, access: &EtcdAccess, load: Load) -> Result<Self> {
        let seed = load.seed.map_or_else(seed, Ok)?;
        println!("  history {name}: E2E_SEED={seed} repeats the requests");
        let directory = world.logs().join(format!("history-{name}"));
        std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        let mut history = Self {
            clock: Clock::start(),
            access: access.clone(),
            directory,
            judge: Judge::ensure()?,
            seed,
            next: 0,
            operations: Vec::new(),
            stop: Arc::default(),
            written: Arc::default(),
            current: watch::channel(access.endpoints.clone()).0,
            last: watch::channel(None).0,
            clients: JoinSet::new(),
            watchers: JoinSet::new(),
        };
        // The judge requires proof that the database is empty.
        let first = history.read_all().await.context("the first read")?;
        ensure!(first == 1, "etcd is not empty: its revision is {first}");
        let fixed = Endpoints::Fixed(access.endpoints.clone().into());
        let current = Endpoints::Current(history.current.subscribe());
        let groups = if load.keep_endpoints { vec![fixed, current] } else { vec![current] };
        for endpoints in groups {
            for _ in 0..load.clients {
                history.start_client(&endpoints, load);
            }
            history.start_watcher(endpoints);
        }
        Ok(history)
    }

    /// Gives the current endpoints to the group that follows them.
    pub fn endpoints(&self, endpoints: Vec<String>) {
        self.current.send_replace(endpoints);
    }

    /// A sender with which other code can do the same while the load goes on.
    #[must_use]
    pub fn told(&self) -> watch::Sender<Vec<String>> {
        self.current.clone()
    }

    /// A recorder for requests that a scenario makes itself. [`History::add`] takes their operations.
    pub fn recorder(&mut self) -> Recorder {
        self.next += 1;
        self.clock.client(self.next)
    }

    /// Adds the operations of a recorder from [`History::recorder`].
    pub fn add(&mut self, recorder: Recorder) {
        self.operations.extend(recorder.finish());
    }

    /// Ends the load once it has written enough to show something. Then reads everything one last time, and waits until
    /// the watches have reported everything up to that read.
    ///
    /// # Errors
    /// When the last read is not answered, a watch does not report all changes in time, or there are too few writes to
    /// show anything.
    pub async fn end(mut self) -> Result<Record> {
        let written = self.written.clone();
        let is_enough = async || Ok((written.load(Ordering::Relaxed) >= FEWEST).then_some(()));
        // If it never is enough, the check below says so, with all figures.
        let _ = until("enough is written", ENOUGH, is_enough).await;
        let ended = self.clock.now();
        self.stop.store(true, Ordering::Relaxed);
        let clients = std::mem::take(&mut self.clients).join_all().await;
        self.operations.extend(clients.into_iter().flatten());
        let last = self.read_all().await.context("the last read")?;
        self.last.send_replace(Some(last));
        let watchers = std::mem::take(&mut self.watchers).join_all();
        let watches = timeout(CAUGHT_UP, watchers).await;
        let watches = watches.with_context(|| format!("a watch does not tell all changes up to revision {last}"))?;
        let record = Record {
            clock: self.clock,
            directory: self.directory,
            judge: self.judge,
            seed: self.seed,
            operations: self.operations,
            ended,
            watches: watches.into_iter().flatten().collect(),
        };
        let figures = record.figures();
        ensure!(figures.writes >= FEWEST, "{figures}: fewer than {FEWEST} writes show little");
        Ok(record)
    }

    fn start_client(&mut self, endpoints: &Endpoints, load: Load) {
        let recorder = self.recorder();
        let client = load::Client {
            recorder,
            session: Session::new(&self.access),
            endpoints: endpoints.clone(),
            mix: Mix::new(self.seed, self.next, load.keys),
            rest: load.rest,
            stop: self.stop.clone(),
            written: self.written.clone(),
            turn: self.next,
        };
        self.clients.spawn(client.run());
    }

    fn start_watcher(&mut self, endpoints: Endpoints) {
        self.next += 1;
        let watcher = Watcher {
            clock: self.clock.clone(),
            client: self.next,
            endpoints,
            access: self.access.clone(),
            last: self.last.subscribe(),
        };
        self.watchers.spawn(watcher.run());
    }

    /// Reads all keys, again and again until etcd answers, and returns the store's revision.
    async fn read_all(&mut self) -> Result<i64> {
        let mut recorder = self.recorder();
        let mut session = Session::new(&self.access);
        let endpoints = Endpoints::Current(self.current.subscribe());
        let mut turn = 0;
        let revision = until("etcd answers a read", LAST_READ, async || {
            turn += 1;
            let endpoint = endpoints.pick(turn).context("there is no endpoint")?;
            let request = Request::all(0);
            match recorder.record(request.clone(), session.ask(&endpoint, &request)).await {
                Outcome::Ok(Response::Range { revision, .. }) => Ok(Some(revision)),
                other => bail!("{other:?}"),
            }
        })
        .await?;
        self.operations.extend(recorder.finish());
        Ok(revision)
    }
}

impl Record {
    /// Its figures.
    pub fn figures(&self) -> Figures {
        Figures::of(self.operations.iter().map(Operation::sample), self.ended)
    }

    /// The writes that were not answered at the first try, as a client that never tries again notices them.
    pub fn unanswered(&self) -> Vec<Unanswered> {
        let told = |operation: &Operation| match &operation.outcome {
            Outcome::Failed(why) | Outcome::Unknown(why) if !operation.request.is_read() && !operation.again => {
                Some(Unanswered::of(&self.clock, (operation.call, operation.returned), why))
            }
            _ => None,
        };
        self.operations.iter().filter_map(told).collect()
    }

    /// Lets etcd's judge check the record. The logs of members that run on this computer show which requests without an
    /// answer took effect. Without these logs, watches are not judged: pass the data of all members, or none.
    ///
    /// # Errors
    /// When there is a violation, or no verdict. The error has the reason, the seed and the path of the picture.
    pub fn judge(&self, members: &[MemberData]) -> Result<Verdict> {
        report::write(&self.directory, &self.operations, &self.watches)?;
        let seed = || format!("E2E_SEED={}", self.seed);
        let verdict = judge::judge(self.judge.program(), &self.directory, members).with_context(seed)?;
        self.leases_are_kept().with_context(seed)?;
        Ok(verdict)
    }

    /// The same for a history that contains a fault on purpose. The judge has to find the fault in this part of its
    /// judgement, and to leave a picture. Returns what the judge says.
    ///
    /// # Errors
    /// When the judge finds nothing or something else, or the picture is missing or empty.
    pub fn judge_finds(&self, part: &str, members: &[MemberData]) -> Result<String> {
        let found = self.judge(members).err().context("the judge does not find it")?;
        let found = format!("{found:#}");
        ensure!(found.contains(&format!("violation: {part}")), "{found}");
        let picture = self.directory.join(judge::PICTURE);
        let shown = std::fs::metadata(&picture).with_context(|| format!("{}, of: {found}", picture.display()))?;
        ensure!(shown.len() > 0, "{} is empty, of: {found}", picture.display());
        Ok(found)
    }

    /// A copy that a test can change. Its files go to a directory of this name beside the original's.
    #[must_use]
    pub fn copy(&self, name: &str) -> Self {
        let directory = self.directory.with_file_name(format!("history-{name}"));
        Self { directory, ..self.clone() }
    }

    /// Adds the operations of a recorder from [`History::recorder`].
    pub fn add(&mut self, recorder: Recorder) {
        self.operations.extend(recorder.finish());
    }

    /// The watches, with everything that they reported.
    pub fn watches_mut(&mut self) -> &mut [Watch] {
        &mut self.watches
    }

    /// The model of etcd's suite cannot express a lease that does not exist. A client uses a lease only after etcd has
    /// granted it, and not after the client has asked to end it. So if etcd does not know such a lease, it has lost an
    /// acknowledged write.
    fn leases_are_kept(&self) -> Result<()> {
        for operation in &self.operations {
            if let Outcome::Failed(error) = &operation.outcome {
                ensure!(
                    !error.contains(session::LOST_LEASE),
                    "a granted lease is lost: {:?}: {error}",
                    operation.request
                );
            }
        }
        Ok(())
    }
}
