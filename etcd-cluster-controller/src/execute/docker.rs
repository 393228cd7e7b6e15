//! The one field of a DockerMachine that is ours to set, and only where its provider never will.

use super::Outcome;
use crate::CONTROLLER;
use crate::controller::Context;
use crate::observation::Observation;
use controller_support::error::{is_conflict, is_not_found};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Error, Result, apply};
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use serde_json::json;

/// Sets the provider ID of a Machine's DockerMachine.
pub(super) async fn set_provider_id(
    context: &Context,
    seen: &Observation,
    machine: &str,
    provider_id: &str,
) -> Result<Outcome> {
    let etcd = seen.etcd.as_ref();
    let infrastructure = seen.machines.get(machine).and_then(|machine| machine.infrastructure.as_ref());
    let (Some(reference), Some(docker)) = (infrastructure, seen.docker_machines.get(machine)) else {
        return Ok(Outcome::Outdated);
    };
    let kind = context.shared.kinds.find(&reference.group, &reference.kind, CLUSTER_API_CONTRACTS).await?;
    let api = apply::dynamic(&context.shared.client, &kind, &etcd.namespace().unwrap_or_default());
    // With the resource version: it has to be the one that was seen bootstrapped.
    let metadata = json!({"resourceVersion": docker.resource_version});
    let patch = json!({"metadata": metadata, "spec": {"providerID": provider_id}});
    match apply::merge::<DynamicObject>(&api, CONTROLLER, &reference.name, &patch).await {
        Ok(_) => {}
        Err(Error::Api { source, .. }) if is_not_found(&source) || is_conflict(&source) => {
            return Ok(Outcome::Outdated);
        }
        Err(error) => return Err(error),
    }
    let note = format!("set spec.providerID of DockerMachine {}, whose provider waits for a Node", reference.name);
    context.events.normal(&etcd.object_ref(&()), "Provision", "ProviderIDSet", note).await;
    Ok(Outcome::Done)
}
