//! Making the Machine of a member, and admitting it.

use super::Outcome;
use super::begun::{Place, configs, foreign};
use super::block_move::begin_with;
use super::live::Live;
use crate::CONTROLLER;
use crate::build::{self, MachineParts};
use crate::context::Context;
use crate::observation::{Observation, Template};
use crate::observe::{Whose, whose};
use crate::plan::{Hold, made_for};
use api::conditions::reasons;
use api::{EtcdCluster, EtcdadmConfig, names};
use controller_support::error::{answer, code, is_invalid};
use controller_support::{Error, Result, apply};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use kube::discovery::ApiResource;
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Creates the config, writes the number into the EtcdCluster, and creates the infrastructure machine and the Machine,
/// in this order. The number is written before the Machine is created, so that no number is used twice. It is written
/// after the config is created, so that a manager that was killed in between finds by the config what it had begun, and
/// drops it if the Machine is not wanted any more.
pub(super) async fn create(
    context: &Context,
    observation: &Observation,
    cluster: &str,
    (number, failure_domain): (u64, Option<&str>),
    expected: &[String],
) -> Result<Outcome> {
    let etcd = observation.etcd.as_ref();
    let Template::Found { template, clones } = &observation.template else { return Ok(Outcome::Outdated) };
    let live = Live::of_cluster(context, observation, cluster).await?;
    if live.names() != expected.iter().map(String::as_str).collect() {
        return Ok(Outcome::Outdated);
    }
    let place = Place { client: &context.shared.client, machines: context.machines.resource(), clones, etcd };
    let number = begun(&place, observation, expected, number).await?.unwrap_or(number);
    let name = name_of(etcd, number);
    let replaces = made_for(observation);
    let (infrastructure, replaces) = (clones, replaces.as_ref());
    let parts = MachineParts { etcd, cluster, name: &name, infrastructure, failure_domain, replaces };
    let infrastructure = match build::infrastructure(&parts, template) {
        Ok(infrastructure) => infrastructure,
        Err(message) => return Ok(refused(reasons::TEMPLATE_INVALID, message)),
    };
    let kind = configs();
    let config = to_dynamic(&build::config(&parts))?;
    let outcome = put(context, &place, &kind, &config, reasons::INVALID_SPEC).await?;
    if outcome != Outcome::Done {
        return Ok(outcome);
    }
    let recorded = etcd.annotations().get(names::LAST_NAME_NUMBER_ANNOTATION).and_then(|last| last.parse().ok());
    if recorded.is_none_or(|last: u64| last < number) {
        let annotations = BTreeMap::from([(names::LAST_NAME_NUMBER_ANNOTATION, json!(number.to_string()))]);
        let outcome = begin_with(context, observation, annotations).await?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
    }
    let outcome = put(context, &place, clones, &infrastructure, reasons::TEMPLATE_INVALID).await?;
    if outcome != Outcome::Done {
        return Ok(outcome);
    }
    let machine = build::machine(&parts, place.machines);
    let outcome = put(context, &place, place.machines, &machine, reasons::INVALID_SPEC).await?;
    if outcome == Outcome::Done {
        let (live, wanted) = (observation.live_machines().count() + 1, etcd.spec.replicas);
        let replaces = usize::try_from(wanted).is_ok_and(|wanted| live > wanted);
        let what = if replaces { "to replace another".to_owned() } else { format!("{live} of {wanted}") };
        let place = failure_domain.map(|domain| format!(" in failure domain {domain}")).unwrap_or_default();
        let note = format!("created Machine {name}{place}, {what}");
        context.events.normal(&etcd.object_ref(&()), "Create", "MachineCreated", note).await;
    }
    Ok(outcome)
}

fn name_of(etcd: &EtcdCluster, number: u64) -> String {
    format!("{}-{number}", etcd.name_any())
}

/// The number of a Machine that a manager had begun to make when it was killed. It is the last number; no Machine has
/// it, and no member that such a Machine may have left; and neither its config nor its infrastructure machine has been
/// used by a Machine.
async fn begun(place: &Place<'_>, observation: &Observation, machines: &[String], next: u64) -> Result<Option<u64>> {
    let etcd = place.etcd;
    let recorded = etcd.annotations().get(names::LAST_NAME_NUMBER_ANNOTATION).and_then(|last| last.parse().ok());
    let Some(last) = recorded.filter(|last: &u64| last.checked_add(1) == Some(next)) else { return Ok(None) };
    let name = name_of(etcd, last);
    if machines.contains(&name) || observation.is_of_a_member(&name) {
        return Ok(None);
    }
    let uid = etcd.uid();
    let is_ours = |config: &DynamicObject| whose(config, uid.as_deref()) == Whose::Ours;
    if !place.read(&configs(), &name).await?.as_ref().is_some_and(is_ours) {
        return Ok(None);
    }
    // A config does not show its use any more when the bootstrap Secret is gone.
    let infrastructure = place.read(place.clones, &name).await?;
    let is_used = infrastructure.is_some_and(|found| matches!(whose(&found, uid.as_deref()), Whose::Used(_)));
    Ok((!is_used).then_some(last))
}

