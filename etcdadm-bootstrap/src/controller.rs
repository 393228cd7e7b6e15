//! Watches, mappers and the reconcile.

use crate::execute::Writer;
use crate::observe::{Known, Sources};
use crate::plan::{Plan, plan};
use crate::status::{differs, newly_blocked, status};
use crate::{CONTROLLER, mappers};
use api::EtcdadmConfig;
use controller_support::{Cached, Error, Freshest, Result, Shared, drive};
use futures::{Stream, StreamExt, stream};
use kube::api::{Api, DynamicObject};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use kube::{Resource, ResourceExt};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before Cluster API's kinds are looked up again: at first, and at most.
const LOOK_UP_AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// Steps of one reconcile. Lock, Secret and one lost race need three.
const STEPS: usize = 5;

/// What a reconcile works with.
struct Context {
    sources: Sources,
    writer: Writer,
}

/// Runs the controller until shutdown. If the API server is down or Cluster API is not installed yet, it waits.
///
/// # Errors
/// None so far: what fails is tried again.
pub async fn run(shared: Shared) -> Result<()> {
    let Some(sources) = sources(&shared).await else { return Ok(()) };
    let controller = Controller::new(Api::<EtcdadmConfig>::all(shared.client.clone()), watcher::Config::default());
    let configs = controller.store();
    let triggers: [(&Cached, mappers::Mapper); 4] = [
        (&sources.machines, mappers::machine_to_configs),
        (&sources.clusters, mappers::cluster_to_configs),
        (&sources.secrets, mappers::secret_to_configs),
        (&sources.config_maps, mappers::lock_to_configs),
    ];
    let controller = triggers.into_iter().fold(controller, |controller, (cached, map)| {
        let configs = configs.clone();
        controller.reconcile_on(mapped(cached, move |object| map(&configs, object)))
    });
    let writer = Writer { events: shared.events(CONTROLLER), fresh: Freshest::default() };
    drive(CONTROLLER, controller, &shared, Arc::new(Context { sources, writer }), reconcile).await;
    Ok(())
}

/// The watches, as soon as they can be had. `None`: shutdown came first.
async fn sources(shared: &Shared) -> Option<Sources> {
    let mut delay = LOOK_UP_AGAIN.0;
    loop {
        match Sources::new(shared).await {
            Ok(sources) => return Some(sources),
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
    let Context { sources, writer } = context.as_ref();
    let config = writer.fresh.pick(config);
    if config.metadata.deletion_timestamp.is_some() {
        // The Secret is owned by the config and goes with it.
        return Ok(Action::await_change());
    }
    let mut known = Known::default();
    for _ in 0..STEPS {
        let observation = sources.observe(config.clone(), &mut known).await?;
        let plan = plan(&observation);
        if let Plan::Do(step) = &plan {
            tracing::info!(%step, "doing");
            writer.execute(sources, &observation, step, &mut known).await?;
            continue;
        }
        let before = config.status.as_ref();
        let after = status(&observation, &plan);
        if differs(before, &after) {
            writer.write_status(sources, &config, &after).await?;
        }
        if let Some(note) = known.created {
            writer.events.normal(&config.object_ref(&()), "Bootstrap", "BootstrapDataCreated", note).await;
        }
        if let Some(blocked) = newly_blocked(before, &plan) {
            let note = blocked.message.clone();
            writer.events.warning(&config.object_ref(&()), "Bootstrap", blocked.reason, note).await;
        }
        return Ok(match plan {
            Plan::Wait(waiting) | Plan::Block(waiting) => {
                waiting.again.map_or_else(Action::await_change, Action::requeue)
            }
            Plan::Steady | Plan::Do(_) => Action::await_change(),
        });
    }
    Err(Error::Internal(format!("{STEPS} steps have not led anywhere for {}", config.name_any())))
}
