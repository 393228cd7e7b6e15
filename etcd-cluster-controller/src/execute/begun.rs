//! What was begun for a Machine: its EtcdadmConfig and its infrastructure machine, as long as there is no Machine. The
//! config is created first and deleted last, so the rest is always found by the config.

use super::{AGAIN, Outcome, again};
use crate::context::Context;
use crate::observation::{Observation, Template};
use crate::observe::{Whose, observe_live, whose};
use crate::plan::{Hold, Plan, drops_begun, plan};
use crate::put_off::PUT_OFF;
use api::conditions::reasons;
use api::{EtcdCluster, EtcdadmConfig};
use controller_support::{Result, ResultExt, apply};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DynamicObject, Preconditions};
use kube::core::response::reason::NOT_FOUND;
use kube::discovery::ApiResource;
use kube::{Client, Resource, ResourceExt};
use std::collections::BTreeSet;
use std::time::Duration;

/// Deletes what was begun and is not needed for a Machine any more. Nothing waits for that, so a failure is only
/// logged. Returns when to try again, if something is left.
pub(crate) async fn drop_begun(context: &Context, observation: &Observation, planned: &Plan) -> Option<Duration> {
    let uid = observation.etcd.uid().unwrap_or_default();
    let (off, due): (BTreeSet<_>, BTreeSet<_>) =
        drops_begun(observation, planned).into_iter().partition(|name| context.put_off.has(&uid, &what(name)));
    let mut left = (!off.is_empty()).then_some(PUT_OFF);
    let live = match look_again(&due, observe_live(context, observation)).await {
        Ok(Some(live)) => live,
        Ok(None) => return left,
        Err(error) => {
            tracing::warn!(%error, configs = ?due, "what was begun for Machines cannot be judged live, and stays");
            return Some(again(&error, PUT_OFF));
        }
    };
    let Template::Found { clones, .. } = &live.template else { return Some(AGAIN) };
    let etcd = live.etcd.as_ref();
    let place = Place { client: &context.shared.client, machines: context.machines.resource(), clones, etcd };
    if live.begun != due {
        left = Some(AGAIN);
    }
    for name in &live.begun {
        let later = match place.discard(name).await {
            Ok(Outcome::Done) => {
                let note = format!(
                    "deleted EtcdadmConfig {name}, and {} {name} if it was there: they were made for a Machine that is \
                     not wanted any more",
                    clones.kind
                );
                context.events.normal(&etcd.object_ref(&()), "Delete", "LeftoverDeleted", note).await;
                continue;
            }
            // Somebody has changed it, or there is a Machine that the watch does not show yet.
            Ok(Outcome::Outdated | Outcome::Changed) => AGAIN,
            Ok(Outcome::Waiting(hold) | Outcome::Blocked(hold)) => {
                tracing::warn!(config = name, why = hold.message, "what was begun for a Machine stays");
                PUT_OFF
            }
            Err(error) => {
                if error.is_not_found() {
                    // The version is not served any more.
                    context.shared.kinds.forget(&clones.group, &clones.kind).await;
                }
                tracing::warn!(%error, config = name, "what was begun for a Machine was not deleted");
                again(&error, PUT_OFF)
            }
        };
        if later == PUT_OFF {
            context.put_off.put(&uid, &what(name));
        }
        left = left.into_iter().chain([later]).min();
    }
    left
}

/// What is put off after a refusal.
fn what(name: &str) -> String {
    format!("begun {name}")
}

/// A live observation, whose `begun` has only the names of `due` that the live plan drops too. As with a fenced step, a
/// pause that began a moment ago counts. If nothing is due, nothing is read.
async fn look_again(
    due: &BTreeSet<String>,
    look: impl Future<Output = Result<Observation>>,
) -> Result<Option<Observation>> {
    if due.is_empty() {
        return Ok(None);
    }
    let mut live = look.await?;
    let dropped = drops_begun(&live, &plan(&live).next);
    live.begun = dropped.intersection(due).cloned().collect();
    Ok(Some(live))
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

    /// Deletes what was begun under a name, if no Machine has used any of it, and there is no Machine of that name.
    ///
    /// The Machine is read live, after everything else. A manager that has lost its lease without knowing it may still
    /// create the Machine a moment later. That Machine would never boot, and would go as surplus or as stuck.
    pub(super) async fn discard(&self, name: &str) -> Result<Outcome> {
        let (configs, uid) = (configs(), self.etcd.uid());
        let mut begun = Vec::new();
        for kind in [self.clones, &configs] {
            let Some(found) = self.read(kind, name).await? else { continue };
            match whose(&found, uid.as_deref()) {
                Whose::Ours => begun.push((kind, found)),
                Whose::Used(machine) => return self.used(kind, name, machine.as_ref()).await,
                Whose::Leaving | Whose::Others => {}
            }
        }
        if begun.is_empty() {
            return Ok(Outcome::Outdated);
        }
        let namespace = self.etcd.namespace().unwrap_or_default();
        if let Some(machine) = apply::get_live(self.client, self.machines, &namespace, name).await? {
            let others = whose(&machine, uid.as_deref()) == Whose::Others;
            return Ok(if others { foreign(self.machines, name) } else { Outcome::Outdated });
        }
        for (kind, found) in begun {
            let outcome = self.delete(kind, &found).await?;
            if outcome != Outcome::Done {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Done)
    }

    /// The outcome for an object that a Machine uses or has used. `machine`: that Machine, if it is known.
    pub(super) async fn used(
        &self,
        kind: &ApiResource,
        name: &str,
        machine: Option<&OwnerReference>,
    ) -> Result<Outcome> {
        if let Some(machine) = machine {
            let found = self.api(self.machines).get_metadata_opt(&machine.name).await;
            let found = found.doing(|| format!("reading Machine {}", machine.name))?;
            if found.and_then(|found| found.metadata.uid).as_ref() == Some(&machine.uid) {
                // Another manager was quicker.
                return Ok(Outcome::Outdated);
            }
        }
        let message = format!(
            "{} {name} is left over from a Machine of this name that is gone; if no member runs on it any more, delete \
             it, or what it was made for would be done again",
            kind.kind
        );
        Ok(taken(message))
    }

    /// Reads an object live, which needs no permission to list its kind. `None`: the object does not exist, by the
    /// reason that the API server gives. If the API server does not serve the version of the kind, that is an error: it
    /// must not look as if the object were gone.
    pub(super) async fn read(&self, kind: &ApiResource, name: &str) -> Result<Option<DynamicObject>> {
        match self.api(kind).get(name).await {
            Err(kube::Error::Api(status)) if status.reason == NOT_FOUND => Ok(None),
            found => found.map(Some).doing(|| format!("reading {} {name}", kind.kind)),
        }
    }
}

/// The kind of the configs.
pub(super) fn configs() -> ApiResource {
    ApiResource::erase::<EtcdadmConfig>(&())
}

/// The outcome if an object that is not ours has the name.
pub(super) fn foreign(kind: &ApiResource, name: &str) -> Outcome {
    taken(format!("{} {name} exists and does not belong to this EtcdCluster; rename or delete it", kind.kind))
}

fn taken(message: String) -> Outcome {
    Outcome::Blocked(Hold::new(reasons::NAME_TAKEN, message))
}

#[cfg(test)]
mod tests;
