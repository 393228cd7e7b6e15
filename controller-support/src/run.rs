//! How a controller is run: logs with object and reconcile id, metrics, back-off for each object, a graceful stop.

#[cfg(test)]
mod tests;

use crate::backoff::WatchBackoff;
use crate::cache::Caches;
use crate::error::Error;
use crate::events::Events;
use crate::kinds::Kinds;
use crate::metrics::{ControllerLabels, Metrics, ReconcileLabels};
use crate::scope::Scope;
use crate::ttl_cache::TtlCache;
use futures::{FutureExt, StreamExt};
use kube::runtime::Controller;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tracing::Instrument;

/// The first delay after an error, and the longest. Each error doubles the delay.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// The longest time that a reconcile may take. Once the API server has begun to answer, a request has no timeout: on a
/// connection that died silently, it would block its object, and a graceful stop, forever. The limit is longer than
/// every wait inside a reconcile: for first lists, and for members that hang.
const LIMIT: Duration = Duration::from_secs(180);

/// How long a failure counts: longer than the longest delay and [`LIMIT`] together. So an object that keeps failing is
/// not forgotten, and an object that is gone is.
const FAILURE_TTL: Duration = Duration::from_secs(600);

/// How many reconciles of one controller run at the same time, unless [`Shared::concurrency`] has a number: enough to
/// keep the API server's answers flowing, and few enough that a start with thousands of objects opens few connections.
const CONCURRENCY: u16 = 64;

/// Tells every part of the process to stop.
#[derive(Clone)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// The sender and the receiver. Sending `true` stops the process.
    #[must_use]
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Whether it is time to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Returns when it is time to stop, or when the sender is gone.
    pub async fn requested(mut self) {
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// What all controllers of a process share.
#[derive(Clone)]
pub struct Shared {
    /// Client of the management cluster.
    pub client: Client,
    /// What this process works on.
    pub scope: Scope,
    /// Served versions of other providers' kinds.
    pub kinds: Kinds,
    /// Shared watches.
    pub caches: Caches,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// When to stop.
    pub shutdown: Shutdown,
    /// How many reconciles of one controller run at the same time. 0: no limit. `None`: the controller's default.
    pub concurrency: Option<u16>,
}

impl Shared {
    /// Makes a client, whose requests always [end](crate::client) and are counted, and everything around it.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub fn connect(scope: Scope, config: kube::Config, shutdown: Shutdown) -> kube::Result<Self> {
        let metrics = Arc::default();
        let client = crate::client::client(config, &metrics)?;
        Ok(Self { metrics, ..Self::within(scope, client, shutdown) })
    }

    /// Makes everything around a client, for a process that works on all objects.
    #[must_use]
    pub fn new(client: Client, shutdown: Shutdown) -> Self {
        Self::within(Scope::default(), client, shutdown)
    }

    /// Makes everything around a client.
    #[must_use]
    pub fn within(scope: Scope, client: Client, shutdown: Shutdown) -> Self {
        let kinds = Kinds::new(client.clone());
        Self {
            caches: Caches::new(client.clone(), kinds.clone(), scope.clone()),
            scope,
            kinds,
            metrics: Arc::default(),
            client,
            shutdown,
            concurrency: None,
        }
    }

    /// The same for one controller: its requests through [`Shared::client`] are counted as its own.
    #[must_use]
    pub fn for_controller(self, name: &'static str) -> Self {
        Self { client: crate::client::of_controller(&self.client, name), ..self }
    }

    /// Publisher of a controller's events.
    #[must_use]
    pub fn events(&self, controller: &str) -> Events {
        Events::new(self.client.clone(), controller)
    }
}

