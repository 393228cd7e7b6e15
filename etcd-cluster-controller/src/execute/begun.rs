//! What was begun for a Machine: its config and its infrastructure, as long as there is no Machine. The config is made
//! first and deleted last, so whatever was begun is found by it.

use super::Outcome;
use crate::context::Context;
use crate::observation::{Observation, Template};
use crate::observe::{Whose, whose};
use crate::plan::{Plan, drops_begun};
use api::{EtcdCluster, EtcdadmConfig};
use controller_support::{Result, apply};
use kube::api::{Api, DynamicObject, Preconditions};
use kube::discovery::ApiResource;
use kube::{Client, Resource, ResourceExt};
use std::time::Duration;

/// When that is tried again which was not deleted.
const AGAIN: Duration = Duration::from_secs(10);

/// Deletes what no Machine is to be made from any more. Nothing waits for it, so a failure is logged: answers when to try
/// again, if something is left.
pub(crate) async fn drop_begun(context: &Context, observation: &Observation, plan: &Plan) -> Option<Duration> {
    // Without the template the kind of the infrastructure is not known.
    let Template::Found { clones, .. } = &observation.template else { return None };
    if !drops_begun(observation, plan) {
        return None;
    }
    let etcd = observation.etcd.as_ref();
    let place = Place { client: &context.shared.client, machines: context.machines.resource(), clones, etcd };
    let mut again = None;
    for name in &observation.begun {
        match place.discard(name).await {
            Ok(Outcome::Done) => {
                let note =
                    format!("deleted EtcdadmConfig {name}, which was made for a Machine that is not wanted any more");
                context.events.normal(&etcd.object_ref(&()), "Delete", "LeftoverDeleted", note).await;
            }
            // Somebody has changed it, or there is a Machine that the watch does not show yet.
            Ok(_) => again = Some(AGAIN),
            Err(error) => {
                if error.is_not_found() {
                    // The version is not served any more.
                    context.shared.kinds.forget(&clones.group, &clones.kind).await;
                }
                tracing::warn!(%error, config = name, "what was begun for a Machine was not deleted");
                again = Some(AGAIN);
            }
        }
    }
    again
}

/// Where the objects of a member are.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) client: &'a Client,
    /// The version of Machine that is used.
    pub(super) machines: &'a ApiResource,
    /// The kind of the infrastructure.
    pub(super) clones: &'a ApiResource,
    pub(super) etcd: &'a EtcdCluster,
}

impl Place<'_> {
    /// The API of one of their kinds.
    pub(super) fn api(&self, kind: &ApiResource) -> Api<DynamicObject> {
        apply::dynamic(self.client, kind, &self.etcd.namespace().unwrap_or_default())
    }

    /// Deletes an object, if it is as it was read: Cluster API has not given it to a Machine since.
    pub(super) async fn delete(&self, kind: &ApiResource, read: &DynamicObject) -> Result<Outcome> {
        let preconditions = Preconditions { uid: read.uid(), resource_version: read.resource_version() };
        Outcome::of(apply::delete(&self.api(kind), &kind.kind, &read.name_any(), preconditions).await)
    }

    /// Deletes what was begun under a name, if there is no Machine of it.
    ///
    /// That is looked up live and last. A manager that has lost its lease without knowing it may still make the Machine a
    /// moment later. That would never boot: it goes as one too many, or as one that does not become a member.
    pub(super) async fn discard(&self, name: &str) -> Result<Outcome> {
        let (configs, uid) = (ApiResource::erase::<EtcdadmConfig>(&()), self.etcd.uid());
        let mut begun = Vec::new();
        for kind in [self.clones, &configs] {
            let unused = self.read(kind, name).await?;
            let unused = unused.filter(|found| whose(&found.metadata, uid.as_deref()) == Whose::Ours);
            begun.extend(unused.map(|found| (kind, found)));
        }
        if begun.is_empty() || self.read(self.machines, name).await?.is_some() {
            return Ok(Outcome::Outdated);
        }
        for (kind, found) in begun {
            let outcome = self.delete(kind, &found).await?;
            if outcome != Outcome::Done {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Done)
    }

    /// An object as it is now. That its version is not served is an error, and does not look as if it were gone.
    async fn read(&self, kind: &ApiResource, name: &str) -> Result<Option<DynamicObject>> {
        apply::get_live(self.client, kind, &self.etcd.namespace().unwrap_or_default(), name).await
    }
}

#[cfg(test)]
mod tests;
