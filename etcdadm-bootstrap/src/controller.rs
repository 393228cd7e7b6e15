//! Watches and the reconcile.

use crate::context::{Context, Known};
use crate::execute::{execute, report};
use crate::observe::observe;
use crate::plan::{Plan, plan};
use crate::status::status;
use crate::{CONTROLLER, mappers};
use api::EtcdadmConfig;
use controller_support::{Cached, Error, Result, Shared, run_controller};
use futures::{Stream, StreamExt, stream};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before Cluster API's kinds are looked up again: at first, and at most.
const LOOK_UP_AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// Steps of one reconcile. The longest way takes eight: four reads, the lock, a lost race for it, the Secret, and a
/// race for that.
const STEPS: usize = 10;

/// Runs the controller until shutdown. While the API server is down or Cluster API is not installed, it waits.
///
/// # Errors
/// None so far: what fails is tried again.
pub async fn run(shared: Shared) -> Result<()> {
    let Some(context) = context(&shared).await else { return Ok(()) };
    let controller = Controller::new(Api::<EtcdadmConfig>::all(shared.client.clone()), watcher::Config::default());
    let configs = controller.store();
    let triggers: [(&Cached, mappers::Mapper); 4] = [
        (&context.machines, mappers::machine_to_configs),
        (&context.clusters, mappers::cluster_to_configs),
        (&context.secrets, mappers::secret_to_configs),
        (&context.config_maps, mappers::lock_to_configs),
    ];
    let controller = triggers.into_iter().fold(controller, |controller, (cached, map)| {
        let configs = configs.clone();
        controller.reconcile_on(mapped(cached, move |object| map(&configs, object)))
    });
    run_controller(CONTROLLER, controller, &shared, Arc::new(context), reconcile).await;
    Ok(())
}

/// The watches, once they can be started. `None`: shutdown came first.
async fn context(shared: &Shared) -> Option<Context> {
    let mut delay = LOOK_UP_AGAIN.0;
    loop {
        match Context::new(shared).await {
            Ok(context) => return Some(context),
            Err(error) => tracing::warn!(controller = CONTROLLER, %error, "not started yet, trying again"),
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
) -> impl Stream<Item = ObjectRef<EtcdadmConfig>> + Send + 'static {
    cached.changes().flat_map(move |object| stream::iter(map(&object)))
}

async fn reconcile(config: Arc<EtcdadmConfig>, context: Arc<Context>) -> Result<Action> {
    let config = context.written.newest(config);
    if config.metadata.deletion_timestamp.is_some() {
        // The Secret is owned by the config and goes with it.
        return Ok(Action::await_change());
    }
    let mut known = Known::default();
    for _ in 0..STEPS {
        let observation = observe(&context, config.clone(), &known).await?;
        let plan = plan(&observation);
        if let Plan::Do(step) = &plan {
            tracing::info!(%step, "next step");
            execute(&context, &observation, step, &mut known).await?;
            continue;
        }
        report(&context, &config, &status(&observation, &plan), &plan, &known).await?;
        let again = plan.hold().and_then(|hold| hold.again);
        return Ok(again.map_or_else(Action::await_change, Action::requeue));
    }
    Err(Error::Internal(format!("{STEPS} steps came to no end for {}", config.name_any())))
}
