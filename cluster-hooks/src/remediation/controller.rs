//! The reconcile of the controller.

use super::execute::execute;
use super::observe::{observe, observe_live};
use super::plan::{Plan, Step, confirm, plan};
use crate::context::{Context, REFUSED};
use crate::controller::run_for_clusters;
use crate::execute::Outcome;
use controller_support::apply::CATCH_UP;
use controller_support::{Error, Result, Shared};
use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use std::sync::Arc;

/// Name of the controller: in logs, metrics and events, and as field manager.
const CONTROLLER: &str = "control-plane-remediation";

/// Runs the controller until shutdown. It waits for the API server, and for Cluster API to be installed.
///
/// # Errors
/// None at present: whatever fails is tried again.
pub async fn run(shared: Shared) -> Result<(), Error> {
    run_for_clusters(shared, CONTROLLER, reconcile).await
}

/// Takes one step at most. The next one is planned when the watches show the effect.
async fn reconcile(cluster: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action> {
    let Some(observation) = observe(&context, &cluster).await? else { return Ok(Action::await_change()) };
    let Plan::Do(mut step) = plan(&observation) else { return Ok(Action::await_change()) };
    if let Step::Delete(machine) = &step {
        let live = observe_live(&context, &observation).await?;
        let Some(same) = live.and_then(|live| confirm(machine, &live)) else { return Ok(Action::requeue(CATCH_UP)) };
        step = same;
    }
    let (cluster, control_plane) = (&observation.cluster.view, &observation.control_plane);
    let outcome = execute(&context, &observation, &step).await?;
    if matches!(outcome, Outcome::Outdated) {
        return Ok(context.outdated(cluster, [&*cluster.uid, &*control_plane.uid].into_iter()));
    }
    context.conflicts.forget(&cluster.uid);
    Ok(match (outcome, step) {
        (Outcome::Refused(_), _) => Action::requeue(REFUSED),
        (_, Step::Delete(_)) => Action::await_change(),
        (_, Step::Note(_)) => Action::requeue(CATCH_UP),
    })
}
