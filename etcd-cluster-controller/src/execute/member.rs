//! Making the Machine of a member, and admitting it.

use super::live::Live;
use super::{Outcome, machines};
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
    if live(context, seen, cluster).await?.names() != known.iter().map(String::as_str).collect() {
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

/// By the Cluster's label, which Cluster API restores: a user may have taken ours away.
async fn live(context: &Context, seen: &Observation, cluster: &str) -> Result<Live> {
    Live::list(context, seen, &format!("{}={cluster}", names::CLUSTER_NAME_LABEL)).await
}

/// Lets a Machine become a member, by a change of the very init Secret that was seen: nobody has been admitted since. The
/// Machines have to be those that were seen as well: an admitted one that the watch does not show yet would be forgotten.
pub(super) async fn admit(
    context: &Context,
    seen: &Observation,
    cluster: &str,
    name: &str,
    admitted: &str,
) -> Result<Outcome> {
    let etcd = seen.etcd.as_ref();
    // A patch without a version would be made whatever has happened to the Secret.
    let Some(version) = &seen.init_version else { return Ok(Outcome::Outdated) };
    if !live(context, seen, cluster).await?.are_as_seen(seen) {
        return Ok(Outcome::Outdated);
    }
    let api: Api<Secret> = Api::namespaced(context.shared.client.clone(), &etcd.namespace().unwrap_or_default());
    let patch = json!({
        "metadata": {"resourceVersion": version},
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
            let message = format!("{} {name} is refused: {}", kind.kind, answer(&source));
            Ok(refused(reason_of(&source, refusal), message))
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

/// Why an object is refused. With 403 it is not its content, but that it is made by us or now: a permission, a quota.
fn reason_of(error: &kube::Error, of_content: &'static str) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => reasons::REFUSED,
        _ => of_content,
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
    fn a_missing_permission_is_no_fault_of_the_spec() {
        let reason = |code| {
            let answer = kube::core::Status::failure("no", "No").with_code(code);
            reason_of(&kube::Error::Api(Box::new(answer)), reasons::INVALID_SPEC)
        };
        assert_eq!(reason(403), reasons::REFUSED);
        assert_eq!(reason(422), reasons::INVALID_SPEC);
    }

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
