//! The controller of LocalMachines: what wakes it up, and one round.

use crate::{
    context::Context,
    crd::{GROUP, LocalMachine, LocalMachineStatus},
    events::Key,
    execute::{Outcome, execute},
    hardware::Hardware,
    observe::{local, observe},
    plan::{Observation, Step, plan},
    status::{news, status},
    write::write_status,
};
use api::names;
use controller_support::{Cached, Error, Plan, Result, Shared, WriteCache, external::MachineView, run_controller};
use futures::{Stream, StreamExt, stream};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{Controller, controller::Action, reflector::ObjectRef, watcher},
};
use std::sync::Arc;

/// Runs until shutdown. `local_changes`: machines to which something happened.
pub(crate) async fn run(
    shared: &Shared,
    hardware: Arc<dyn Hardware>,
    (machines, clusters): (Cached, Cached),
    local_changes: impl Stream<Item = Key> + Send + 'static,
) {
    let controller = Controller::new(Api::<LocalMachine>::all(shared.client.clone()), watcher::Config::default());
    let store = controller.store();
    let by_machine = machines.changes().flat_map(|machine| stream::iter(infrastructure(&machine)));
    let by_cluster = clusters.changes().flat_map(move |cluster| {
        let (namespace, name) = (cluster.namespace(), cluster.name_any());
        let of_cluster = store.state_filter(|machine| {
            machine.namespace() == namespace && machine.labels().get(names::CLUSTER_NAME_LABEL) == Some(&name)
        });
        stream::iter(of_cluster.into_iter().map(|machine| ObjectRef::from_obj(machine.as_ref())))
    });
    let by_local = local_changes.map(|(namespace, name)| ObjectRef::new(&name).within(&namespace));
    let controller = controller.reconcile_on(by_machine).reconcile_on(by_cluster).reconcile_on(by_local);
    let events = shared.events("local-infrastructure");
    let written = WriteCache::default();
    let context = Context { shared: shared.clone(), hardware, machines, clusters, events, written };
    run_controller("local-machine", controller, shared, Arc::new(context), reconcile, ()).await;
}

/// The LocalMachine of a Machine.
fn infrastructure(machine: &kube::api::DynamicObject) -> Option<ObjectRef<LocalMachine>> {
    let machine = MachineView::read(machine);
    let reference = machine.infrastructure.filter(|r| r.group == GROUP && r.kind == "LocalMachine")?;
    Some(ObjectRef::new(&reference.name).within(&machine.namespace))
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
    publish(&context, &object, &observation, &decision, failure.as_deref()).await?;
    match failure {
        Some(why) => Err(Error::Internal(why)),
        None => Ok(decision.hold().and_then(|hold| hold.again).map_or_else(Action::await_change, Action::requeue)),
    }
}

/// What a step of ours can have changed.
fn refresh(context: &Context, object: &LocalMachine, observation: &mut Observation) -> Result<()> {
    observation.has_finalizer = object.finalizers().iter().any(|finalizer| finalizer == crate::crd::FINALIZER);
    observation.has_provider_id = object.spec.provider_id.is_some();
    observation.local = local(context, object)?;
    Ok(())
}

async fn publish(
    context: &Context,
    object: &LocalMachine,
    observation: &Observation,
    plan: &Plan<Step>,
    failure: Option<&str>,
) -> Result<()> {
    let empty = LocalMachineStatus::default();
    let before = object.status.as_ref().unwrap_or(&empty);
    let after = status(before, object.metadata.generation, observation, plan, failure);
    if object.status.as_ref() == Some(&after) {
        context.written.remember(object.clone());
        return Ok(());
    }
    context.written.remember(write_status(&context.shared.client, object, &after).await?);
    let about = object.object_ref(&());
    for news in news(before, &after) {
        if news.warning {
            context.events.warning(&about, "Reconcile", news.reason, news.note).await;
        } else {
            context.events.normal(&about, "Reconcile", news.reason, news.note).await;
        }
    }
    Ok(())
}
