//! The controller of LocalClusters: its triggers, and one reconcile.

use super::{
    context::Context,
    execute::{execute, report},
    observe::observe,
    plan::plan,
};
use crate::{
    crd::{LocalCluster, conditions},
    hardware::Hardware,
    mappers::cluster_to_local_cluster,
};
use controller_support::{Cached, Error, Hold, Plan, Result, Shared, WriteCache, run_controller};
use futures::{StreamExt, stream};
use kube::{
    Api,
    runtime::{Controller, controller::Action, watcher},
};
use std::sync::Arc;

/// Name of the controller, in logs and metrics.
const CONTROLLER: &str = "local-cluster";

/// Runs until shutdown.
pub(crate) async fn run(shared: &Shared, hardware: Arc<dyn Hardware>, clusters: Cached) {
    let by_cluster = clusters.changes().flat_map(|cluster| stream::iter(cluster_to_local_cluster(&cluster)));
    let shared = &shared.clone().for_controller(CONTROLLER);
    let controller = Controller::new(Api::<LocalCluster>::all(shared.client.clone()), watcher::Config::default())
        .reconcile_on(by_cluster);
    let context = Context { shared: shared.clone(), hardware, clusters, written: WriteCache::default() };
    run_controller(CONTROLLER, controller, shared, Arc::new(context), reconcile, ()).await;
}

async fn reconcile(cached: Arc<LocalCluster>, context: Arc<Context>) -> Result<Action> {
    let mut object = LocalCluster::clone(&context.written.newest(cached));
    let mut last = None;
    loop {
        let observation = observe(&context, object).await?;
        match plan(&observation) {
            Plan::Do(step) if last == Some(step) => {
                let message =
                    format!("{step:?} was done and is needed again: the API server does not keep what is written");
                let plan = Plan::Block(Hold::new(conditions::CREATION_FAILED, message.clone()));
                report(&context, &observation, &plan).await?;
                return Err(Error::Refused(message));
            }
            Plan::Do(step) => match execute(&context, &observation, step).await? {
                Some(now) => (object, last) = (now, Some(step)),
                None => return Ok(Action::await_change()),
            },
            decision => {
                report(&context, &observation, &decision).await?;
                return Ok(Action::await_change());
            }
        }
    }
}
