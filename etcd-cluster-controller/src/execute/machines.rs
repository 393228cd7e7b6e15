//! Protecting Machines, letting them go, and deleting them.

use super::Outcome;
use super::held_back::admission_is_as_observed;
use super::live::Live;
use crate::CONTROLLER;
use crate::context::Context;
use crate::observation::{ClusterLink, Observation};
use crate::plan::WhyDeleted;
use crate::quorum::{ClusterGoing, MayGo};
use api::{EtcdCluster, names};
use controller_support::external::MachineView;
use controller_support::{Error, Result, apply};
use kube::api::{Api, DynamicObject, ObjectMeta, Preconditions};
use kube::discovery::ApiResource;
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};

/// The Machines of an EtcdCluster's namespace.
pub(super) fn machines(context: &Context, etcd: &EtcdCluster) -> Api<DynamicObject> {
    let namespace = etcd.namespace().unwrap_or_default();
    apply::dynamic(&context.shared.client, context.machines.resource(), &namespace)
}

/// Adds our pre-terminate hook, so that Cluster API waits for us when the Machine is deleted.
pub(super) async fn add_hook(context: &Context, observation: &Observation, machine: &str) -> Result<Outcome> {
    let Some(machine) = observation.machines.get(machine) else { return Ok(Outcome::Outdated) };
    set_hook(context, observation, machine, json!(names::PRE_TERMINATE_HOOK_OWNER)).await
}

/// Lets a Machine that is being deleted go.
pub(super) async fn release(
    context: &Context,
    observation: &Observation,
    machine: &str,
    proof: &MayGo,
) -> Result<Outcome> {
    let machine = observation.machines.get(machine).filter(|machine| proof.is_about(&machine.uid));
    let Some(machine) = machine else { return Ok(Outcome::Outdated) };
    if let (MayGo::NeverMember(_), ClusterLink::One(cluster)) = (proof, &observation.cluster)
        && !admission_is_as_observed(context, observation, &cluster.name, &machine.name).await?
    {
        return Ok(Outcome::Outdated);
    }
    let outcome = set_hook(context, observation, machine, Value::Null).await?;
    if outcome == Outcome::Done {
        let why = match proof {
            MayGo::MemberGone(_) => "its member has left etcd",
            MayGo::NeverMember(_) => "it was not a member",
        };
        let note = format!("let Machine {} go: {why}", machine.name);
        context.events.normal(&observation.etcd.object_ref(&()), "Delete", "MachineReleased", note).await;
    }
    Ok(outcome)
}

/// Sets or removes our hook. The patch has the UID, because another Machine may have the name by now.
async fn set_hook(
    context: &Context,
    observation: &Observation,
    machine: &MachineView,
    value: Value,
) -> Result<Outcome> {
    let annotations = json!({names::PRE_TERMINATE_HOOK_ANNOTATION: value});
    let patch = json!({"metadata": {"uid": machine.uid, "annotations": annotations}});
    let api = machines(context, &observation.etcd);
    Outcome::of(apply::merge::<DynamicObject>(&api, CONTROLLER, &machine.name, &patch).await)
}

/// Deletes one Machine of an EtcdCluster that stays. Our hook keeps the Machine until its member has left etcd, so the
/// Machine is deleted only if it has the hook. The Machines also have to be those that were observed, because another
/// manager may have deleted one meanwhile. Before the deletion, an annotation records that this controller deletes the
/// Machine: anyone else who deletes a Machine has decided to give up its data.
pub(super) async fn delete(
    context: &Context,
    observation: &Observation,
    name: &str,
    why: WhyDeleted,
) -> Result<Outcome> {
    let (etcd, ClusterLink::One(cluster)) = (observation.etcd.as_ref(), &observation.cluster) else {
        return Ok(Outcome::Outdated);
    };
    let live = Live::of_cluster(context, observation, &cluster.name).await?;
    let machine = live.get(name).filter(|_| live.are_as_observed(observation));
    let has_hook = |machine: &&ObjectMeta| {
        machine.annotations.as_ref().is_some_and(|all| all.contains_key(names::PRE_TERMINATE_HOOK_ANNOTATION))
    };
    let Some(machine) = machine.filter(has_hook) else { return Ok(Outcome::Outdated) };
    let annotations = json!({names::DELETED_FOR_ANNOTATION: why.describe()});
    let version = machine.resource_version.as_deref();
    let patch = json!({"metadata": {"uid": machine.uid, "resourceVersion": version, "annotations": annotations}});
    let ours = match apply::merge::<DynamicObject>(&machines(context, etcd), CONTROLLER, name, &patch).await {
        Ok(ours) => ours.metadata,
        Err(error) => return Outcome::of::<()>(Err(error)),
    };
    let note = format!("deleted Machine {name}: {}", why.describe());
    delete_as_read(context, etcd, &ours, note).await
}

