//! All reads.

use super::observation::{ControlPlaneMachine, Observation};
use crate::adapter::Adapter;
use crate::context::Context;
use crate::observation::{ClusterState, ControlPlane, ControlPlaneView, Etcd, EtcdView};
use crate::observe::{CONTROL_PLANE_LABEL, control_plane, control_plane_machines, etcd};
use api::names;
use controller_support::external::Reference;
use controller_support::kinds::{CLUSTER_API_CONTRACTS, ETCD_PROVIDER_CONTRACTS};
use controller_support::{Index, Result, apply};
use kube::ResourceExt;
use kube::api::DynamicObject;
use std::sync::Arc;

/// Machines of the control plane, by the name of the Cluster.
const BY_CONTROL_PLANE_OF: Index = Index::new("Cluster of the control plane", |machine| {
    let labels = machine.labels();
    let cluster = labels.get(names::CLUSTER_NAME_LABEL).filter(|_| labels.contains_key(CONTROL_PLANE_LABEL));
    cluster.cloned().into_iter().collect()
});

/// Observes from watches. None: there is no KubeadmControlPlane with an etcd of a provider, or the Cluster is paused or
/// being deleted.
pub(super) async fn observe(context: &Context, cluster: &Arc<DynamicObject>) -> Result<Option<Observation>> {
    let cluster = ClusterState::read(&context.written.newest(cluster.clone()));
    // Other kinds of control planes are skipped: only KubeadmControlPlane defers the remediation.
    let is_kubeadm = cluster.view.control_plane.as_ref().and_then(Adapter::built_in).is_some();
    if !is_kubeadm || cluster.view.etcd.is_none() || cluster.view.deleting || cluster.view.is_paused() {
        return Ok(None);
    }
    let Etcd::Found(etcd) = etcd(context, &cluster).await? else { return Ok(None) };
    let ControlPlane::Found(control_plane) = control_plane(context, &cluster).await? else { return Ok(None) };
    let resource = context.shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let watch = context.watch(&resource, None).await?;
    let machines = watch.by_index(&BY_CONTROL_PLANE_OF, &cluster.view.namespace, &cluster.view.name);
    let machines = machines.iter().map(|machine| ControlPlaneMachine::read(machine, &resource.api_version)).collect();
    Ok(Some(Observation { cluster, etcd: *etcd, control_plane: *control_plane, machines }))
}

/// Reads the same objects live. None: one of them is gone. Four requests.
pub(super) async fn observe_live(context: &Context, observation: &Observation) -> Result<Option<Observation>> {
    let Observation { cluster, etcd, control_plane, .. } = observation;
    let (clusters, namespace, name) = (context.clusters.resource(), &cluster.view.namespace, &cluster.view.name);
    let found = apply::get_live(&context.shared.client, clusters, namespace, name).await?;
    let Some(cluster) = found.map(|cluster| ClusterState::read(&cluster)) else { return Ok(None) };
    let live = async |reference: &Reference, contracts| -> Result<_> {
        let resource = context.shared.kinds.find(&reference.group, &reference.kind, contracts).await?;
        let found = apply::get_live(&context.shared.client, &resource, namespace, &reference.name).await?;
        Ok(found.map(|object| (object, resource.api_version)))
    };
    let Some((object, _)) = live(&etcd.reference, ETCD_PROVIDER_CONTRACTS).await? else { return Ok(None) };
    // The claim was checked when it was made.
    let etcd = EtcdView::read(&object, &etcd.reference, &cluster.view, |_| true);
    let (reference, adapter) = (&control_plane.reference, control_plane.adapter.clone());
    let Some((object, version)) = live(reference, CLUSTER_API_CONTRACTS).await? else { return Ok(None) };
    let control_plane = ControlPlaneView::read(&object, reference, &version, adapter);
    let resource = context.shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let machines = control_plane_machines(context, names::CLUSTER_GROUP, "Machine", &cluster).await?;
    let machines = machines.iter().map(|machine| ControlPlaneMachine::read(machine, &resource.api_version)).collect();
    Ok(Some(Observation { cluster, etcd, control_plane, machines }))
}
