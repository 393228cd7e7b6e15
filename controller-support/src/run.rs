//! How a controller is run: logs with object and reconcile id, metrics, back-off for each object, a graceful stop.

use crate::backoff::WatchBackoff;
use crate::cache::Caches;
use crate::error::Error;
use crate::events::Events;
use crate::kinds::Kinds;
use crate::metrics::{ControllerLabels, Metrics, ReconcileLabels};
use futures::{FutureExt, StreamExt};
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tracing::Instrument;

/// First delay after an error, and the longest. Errors double it.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// The longest that a reconcile takes. Requests to the API server have no limit of their own: on a connection that died
/// without a word, one would keep its object, and a graceful stop, waiting for ever. Longer than all that is waited for
/// inside: first lists, and members that hang.
const LIMIT: Duration = Duration::from_secs(180);

/// Tells every part of the process to stop.
#[derive(Clone)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// The switch and what listens to it. Sending `true` stops.
    #[must_use]
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Comes back when it is time to stop, also if the sender is gone.
    pub async fn requested(mut self) {
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// What all controllers of a process share.
#[derive(Clone)]
pub struct Shared {
    /// Client of the management cluster.
    pub client: Client,
    /// Served versions of other providers' kinds.
    pub kinds: Kinds,
    /// Shared watches.
    pub caches: Caches,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// When to stop.
    pub shutdown: Shutdown,
}

impl Shared {
    /// Everything around one client.
    #[must_use]
    pub fn new(client: Client, shutdown: Shutdown) -> Self {
        Self {
            kinds: Kinds::new(client.clone()),
            caches: Caches::new(client.clone()),
            metrics: Arc::default(),
            client,
            shutdown,
        }
    }

    /// Publisher of a controller's events.
    #[must_use]
    pub fn events(&self, controller: &str) -> Events {
        Events::new(self.client.clone(), controller)
    }
}

/// Runs a controller until shutdown: a reconcile that has begun is finished.
pub async fn drive<K, C, F, Fut>(
    name: &'static str,
    controller: Controller<K>,
    shared: &Shared,
    context: Arc<C>,
    reconcile: F,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Debug + Clone + Eq + Hash + Default + Unpin + Send + Sync,
    C: Send + Sync + 'static,
    F: Fn(Arc<K>, Arc<C>) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = Result<Action, Error>> + Send + 'static,
{
    drive_with(name, controller, shared, context, reconcile, K::DynamicType::default()).await;
}

/// [`drive`] for a kind that is only known at run time.
pub async fn drive_with<K, C, F, Fut>(
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
    let metrics = shared.metrics.clone();
    let failures: Arc<Failures> = Arc::default();
    let ids = Arc::new(AtomicU64::new(1));
    let (successes, policy_kind, span_kind) = (failures.clone(), kind.clone(), kind);
    let observed = move |object: Arc<K>, context: Arc<C>| {
        let (metrics, successes) = (metrics.clone(), successes.clone());
        let id = ids.fetch_add(1, Ordering::Relaxed);
        let key = ObjectRef::from_obj_with(object.as_ref(), span_kind.clone()).to_string();
        let span = tracing::info_span!("reconcile", controller = name, object = %key, reconcile_id = id);
        let work = reconcile(object, context);
        async move {
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
                Err(error) => tracing::warn!(%error, "reconcile failed, trying again"),
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
    let running = controller
        .trigger_backoff(WatchBackoff::default())
        .graceful_shutdown_on(shared.shutdown.clone().requested())
        .run(observed, policy, context)
        // Failures are logged where they happen, with their object; the rest is the queue's own chatter.
        .for_each(|_| std::future::ready(()));
    let nothing_begun = async {
        shared.shutdown.clone().requested().await;
        // No reconcile begins before the first list has come, and a controller that is to stop waits for one that it does
        // not ask for any more.
        if store.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok()) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = running => {}
        () = nothing_begun => {}
    }
}

/// Gives work up that takes too long. That is as safe as being killed in the middle of it.
async fn limited<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let gave_up = || Error::Internal(format!("gave up after {} s: the API server does not answer", LIMIT.as_secs()));
    tokio::time::timeout(LIMIT, work).await.unwrap_or_else(|_| Err(gave_up()))
}

/// How often each object has failed in a row.
#[derive(Default)]
struct Failures(Mutex<HashMap<String, u32>>);

impl Failures {
    fn next(&self, key: String) -> Duration {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key).or_insert(0);
        let delay = BACKOFF.0.saturating_mul(2_u32.saturating_pow(*count)).min(BACKOFF.1);
        *count += 1;
        delay
    }

    fn forget(&self, key: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_a_limit_and_starts_anew_after_a_success() {
        let failures = Failures::default();
        let delays: Vec<u128> = (0..12).map(|_| failures.next("a".to_owned()).as_millis()).collect();
        assert_eq!(&delays[..4], [100, 200, 400, 800]);
        assert_eq!(delays[11], 30_000);
        failures.forget("a");
        assert_eq!(failures.next("a".to_owned()).as_millis(), 100);
    }

    #[tokio::test]
    async fn it_stops_also_before_the_first_list_has_come() {
        // Takes connections, and never answers.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (stop, shutdown) = Shutdown::new();
        let shared = Shared::new(Client::try_from(kube::Config::new(url)).unwrap(), shutdown);
        let secrets = kube::Api::<k8s_openapi::api::core::v1::Secret>::all(shared.client.clone());
        let controller = Controller::new(secrets, kube::runtime::watcher::Config::default());
        let run = drive("test", controller, &shared, Arc::new(()), |_, _| async { Ok(Action::await_change()) });
        let after_a_connection = async {
            listener.accept().await.unwrap();
            stop.send(true).unwrap();
            // It would be for ever.
            tokio::time::sleep(Duration::from_secs(20)).await;
        };
        tokio::select! {
            () = run => {}
            () = after_a_connection => panic!("it does not stop"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_hangs_does_not_keep_its_object_for_ever() {
        let error = limited(std::future::pending::<Result<(), Error>>()).await.unwrap_err();
        assert_eq!(error.to_string(), "gave up after 180 s: the API server does not answer");
        assert_eq!(limited(async { Ok(1) }).await.unwrap(), 1);
    }
}
