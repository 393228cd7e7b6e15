//! The same through a Kubernetes API server: writers and readers of a few ConfigMaps, whose every request is recorded.
//! No object may be lost, no read may go back in time, and no update may be overwritten unseen.

pub mod check;
mod writer;

use super::record::Clock;
use super::{Figures, Unanswered};
use crate::scenarios::seed;
use crate::until::until;
use anyhow::{Context, Result, ensure};
use check::{Operation, Outcome, Request, violations};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use writer::Writer;

/// How many objects all writers share.
const OBJECTS: usize = 5;
/// How long connecting may take: a load balancer may lead to a server that is gone.
const CONNECTED: Duration = Duration::from_secs(2);
/// How long the last reads may take to be answered.
const LAST_READ: Duration = Duration::from_secs(30);
/// How many violations an error lists.
const TOLD: usize = 5;

/// The size of a load.
#[derive(Clone, Copy, Debug)]
pub struct ObjectLoad {
    /// How many writers there are. Each makes one request at a time.
    pub writers: usize,
    /// How long each rests after an answer.
    pub rest: Duration,
}

impl Default for ObjectLoad {
    fn default() -> Self {
        Self { writers: 6, rest: Duration::from_millis(40) }
    }
}

/// Writers that run until they are stopped. Dropping this stops them.
pub struct ObjectWriters {
    clock: Clock,
    seed: u64,
    load: ObjectLoad,
    objects: Api<ConfigMap>,
    stop: Arc<AtomicBool>,
    writers: JoinSet<Vec<Operation>>,
}

/// Everything that was requested and answered.
#[derive(Debug)]
pub struct ObjectRecord {
    clock: Clock,
    seed: u64,
    operations: Vec<Operation>,
    /// When the writers were told to stop.
    ended: i64,
}

impl ObjectWriters {
    /// Begins to write ConfigMaps in a namespace. The namespace has to exist, and to have no ConfigMap called
    /// `written-…`.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used, or `E2E_SEED` is not a number.
    pub async fn begin(kubeconfig: &Path, namespace: &str, load: ObjectLoad) -> Result<Self> {
        let seed = seed()?;
        println!("  writers of ConfigMaps in {namespace}: E2E_SEED={seed} repeats the requests");
        let mut begun = Self {
            clock: Clock::start(),
            seed,
            load,
            objects: Api::namespaced(client(kubeconfig).await?, namespace),
            stop: Arc::default(),
            writers: JoinSet::new(),
        };
        for number in 0..load.writers {
            let writer = begun.writer(number);
            begun.writers.spawn(writer.run(begun.stop.clone()));
        }
        Ok(begun)
    }

    /// Stops all writers, and reads every object a last time.
    ///
    /// # Errors
    /// When a last read is not answered.
    pub async fn end(mut self) -> Result<ObjectRecord> {
        let ended = self.clock.now();
        self.stop.store(true, Ordering::Relaxed);
        let written = std::mem::take(&mut self.writers).join_all().await;
        let mut reader = self.writer(self.load.writers);
        until("the API server answers a list", LAST_READ, async || Ok(reader.list().await.then_some(()))).await?;
        let mut operations: Vec<Operation> = written.into_iter().flatten().collect();
        operations.extend(reader.finish());
        Ok(ObjectRecord { clock: self.clock, seed: self.seed, operations, ended })
    }

    fn writer(&self, number: usize) -> Writer {
        Writer::new(self.clock.times(), self.objects.clone(), number, OBJECTS, self.load.rest, self.seed)
    }
}

/// A client that sends each request once. Assume that a write happens although the server answers that it does not
/// know. If the client library sent it again, the server would refuse it, and it would count as a write that did not
/// happen. When a writer tries again, it makes a new request.
async fn client(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("read the writers' kubeconfig")?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECTED);
    Client::try_from(config).context("make the writers' client")
}

impl ObjectRecord {
    /// The figures of the record. A write that the API server refuses because another one came first has not failed.
    pub fn figures(&self) -> Figures {
        Figures::of(self.operations.iter().map(Operation::sample), self.ended)
    }

    /// The writes of which it is not known at the first try whether they happened.
    pub fn unanswered(&self) -> Vec<Unanswered> {
        let told = |operation: &Operation| match &operation.outcome {
            Outcome::Unknown(why) if operation.is_write() && !operation.again => {
                Some(Unanswered::of(&self.clock, (operation.call, operation.returned), why))
            }
            _ => None,
        };
        self.operations.iter().filter_map(told).collect()
    }

    /// Checks that nothing was lost and that no read went back in time.
    ///
    /// # Errors
    /// When there is a violation, or too little was written to show anything; the error has the seed.
    pub fn check(&self) -> Result<()> {
        let seed = || format!("E2E_SEED={}", self.seed);
        let is_made = |operation: &&Operation| matches!(operation.request, Request::Create { .. });
        let made = self.operations.iter().filter(is_made).filter(|made| matches!(made.outcome, Outcome::Ok { .. }));
        ensure!(made.count() > 0, "no object was made");
        let found = violations(&self.operations);
        let told = found.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join("\n");
        ensure!(found.is_empty(), "{} violations, {}:\n{told}", found.len(), seed());
        Ok(())
    }
}
