//! All writes of a reconcile: one step of the plan. Every object is created under a name that follows from the plan, so
//! that doing a step twice, after a kill or by two managers at once, makes one object.

mod docker;
mod held_back;
mod live;
mod member;
mod secrets;
mod template;

pub(crate) use template::{Failed, own};

use crate::CONTROLLER;
use crate::controller::Context;
use crate::observation::Observation;
use crate::plan::{Reason, Step};
use api::{EtcdCluster, names};
use controller_support::error::{is_conflict, is_not_found};
use controller_support::{Error, Result, ResultExt, apply};
use kube::api::{Api, DeleteParams, DynamicObject, Preconditions};
use kube::{Resource, ResourceExt};
use live::Live;
use serde_json::json;

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done.
    Done,
    /// What it was decided on no longer holds; the next reconcile decides anew.
    Outdated,
    /// It is refused, and somebody has to change something.
    Blocked(Reason),
}

/// Does one step.
pub(crate) async fn execute(context: &Context, seen: &Observation, step: &Step) -> Result<Outcome> {
    let etcd = seen.etcd.as_ref();
    match step {
        Step::AddFinalizer => {
            let mut finalizers = etcd.finalizers().to_vec();
            finalizers.push(names::ETCD_CLUSTER_FINALIZER.to_owned());
            set_finalizers(context, etcd, &finalizers).await
        }
        Step::EnsureCertificates { cluster } => secrets::ensure(context, seen, cluster).await,
        Step::PublishInit { cluster, address, client_urls, admitted } => {
            secrets::publish_init(context, seen, cluster, (address, client_urls, admitted)).await
        }
        Step::CreateMachine { cluster, name, seen: known } => member::create(context, seen, cluster, name, known).await,
        Step::Admit { cluster, name, admitted } => member::admit(context, seen, cluster, name, admitted).await,
        Step::DeleteHeldBack { cluster, name } => held_back::delete(context, seen, cluster, name).await,
        Step::SetProviderId { machine, provider_id } => {
            docker::set_provider_id(context, seen, machine, provider_id).await
        }
        Step::DeleteMachines { names } => delete_machines(context, seen, names).await,
        Step::RemoveFinalizer => {
            // Live: a Machine that the watch has not shown yet would otherwise be left behind.
            let selector = format!("{}={}", names::ETCD_CLUSTER_LABEL, etcd.name_any());
            if !Live::list(context, seen, &selector).await?.is_empty() {
                return Ok(Outcome::Outdated);
            }
            let rest: Vec<String> =
                etcd.finalizers().iter().filter(|f| *f != names::ETCD_CLUSTER_FINALIZER).cloned().collect();
            let outcome = set_finalizers(context, etcd, &rest).await?;
            context.accesses.forget(&etcd.uid().unwrap_or_default());
            Ok(outcome)
        }
    }
}

async fn set_finalizers(context: &Context, etcd: &EtcdCluster, finalizers: &[String]) -> Result<Outcome> {
    let api: Api<EtcdCluster> = Api::namespaced(context.shared.client.clone(), &etcd.namespace().unwrap_or_default());
    // With the resource version: the list is written whole, and others have finalizers in it.
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": etcd.resource_version()}});
    match apply::merge(&api, CONTROLLER, &etcd.name_any(), &patch).await {
        Ok(answer) => {
            context.fresh.remember(answer);
            Ok(Outcome::Done)
        }
        // Somebody was quicker, and its event is on its way.
        Err(Error::Api { source, .. }) if is_not_found(&source) || is_conflict(&source) => Ok(Outcome::Outdated),
        Err(error) => Err(error),
    }
}

fn machines(context: &Context, etcd: &EtcdCluster) -> Api<DynamicObject> {
    let namespace = etcd.namespace().unwrap_or_default();
    apply::dynamic(&context.shared.client, context.machines.resource(), &namespace)
}

async fn delete_machines(context: &Context, seen: &Observation, names: &[String]) -> Result<Outcome> {
    let api = machines(context, &seen.etcd);
    for name in names {
        // By UID: a Machine that somebody has made under the same name in between is not ours to delete.
        let preconditions = seen
            .machines
            .get(name)
            .map(|machine| Preconditions { uid: Some(machine.uid.clone()), resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::background() };
        match api.delete(name, &parameters).await {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(error).doing(|| format!("deleting Machine {name}")),
        }
        context
            .events
            .normal(&seen.etcd.object_ref(&()), "Delete", "MachineDeleted", format!("deleted Machine {name}"))
            .await;
    }
    Ok(Outcome::Done)
}