/// Lets a Machine become a member, by a change of the init Secret in the version that was observed: no other Machine
/// has been admitted since. The Machines have to be those that were observed too. Otherwise the write would drop an
/// admitted Machine that the watch does not show yet.
pub(super) async fn admit(
    context: &Context,
    observation: &Observation,
    cluster: &str,
    name: &str,
    admitted: &str,
) -> Result<Outcome> {
    let etcd = observation.etcd.as_ref();
    // A patch without a version would be applied whatever has happened to the Secret.
    let Some(version) = &observation.init_version else { return Ok(Outcome::Outdated) };
    if !Live::of_cluster(context, observation, cluster).await?.are_as_observed(observation) {
        return Ok(Outcome::Outdated);
    }
    let api: Api<Secret> = Api::namespaced(context.shared.client.clone(), &etcd.namespace().unwrap_or_default());
    let patch = json!({
        "metadata": {"resourceVersion": version},
        "data": {(names::ADMITTED): ByteString(admitted.as_bytes().to_vec())},
    });
    let outcome = Outcome::of(apply::merge(&api, CONTROLLER, &names::init_secret(cluster), &patch).await)?;
    if outcome == Outcome::Done {
        let note = format!("admitted Machine {name}: it may join etcd");
        context.events.normal(&etcd.object_ref(&()), "Admit", "MachineAdmitted", note).await;
    }
    Ok(outcome)
}

/// Creates an object of ours, or finds that it is there already.
async fn put(
    context: &Context,
    place: &Place<'_>,
    kind: &ApiResource,
    object: &DynamicObject,
    refusal: &'static str,
) -> Result<Outcome> {
    let name = object.name_any();
    match apply::create(&place.api(kind), CONTROLLER, object).await {
        Ok(_) => Ok(Outcome::Done),
        Err(error) if error.is_conflict() => existing(place, kind, object).await,
        Err(Error::Api { source, .. }) if is_invalid(&source) => {
            let message = format!("{} {name} is refused: {}", kind.kind, answer(&source));
            Ok(refused(reason_of(&source, refusal), message))
        }
        Err(error) if error.is_not_found() => {
            // The API server may no longer serve this version. A missing namespace gives the same answer, and then this
            // is harmless.
            context.shared.kinds.forget(&kind.group, &kind.kind).await;
            context.shared.kinds.forget(&kind.group, &format!("{}Template", kind.kind)).await;
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// The reason for a refusal. A 403 is not about the content of the object: a permission is missing, or a quota is used
/// up.
fn reason_of(error: &kube::Error, of_content: &'static str) -> &'static str {
    if code(error) == 403 { reasons::REFUSED } else { of_content }
}

/// The outcome for an existing object that has the name of the one to be created.
async fn existing(place: &Place<'_>, kind: &ApiResource, wanted: &DynamicObject) -> Result<Outcome> {
    let (etcd, name) = (place.etcd, wanted.name_any());
    let Some(there) = place.read(kind, &name).await? else { return Ok(Outcome::Outdated) };
    match whose(&there, etcd.uid().as_deref()) {
        Whose::Ours if is_as_wanted(etcd, &there, wanted) => Ok(Outcome::Done),
        // A manager was killed, and then the spec was changed: the Machine must not get what is left over. The config
        // does not go alone, because the infrastructure machine is found by it.
        Whose::Ours if is_config(wanted) => Ok(match place.discard(&name).await? {
            Outcome::Done => Outcome::Outdated,
            held_up => held_up,
        }),
        Whose::Ours => place.delete(kind, &there).await.map(|_| Outcome::Outdated),
        // It is on its way out, and its name will be free.
        Whose::Leaving => Ok(Outcome::Outdated),
        Whose::Used(machine) => place.used(kind, &name, machine.as_ref()).await,
        Whose::Others => Ok(foreign(kind, &name)),
    }
}

/// Whether a leftover object is what would be created now. A Machine is never left over, because it is created last.
fn is_as_wanted(etcd: &EtcdCluster, there: &DynamicObject, wanted: &DynamicObject) -> bool {
    let spec = |object: &DynamicObject| object.data.get("spec").cloned().unwrap_or_default();
    if is_config(wanted) {
        let limit = |object: &DynamicObject| object.annotations().get(names::MAX_LEARNERS_ANNOTATION).cloned();
        return limit(there) == limit(wanted)
            && api::EtcdadmConfigSpec::deserialize(spec(there))
                .is_ok_and(|config| build::matches_config(etcd, &config, None));
    }
    // The name of the template is not enough: the template may have been created again with another content.
    build::is_cloned_from_template(etcd, there.annotations()) && contains(&spec(there), &spec(wanted))
}

fn is_config(object: &DynamicObject) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind == EtcdadmConfig::kind(&()))
}

/// Whether a value contains all that is wanted of it. What a template leaves out may have been filled in.
fn contains(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| there.get(key).is_some_and(|there| contains(there, wanted)))
        }
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len() && there.iter().zip(wanted).all(|(there, wanted)| contains(there, wanted))
        }
        _ => there == wanted,
    }
}

fn refused(reason: &'static str, message: String) -> Outcome {
    Outcome::Blocked(Hold::new(reason, message))
}

fn to_dynamic(config: &EtcdadmConfig) -> Result<DynamicObject> {
    let value = serde_json::to_value(config).and_then(serde_json::from_value);
    value.map_err(|error| Error::Internal(format!("config as JSON: {error}")))
}

#[cfg(test)]
mod tests;
