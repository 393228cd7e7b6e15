//! Addresses that the Machine does not have. Up to Cluster API 1.13, the docker infrastructure marks a DockerMachine as
//! provisioned only when its Node exists, and only then does the Machine get the addresses. etcd's Machines have no
//! Node.

use crate::context::Context;
use crate::observation::Observation;
use controller_support::external::{DockerMachineView, MachineView, Reference};
use controller_support::kinds::CLUSTER_API_CONTRACTS;

/// Fills in the addresses of Machines that have none, from their DockerMachines.
pub(super) async fn read(context: &Context, observation: &mut Observation, namespace: &str) {
    let named = |machine: &MachineView| {
        let reference = machine.infrastructure.clone().filter(DockerMachineView::is_named_by)?;
        machine.addresses.is_empty().then(|| (machine.name.clone(), reference))
    };
    let wanted: Vec<(String, Reference)> = observation.machines.values().filter_map(named).collect();
    let Some((_, Reference { group, kind, .. })) = wanted.first() else { return };
    let kind = match context.shared.kinds.find(group, kind, CLUSTER_API_CONTRACTS).await {
        Ok(kind) => kind,
        // The Machines then count as having no address. The next reconcile tries again.
        Err(error) => return tracing::warn!(%error, "addresses of DockerMachines cannot be read"),
    };
    let docker_machines = context.watch_docker_machines(&kind);
    if docker_machines.ensure_ready().await.is_err() {
        return;
    }
    for (machine, reference) in wanted {
        let Some(found) = docker_machines.get(namespace, &reference.name) else { continue };
        let view = DockerMachineView::read(&found);
        if view.addresses.is_empty() {
            continue;
        }
        if let Some(machine) = observation.machines.get_mut(&machine) {
            machine.addresses.clone_from(&view.addresses);
        }
        observation.docker_machines.insert(machine, view);
    }
}
