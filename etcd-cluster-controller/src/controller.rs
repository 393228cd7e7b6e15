//! Watches, and the reconcile.

use crate::CONTROLLER;
use crate::context::Context;
use crate::etcds::typed;
use crate::execute::{
    Outcome, drop_begun, execute, keep_metrics_client, label_ca_for_moves, own_template, set_deletion_timeouts,
    show_block_move, show_up_to_date, write_status,
};
use crate::mappers::{
    cluster_to_etcd_clusters, config_to_etcd_cluster, machine_to_etcd_cluster, secret_to_etcd_clusters,
};
use crate::metrics::{EtcdMetrics, Known, Look, Unreadable};
use crate::observation::Observation;
use crate::observe::{expiries, now, observe, observe_live};
use crate::plan::{Decision, Hold, Plan, Step, called_off, due, is_fenced, move_loss, outdated, owns_template, plan};
use crate::status::{can_wait, differs, failure_can_wait, status, unobserved};
use api::conditions::{reasons, same_reasons};
use api::{EtcdCluster, names};
use controller_support::{Cached, Error, Result, Shared, apply, run_controller};
use futures::{Stream, StreamExt, stream};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often the prober and the metrics forget the EtcdClusters that are gone.
const FORGET_INTERVAL: Duration = Duration::from_secs(600);

/// How many reconciles run at the same time, unless a flag says otherwise: more than other controllers have. One that
/// asks a dead member waits for 5 s, each time ([`Prober::refresh`](crate::prober::Prober::refresh)). If as many wait as
/// may run, the replacement of a further member begins only when one of them ends.
const CONCURRENCY: u16 = 256;

/// Runs the controller until shutdown.
///
/// # Errors
/// If Cluster API's kinds cannot be looked up.
pub async fn run(shared: Shared) -> Result<()> {
    let concurrency = shared.concurrency.or(Some(CONCURRENCY));
    let shared = Shared { concurrency, ..shared.for_controller(CONTROLLER) };
    let (changes, events) = mpsc::unbounded_channel();
    let context = Arc::new(Context::new(shared.clone(), changes).await?);
    let etcds = &context.etcds;
    let (triggers, store) = typed(etcds, Unreadable::new(&shared.metrics, shared.scope.clone()));
    let metrics = EtcdMetrics::new(store.clone(), shared.scope.clone(), looks(&context));
    shared.metrics.register("etcd clusters", |registry| registry.register_collector(Box::new(metrics)));
    let controller = Controller::for_shared_stream(triggers, store)
        .reconcile_on(mapped(&context.machines, |machine| machine_to_etcd_cluster(&machine).into_iter().collect()))
        .reconcile_on(mapped(&context.configs, |config| config_to_etcd_cluster(&config).into_iter().collect()))
        .reconcile_on(mapped(&context.secrets, {
            let (etcds, clusters) = (etcds.clone(), context.clusters.clone());
            move |secret| {
                let cluster = secret.labels().get(names::CLUSTER_NAME_LABEL);
                let cluster = cluster.and_then(|name| clusters.get(&secret.namespace().unwrap_or_default(), name));
                secret_to_etcd_clusters(&etcds, cluster.as_deref(), &secret)
            }
        }))
        .reconcile_on(mapped(&context.clusters, {
            let etcds = etcds.clone();
            move |cluster| cluster_to_etcd_clusters(&etcds, &cluster)
        }))
        .reconcile_on(stream::unfold(events, |mut events| async { Some((events.recv().await?, events)) }));
    tokio::select! {
        () = run_controller(CONTROLLER, controller, &shared, context.clone(), reconcile, ()) => {}
        () = forget_those_gone(&context) => {}
    }
    Ok(())
}

