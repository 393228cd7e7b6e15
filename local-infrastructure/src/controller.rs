//! The controller of LocalMachines: its triggers, and one reconcile.

use crate::{
    context::Context,
    crd::{FIELD_MANAGER, LocalMachine},
    events::Key,
    execute::{Outcome, execute, report},
    hardware::Hardware,
    mappers::{cluster_to_local_machines, machine_to_local_machine},
    observe::{observe, refresh},
    plan::plan,
};
use controller_support::{Cached, Error, Plan, Result, Shared, WriteCache, run_controller};
use futures::{Stream, StreamExt, stream};
use kube::{
    Api,
    runtime::{Controller, controller::Action, reflector::ObjectRef, watcher},
};
use std::sync::Arc;

/// Name of the controller, in logs and metrics.
const CONTROLLER: &str = "local-machine";

/// Runs until shutdown. `local_changes`: machines that have changed.
pub(crate) async fn run(
    shared: &Shared,
    hardware: Arc<dyn Hardware>,
    (machines, clusters): (Cached, Cached),
    local_changes: impl Stream<Item = Key> + Send + 'static,
) {
    let shared = &shared.clone().for_controller(CONTROLLER);
    let controller = Controller::new(Api::<LocalMachine>::all(shared.client.clone()), watcher::Config::default());
    let store = controller.store();
    let by_machine = machines.changes().flat_map(|machine| stream::iter(machine_to_local_machine(&machine)));
    let by_cluster = clusters.changes();
    let by_cluster = by_cluster.flat_map(move |cluster| stream::iter(cluster_to_local_machines(&store, &cluster)));
    let by_local = local_changes.map(|(namespace, name)| ObjectRef::new(&name).within(&namespace));
    let controller = controller.reconcile_on(by_machine).reconcile_on(by_cluster).reconcile_on(by_local);
    let events = shared.events(FIELD_MANAGER);
    let written = WriteCache::default();
    let context = Context { shared: shared.clone(), hardware, machines, clusters, events, written };
    run_controller(CONTROLLER, controller, shared, Arc::new(context), reconcile, ()).await;
}

async fn reconcile(cached: Arc<LocalMachine>, context: Arc<Context>) -> Result<Action> {
    let mut object = LocalMachine::clone(&context.written.newest(cached));
    let mut observation = observe(&context, &object).await?;
    let mut failure = None;
    let decision = loop {
        let decision = plan(&observation);
        let Plan::Do(step) = decision else { break decision };
        tracing::info!(?step, "machine");
        match execute(&context, &object, &observation, step).await? {
            Outcome::Done(now) => object = *now,
            Outcome::Gone => return Ok(Action::await_change()),
            Outcome::Failed(why) => {
                failure = Some(why);
                break decision;
            }
        }
        refresh(&context, &object, &mut observation)?;
    };
    report(&context, &object, &observation, &decision, failure.as_deref()).await?;
    match failure {
        Some(why) => Err(Error::Infrastructure(why)),
        None => Ok(decision.hold().and_then(|hold| hold.again).map_or_else(Action::await_change, Action::requeue)),
    }
}
