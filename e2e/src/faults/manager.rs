//! A manager of ours to which faults happen.

use super::api_call::ApiCall;
use super::api_proxy::{ApiProxy, Setup};
use super::gate::{Gate, Rule, Strike, Writes};
use super::victim::Victim;
use super::watches::Watches;
use crate::bed::{Bed, programs};
use crate::plane::users;
use crate::process::{Command, Process, Signal};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Without a lease, several managers work at the same time.
const ALONE: [&str; 1] = ["--leader-elect=false"];
/// With a lease. Its times are short, but long compared to what a renewal takes on a busy computer.
const WITH_LEASE: [&str; 5] = [
    "--leader-elect=true",
    "--leader-election-namespace=default",
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=500ms",
];

/// A manager behind a proxy. If it is killed, it starts again at once, until this is stopped or dropped.
pub struct FaultyManager {
    name: String,
    logs: PathBuf,
    victim: Arc<Victim>,
    /// How many times it has ended because it had lost the lease.
    ends: Arc<AtomicUsize>,
    gate: Arc<Gate<ApiCall>>,
    watches: Watches,
    supervisor: JoinHandle<Result<()>>,
    stop: Option<oneshot::Sender<()>>,
    _proxy: ApiProxy,
}

impl FaultyManager {
    /// Starts a manager without a lease, called `name` in messages and logs. With a `namespace`, it sees only that one,
    /// so that several managers share a bed and the writes of each are counted for its own clusters.
    ///
    /// This returns before the manager is ready.
    ///
    /// # Errors
    /// When the program is not built, or the proxy does not start.
    pub async fn start(bed: &Bed, name: &str, namespace: Option<&str>, rules: Vec<Rule<ApiCall>>) -> Result<Self> {
        Self::with(bed, name, namespace, rules, &ALONE).await
    }

    /// The same for a manager that works only while it holds the lease in namespace `default`, and ends when it has
    /// lost the lease. It sees every namespace.
    ///
    /// # Errors
    /// As [`FaultyManager::start`].
    pub async fn start_with_lease(bed: &Bed, name: &str) -> Result<Self> {
        Self::with(bed, name, None, Vec::new(), &WITH_LEASE).await
    }

    async fn with(
        bed: &Bed,
        name: &str,
        namespace: Option<&str>,
        rules: Vec<Rule<ApiCall>>,
        election: &[&str],
    ) -> Result<Self> {
        let victim = Arc::new(Victim::new(name, bed.notes().of(namespace)));
        let gate = Arc::new(Gate::new(victim.clone(), rules));
        let watches = Watches::default();
        let proxy = ApiProxy::start(Setup {
            kubeconfig: bed.plane.kubeconfig_for(users::PROVIDER)?,
            certificates: bed.plane.certificates(),
            own_kubeconfig: bed.world().state("faults")?.join(format!("{name}.kubeconfig")),
            namespace: namespace.map(str::to_owned),
            gate: gate.clone(),
            watches: watches.clone(),
        })
        .await
        .context("start a proxy before the API server")?;
        let logs = bed.world().logs().to_owned();
        let command = Command::new(format!("manager-{name}"), programs()?.join("manager"), &logs)
            .arg("--kubeconfig")
            .arg(&proxy.kubeconfig)
            .args(["--log-format", "json", "--log-level", "info"])
            .args(election)
            // Nothing uses this address.
            .args(["--admin-address", "127.0.0.1:0"]);
        victim.begin();
        let process = command.spawn()?;
        victim.runs_as(process.pid());
        let (stop, stopped) = oneshot::channel();
        let ends = Arc::new(AtomicUsize::new(0));
        let may_end = (election == WITH_LEASE).then(|| ends.clone());
        let supervisor = tokio::spawn(supervise(process, victim.clone(), may_end, stopped));
        let name = name.to_owned();
        Ok(Self { name, logs, victim, ends, gate, watches, supervisor, stop: Some(stop), _proxy: proxy })
    }

    /// Adds a rule; earlier rules take precedence.
    pub fn add(&self, rule: Rule<ApiCall>) {
        self.gate.add(rule);
    }

    /// Holds back all events of `resource` (in the plural) from now on, so that the manager's cache gets stale. Lists
    /// are not affected.
    pub fn hold_watch(&self, resource: &str) {
        self.victim.note(&format!("is told of no more {resource}"));
        self.watches.hold(resource);
    }

    /// How many pieces of watches are held back now: at least one for each event.
    #[must_use]
    pub fn kept(&self, resource: &str) -> usize {
        self.watches.kept(resource)
    }

    /// Passes on everything that was held back, and returns how many pieces of watches it was.
    pub fn release_watch(&self, resource: &str) -> usize {
        self.victim.note(&format!("is told of {resource} again"));
        self.watches.release(resource)
    }

    /// Sends the manager a signal: `Signal::STOP` freezes it, `Signal::CONT` lets it go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.victim.note(&format!("gets {signal:?}"));
        self.victim.signal(signal)
    }

    /// How many times it has ended because it had lost the lease. Each time it was started again.
    #[must_use]
    pub fn ends(&self) -> usize {
        self.ends.load(Ordering::Relaxed)
    }

    /// All writes until now.
    #[must_use]
    pub fn writes(&self) -> Writes<ApiCall> {
        self.gate.writes()
    }

    /// The faults that have happened until now.
    #[must_use]
    pub fn strikes(&self) -> Vec<Strike<ApiCall>> {
        self.gate.strikes()
    }

    /// For other proxies in front of the same manager.
    pub(super) fn victim(&self) -> Arc<Victim> {
        self.victim.clone()
    }

    /// Stops the manager for good and returns all its writes. They are also written to a file beside its log.
    ///
    /// # Errors
    /// When the manager has ended for another reason than a fault.
    pub async fn stop(mut self) -> Result<Writes<ApiCall>> {
        // Dropping the sender ends the supervisor.
        self.stop = None;
        (&mut self.supervisor).await.context("the supervisor of a manager")??;
        Ok(self.writes())
    }
}

impl Drop for FaultyManager {
    fn drop(&mut self) {
        // Ending the supervisor kills the process.
        self.supervisor.abort();
        // The file is beside the log.
        let path = self.logs.join(format!("manager-{}.writes", self.name));
        if let Err(error) = fs::write(&path, self.gate.writes().to_string()) {
            eprintln!("{}: {error}", path.display());
        }
    }
}

/// Starts the process again each time it is killed, until it is told to stop. If the process ends by itself, that is a
/// failure, unless such ends are counted.
async fn supervise(
    mut process: Process,
    victim: Arc<Victim>,
    may_end: Option<Arc<AtomicUsize>>,
    mut stopped: oneshot::Receiver<()>,
) -> Result<()> {
    let mut failure = None;
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            status = process.wait() => {
                let status = status?;
                match &may_end {
                    _ if victim.was_killed() => {}
                    Some(ends) => {
                        ends.fetch_add(1, Ordering::Relaxed);
                    }
                    None => {
                        let log = process.log().display();
                        failure = Some(format!("{} ended with {status}; see {log}", process.name()));
                    }
                }
                victim.begin();
                process.restart().await?;
                victim.runs_as(process.pid());
            }
        }
    }
    victim.kill();
    process.kill().await?;
    failure.map_or(Ok(()), |failure| bail!(failure))
}
