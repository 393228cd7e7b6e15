//! What wakes it up, and one round.

use super::{
    Context,
    execute::{execute, report},
    observe::observe,
    plan::plan,
};
use crate::{crd::LocalCluster, hardware::Hardware, mappers::cluster_to_local_cluster};
use controller_support::{Cached, Error, Plan, Result, Shared, WriteCache, run_controller};
use futures::{StreamExt, stream};
use kube::{
    Api, ResourceExt,
    runtime::{Controller, controller::Action, watcher},
};
use std::sync::Arc;

/// Steps of one reconcile: there are two, and one is left to see that nothing undoes them.
const STEPS: usize = 3;

/// Runs until shutdown.
pub(crate) async fn run(shared: &Shared, hardware: Arc<dyn Hardware>, clusters: Cached) {
    let by_cluster = clusters.changes().flat_map(|cluster| stream::iter(cluster_to_local_cluster(&cluster)));
    let controller = Controller::new(Api::<LocalCluster>::all(shared.client.clone()), watcher::Config::default())
        .reconcile_on(by_cluster);
    let context = Context { shared: shared.clone(), hardware, clusters, written: WriteCache::default() };
    run_controller("local-cluster", controller, shared, Arc::new(context), reconcile, ()).await;
}

async fn reconcile(cached: Arc<LocalCluster>, context: Arc<Context>) -> Result<Action> {
    let mut object = LocalCluster::clone(&context.written.newest(cached));
    for _ in 0..STEPS {
        let observation = observe(&context, object).await?;
        match plan(&observation) {
            Plan::Do(step) => match execute(&context, &observation, step).await? {
                Some(now) => object = now,
                None => return Ok(Action::await_change()),
            },
            decision => {
                report(&context, &observation, &decision).await?;
                return Ok(Action::await_change());
            }
        }
    }
    Err(Error::Internal(format!("{STEPS} steps came to no end for LocalCluster {}", object.name_any())))
}