/// What metrics show beyond the objects themselves. The metrics outlive this controller, so they do not keep its
/// prober, its judged CAs and its decisions alive.
fn looks(context: &Context) -> Look {
    let (prober, judged) = (Arc::downgrade(&context.prober), Arc::downgrade(&context.judged_cas));
    let (secrets, latest) = (context.secrets.clone(), Arc::downgrade(&context.decisions.latest));
    Box::new(move |etcd| {
        let figures = prober.upgrade().and_then(|prober| prober.figures(&etcd.uid()?)).unwrap_or_default();
        let expiries = judged.upgrade().map(|judged| expiries(&secrets, &judged, etcd).collect()).unwrap_or_default();
        let decision = latest.upgrade().and_then(|latest| latest.of(&etcd.uid()?));
        Known { figures, expiries, decision }
    })
}

/// Makes the prober and the metrics forget EtcdClusters that went without a last reconcile, or that belong to another
/// manager now.
async fn forget_those_gone(context: &Context) {
    loop {
        tokio::time::sleep(FORGET_INTERVAL).await;
        let there = context.etcds.store().state();
        let ours = there.iter().filter(|etcd| context.shared.scope.reconciles(etcd.as_ref()));
        let there: HashSet<String> = ours.filter_map(|etcd| etcd.uid()).collect();
        context.prober.retain(|uid| there.contains(uid));
        context.decisions.latest.retain(|uid| there.contains(uid));
    }
}

fn mapped(
    cached: &Cached,
    map: impl Fn(Arc<DynamicObject>) -> Vec<ObjectRef<EtcdCluster>> + Send + 'static,
) -> impl Stream<Item = ObjectRef<EtcdCluster>> + Send + 'static {
    cached.changes().flat_map(move |object| stream::iter(map(object)))
}

async fn reconcile(etcd: Arc<EtcdCluster>, context: Arc<Context>) -> Result<Action> {
    let etcd = context.written.newest(etcd);
    // What was read after a conflict may show that it is another manager's by now.
    if !context.shared.scope.reconciles(etcd.as_ref()) {
        return Ok(Action::await_change());
    }
    let mut observation = match observe(&context, etcd.clone()).await {
        Ok(observation) => observation,
        Err(error) => {
            report_unobserved(&context, &etcd, &error).await;
            return Err(error);
        }
    };
    let mut decision = plan(&observation);
    let mut is_live = false;
    if is_fenced(&decision.next) {
        // A dangerous step is decided twice: the second time from live state, right before it is done.
        let live = match observe_live(&context, &observation).await {
            Ok(live) => live,
            Err(error) => return not_read_live(&context, &observation, decision, error).await,
        };
        if !context.shared.scope.reconciles(live.etcd.as_ref()) {
            return Ok(Action::await_change());
        }
        let again = plan(&live);
        if again.next != decision.next {
            tracing::info!(planned = ?decision.next, live = ?again.next, "off: it does not come out the same live");
        }
        let off = called_off(&decision.next, &again.next);
        (observation, decision, is_live) = (live, again, true);
        // The status is written from what was read live, whether or not the step is called off.
        if let Some(off) = off {
            decision.next = off;
        }
    }
    let mut failure = None;
    if let Plan::Do(step) = &decision.next {
        tracing::info!(?step, "doing");
        match execute(&context, &observation, step).await {
            Ok(Outcome::Done) => {}
            Ok(Outcome::Outdated) => {
                if let Some(off) = outdated(step) {
                    decision.next = off;
                }
            }
            Ok(Outcome::Changed) => return Err(apply::has_changed::<EtcdCluster>()),
            Ok(Outcome::Waiting(hold)) => decision.next = Plan::Wait(hold),
            Ok(Outcome::Blocked(hold)) => decision.next = Plan::Block(hold),
            Err(error) => failure = Some(error),
        }
    }
    // To try a refused step again soon does not help, and the object should tell a person why nothing happens.
    if let Some(refused) = failure.take_if(|error| error.is_invalid()) {
        tracing::warn!(error = %refused, "refused");
        decision.next = Plan::Block(Hold::new(reasons::REFUSED, refused.cause()));
    }
    context.decisions.count(uid(&observation.etcd), &decision.next);
    if decision.next == Plan::Do(Step::RemoveFinalizer) && failure.is_none() {
        // The object is gone, so there is no status to write.
        return Ok(Action::await_change());
    }
    finish(&context, &observation, (&decision, is_live), failure).await
}

