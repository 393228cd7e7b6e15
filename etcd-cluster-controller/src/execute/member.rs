//! Making the Machine of a member, and admitting it.

use super::{Outcome, live_machines, machines};
use crate::CONTROLLER;
use crate::build::{self, MachineParts};
use crate::controller::Context;
use crate::observation::{Observation, Template};
use crate::plan::Reason;
use api::conditions::reasons;
use api::{EtcdCluster, EtcdadmConfig, names};
use controller_support::error::{answer, is_conflict, is_invalid, is_not_found};
use controller_support::{Error, Result, ResultExt, apply};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DynamicObject, ObjectMeta};
use kube::discovery::ApiResource;
use kube::{Resource, ResourceExt};
use serde_json::json;

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
    // By the Cluster's label, which Cluster API restores: a user may have taken ours away.
    let selector = format!("{}={cluster}", names::CLUSTER_NAME_LABEL);
    if live_machines(context, etcd, &selector).await? != known.iter().cloned().collect() {
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
        let note = format!("created Machine {name}, {} of {}", known.len() + 1, etcd.spec.replicas);
        context.events.normal(&etcd.object_ref(&()), "Create", "MachineCreated", note).await;
    }
    Ok(outcome)
}

/// Lets a Machine become a member, by a change of the very init Secret that was seen: nobody has been admitted since.
pub(super) async fn admit(
    context: &Context,
    seen: &Observation,
    cluster: &str,
    name: &str,
    admitted: &str,
) -> Result<Outcome> {
    let etcd = seen.etcd.as_ref();
    let api: Api<Secret> = Api::namespaced(context.shared.client.clone(), &etcd.namespace().unwrap_or_default());
    let patch = json!({
        "metadata": {"resourceVersion": seen.init_version},
        "data": {(names::ADMITTED): ByteString(admitted.as_bytes().to_vec())},
    });
    match apply::merge(&api, CONTROLLER, &names::init_secret(cluster), &patch).await {
        Ok(_) => {}
        Err(Error::Api { source, .. }) if is_not_found(&source) || is_conflict(&source) => {
            return Ok(Outcome::Outdated);
        }
        Err(error) => return Err(error),
    }
    let count = admitted.split(',').count();
    let note = format!("admitted Machine {name} as member {count} of {}", etcd.spec.replicas);
    context.events.normal(&etcd.object_ref(&()), "Admit", "MachineAdmitted", note).await;
    Ok(Outcome::Done)
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
        Err(Error::Api { source, .. }) if is_conflict(&source) => existing(context, etcd, api, kind, &name).await,
        Err(Error::Api { source, .. }) if is_invalid(&source) => {
            Ok(refused(refusal, format!("{} {name} is refused: {}", kind.kind, answer(&source))))
        }
        Err(Error::Api { doing, source }) if is_not_found(&source) => {
            // The served version may have gone; a missing namespace ends the same way, and is harmless.
            context.shared.kinds.forget(&kind.group, &kind.kind).await;
            context.shared.kinds.forget(&kind.group, &format!("{}Template", kind.kind)).await;
            Err(Error::Api { doing, source })
        }
        Err(error) => Err(error),
    }
}

async fn existing(
    context: &Context,
    etcd: &EtcdCluster,
    api: &Api<DynamicObject>,
    kind: &ApiResource,
    name: &str,
) -> Result<Outcome> {
    let there = match api.get_metadata(name).await {
        Ok(there) => there.metadata,
        Err(error) if is_not_found(&error) => return Ok(Outcome::Outdated),
        Err(error) => return Err(error).doing(|| format!("reading {} {name}", kind.kind)),
    };
    match whose(&there, etcd.uid().as_deref()) {
        Whose::Ours => Ok(Outcome::Done),
        // It is on its way out, and its name will be free.
        Whose::Leaving => Ok(Outcome::Outdated),
        Whose::Machines(machine) => {
            let found = machines(context, etcd).get_metadata_opt(&machine.name).await;
            let found = found.doing(|| format!("reading Machine {}", machine.name))?;
            if found.and_then(|found| found.metadata.uid).as_ref() == Some(&machine.uid) {
                // Another manager was quicker.
                return Ok(Outcome::Outdated);
            }
            let message = format!(
                "{} {name} is left over from a Machine of this name that is gone; delete it, or what it was made for would be done again",
                kind.kind
            );
            Ok(refused(reasons::NAME_TAKEN, message))
        }
        Whose::Others => {
            let message =
                format!("{} {name} exists and does not belong to this EtcdCluster; rename or delete it", kind.kind);
            Ok(refused(reasons::NAME_TAKEN, message))
        }
    }
}

/// Whose an object is that has the name of one that we were about to make.
#[derive(Debug, PartialEq)]
enum Whose {
    /// Ours, and of no Machine yet: left by a manager that was killed.
    Ours,
    /// It is being deleted, or about to be with the EtcdCluster that it was made for.
    Leaving,
    /// Ours, and in the hands of this Machine.
    Machines(OwnerReference),
    /// Somebody else's.
    Others,
}

fn whose(there: &ObjectMeta, etcd: Option<&str>) -> Whose {
    let owners = there.owner_references.as_deref().unwrap_or_default();
    let machine = owners.iter().find(|owner| owner.controller == Some(true) && owner.kind == "Machine");
    let ours = owners.iter().any(|owner| Some(owner.uid.as_str()) == etcd);
    match machine {
        _ if there.deletion_timestamp.is_some() => Whose::Leaving,
        Some(machine) if ours => Whose::Machines(machine.clone()),
        None if ours => Whose::Ours,
        _ if owners.iter().any(|owner| owner.kind == "EtcdCluster") => Whose::Leaving,
        _ => Whose::Others,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_has_used_is_not_used_again() {
        let owner = |kind: &str, uid: &str, controller: bool| json!({"apiVersion": "g/v1", "kind": kind, "name": "x", "uid": uid, "controller": controller});
        let whose = |metadata| whose(&serde_json::from_value(metadata).unwrap(), Some("etcd-uid"));
        let ours = owner("EtcdCluster", "etcd-uid", false);
        assert_eq!(whose(json!({"ownerReferences": [ours]})), Whose::Ours);
        let used = whose(json!({"ownerReferences": [ours, owner("Machine", "m", true)]}));
        assert!(matches!(used, Whose::Machines(machine) if machine.uid == "m"));
        let leaving = json!({"ownerReferences": [ours], "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(whose(leaving), Whose::Leaving);
        assert_eq!(whose(json!({"ownerReferences": [owner("EtcdCluster", "earlier", false)]})), Whose::Leaving);
        assert_eq!(whose(json!({})), Whose::Others);
    }
}
