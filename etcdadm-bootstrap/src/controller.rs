//! The watches and the reconcile.

use crate::context::{Context, Reads};
use crate::execute::{Outcome, execute, report};
use crate::observe::{now, observe, read};
use crate::plan::{Plan, Step, plan};
use crate::status::{can_wait, failure_can_wait, refused, status};
use crate::{CONTROLLER, mappers};
use api::EtcdadmConfig;
use api::conditions::{self, reasons};
use controller_support::apply::CATCH_UP;
use controller_support::plan::block;
use controller_support::{Cached, Error, Result, Shared, run_controller};
use futures::{Stream, StreamExt, stream};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before Cluster API's kinds are looked up again: at first, and at most.
const LOOK_UP_AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// How many steps one reconcile may take. The longest sequence has nine: five reads, the lock, a lost race for it, the
/// Secret, and a lost race for that.
const STEPS: usize = 11;

/// Runs the controller until shutdown. While the API server is down or Cluster API is not installed, it waits.
///
/// # Errors
/// None so far: what fails is tried again.
pub async fn run(shared: Shared) -> Result<()> {
    let shared = shared.for_controller(CONTROLLER);
    let Some(context) = context(&shared).await else { return Ok(()) };
    let configs = context.configs.clone();
    let (store, kind) = (configs.store().clone(), configs.resource().clone());
    // The controller looks up every mapped config in its store. So the mappers must use the same watch of configs.
    let controller = Controller::for_shared_stream_with(configs.changes(), store, kind.clone());
    let triggers: [(&Cached, mappers::Mapper); 4] = [
        (&context.machines, mappers::machine_to_configs),
        (&context.clusters, mappers::cluster_to_configs),
        (&context.secrets, mappers::secret_to_configs),
        (&context.config_maps, mappers::lock_to_configs),
    ];
    let controller = triggers.into_iter().fold(controller, |controller, (cached, map)| {
        let configs = configs.clone();
        controller.reconcile_on(mapped(cached, move |object| {
            map(&|namespace, cluster| configs.by_index(&mappers::BY_CLUSTER, namespace, cluster), object)
        }))
    });
    run_controller(CONTROLLER, controller, &shared, Arc::new(context), reconcile, kind).await;
    Ok(())
}

/// The watches, once they can be started. `None`: shutdown came first.
async fn context(shared: &Shared) -> Option<Context> {
    let mut delay = LOOK_UP_AGAIN.0;
    loop {
        match Context::new(shared).await {
            Ok(context) => return Some(context),
            Err(error) => tracing::warn!(controller = CONTROLLER, %error, "cannot start yet, trying again"),
        }
        tokio::select! {
            () = shared.shutdown.clone().requested() => return None,
            () = tokio::time::sleep(delay) => delay = (delay * 2).min(LOOK_UP_AGAIN.1),
        }
    }
}

fn mapped(
    cached: &Cached,
    map: impl Fn(&DynamicObject) -> Vec<ObjectRef<EtcdadmConfig>> + Send + 'static,
) -> impl Stream<Item = ObjectRef<DynamicObject>> + Send + 'static {
    cached.changes().flat_map(move |object| stream::iter(map(&object).into_iter().map(ObjectRef::erase)))
}