fn uid(etcd: &EtcdCluster) -> &str {
    etcd.metadata.uid.as_deref().unwrap_or_default()
}

/// Writes to the EtcdCluster's conditions that the API server refuses a read, so that they do not keep reporting an old
/// state. If this write fails too, the error is only logged. A new refusal, or a new text for it, is not written
/// immediately: see [`DeferredStatuses::left_if`](controller_support::DeferredStatuses::left_if).
async fn report_unobserved(context: &Context, etcd: &Arc<EtcdCluster>, error: &Error) {
    let Some(message) = error.told_refusal() else { return };
    let after = unobserved(etcd, &message, now());
    if context.deferred.left_if(differs(etcd.status.as_ref(), &after), uid(etcd)).is_some() {
        return;
    }
    if let Err(error) = write_status(context, etcd, after).await {
        tracing::warn!(%error, "the condition is not written");
    }
}

/// Ends a reconcile whose dangerous step could not be decided from live state, so that it is not done. If the API
/// server refused the read, the status says so in the same way as for a refused write.
async fn not_read_live(
    context: &Context,
    observation: &Observation,
    mut decision: Decision,
    error: Error,
) -> Result<Action> {
    let Some(refusal) = error.refusal() else { return Err(error) };
    decision.next = Plan::Block(Hold::new(reasons::REFUSED, refusal));
    context.decisions.count(uid(&observation.etcd), &decision.next);
    finish(context, observation, (&decision, false), Some(error)).await
}

/// Writes the status, whatever has happened, and returns when to reconcile again. If more is about to change, or a
/// failure may be over in a moment, the status waits unless it has something that could be lost. A status from live
/// reads never waits, unless it only reports a failure: the next reconcile starts from the watches again, which may
/// lag.
async fn finish(
    context: &Context,
    observation: &Observation,
    (decision, is_live): (&Decision, bool),
    failure: Option<Error>,
) -> Result<Action> {
    let failed = failure.as_ref().map(Error::cause);
    let after = status(observation, decision, failed.as_deref());
    let (etcd, uid) = (observation.etcd.as_ref(), uid(&observation.etcd));
    // Before the status is written: a move would lose what the status is about to record.
    let loss = move_loss(observation, &decision.next, &after);
    let again = match show_block_move(context, observation, &loss).await {
        Ok(again) => again,
        Err(changed) => return Err(failure.unwrap_or(changed)),
    };
    let due = due(observation, &decision.next).into_iter().chain(again).min();
    let before = etcd.status.as_ref();
    let refused = decision.next.is_held_for(reasons::REFUSED);
    let can_wait = if failure.is_some() || refused {
        failure_can_wait(before, &after)
    } else {
        !is_live && can_wait(before, &after, &decision.next)
    };
    // A new text for the same refusal does not make the next attempt come sooner.
    let is_known = refused && before.is_some_and(|before| same_reasons(&before.conditions, &after.conditions));
    let deferred = context.deferred.left_if(can_wait, uid);
    if deferred.is_none() {
        write_status(context, &observation.etcd, after).await?;
    }
    let failure = match failure {
        None if owns_template(observation, &decision.next) => own_template(context, observation).await.err(),
        failure => failure,
    };
    if let Some(left) = deferred.filter(|_| failure.is_none()) {
        return Ok(Action::requeue(due.map_or(left, |due| if is_known { due } else { due.min(left) })));
    }
    let due = due.into_iter().chain(side_tasks(context, observation, &decision.next).await).min();
    match failure {
        Some(error) => Err(error),
        None => Ok(due.map_or_else(Action::await_change, Action::requeue)),
    }
}

/// The tasks that nothing waits for. Returns when to look again, if something is left to do.
async fn side_tasks(context: &Context, observation: &Observation, plan: &Plan) -> Option<Duration> {
    let shown = show_up_to_date(context, observation).await;
    let set = set_deletion_timeouts(context, observation).await;
    let dropped = drop_begun(context, observation, plan).await;
    keep_metrics_client(context, observation).await;
    label_ca_for_moves(context, observation).await;
    [shown, set, dropped].into_iter().flatten().min()
}
