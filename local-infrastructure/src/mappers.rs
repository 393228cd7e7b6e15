//! What else triggers a reconcile of LocalMachines and LocalClusters: changes of their Machine or Cluster.

use crate::crd::{GROUP, LocalCluster, LocalMachine};
use api::names;
use controller_support::{
    Index,
    external::{MachineView, Reference},
};
use kube::{
    ResourceExt,
    api::DynamicObject,
    runtime::reflector::{ObjectRef, Store},
};

/// Clusters by the LocalCluster that they refer to.
pub(crate) const BY_LOCAL_CLUSTER: Index = Index::new("LocalCluster", |cluster| {
    cluster_to_local_cluster(cluster).map(|reference| reference.name).into_iter().collect()
});

/// The LocalMachine of a Machine.
pub(crate) fn machine_to_local_machine(machine: &DynamicObject) -> Option<ObjectRef<LocalMachine>> {
    let machine = MachineView::read(machine);
    let reference = machine.infrastructure.filter(|r| r.group == GROUP && r.kind == "LocalMachine")?;
    Some(ObjectRef::new(&reference.name).within(&machine.namespace))
}

/// The LocalMachines of a Cluster.
pub(crate) fn cluster_to_local_machines(
    machines: &Store<LocalMachine>,
    cluster: &DynamicObject,
) -> Vec<ObjectRef<LocalMachine>> {
    let (namespace, name) = (cluster.namespace(), cluster.name_any());
    let of_cluster = machines.state_filter(|machine| {
        machine.namespace() == namespace && machine.labels().get(names::CLUSTER_NAME_LABEL) == Some(&name)
    });
    of_cluster.into_iter().map(|machine| ObjectRef::from_obj(machine.as_ref())).collect()
}

/// The LocalCluster of a Cluster.
pub(crate) fn cluster_to_local_cluster(cluster: &DynamicObject) -> Option<ObjectRef<LocalCluster>> {
    let reference = Reference::read(cluster.data.pointer("/spec/infrastructureRef"))?;
    (reference.group == GROUP && reference.kind == "LocalCluster")
        .then(|| ObjectRef::new(&reference.name).within(&cluster.namespace().unwrap_or_default()))
}
