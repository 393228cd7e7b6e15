//! The watches of the hook, and its reconcile.

use crate::build;
use crate::context::Context;
use crate::execute::{self, Outcome, execute};
use crate::observation::{ClusterState, Observation, Reads};
use crate::observe::{now, observe, read};
use crate::plan::{Plan, Step, due, plan};
use crate::status::{Update, can_wait, failure, health, refused, report};
use api::names;
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Error, Result, Shared, run_controller};
use futures::stream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use std::sync::Arc;
use std::time::Duration;

/// Name of the controller: in logs, metrics and events, and as field manager.
pub const CONTROLLER: &str = "cluster-hooks";
/// How many steps one reconcile may take: more than any handover needs.
const STEPS: usize = 16;
/// First and longest delay while the API server does not answer or knows no Clusters.
const START: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// Runs the hook until shutdown. It waits for the API server, and for Cluster API to be installed.
///
/// # Errors
/// None at present: whatever fails is tried again.
pub async fn run(shared: Shared) -> Result<(), Error> {
    run_for_clusters(shared, CONTROLLER, reconcile).await
}

/// Runs a controller of Clusters and of what [`Context::watch`] follows.
pub async fn run_for_clusters<F, Fut>(shared: Shared, name: &'static str, reconcile: F) -> Result<(), Error>
where
    F: Fn(Arc<DynamicObject>, Arc<Context>) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = Result<Action>> + Send + 'static,
{
    let shared = shared.for_controller(name);
    let Some(resource) = cluster_kind(&shared, name).await else { return Ok(()) };
    let (context, mut receiver) = Context::new(&shared, name, &resource);
    let clusters = &context.clusters;
    let controller = Controller::for_shared_stream_with(clusters.changes(), clusters.store().clone(), resource.clone())
        .reconcile_on(stream::poll_fn(move |task| receiver.poll_recv(task)));
    run_controller(name, controller, &shared, context, reconcile, resource).await;
    Ok(())
}

/// The served version of Clusters. None: shutdown came first.
async fn cluster_kind(shared: &Shared, name: &str) -> Option<ApiResource> {
    let mut delay = START.0;
    loop {
        match shared.kinds.find(names::CLUSTER_GROUP, "Cluster", CLUSTER_API_CONTRACTS).await {
            Ok(resource) => return Some(resource),
            Err(error) => tracing::warn!(controller = name, %error, "cannot start yet, trying again"),
        }
        tokio::select! {
            () = shared.shutdown.clone().requested() => return None,
            () = tokio::time::sleep(delay) => delay = (delay * 2).min(START.1),
        }
    }
}

async fn reconcile(cluster: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action> {
    let result = steps(&cluster, &context).await;
    if let Err(error) = &result {
        report_failure(&context, &cluster, error).await;
    }
    result
}

async fn steps(cluster: &Arc<DynamicObject>, context: &Context) -> Result<Action> {
    let mut reads = Reads::default();
    let mut last = None;
    for _ in 0..STEPS {
        let Some(mut observation) = observe(context, cluster, &reads).await? else {
            return Ok(Action::await_change());
        };
        let plan = loop {
            match plan(&observation) {
                Plan::Do(Step::Read(need)) => {
                    read(context, &observation, need, &mut reads).await?;
                    observation.reads = reads.clone();
                }
                decided => break decided,
            }
        };
        tracing::debug!(?plan, "planned");
        let Plan::Do(step) = plan else { return finish(context, cluster, &observation, &plan).await };
        if last.as_ref() == Some(&step) {
            return Err(Error::Refused(not_kept(&observation, &step)));
        }
        match execute(context, &observation, &step, &mut reads).await? {
            // After every write, the plan asks again what machines use and join with.
            Outcome::Done => (reads.used, reads.joining) = (None, None),
            Outcome::Outdated => return Ok(outdated(context, &observation)),
            Outcome::Refused(refusal) => {
                let hold = refused(&observation.cluster, &refusal);
                return finish(context, cluster, &observation, &Plan::Block(hold)).await;
            }
        }
        last = Some(step);
    }
    let last = last.map(|step| step.to_string()).unwrap_or_default();
    Err(Error::Refused(format!(
        "after {STEPS} steps in a row there is still more to do; the last step was {last}. Most likely another client \
         undoes what this controller writes: find out which one, and stop it"
    )))
}

/// Says that the API server has accepted a write, but that the object is as it was before.
fn not_kept(observation: &Observation, step: &Step) -> String {
    let cluster = format!("Cluster {}", observation.cluster.view.name);
    let etcd = || observation.found_etcd().map(|etcd| etcd.reference.to_string());
    let control_plane = || observation.held().map(|held| held.reference.to_string());
    let object = match step {
        Step::Read(_) | Step::Announce(_) | Step::RemoveConditions | Step::ReleaseMachines(_) => None,
        Step::ClaimEtcd | Step::RecordEndpointsInUse { .. } | Step::ConfirmDeletion | Step::DeleteEtcd => etcd(),
        Step::Pause | Step::Unpause | Step::WriteEndpoints { .. } | Step::WakeControlPlane => control_plane(),
        Step::UnpauseFormer(held) => Some(held.reference.to_string()),
        Step::PublishClient(_) | Step::UpdateClient(_) => {
            Some(format!("Secret {}", names::apiserver_client_secret(&observation.cluster.view.name)))
        }
    };
    let object = object.unwrap_or(cluster);
    format!(
        "step {step} was taken and is needed again at once: {object} does not keep what this controller writes. Most \
         likely an admission webhook or policy removes it; exempt this controller from that webhook or policy"
    )
}

/// Ends a reconcile without a further step: reports why in the conditions, and waits. If somebody else has changed an
/// object that this writes to, everything is decided again.
async fn finish(
    context: &Context,
    object: &Arc<DynamicObject>,
    observation: &Observation,
    plan: &Plan,
) -> Result<Action> {
    let cluster = &observation.cluster;
    let uid = cluster.view.uid.as_str();
    let mut delay = due(observation, plan);
    let deferred = can_wait(cluster, plan).then(|| context.deferred.left(uid)).flatten();
    match report(observation, plan, context.reported.age(&cluster.view.uid)) {
        Update::Nothing => context.deferred.end(uid),
        Update::Later(after) => delay = delay.into_iter().chain([after]).min(),
        Update::Write(_) if deferred.is_some() => delay = delay.into_iter().chain(deferred).min(),
        Update::Write(condition) => {
            if let Outcome::Outdated = execute::report(context, cluster, plan, condition).await? {
                return Ok(outdated(context, observation));
            }
            context.deferred.end(uid);
        }
    }
    match health::report(observation, plan, last_health(context, observation)) {
        Update::Nothing => {}
        Update::Later(after) => delay = delay.into_iter().chain([after]).min(),
        Update::Write(condition) => {
            if let Outcome::Outdated = execute::health(context, observation, &condition).await? {
                return Ok(outdated(context, observation));
            }
        }
    }
    // The Cluster with the condition that has just been written.
    let cluster = ClusterState::read(&context.written.newest(object.clone()));
    if !cluster.view.is_paused()
        && let Some(body) = build::status::mirror(&cluster, observation.found_etcd())
        && let Outcome::Outdated = execute::mirror(context, &cluster, &body).await?
    {
        return Ok(outdated(context, observation));
    }
    context.conflicts.forget(uid);
    Ok(delay.map_or_else(Action::await_change, Action::requeue))
}

fn outdated(context: &Context, observation: &Observation) -> Action {
    context.outdated(&observation.cluster.view, observation.uids())
}

/// Reports on the Cluster what the API server refuses, so that the condition does not keep an outdated reason. It may
/// defer this: see [`DeferredStatuses::left_if`](controller_support::DeferredStatuses::left_if). If the report fails
/// too, it is only in the log.
async fn report_failure(context: &Context, cluster: &Arc<DynamicObject>, error: &Error) {
    let Some(message) = error.told_refusal() else { return };
    let state = ClusterState::read(&context.written.newest(cluster.clone()));
    let uid = state.view.uid.as_str();
    if let Update::Write(condition) = failure(&state, message.clone(), &now(), context.reported.age(uid)) {
        if context.deferred.left_if(true, uid).is_some() {
            return;
        }
        if let Err(error) = execute::condition(context, &state, &condition).await {
            tracing::warn!(%error, "the condition is not written");
        }
    }
    if let Err(error) = report_failure_on_control_plane(context, cluster, message).await {
        tracing::debug!(%error, "the condition of the control plane is not written");
    }
}

async fn report_failure_on_control_plane(
    context: &Context,
    cluster: &Arc<DynamicObject>,
    message: String,
) -> Result<()> {
    let Some(observation) = observe(context, cluster, &Reads::default()).await? else { return Ok(()) };
    if let Update::Write(condition) = health::failure(&observation, message, last_health(context, &observation)) {
        execute::health(context, &observation, &condition).await?;
    }
    Ok(())
}

/// The condition of the control plane as this process last wrote it, and how long ago that was.
fn last_health(context: &Context, observation: &Observation) -> Option<(Duration, Condition)> {
    let control_plane = observation.found_control_plane()?;
    context.reported.age(&control_plane.uid).zip(context.reported.get(&control_plane.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::World;
    use controller_support::Shutdown;
    use kube::core::GroupVersionKind;
    use kube::{Client, Config, ResourceExt};
    use serde_json::{Value, json};

    /// The management cluster is restored while a manager runs.
    #[tokio::test]
    async fn what_a_restore_has_undone_is_forgotten_and_conflicts_are_repeated_less_and_less_often() {
        let (_stop, shutdown) = Shutdown::new();
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let clusters = ApiResource::from_gvk(&GroupVersionKind::gvk(names::CLUSTER_GROUP, "v1beta2", "Cluster"));
        let (context, _receiver) = Context::new(&Shared::new(client, shutdown), "test", &clusters);
        let world = World::applied().etcd_ready();
        let at = |object: &Value, version: &str| {
            let mut object = object.clone();
            object["metadata"]["resourceVersion"] = json!(version);
            Arc::new(crate::fixture::object(&object))
        };
        let objects = [&world.cluster, world.etcd.as_ref().unwrap(), world.control_plane.as_ref().unwrap()];
        for object in objects {
            context.written.remember(at(object, "100").as_ref().clone());
            assert_eq!(context.written.newest(at(object, "50")).resource_version().as_deref(), Some("100"));
        }
        let observation = world.observe();
        let delays: Vec<_> = (0..9).map(|_| outdated(&context, &observation)).collect();
        for object in objects {
            assert_eq!(context.written.newest(at(object, "50")).resource_version().as_deref(), Some("50"));
        }
        let expected = [200, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600];
        assert_eq!(delays, expected.map(|delay| Action::requeue(Duration::from_millis(delay))));
        context.conflicts.forget("cluster-1");
        assert_eq!(outdated(&context, &observation), Action::requeue(Duration::from_millis(200)));
    }
}