async fn reconcile(config: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action> {
    let config = context.written.newest(Arc::new(parse(&config)?));
    // What was read after a conflict may show that it is another manager's by now.
    if !context.scope.reconciles(config.as_ref()) {
        return Ok(Action::await_change());
    }
    if config.metadata.deletion_timestamp.is_some() {
        // The config owns the Secret, which is deleted with it.
        return Ok(Action::await_change());
    }
    let mut reads = Reads::default();
    let result = steps(&context, &config, &mut reads).await;
    if let Err(error) = &result {
        report_failure(&context, &config, &reads, error).await;
    }
    result
}

async fn steps(context: &Context, config: &Arc<EtcdadmConfig>, reads: &mut Reads) -> Result<Action> {
    let mut last = None;
    for _ in 0..STEPS {
        let observation = observe(context, config.clone(), reads).await?;
        let plan = plan(&observation);
        if let Plan::Do(step) = plan {
            tracing::info!(%step, "next step");
            match &step {
                Step::Read(need) => read(context, &observation, *need, reads).await?,
                step => execute(context, &observation, step, reads).await?,
            }
            last = Some(step);
            continue;
        }
        let again = plan.hold().and_then(|hold| hold.again);
        let (uid, status) = (config.metadata.uid.as_deref().unwrap_or_default(), status(&observation, &plan));
        let before = config.status.as_ref();
        let is_refused = plan.is_held_for(reasons::REFUSED);
        // If the plan has to look again because nothing is watched, each look costs requests, so this does not wait.
        let can_wait = match is_refused {
            true => failure_can_wait(before, &status),
            false => again.is_none() && can_wait(before, &status, &plan),
        };
        // The event about what was created is published with the status.
        if can_wait
            && reads.created.is_none()
            && let Some(left) = context.deferred.left(uid)
        {
            // A new message for the same refusal is not a reason to try again sooner.
            let is_known = is_refused
                && before.is_some_and(|before| conditions::same_reasons(&before.conditions, &status.conditions));
            return Ok(Action::requeue(again.filter(|_| is_known).unwrap_or(left)));
        }
        if report(context, config, &status, &plan, reads).await? == Outcome::Outdated {
            return Ok(Action::requeue(context.conflicts.next(uid.to_owned()).max(CATCH_UP)));
        }
        context.conflicts.forget(uid);
        context.deferred.end(uid);
        return Ok(again.map_or_else(Action::await_change, Action::requeue));
    }
    let last = last.map(|step| step.to_string()).unwrap_or_default();
    Err(Error::Refused(format!(
        "after {STEPS} steps in a row there is still more to do; the last step was to {last}. Most likely another \
         client undoes what this controller writes: find out which one, and stop it"
    )))
}

/// Reports on the EtcdadmConfig what the API server refuses, so that its condition does not keep an outdated reason. It
/// may defer this, also for a new message about the same refusal: see
/// [`DeferredStatuses::left_if`](controller_support::DeferredStatuses::left_if). If the report fails too, it is only in
/// the log.
async fn report_failure(context: &Context, config: &EtcdadmConfig, reads: &Reads, error: &Error) {
    let Some(message) = error.told_refusal() else { return };
    let (uid, status) = (config.metadata.uid.as_deref().unwrap_or_default(), refused(config, &message, now()));
    let can_wait = reads.created.is_none() && failure_can_wait(config.status.as_ref(), &status);
    if context.deferred.left_if(can_wait, uid).is_some() {
        return;
    }
    match report(context, config, &status, &block(reasons::REFUSED, message), reads).await {
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the condition is not written"),
    }
}

fn parse(config: &DynamicObject) -> Result<EtcdadmConfig> {
    let parsed = config.clone().try_parse();
    parsed.map_err(|error| Error::Invalid(format!("EtcdadmConfig {} cannot be read: {error}", config.name_any())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::ready_to_init;
    use controller_support::{DeferredStatuses, Events, Failures, Scope, WriteCache};
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;
    use kube::discovery::ApiResource;
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A context whose watches have no objects, and whose API server answers every request that the object has changed.
    /// Also returns the number of requests.
    fn outdated() -> (Context, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let answer = move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            async {
                let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409});
                let response = Response::builder().status(409).body(Body::from(body.to_string().into_bytes()));
                Ok::<_, Infallible>(response.unwrap())
            }
        };
        let client = Client::new(tower::service_fn(answer), "default");
        let nothing = || Cached::fixed(&ApiResource::erase::<ConfigMap>(&()), Vec::new());
        let context = Context {
            events: Events::new(client.clone(), CONTROLLER),
            client,
            scope: Scope::default(),
            configs: nothing(),
            machines: nothing(),
            clusters: nothing(),
            secrets: nothing(),
            config_maps: nothing(),
            written: WriteCache::default(),
            conflicts: Failures::default(),
            deferred: DeferredStatuses::default(),
        };
        (context, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_said_if_it_lasts_and_what_a_restore_has_undone_is_forgotten() {
        let (context, asked) = outdated();
        let mut observation = ready_to_init();
        let known = status(&observation, &Plan::Steady);
        let config = Arc::make_mut(&mut observation.config);
        (config.status, config.metadata.resource_version) = (Some(known), Some("100".to_owned()));
        context.written.remember(config.clone());
        config.metadata.resource_version = Some("50".to_owned());
        let newest = || context.written.newest(observation.config.clone()).metadata.resource_version.clone();
        let refused = Error::Refused("secrets cannot be listed: forbidden".to_owned());
        report_failure(&context, &observation.config, &Reads::default(), &refused).await;
        assert_eq!(
            (asked.load(Ordering::Relaxed), newest().as_deref()),
            (0, Some("100")),
            "it may be over in a moment"
        );
        tokio::time::advance(Duration::from_secs(2)).await;
        report_failure(&context, &observation.config, &Reads::default(), &refused).await;
        // The second request is to read it, which fails too.
        assert_eq!((asked.load(Ordering::Relaxed), newest().as_deref()), (2, Some("50")));
    }
}