/// Deletes a Machine as it was read, and records an event. Nothing is deleted if it has changed since.
pub(super) async fn delete_as_read(
    context: &Context,
    etcd: &EtcdCluster,
    read: &ObjectMeta,
    note: String,
) -> Result<Outcome> {
    let name = read.name.as_deref().unwrap_or_default();
    let preconditions = Preconditions { uid: read.uid.clone(), resource_version: read.resource_version.clone() };
    let outcome = Outcome::of(apply::delete(&machines(context, etcd), "Machine", name, preconditions).await)?;
    if outcome == Outcome::Done {
        context.events.normal(&etcd.object_ref(&()), "Delete", "MachineDeleted", note).await;
    }
    Ok(outcome)
}

/// The Cluster that the label of an EtcdCluster names, if the API server has it now and it is not being deleted. A
/// Cluster may have been removed by force, and made again under the same name. Then the garbage collector deletes the
/// EtcdCluster, and a watch that is behind shows no Cluster that needs the data. One request.
async fn living_cluster(client: &Client, clusters: &ApiResource, etcd: &EtcdCluster) -> Result<Option<String>> {
    let Some(name) = etcd.labels().get(names::CLUSTER_NAME_LABEL) else { return Ok(None) };
    let live = apply::get_live(client, clusters, &etcd.namespace().unwrap_or_default(), name).await?;
    Ok(live.filter(|cluster| cluster.metadata.deletion_timestamp.is_none()).map(|cluster| cluster.name_any()))
}

/// Deletes Machines, and releases those that wait for us. A Cluster that needs them still keeps them.
pub(super) async fn delete_all(
    context: &Context,
    observation: &Observation,
    (delete, release): (&[String], &[String]),
    _: &ClusterGoing,
) -> Result<Outcome> {
    if observation.cluster.living().is_none() {
        let clusters = context.clusters.resource();
        // The watch of Clusters is behind. It is about to show the Cluster, and then everything is decided again.
        if let Some(cluster) = living_cluster(&context.shared.client, clusters, &observation.etcd).await? {
            return Err(Error::NotReady(format!("Cluster {cluster} exists: the watch is behind")));
        }
    }
    let api = machines(context, &observation.etcd);
    let known = |names: &[String]| -> Vec<&MachineView> {
        names.iter().filter_map(|name| observation.machines.get(name)).collect()
    };
    for machine in known(release) {
        set_hook(context, observation, machine, Value::Null).await?;
    }
    for machine in known(delete) {
        // The hook goes before the Machine is deleted, so that the Machine never waits for a manager that may be gone
        // by then.
        set_hook(context, observation, machine, Value::Null).await?;
        // By UID: a Machine that was created under the same name in between is not ours to delete.
        let preconditions = Preconditions { uid: Some(machine.uid.clone()), resource_version: None };
        match apply::delete(&api, "Machine", &machine.name, preconditions).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        let note = format!("deleted Machine {}", machine.name);
        context.events.normal(&observation.etcd.object_ref(&()), "Delete", "MachineDeleted", note).await;
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::fake_api::{having, refusal, server};
    use crate::fixture::Story;
    use kube::core::GroupVersionKind;

    #[tokio::test]
    async fn a_cluster_that_no_watch_shows_yet_keeps_its_etcd() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster"));
        let cluster = |metadata: Value| {
            let object = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata});
            vec![("clusters", object)]
        };
        let deleting = json!({"name": "demo", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let etcd = |label: Option<&str>| {
            let mut etcd = EtcdCluster::clone(&Story::new(3).observation.etcd);
            let label = label.map(|name| (names::CLUSTER_NAME_LABEL.to_owned(), name.to_owned()));
            etcd.metadata.labels = Some(label.into_iter().collect());
            etcd
        };
        for (objects, label, expected) in [
            (cluster(json!({"name": "demo"})), Some("demo"), Some("demo")),
            (cluster(json!({"name": "demo"})), None, None),
            (cluster(deleting), Some("demo"), None),
            (Vec::new(), Some("demo"), None),
        ] {
            let (client, _) = having(objects).await;
            assert_eq!(living_cluster(&client, &resource, &etcd(label)).await.unwrap().as_deref(), expected);
        }
        let (client, _) = server(|_| refusal(403, "Forbidden")).await;
        let unknown = living_cluster(&client, &resource, &etcd(Some("demo"))).await;
        assert!(unknown.is_err(), "it is not known");
    }
}
