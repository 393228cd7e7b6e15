//! The provider ID of a DockerMachine: the one field that we set, and only if the provider never will.

use super::Outcome;
use crate::CONTROLLER;
use crate::context::Context;
use crate::observation::Observation;
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Result, apply};
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use serde_json::json;

/// Sets the provider ID of a Machine's DockerMachine.
pub(super) async fn set_provider_id(
    context: &Context,
    observation: &Observation,
    machine: &str,
    provider_id: &str,
) -> Result<Outcome> {
    let etcd = observation.etcd.as_ref();
    let infrastructure = observation.machines.get(machine).and_then(|machine| machine.infrastructure.as_ref());
    let (Some(reference), Some(docker)) = (infrastructure, observation.docker_machines.get(machine)) else {
        return Ok(Outcome::Outdated);
    };
    let kind = context.shared.kinds.find(&reference.group, &reference.kind, CLUSTER_API_CONTRACTS).await?;
    let api = apply::dynamic(&context.shared.client, &kind, &etcd.namespace().unwrap_or_default());
    // The resource version makes sure that the DockerMachine is still the one that was observed as bootstrapped.
    let metadata = json!({"resourceVersion": docker.resource_version});
    let patch = json!({"metadata": metadata, "spec": {"providerID": provider_id}});
    let outcome = Outcome::of(apply::merge::<DynamicObject>(&api, CONTROLLER, &reference.name, &patch).await)?;
    if outcome == Outcome::Done {
        let note = format!("set spec.providerID of DockerMachine {}, whose provider waits for a Node", reference.name);
        context.events.normal(&etcd.object_ref(&()), "Provision", "ProviderIDSet", note).await;
    }
    Ok(outcome)
}
