//! This machine, and the steps that `init` and `join` are made of.

use std::cell::RefCell;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use time::OffsetDateTime;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::etcd::Cluster;
use crate::init_system::{InitSystem, UnitState};
use crate::member::MemberRecord;
use crate::paths::Paths;
use crate::pki::authority::Authority;
use crate::pki::{self, ETCDCTL};
use crate::plan::Local;
use crate::settings::Settings;
use crate::{config, endpoint, files, guard, install, preflight, wal};

/// Pause between two checks for something that is about to happen.
pub(crate) const POLL: Duration = Duration::from_millis(50);
/// How often to ask the init system, while waiting, whether it still runs etcd. To ask starts a process.
const UNIT_CHECK: Duration = Duration::from_secs(2);
/// How often etcd may fail to start before the run gives up.
const START_ATTEMPTS: u32 = 5;
/// Pause before it is started again.
const START_PAUSE: Duration = Duration::from_secs(1);

/// The machine that becomes a member.
pub struct Node {
    /// The requested settings.
    pub settings: Settings,
    /// The locations of all files.
    pub paths: Paths,
    init_system: Box<dyn InitSystem>,
    /// When this run began.
    pub(crate) now: OffsetDateTime,
    /// What the run waits for. It is logged once per change, and again when time is up.
    waiting_for: RefCell<String>,
    service: RefCell<Service>,
}

/// What this run knows of etcd's service.
#[derive(Debug, Default)]
struct Service {
    /// A start that was ordered and may not have completed yet.
    starting: Option<JoinHandle<Result<()>>>,
    /// Whether that start stops a running etcd first.
    restarts: bool,
    /// How often starting failed.
    failed_starts: u32,
    /// The last answer of the init system, and when it was given.
    known: Option<(UnitState, Instant)>,
}

impl Node {
    /// A machine whose files lie below `root`. `now` is when the run begins.
    pub fn new(root: &Path, settings: Settings, init_system: Box<dyn InitSystem>, now: OffsetDateTime) -> Self {
        let paths = settings.paths(root);
        let (waiting_for, service) = Default::default();
        Self { settings, paths, init_system, now, waiting_for, service }
    }

