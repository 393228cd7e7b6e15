//! All writes of a reconcile: it takes one step of the plan. Every object is created under a name that follows from the
//! plan, so a step that is done twice, after a kill or by two managers, makes one object.

mod begun;
mod block_move;
mod ca_label;
mod deletion_timeouts;
mod docker;
#[cfg(test)]
mod fake_api;
mod held_back;
mod live;
mod machines;
mod member;
mod membership;
mod metrics_client;
mod secrets;
mod status;
mod template;
mod up_to_date;

pub(crate) use begun::drop_begun;
pub(crate) use block_move::show_block_move;
pub(crate) use ca_label::label_ca_for_moves;
pub(crate) use deletion_timeouts::set_deletion_timeouts;
pub(crate) use metrics_client::keep_metrics_client;
pub(crate) use status::write_status;
pub(crate) use template::own_template;
pub(crate) use up_to_date::show_up_to_date;

use crate::CONTROLLER;
use crate::build::InitContent;
use crate::context::Context;
use crate::observation::Observation;
use crate::plan::{Hold, Step};
use api::conditions::reasons;
use api::{EtcdCluster, names};
use controller_support::{Error, Result, apply};
use kube::ResourceExt;
use kube::api::Api;
use live::Live;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// When work that nothing waits for is tried again after a failure that may pass by itself. An idle EtcdCluster has no
/// event that would cause another try.
const AGAIN: Duration = Duration::from_secs(10);

/// When such work is tried again after this failure: after a refusal, which may last for long, when `refused` has passed.
fn again(error: &Error, refused: Duration) -> Duration {
    if error.is_invalid() { refused } else { AGAIN }
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done.
    Done,
    /// What the decision was based on has changed. The next reconcile decides again.
    Outdated,
    /// The EtcdCluster itself has changed, and was read again. This reconcile must not write to it any more: what it
    /// would write was decided before.
    Changed,
    /// It is refused for now, and tried again soon.
    Waiting(Hold),
    /// It is refused, and a person has to change something.
    Blocked(Hold),
}

impl Outcome {
    /// The outcome of a write. If the object has changed or is gone, another writer was faster, and that event is on
    /// its way.
    fn of<T>(answer: Result<T>) -> Result<Self> {
        match answer {
            Ok(_) => Ok(Self::Done),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(Self::Outdated),
            Err(error) => Err(error),
        }
    }
}

/// Does one step.
pub(crate) async fn execute(context: &Context, observation: &Observation, step: &Step) -> Result<Outcome> {
    let etcd = observation.etcd.as_ref();
    // A step that needs a Cluster is planned only if a Cluster was observed.
    let missing = || Error::Internal("a step was planned for a Cluster that was not observed".to_owned());
    let cluster = || observation.cluster.one().map(|cluster| cluster.name.as_str()).ok_or_else(missing);
    match step {
        Step::Record { finalizer, annotations } => record(context, etcd, *finalizer, annotations).await,
        Step::EnsureCertificates => secrets::ensure(context, observation, cluster()?).await,
        Step::LabelCa => secrets::label_ca(context, etcd, cluster()?).await,
        Step::PublishInit { address, client_urls, cluster_id, admitted } => {
            let content = InitContent { address, client_urls, cluster_id, admitted };
            secrets::publish_init(context, observation, cluster()?, &content).await
        }
        Step::CreateMachine { number, failure_domain, expected } => {
            match context.refuse_foreign_crd().await {
                Ok(()) => {}
                Err(Error::Refused(why)) => return Ok(Outcome::Blocked(Hold::new(reasons::REFUSED, why))),
                Err(error) => return Err(error),
            }
            member::create(context, observation, cluster()?, (*number, failure_domain.as_deref()), expected).await
        }
        Step::Admit { name, admitted } => member::admit(context, observation, cluster()?, name, admitted).await,
        Step::DeleteHeldBack { name, proof } => held_back::delete(context, observation, cluster()?, name, proof).await,
        Step::SetProviderId { machine, provider_id } => {
            docker::set_provider_id(context, observation, machine, provider_id).await
        }
        Step::AddHook { machine } => machines::add_hook(context, observation, machine).await,
        Step::DeleteMachine { name, why } => machines::delete(context, observation, name, *why).await,
        // These change only the status, which is written at the end of the reconcile.
        Step::BeginRemediation(_) | Step::Begin(_) | Step::Finish(_) | Step::NoteRelease { .. } => Ok(Outcome::Done),
        Step::MoveLeader { from, to } => membership::move_leader(context, observation, *from, *to).await,
        Step::RemoveMember(permission) => membership::remove(context, observation, permission).await,
        Step::ReleaseHook { machine, proof } => machines::release(context, observation, machine, proof).await,
        Step::DeleteMachines { delete, release, proof } => {
            machines::delete_all(context, observation, (delete, release), proof).await
        }
        Step::RemoveFinalizer => remove_finalizer(context, observation).await,
    }
}

async fn record(
    context: &Context,
    etcd: &EtcdCluster,
    finalizer: bool,
    annotations: &BTreeMap<&'static str, Option<String>>,
) -> Result<Outcome> {
    let mut metadata = json!({"annotations": annotations});
    if finalizer {
        let mut finalizers = etcd.finalizers().to_vec();
        finalizers.push(names::ETCD_CLUSTER_FINALIZER.to_owned());
        metadata["finalizers"] = json!(finalizers);
    }
    set_metadata(context, etcd, metadata).await
}

async fn remove_finalizer(context: &Context, observation: &Observation) -> Result<Outcome> {
    let etcd = observation.etcd.as_ref();
    // Live: a Machine that the watch does not show yet would otherwise be left behind.
    let selector = format!("{}={}", names::ETCD_CLUSTER_LABEL, etcd.name_any());
    if !Live::list(context, observation, &selector).await?.is_empty() {
        return Ok(Outcome::Outdated);
    }
    let rest: Vec<_> = etcd.finalizers().iter().filter(|f| *f != names::ETCD_CLUSTER_FINALIZER).collect();
    let outcome = set_metadata(context, etcd, json!({"finalizers": rest})).await?;
    context.prober.forget(&etcd.uid().unwrap_or_default());
    Ok(outcome)
}

/// Changes metadata of the EtcdCluster, if the EtcdCluster still has the version that the decision was based on: lists
/// are written as a whole, and a record must not overwrite a newer one.
async fn set_metadata(context: &Context, etcd: &EtcdCluster, mut metadata: Value) -> Result<Outcome> {
    let api: Api<EtcdCluster> = Api::namespaced(context.shared.client.clone(), &etcd.namespace().unwrap_or_default());
    metadata["resourceVersion"] = json!(etcd.resource_version());
    match apply::merge(&api, CONTROLLER, &etcd.name_any(), &json!({"metadata": metadata})).await {
        Err(error) if error.is_conflict() => {
            apply::read_after_conflict(&api, &context.written, etcd).await;
            Ok(Outcome::Changed)
        }
        answer => Outcome::of(answer.map(|answer| context.written.remember(answer))),
    }
}
