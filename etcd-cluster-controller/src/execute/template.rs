//! The infrastructure template, which is its user's: only an owner is added. Whether that succeeds changes nothing else.

use super::Outcome;
use crate::CONTROLLER;
use crate::build::template_owners;
use crate::controller::Context;
use crate::observation::{ClusterLink, Observation, Template};
use controller_support::error::{answer, is_conflict, is_not_found};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Error, Result, apply};
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long nothing is tried again after a failure. There is no hurry: the owner matters when the Cluster goes.
const AGAIN: Duration = Duration::from_secs(600);

/// EtcdClusters, by UID, for which it has failed, and when. Members are asked up to ten times a second: without this, what
/// is refused would be tried as often.
#[derive(Debug, Default)]
pub(crate) struct Failed(Mutex<HashMap<String, Instant>>);

impl Failed {
    fn remember(&self, uid: &str) {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|_, at| at.elapsed() < AGAIN);
        failed.insert(uid.to_owned(), Instant::now());
    }

    fn is_recent(&self, uid: &str) -> bool {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get(uid).is_some_and(|at| at.elapsed() < AGAIN)
    }
}

/// Makes the Cluster an owner of the template. A failure is told of, and tried again much later.
pub(crate) async fn own(context: &Context, seen: &Observation) {
    let uid = seen.etcd.uid().unwrap_or_default();
    if context.failed.is_recent(&uid) {
        return;
    }
    let Err(error) = add_owner(context, seen).await else { return };
    context.failed.remember(&uid);
    tracing::warn!(%error, "the Cluster was not made an owner of the infrastructure template");
    if let Error::Api { source, .. } = &error {
        let wanted = &seen.etcd.spec.infrastructure_template;
        let note = format!(
            "the Cluster was not made an owner of {} {}, which therefore stays when the Cluster is deleted: {}",
            wanted.kind,
            wanted.name,
            answer(source)
        );
        context.events.warning(&seen.etcd.object_ref(&()), "Own", "TemplateNotOwned", note).await;
    }
}

async fn add_owner(context: &Context, seen: &Observation) -> Result<Outcome> {
    let (Template::Found { template, .. }, ClusterLink::One(cluster)) = (&seen.template, &seen.cluster) else {
        return Ok(Outcome::Outdated);
    };
    let Some(owners) = template_owners(template, cluster) else { return Ok(Outcome::Done) };
    let wanted = &seen.etcd.spec.infrastructure_template;
    let kind = context.shared.kinds.find(wanted.group(), &wanted.kind, CLUSTER_API_CONTRACTS).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_tried_again_much_later() {
        let failed = Failed::default();
        failed.remember("a");
        assert!(failed.is_recent("a") && !failed.is_recent("b"));
        tokio::time::advance(AGAIN).await;
        assert!(!failed.is_recent("a"));
        failed.remember("b");
        assert_eq!(failed.0.lock().unwrap().len(), 1, "those that are gone are forgotten");
    }
}