/// Runs a controller until shutdown, or until the version of a watched kind is no longer served. In the second case,
/// the caller must start it again, with the version that is served now. A reconcile that has begun is finished. Objects
/// outside [`Shared::scope`] are skipped, whatever requests their reconcile. `kind` is for kinds that are known only at
/// run time.
pub async fn run_controller<K, C, F, Fut>(
    name: &'static str,
    controller: Controller<K>,
    shared: &Shared,
    context: Arc<C>,
    reconcile: F,
    kind: K::DynamicType,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Debug + Clone + Eq + Hash + Unpin + Send + Sync,
    C: Send + Sync + 'static,
    F: Fn(Arc<K>, Arc<C>) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let (metrics, scope) = (shared.metrics.clone(), shared.scope.clone());
    let failures: Arc<Failures> = Arc::default();
    let ids = Arc::new(AtomicU64::new(1));
    let (successes, policy_kind, span_kind) = (failures.clone(), kind.clone(), kind);
    let observed = move |object: Arc<K>, context: Arc<C>| {
        let (metrics, successes) = (metrics.clone(), successes.clone());
        let id = ids.fetch_add(1, Ordering::Relaxed);
        let key = ObjectRef::from_obj_with(object.as_ref(), span_kind.clone()).to_string();
        let span = tracing::info_span!("reconcile", controller = name, object = %key, reconcile_id = id);
        let work = scope.reconciles(object.as_ref()).then(|| reconcile(object, context));
        async move {
            let Some(work) = work else { return Ok(Action::await_change()) };
            let begun = tokio::time::Instant::now();
            let result = limited(work).await;
            let label = result.as_ref().map_or_else(Error::label, |_| "ok");
            metrics.reconciles.get_or_create(&ReconcileLabels { controller: name, result: label }).inc();
            metrics
                .seconds
                .get_or_create(&ControllerLabels { controller: name })
                .observe(begun.elapsed().as_secs_f64());
            match &result {
                Ok(_) => successes.forget(&key),
                Err(error) => tracing::warn!(%error, result = label, "reconcile failed, trying again"),
            }
            result
        }
        .instrument(span)
    };
    let policy = move |object: Arc<K>, _: &Error, _: Arc<C>| {
        let key = ObjectRef::from_obj_with(object.as_ref(), policy_kind.clone()).to_string();
        Action::requeue(failures.next(key))
    };
    let store = controller.store();
    let requested = shared.shutdown.clone().requested();
    let lost = shared.kinds.lost();
    let stop = async move {
        tokio::select! {
            () = requested => {}
            () = lost => {}
        }
    }
    .shared();
    let running = controller
        .with_config(Config::default().concurrency(shared.concurrency.unwrap_or(CONCURRENCY)))
        .trigger_backoff(WatchBackoff::default())
        .graceful_shutdown_on(stop.clone())
        .run(observed, policy, context)
        // Failures are logged where they happen, with their object. The other results only concern the queue.
        .for_each(|_| std::future::ready(()));
    let nothing_begun = async {
        stop.await;
        // A controller that is told to stop still waits for its first list, although it no longer asks for it. No
        // reconcile begins before that list has arrived.
        if store.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok()) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = running => {}
        () = nothing_begun => {}
    }
}

/// Gives up work that takes too long. This is as safe as being killed halfway.
async fn limited<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(LIMIT, work).await.unwrap_or(Err(Error::Timeout(LIMIT)))
}

/// How often each object has failed in a row.
pub struct Failures(TtlCache<String, u32>);

impl Default for Failures {
    fn default() -> Self {
        Self(TtlCache::new(FAILURE_TTL))
    }
}

impl Failures {
    /// Counts a failure. Returns the delay until the next try.
    pub fn next(&self, key: String) -> Duration {
        let count = self.0.get(&key).unwrap_or(0);
        self.0.insert(key, count.saturating_add(1));
        BACKOFF.0.saturating_mul(2_u32.saturating_pow(count)).min(BACKOFF.1)
    }

    /// Forgets the failures of an object after a success.
    pub fn forget(&self, key: &str) {
        self.0.remove(key);
    }
}