    /// Does `work` while it holds this machine's lock, and gives up when time is up.
    pub(crate) async fn within_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let _lock = files::Lock::take(&self.paths.lock())?;
        let limit = self.settings.timeout;
        match tokio::time::timeout(limit, work).await {
            Ok(result) => result,
            Err(_) => bail!(
                "gave up after {limit:?} (--timeout): {}; a further run goes on from here",
                self.waiting_for.borrow()
            ),
        }
    }

    /// Logs the reason if it is a new one, and waits for `pause`.
    pub(crate) async fn wait(&self, pause: Duration, reason: String) {
        if *self.waiting_for.borrow() != reason {
            tracing::info!("waiting: {reason}");
            self.waiting_for.replace(reason);
        }
        tokio::time::sleep(pause).await;
    }

    /// The cluster's certificate authority, if it exists.
    pub(crate) fn authority(&self) -> Result<Option<Authority>> {
        Authority::load(&self.paths, self.now)
    }

    /// Makes an authority for a new cluster.
    pub(crate) fn new_authority(&self) -> Result<Authority> {
        let authority = Authority::create(&self.paths, self.now)?;
        tracing::info!("made a certificate authority in {}", self.settings.certs_dir.display());
        Ok(authority)
    }

    /// Installs etcd.
    pub(crate) async fn install(&self, local: &Local) -> Result<()> {
        self.waiting_for.replace("installing etcd".to_owned());
        install::ensure_installed(&self.paths, &self.settings, local.is_member()).await
    }

    /// Issues the leaves that are missing or no longer good. Fails if the machine is a member under another address:
    /// etcd reads the leaves at every handshake, and the other members would reject it.
    pub(crate) fn certificates(&self, authority: &Authority, local: &Local) -> Result<()> {
        if let Some(why) = local.moved(&self.settings.peer_endpoint().to_string()) {
            bail!(why);
        }
        let issued = pki::ensure_leaves(&self.paths, &self.settings, authority, self.now)?;
        if issued.is_empty() {
            tracing::info!("all certificates are good");
        } else {
            tracing::info!("issued certificates: {}", issued.join(", "));
        }
        Ok(())
    }

    /// A client for the members behind some endpoints.
    pub(crate) fn cluster(&self, authority: &Authority, endpoints: Vec<endpoint::Endpoint>) -> Result<Cluster> {
        let text = |path: &Path| {
            let bytes = files::read(path)?.with_context(|| format!("{} is gone", path.display()))?;
            String::from_utf8(bytes).with_context(|| format!("{} is not text", path.display()))
        };
        let certificate = text(&self.paths.certificate(ETCDCTL))?;
        let key = text(&self.paths.key(ETCDCTL))?;
        Ok(Cluster::new(endpoints, authority.bundle_pem.clone(), certificate, key))
    }

    /// Observes this machine.
    pub(crate) async fn local(&self) -> Result<Local> {
        Ok(Local {
            unit: self.unit_state().await?,
            data: guard::data(&self.paths)?,
            owner: wal::owner(&self.paths)?,
            record: MemberRecord::load(&self.paths)?,
        })
    }

    /// Warns if the member runs with other settings than the requested ones, or if its settings are gone: a run never
    /// restarts a member for its settings.
    pub(crate) fn tell_differences(&self, local: &Local) -> Result<()> {
        if local.owner.is_some() && local.unit == UnitState::Up {
            let file = self.paths.etcd_env();
            if !file.exists() {
                tracing::warn!(
                    "the member runs, and could not start again: {} is gone; stop etcd.service and run this again to have \
                     it written",
                    file.display()
                );
            }
            let different = config::differences(&self.paths, &self.settings)?;
            if !different.is_empty() {
                tracing::warn!(
                    "the member runs, and is left, with other settings than asked for: {}; stop etcd.service and run \
                     this again to change them",
                    different.join(", ")
                );
            }
        }
        Ok(())
    }

    async fn unit_state(&self) -> Result<UnitState> {
        let ordered = self.service.borrow_mut().starting.take();
        match ordered {
            Some(order) if order.is_finished() => match order.await.context("starting etcd was interrupted")? {
                Ok(()) => self.know(UnitState::Up),
                Err(error) => {
                    let failed_starts = {
                        let mut service = self.service.borrow_mut();
                        service.failed_starts += 1;
                        service.known = None;
                        service.failed_starts
                    };
                    if failed_starts >= START_ATTEMPTS {
                        return Err(error.context(format!("etcd did not start in {failed_starts} attempts")));
                    }
                    // The init system may be about to retry by itself, and its state is more reliable than its exit
                    // code.
                    self.wait(START_PAUSE, format!("etcd did not start ({error:#})")).await;
                }
            },
            Some(order) => {
                self.service.borrow_mut().starting = Some(order);
                return Ok(UnitState::Up);
            }
            None => {}
        }
        if let Some((state, at)) = self.service.borrow().known
            && at.elapsed() < UNIT_CHECK
        {
            return Ok(state);
        }
        self.fresh_unit_state().await
    }

    /// Asks the init system, however short ago it was asked before.
    async fn fresh_unit_state(&self) -> Result<UnitState> {
        let state = self.init_system.state().await?;
        self.know(state);
        Ok(state)
    }

    fn know(&self, state: UnitState) {
        self.service.borrow_mut().known = Some((state, Instant::now()));
    }

    /// Makes etcd's settings say that the member has data, so that it never starts without it. A running member is not
    /// affected.
    pub(crate) fn mark_existing(&self) -> Result<()> {
        config::mark_existing(&self.paths)
    }

    /// Makes this machine forget missing data, for the sake of a new member: the data belonged to a member that is
    /// gone. If etcd's service is up, this only stops the service and returns false, because etcd may have made data
    /// before it stopped, so the machine has to be observed again.
    pub(crate) async fn forget_data(&self, local: &Local, start: &config::env::Start) -> Result<bool> {
        if local.unit == UnitState::Up {
            tracing::info!("etcd.service is up for a member that is gone; stopping it");
            self.stop().await?;
            return Ok(false);
        }
        guard::forget(&self.paths)?;
        config::write_all(&self.paths, &self.settings, start)?;
        Ok(true)
    }

    /// Makes sure that etcd is starting for the first time with exactly these settings. They may have changed since it
    /// was started, and the init system restarts etcd again and again if etcd cannot start with the old ones.
    pub(crate) async fn ensure_started(&self, local: &Local, start: &config::env::Start) -> Result<()> {
        if local.unit == UnitState::Down {
            return match preflight::check(&self.paths, &self.settings) {
                Ok(()) => self.start(start),
                // The init system may have started etcd again since it was asked. Then etcd itself has its ports, and
                // the next step observes it.
                Err(_) if self.fresh_unit_state().await? == UnitState::Up => Ok(()),
                Err(error) => Err(error),
            };
        }
        if config::is_current(&self.paths, &self.settings, start)? {
            self.wait(POLL, "for etcd to begin its write-ahead log".to_owned()).await;
            return Ok(());
        }
        tracing::info!("etcd.service is up without data and with other settings; stopping it to start it with these");
        // The next step checks again whether etcd made data before it stopped.
        self.stop().await
    }

    /// Stops etcd's service, and any pending order to start it. systemctl loads all units before it orders a start, so
    /// the order may arrive after the stop. If the two orders meet, systemd cancels the earlier one, and the stop
    /// fails. So etcd is stopped until no order is pending, and then once more: only this last stop counts.
    async fn stop(&self) -> Result<()> {
        let mut ordered = self.service.replace(Service::default()).starting;
        loop {
            let stopped = self.init_system.stop().await;
            let Some(order) = &mut ordered else { return stopped };
            if tokio::time::timeout(START_PAUSE, order).await.is_ok() {
                ordered = None;
            }
        }
    }

    /// Writes etcd's files and orders the start, without waiting for it.
    pub(crate) fn start(&self, start: &config::env::Start) -> Result<()> {
        config::write_all(&self.paths, &self.settings, start)?;
        tracing::info!("starting etcd");
        let order = tokio::spawn(self.init_system.start());
        let mut service = self.service.borrow_mut();
        (service.starting, service.restarts) = (Some(order), false);
        Ok(())
    }

    /// Orders that etcd stops and starts with the settings that it has, without waiting for it. A start that was ordered
    /// before has no further effect: it finds etcd up.
    pub(crate) fn restart(&self) {
        let order = tokio::spawn(self.init_system.restart());
        let mut service = self.service.borrow_mut();
        (service.starting, service.restarts) = (Some(order), true);
    }

    /// Whether a restart was ordered and may not have completed yet: the etcd that answers may be about to stop.
    pub(crate) fn is_restarting(&self) -> bool {
        let service = self.service.borrow();
        service.restarts && service.starting.is_some()
    }
}

#[cfg(test)]
pub(crate) mod tests;
