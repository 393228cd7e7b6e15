//! Making the Machine of a member.

use super::{Outcome, live_machines, machines};
use crate::CONTROLLER;
use crate::build::{self, MachineParts};
use crate::controller::Context;
use crate::observation::{Observation, Template};
use crate::plan::Reason;
use api::conditions::reasons;
use api::{EtcdCluster, EtcdadmConfig};
use controller_support::error::{is_conflict, is_invalid, is_not_found};
use controller_support::{Error, Result, ResultExt, apply};
use kube::api::{Api, DynamicObject};
use kube::discovery::ApiResource;
use kube::{Resource, ResourceExt};
use std::collections::BTreeSet;

/// Infrastructure, config, Machine: in this order, as the Machine refers to the other two. Whatever is left after a
/// kill is found again by name, or goes with the EtcdCluster that owns it.
pub(super) async fn create(
    context: &Context,
    seen: &Observation,
    cluster: &str,
    name: &str,
    known: &[String],
) -> Result<Outcome> {
    let etcd = seen.etcd.as_ref();
    let Template::Found { template, clones } = &seen.template else { return Ok(Outcome::Outdated) };
    let live: BTreeSet<String> = live_machines(context, etcd).await?.iter().map(ResourceExt::name_any).collect();
    if live != known.iter().cloned().collect() {
        return Ok(Outcome::Outdated);
    }
    let parts = MachineParts { etcd, cluster, name, infrastructure: clones };
    let infrastructure = match build::infrastructure(&parts, template) {
        Ok(infrastructure) => infrastructure,
        Err(message) => return Ok(refused(reasons::TEMPLATE_INVALID, message)),
    };
    let namespace = etcd.namespace().unwrap_or_default();
    let api = apply::dynamic(&context.shared.client, clones, &namespace);
    let outcome = put(context, etcd, &api, clones, &infrastructure, reasons::TEMPLATE_INVALID).await?;
    if outcome != Outcome::Done {
        return Ok(outcome);
    }
    let config = build::config(&parts);
    let kind = ApiResource::erase::<EtcdadmConfig>(&());
    let config = to_dynamic(&config, &kind)?;
    let api = apply::dynamic(&context.shared.client, &kind, &namespace);
    let outcome = put(context, etcd, &api, &kind, &config, reasons::INVALID_SPEC).await?;
    if outcome != Outcome::Done {
        return Ok(outcome);
    }
    let kind = context.machines.resource();
    let machine = build::machine(&parts, kind);
    let outcome = put(context, etcd, &machines(context, etcd), kind, &machine, reasons::INVALID_SPEC).await?;
    if outcome == Outcome::Done {
        let note = format!("created Machine {name}, member {} of {}", known.len() + 1, etcd.spec.replicas);
        context.events.normal(&etcd.object_ref(&()), "Create", "MachineCreated", note).await;
    }
    Ok(outcome)
}

/// Creates an object of ours, or finds that it is there already.
async fn put(
    context: &Context,
    etcd: &EtcdCluster,
    api: &Api<DynamicObject>,
    kind: &ApiResource,
    object: &DynamicObject,
    refusal: &'static str,
) -> Result<Outcome> {
    let name = object.name_any();
    match apply::create(api, CONTROLLER, object).await {
        Ok(_) => Ok(Outcome::Done),
        Err(Error::Api { source, .. }) if is_conflict(&source) => existing(etcd, api, kind, &name).await,
        Err(Error::Api { source, .. }) if is_invalid(&source) => {
            Ok(refused(refusal, format!("{} {name} is refused: {source}", kind.kind)))
        }
        Err(Error::Api { doing, source }) if is_not_found(&source) => {
            // The served version may have gone; a missing namespace ends the same way, and is harmless.
            context.shared.kinds.forget(&kind.group, &kind.kind).await;
            Err(Error::Api { doing, source })
        }
        Err(error) => Err(error),
    }
}

async fn existing(etcd: &EtcdCluster, api: &Api<DynamicObject>, kind: &ApiResource, name: &str) -> Result<Outcome> {
    let there = match api.get_metadata(name).await {
        Ok(there) => there.metadata,
        Err(error) if is_not_found(&error) => return Ok(Outcome::Outdated),
        Err(error) => return Err(error).doing(|| format!("reading {} {name}", kind.kind)),
    };
    let owners = there.owner_references.unwrap_or_default();
    let ours = owners.iter().any(|owner| Some(&owner.uid) == etcd.uid().as_ref());
    let earlier = owners.iter().any(|owner| owner.kind == "EtcdCluster");
    match (ours, there.deletion_timestamp.is_some() || earlier) {
        (true, _) if there.deletion_timestamp.is_none() => Ok(Outcome::Done),
        // It is on its way out, and its name will be free.
        (_, true) => Ok(Outcome::Outdated),
        _ => {
            let message =
                format!("{} {name} exists and does not belong to this EtcdCluster; rename or delete it", kind.kind);
            Ok(refused(reasons::NAME_TAKEN, message))
        }
    }
}

fn refused(reason: &'static str, message: String) -> Outcome {
    Outcome::Blocked(Reason { reason, message })
}

fn to_dynamic(config: &EtcdadmConfig, kind: &ApiResource) -> Result<DynamicObject> {
    let value = serde_json::to_value(config).and_then(serde_json::from_value::<DynamicObject>);
    let mut object = value.map_err(|error| Error::Internal(format!("config as JSON: {error}")))?;
    object.types = Some(kube::api::TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() });
    Ok(object)
}
