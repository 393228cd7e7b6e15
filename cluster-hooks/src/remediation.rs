//! A controller of its own: control-plane nodes that a MachineHealthCheck wants replaced.
//!
//! A KubeadmControlPlane replaces them itself. Since Cluster API 1.13.0 it looks at its own etcd first, also where etcd is
//! external and there is nothing to look at, and defers the remediation forever. What it has checked by then holds.
//! What it would have checked afterwards is checked here: how etcd is, and that another API server is left.
//!
//! It can go, and be switched off, as soon as Cluster API does not defer the remediation where etcd is external.

mod execute;
mod machine;
mod plan;
#[cfg(test)]
mod tests;

use crate::adapter::Adapter;
use crate::context::Context;
use crate::controller::run_for_clusters;
use crate::observation::{ClusterState, ControlPlane, ControlPlaneView, Etcd, EtcdView};
use crate::observe;
use api::names;
use controller_support::cache::Index;
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Error, Result, Shared};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use machine::ControlPlaneMachine;
use plan::plan;
use std::sync::Arc;

/// Name of the controller: in logs, metrics and events, and as field manager.
pub const CONTROLLER: &str = "control-plane-remediation";

/// Machines of the control plane, by the name of the Cluster.
const BY_CONTROL_PLANE_OF: Index = Index::new("Cluster of the control plane", |machine| {
    let labels = machine.labels();
    let cluster = labels.get(names::CLUSTER_NAME_LABEL).filter(|_| labels.contains_key(observe::CONTROL_PLANE_LABEL));
    cluster.cloned().into_iter().collect()
});

/// What the plan decides on.
struct Observation {
    cluster: ClusterState,
    etcd: EtcdView,
    control_plane: ControlPlaneView,
    machines: Vec<ControlPlaneMachine>,
}

/// Runs the controller until shutdown. It waits for the API server, and for Cluster API to be installed.
///
/// # Errors
/// None at present: whatever fails is tried again.
pub async fn run(shared: Shared) -> Result<(), Error> {
    run_for_clusters(shared, CONTROLLER, reconcile).await
}

async fn reconcile(cluster: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action> {
    let Some(observation) = observe(&context, &cluster).await? else { return Ok(Action::await_change()) };
    match plan(&observation) {
        Some(step) => execute::execute(&context, &observation, &step).await,
        None => Ok(Action::await_change()),
    }
}

/// From watches. None: there is no KubeadmControlPlane with an etcd of a provider.
async fn observe(context: &Context, cluster: &Arc<DynamicObject>) -> Result<Option<Observation>> {
    let cluster = ClusterState::read(&context.written.newest(cluster.clone()));
    if cluster.view.etcd.is_none() || cluster.view.deleting || cluster.view.paused {
        return Ok(None);
    }
    // Other kinds of control planes are not looked at: the fault is KubeadmControlPlane's alone.
    if cluster.view.control_plane.as_ref().and_then(Adapter::built_in).is_none() {
        return Ok(None);
    }
    let Etcd::Found(etcd) = observe::etcd(context, &cluster).await? else { return Ok(None) };
    let ControlPlane::Found(control_plane) = observe::control_plane(context, &cluster).await? else { return Ok(None) };
    let resource = context.shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let watch = context.watch(&resource, None).await?;
    let machines = watch.by_index(&BY_CONTROL_PLANE_OF, &cluster.view.namespace, &cluster.view.name);
    let machines = machines.iter().map(|machine| ControlPlaneMachine::read(machine, &resource.api_version)).collect();
    Ok(Some(Observation { cluster, etcd: *etcd, control_plane: *control_plane, machines }))
}
