//! Watches, and a short reconcile.

use crate::adapters::Adapters;
use crate::build;
use crate::execute::{Outcome, execute, object_reference, write_condition, write_health, write_mirror};
use crate::mappers::Mappers;
use crate::observation::Observation;
use crate::observe::{Recent, observe};
use crate::plan::{Hold, Plan, Step, plan};
use crate::secret_cache::SecretCache;
use crate::status::{Report, health, report};
use api::conditions::reasons;
use api::names;
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::run::drive_with;
use controller_support::{Cached, Error, Events, Freshest, Result, Shared};
use futures::stream;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Name of the controller: in logs, metrics and events, and as field manager.
pub const NAME: &str = "cluster-hooks";
/// Steps that one reconcile may take: more than any handover has.
const STEPS: usize = 12;
/// After a write that was refused because the object has changed: the watch is about to tell.
const CATCH_UP: Duration = Duration::from_millis(200);
/// After a write that the control plane's webhooks refuse.
const REFUSED: Duration = Duration::from_secs(60);
/// First and longest delay while the API server does not answer or knows no Clusters.
const START: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// For how long it matters when a condition was written last; see [`report`].
const REMEMBERED: Duration = Duration::from_secs(60);

/// What reconciles share.
pub struct Context {
    /// What all controllers share.
    pub shared: Shared,
    /// All Clusters.
    pub clusters: Cached,
    /// What reconciles Clusters besides themselves.
    pub mappers: Mappers,
    /// Answers to our writes that the watches may not have seen.
    pub written: Freshest<DynamicObject>,
    /// Secrets that the watch does not know.
    pub secret_cache: SecretCache,
    /// How control planes are told about etcd.
    pub adapters: Adapters,
    /// Our events.
    pub events: Events,
    /// When the condition of a Cluster or control plane (by UID) was written last.
    reported: Mutex<HashMap<String, Instant>>,
}

/// Runs the hook until shutdown. It waits for the API server, and for Cluster API to be installed.
///
/// # Errors
/// None at present: whatever fails is tried again.
pub async fn run(shared: Shared) -> Result<(), Error> {
    let Some(resource) = cluster_kind(&shared).await else { return Ok(()) };
    let clusters = shared.caches.watch(&resource, None);
    let (sender, receiver) = mpsc::unbounded_channel();
    let mappers = Mappers::new(clusters.clone(), sender, shared.shutdown.clone());
    let triggered =
        stream::unfold(
            receiver,
            |mut receiver| async move { receiver.recv().await.map(|cluster| (cluster, receiver)) },
        );
    let context = Arc::new(Context {
        events: shared.events(NAME),
        clusters: clusters.clone(),
        mappers,
        written: Freshest::default(),
        secret_cache: SecretCache::default(),
        adapters: Adapters::default(),
        reported: Mutex::default(),
        shared: shared.clone(),
    });
    let controller = Controller::for_shared_stream_with(clusters.changes(), clusters.store().clone(), resource.clone())
        .reconcile_on(triggered);
    drive_with(NAME, controller, &shared, context, reconcile, resource).await;
    Ok(())
}

/// The served version of Clusters. None: shutdown came first.
async fn cluster_kind(shared: &Shared) -> Option<ApiResource> {
    let mut delay = START.0;
    loop {
        match shared.kinds.find(names::CLUSTER_GROUP, "Cluster", CLUSTER_API_CONTRACTS).await {
            Ok(resource) => return Some(resource),
            Err(error) => tracing::warn!(controller = NAME, %error, "waiting for Cluster API"),
        }
        tokio::select! {
            () = shared.shutdown.clone().requested() => return None,
            () = tokio::time::sleep(delay) => delay = (delay * 2).min(START.1),
        }
    }
}

