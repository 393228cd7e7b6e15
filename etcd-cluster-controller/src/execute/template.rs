//! The infrastructure template, which is its user's: only an owner is added.

use super::Outcome;
use crate::CONTROLLER;
use crate::build::template_owners;
use crate::controller::Context;
use crate::observation::{ClusterLink, Observation, Template};
use controller_support::error::{is_conflict, is_not_found};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Error, Result, apply};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::json;

/// Makes the Cluster an owner of the template.
pub(super) async fn own(context: &Context, seen: &Observation) -> Result<Outcome> {
    let (Template::Found { template, .. }, ClusterLink::One(cluster)) = (&seen.template, &seen.cluster) else {
        return Ok(Outcome::Outdated);
    };
    let Some(owners) = template_owners(template, cluster) else { return Ok(Outcome::Done) };
    let wanted = &seen.etcd.spec.infrastructure_template;
    let Ok(kind) = context.shared.kinds.find(wanted.group(), &wanted.kind, CLUSTER_API_CONTRACTS).await else {
        return Ok(Outcome::Outdated);
    };
    let api = apply::dynamic(&context.shared.client, &kind, &seen.etcd.namespace().unwrap_or_default());
    // With the resource version: the list is written whole, and others have owners in it.
    let patch = json!({"metadata": {"ownerReferences": owners, "resourceVersion": template.resource_version()}});
    match apply::merge::<DynamicObject>(&api, CONTROLLER, &template.name_any(), &patch).await {
        Ok(_) => Ok(Outcome::Done),
        // Somebody was quicker, and its event is on its way.
        Err(Error::Api { source, .. }) if is_not_found(&source) || is_conflict(&source) => Ok(Outcome::Outdated),
        Err(error) => Err(error),
    }
}
