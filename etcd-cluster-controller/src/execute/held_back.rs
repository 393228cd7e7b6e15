//! Deleting a Machine that is held back.

use super::Outcome;
use super::machines::{delete_as_read, machines};
use crate::context::Context;
use crate::observation::Observation;
use crate::plan::is_paused;
use crate::quorum::MayGo;
use api::{EtcdadmConfig, names};
use controller_support::external::MachineView;
use controller_support::{Result, ResultExt};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, ObjectMeta};
use kube::{Resource, ResourceExt};

/// Deletes the Machine, after a live read has shown that it has not been admitted in between. The Machine is read
/// first, and is deleted only in the version that was read.
pub(super) async fn delete(
    context: &Context,
    observation: &Observation,
    cluster: &str,
    name: &str,
    proof: &MayGo,
) -> Result<Outcome> {
    let etcd = observation.etcd.as_ref();
    let api = machines(context, etcd);
    let live = api.get_opt(name).await.doing(|| format!("reading Machine {name}"))?;
    let live = live.filter(|live| {
        observation.machines.get(name).is_some_and(|machine| proof.is_about(&machine.uid) && waits_still(machine, live))
    });
    let Some(live) = live else { return Ok(Outcome::Outdated) };
    if !admission_is_as_observed(context, observation, cluster, name).await? {
        return Ok(Outcome::Outdated);
    }
    let note = format!(
        "deleted Machine {name}, which was held back: it was made from an earlier spec, or for another max-learners"
    );
    delete_as_read(context, etcd, &live.metadata, note).await
}

/// Whether the admissions are those that were observed, and a Machine without bootstrap data still has none. The
/// watches may lag behind, and a Machine that has been admitted in between may be a member by now.
pub(super) async fn admission_is_as_observed(
    context: &Context,
    observation: &Observation,
    cluster: &str,
    machine: &str,
) -> Result<bool> {
    let namespace = observation.etcd.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(context.shared.client.clone(), &namespace);
    let init = names::init_secret(cluster);
    let admissions = secrets.get_metadata_opt(&init).await.doing(|| format!("reading Secret {init}"))?;
    if admissions.and_then(|secret| secret.resource_version()) != observation.init_version {
        return Ok(false);
    }
    if observation.machines.get(machine).is_some_and(|machine| observation.has_data(machine)) {
        return Ok(true);
    }
    let data = secrets.get_metadata_opt(machine).await.doing(|| format!("reading Secret {machine}"))?;
    Ok(data.is_none_or(|data| !is_bootstrap_data(&data.metadata)))
}

/// Whether a Secret of the Machine's name is its bootstrap data. A Secret that belongs to something else does not boot
/// the Machine.
fn is_bootstrap_data(secret: &ObjectMeta) -> bool {
    let config = EtcdadmConfig::kind(&());
    secret.owner_references.iter().flatten().any(|owner| owner.kind == config)
}

fn waits_still(machine: &MachineView, live: &DynamicObject) -> bool {
    let live = MachineView::read(live);
    live.uid == machine.uid && !live.deleting && !is_paused(&live) && live.data_secret.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_machine_that_has_been_admitted_is_left_alone() {
        let machine = |uid: &str, spec: Value| {
            let machine = json!({"metadata": {"name": "m", "uid": uid}, "spec": {"bootstrap": spec}});
            serde_json::from_value::<DynamicObject>(machine).unwrap()
        };
        let observation = MachineView::read(&machine("uid-0", json!({})));
        assert!(waits_still(&observation, &machine("uid-0", json!({}))));
        assert!(!waits_still(&observation, &machine("made-again", json!({}))));
        let mut paused = machine("uid-0", json!({}));
        paused.annotations_mut().insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
        assert!(!waits_still(&observation, &paused), "a person keeps it");
        assert!(!waits_still(&observation, &machine("uid-0", json!({"dataSecretName": "m"}))));
        let owned_by = |kind: &str| {
            let owner = json!({"apiVersion": "g/v1", "kind": kind, "name": "m", "uid": "u"});
            serde_json::from_value(json!({"ownerReferences": [owner]})).unwrap()
        };
        assert!(is_bootstrap_data(&owned_by("EtcdadmConfig")));
        assert!(!is_bootstrap_data(&owned_by("Thing")) && !is_bootstrap_data(&ObjectMeta::default()));
    }
}