async fn reconcile(cluster: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action> {
    let mut recent = Recent::default();
    let mut last = None;
    for _ in 0..STEPS {
        let Some(observation) = observe(&context, &cluster, &recent).await? else {
            return Ok(Action::await_change());
        };
        let plan = plan(&observation);
        tracing::debug!(?plan, "planned");
        let Plan::Do(step) = &plan else { return settle(&context, &observation, &plan).await };
        if last.as_ref() == Some(step) {
            let hold = without_effect(&observation, step)?;
            return settle(&context, &observation, &Plan::Block(hold)).await;
        }
        match execute(&context, &observation, step, &mut recent).await? {
            Outcome::Done => {}
            // A Secret that was in the way is secret_cache at; everything else is left to the watch.
            Outcome::Outdated if recent.published_unseen => {}
            Outcome::Outdated => return Ok(Action::requeue(CATCH_UP)),
            Outcome::Refused(message) => {
                let hold = Hold { reason: reasons::CONTROL_PLANE_INVALID, message, again: Some(REFUSED) };
                return settle(&context, &observation, &Plan::Block(hold)).await;
            }
        }
        last = Some(step.clone());
    }
    Err(Error::Internal(format!("{STEPS} steps do not come to an end, the last of them {last:?}")))
}

/// A step was taken, the API server has agreed, and it has to be taken again.
fn without_effect(observation: &Observation, step: &Step) -> Result<Hold> {
    match (step, observation.found_control_plane()) {
        (Step::WriteEndpoints(_), Some(control_plane)) => {
            let (reference, field) = (&control_plane.reference, control_plane.adapter.field());
            let message = format!(
                "{} {} does not keep {field}.endpoints, its CRD has no such field: annotation {} of the CRD must name the \
                 object that has the field endpoints",
                reference.kind,
                reference.name,
                names::EXTERNAL_ETCD_PATH_ANNOTATION
            );
            Ok(Hold { reason: reasons::CONTROL_PLANE_INVALID, message, again: Some(REFUSED) })
        }
        _ => Err(Error::Internal(format!("{step:?} was done and has no effect"))),
    }
}

/// Nothing can be done at the moment: says why, and waits.
async fn settle(context: &Context, observation: &Observation, plan: &Plan) -> Result<Action> {
    let cluster = &observation.cluster;
    let again = match plan {
        Plan::Wait(hold) | Plan::Block(hold) => hold.again,
        Plan::Steady | Plan::Do(_) => None,
    };
    let mut delay = again;
    match report(observation, plan, context.since_reported(&cluster.view.uid)) {
        Report::Nothing => {}
        Report::Later(after) => delay = sooner(delay, after),
        Report::Write(condition) => {
            let turned = cluster.condition.as_ref().is_none_or(|before| before.reason != condition.reason);
            if let Outcome::Outdated = write_condition(context, cluster, Some(&condition)).await? {
                return Ok(Action::requeue(CATCH_UP));
            }
            context.reported_now(&cluster.view.uid);
            tracing::info!(status = condition.status, reason = condition.reason, message = condition.message, "etcd");
            if let (Plan::Block(_), true) = (plan, turned) {
                let about = object_reference(cluster);
                context.events.warning(&about, "Handover", &condition.reason, condition.message).await;
            }
        }
    }
    match report_to_control_plane(context, observation, plan).await? {
        Report::Later(after) => delay = sooner(delay, after),
        Report::Nothing | Report::Write(_) => {}
    }
    if !cluster.view.paused
        && let Some(body) = build::status::mirror(cluster, observation.found_etcd())
    {
        write_mirror(context, cluster, &body).await?;
    }
    Ok(delay.map_or_else(Action::await_change, Action::requeue))
}

/// Brings the condition of the control plane up to date.
async fn report_to_control_plane(context: &Context, observation: &Observation, plan: &Plan) -> Result<Report> {
    let Some(control_plane) = observation.found_control_plane() else { return Ok(Report::Nothing) };
    let report = health::report(observation, plan, context.since_reported(&control_plane.uid));
    if let Report::Write(condition) = &report {
        if let Outcome::Outdated = write_health(context, observation, Some(condition)).await? {
            return Ok(Report::Later(CATCH_UP));
        }
        context.reported_now(&control_plane.uid);
    }
    Ok(report)
}

fn sooner(delay: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(delay.map_or(other, |delay| delay.min(other)))
}

impl Context {
    fn since_reported(&self, uid: &str) -> Option<Duration> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).get(uid).map(Instant::elapsed)
    }

    fn reported_now(&self, uid: &str) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.retain(|_, at| at.elapsed() < REMEMBERED);
        reported.insert(uid.to_owned(), Instant::now());
    }
}
