//! The infrastructure template, which belongs to its user: only an owner is added. Nothing else depends on whether that
//! succeeds.

use super::Outcome;
use crate::CONTROLLER;
use crate::build::template_owners;
use crate::context::Context;
use crate::observation::{ClusterLink, Observation, Template};
use crate::put_off::PUT_OFF;
use controller_support::error::answer;
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Error, Result, apply};
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use serde_json::json;

/// What is put off after a refusal.
const WHAT: &str = "template-owner";

/// Makes the Cluster an owner of the template. A refusal is reported, and tried again much later: the owner matters
/// only when the Cluster is deleted.
///
/// # Errors
/// If the API server could not answer: it is to be tried again soon. If someone else has changed the template, there is
/// no error, and a later reconcile tries again.
pub(crate) async fn own_template(context: &Context, observation: &Observation) -> Result<()> {
    let uid = observation.etcd.uid().unwrap_or_default();
    if context.put_off.has(&uid, WHAT) {
        return Ok(());
    }
    let Err(error) = add_owner(context, observation).await else { return Ok(()) };
    if !error.is_invalid() {
        return Err(error);
    }
    context.put_off.put(&uid, WHAT);
    tracing::warn!(%error, "the Cluster was not made an owner of the infrastructure template");
    if let Error::Api { source, .. } = &error {
        let wanted = &observation.etcd.spec.infrastructure_template;
        let note = format!(
            "the Cluster was not made an owner of {} {}, which therefore stays when the Cluster is deleted: {}. It is tried again after {} min; the manager needs the permission to patch this kind",
            wanted.kind,
            wanted.name,
            answer(source),
            PUT_OFF.as_secs() / 60
        );
        context.events.warning(&observation.etcd.object_ref(&()), "Own", "TemplateNotOwned", note).await;
    }
    Ok(())
}

async fn add_owner(context: &Context, observation: &Observation) -> Result<Outcome> {
    let (Template::Found { template, .. }, ClusterLink::One(cluster)) = (&observation.template, &observation.cluster)
    else {
        return Ok(Outcome::Outdated);
    };
    let Some(owners) = template_owners(template, cluster) else { return Ok(Outcome::Done) };
    let wanted = &observation.etcd.spec.infrastructure_template;
    let kind = context.shared.kinds.find(wanted.group(), &wanted.kind, CLUSTER_API_CONTRACTS).await?;
    let api = apply::dynamic(&context.shared.client, &kind, &observation.etcd.namespace().unwrap_or_default());
    // With the resource version, because the list is written as a whole, and others have owners in it.
    let patch = json!({"metadata": {"ownerReferences": owners, "resourceVersion": template.resource_version()}});
    Outcome::of(apply::merge::<DynamicObject>(&api, CONTROLLER, &template.name_any(), &patch).await)
}
