//! LocalClusters: an address for the API servers, ready at once.

use crate::{
    crd::{Endpoint, FINALIZER, FailureDomain, GROUP, Initialization, LocalCluster, LocalClusterStatus, conditions},
    hardware::Hardware,
    machine::Error as MachineError,
    observe::now,
    status::paused,
    write::{write, write_status},
};
use api::{
    conditions::{Draft, from_drafts},
    names,
};
use controller_support::{
    Cached, Error, Index, Result, Shared, WriteCache,
    external::{ClusterView, Reference},
    run_controller,
};
use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, ResourceExt,
    api::DynamicObject,
    runtime::{Controller, controller::Action, reflector::ObjectRef, watcher},
};
use std::sync::Arc;

/// The field of the spec that is ours to set.
const ENDPOINT: &str = "controlPlaneEndpoint";

struct Context {
    shared: Shared,
    hardware: Arc<dyn Hardware>,
    clusters: Cached,
    written: WriteCache<LocalCluster>,
}

/// Runs until shutdown.
pub(crate) async fn run(shared: &Shared, hardware: Arc<dyn Hardware>, clusters: Cached) {
    let by_cluster = clusters.changes().flat_map(|cluster| stream::iter(infrastructure(&cluster)));
    let controller = Controller::new(Api::<LocalCluster>::all(shared.client.clone()), watcher::Config::default())
        .reconcile_on(by_cluster);
    let context = Context { shared: shared.clone(), hardware, clusters, written: WriteCache::default() };
    run_controller("local-cluster", controller, shared, Arc::new(context), reconcile, ()).await;
}

/// The LocalCluster of a Cluster.
fn infrastructure(cluster: &DynamicObject) -> Option<ObjectRef<LocalCluster>> {
    let reference = Reference::read(cluster.data.pointer("/spec/infrastructureRef"))?;
    (reference.group == GROUP && reference.kind == "LocalCluster")
        .then(|| ObjectRef::new(&reference.name).within(&cluster.namespace().unwrap_or_default()))
}

/// Clusters by the LocalCluster that they refer to.
const BY_LOCAL_CLUSTER: Index =
    Index::new("LocalCluster", |cluster| infrastructure(cluster).map(|reference| reference.name).into_iter().collect());

/// The Cluster that owns a LocalCluster, or, before Cluster API has made it that, the one that refers to it. Not to wait
/// for the owner saves a second: Cluster API reconciles a Cluster once a second.
fn cluster_of(clusters: &Cached, object: &LocalCluster) -> Option<ClusterView> {
    let namespace = object.namespace().unwrap_or_default();
    let owner = object
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "Cluster" && owner.api_version.starts_with(&format!("{}/", names::CLUSTER_GROUP)));
    let found = match owner {
        Some(owner) => clusters.get(&namespace, &owner.name),
        None => clusters.by_index(&BY_LOCAL_CLUSTER, &namespace, &object.name_any()).into_iter().next(),
    };
    found.map(|cluster| ClusterView::read(&cluster))
}

/// What to do next about a LocalCluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// Nothing, because it is not allowed.
    Paused,
    /// No Cluster refers to it yet.
    Wait,
    /// It has what it needs.
    Ready,
    /// Reserve an address, and hold the LocalCluster until that is released.
    GiveEndpoint,
    /// Release the address and let the LocalCluster go.
    Release,
    /// Nothing: it has been let go.
    Gone,
}

fn plan(object: &LocalCluster, cluster: Option<&ClusterView>) -> Plan {
    let held = object.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    if object.annotations().contains_key(names::PAUSED_ANNOTATION) || cluster.is_some_and(|cluster| cluster.paused) {
        return Plan::Paused;
    }
    match (object.metadata.deletion_timestamp.is_some(), held) {
        (true, true) => Plan::Release,
        (true, false) => Plan::Gone,
        (false, _) if cluster.is_none() => Plan::Wait,
        (false, _) if object.spec.control_plane_endpoint.is_none() => Plan::GiveEndpoint,
        (false, _) => Plan::Ready,
    }
}

fn status(object: &LocalCluster, plan: Plan, now: &Time) -> LocalClusterStatus {
    let before = object.status.clone().unwrap_or_default();
    let (ready, reason, message) = match plan {
        Plan::Paused if !before.ready => (false, conditions::IS_PAUSED, ""),
        Plan::Paused | Plan::Ready => (true, conditions::IS_READY, ""),
        Plan::Wait | Plan::GiveEndpoint => {
            (false, conditions::WAITING_FOR_CLUSTER, "No Cluster refers to this LocalCluster")
        }
        Plan::Release | Plan::Gone => (false, conditions::DELETING, ""),
    };
    let drafts = vec![Draft::new(conditions::READY, ready, reason, message), paused(plan == Plan::Paused)];
    let provisioned = before.initialization.provisioned || plan == Plan::Ready;
    let reported = |name: &String| FailureDomain { name: name.clone(), control_plane: true };
    LocalClusterStatus {
        ready: provisioned,
        initialization: Initialization { provisioned },
        failure_domains: match plan {
            Plan::Paused => before.failure_domains,
            _ => object.spec.failure_domains.iter().map(reported).collect(),
        },
        conditions: from_drafts(&before.conditions, drafts, object.metadata.generation, now),
    }
}

async fn reconcile(cached: Arc<LocalCluster>, context: Arc<Context>) -> Result<Action> {
    let mut object = LocalCluster::clone(&context.written.newest(cached));
    context.clusters.ensure_ready().await?;
    let (client, namespace) = (&context.shared.client, object.namespace().unwrap_or_default());
    let cluster = cluster_of(&context.clusters, &object);
    let mut decision = plan(&object, cluster.as_ref());
    let owner = format!("cluster/{namespace}/{}", object.name_any());
    let internal = |error: MachineError| Error::Internal(error.to_string());
    match decision {
        Plan::GiveEndpoint => {
            let address = context.hardware.reserve(&owner).map_err(internal)?;
            object = write(client, &object, true, (ENDPOINT, Some(&Endpoint::at(address)))).await?;
            decision = plan(&object, cluster.as_ref());
        }
        Plan::Release => {
            context.hardware.release(&owner).map_err(internal)?;
            return match write(client, &object, false, (ENDPOINT, object.spec.control_plane_endpoint.as_ref())).await {
                Err(error) if error.is_not_found() => Ok(Action::await_change()),
                other => other.map(|_| Action::await_change()),
            };
        }
        Plan::Gone => return Ok(Action::await_change()),
        Plan::Paused | Plan::Wait | Plan::Ready => {}
    }
    let status = status(&object, decision, &now());
    if object.status.as_ref() != Some(&status) {
        object = write_status(client, &object, &status).await?;
    }
    context.written.remember(object);
    Ok(Action::await_change())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn cluster(paused: bool) -> ClusterView {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "demo"}, "spec": {"paused": paused},
        }))
        .expect("a Cluster");
        ClusterView::read(&object)
    }

    fn object(change: &serde_json::Value) -> LocalCluster {
        let mut object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "LocalCluster",
            "metadata": {"name": "demo"}, "spec": {},
        });
        for (key, value) in change.as_object().expect("an object") {
            for (inner, value) in value.as_object().expect("an object") {
                object[key][inner] = value.clone();
            }
        }
        serde_json::from_value(object).expect("a LocalCluster")
    }

    #[rstest]
    #[case::new(json!({}), None, Plan::Wait)]
    #[case::owned(json!({}), Some(false), Plan::GiveEndpoint)]
    #[case::paused(json!({}), Some(true), Plan::Paused)]
    #[case::paused_itself(
        json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}), Some(false), Plan::Paused
    )]
    #[case::users_endpoint(
        json!({"spec": {"controlPlaneEndpoint": {"host": "example.test", "port": 443}}}), Some(false), Plan::Ready
    )]
    #[case::deleted(
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER]}}), None, Plan::Release
    )]
    #[case::let_go(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), Some(false), Plan::Gone)]
    fn one_thing_follows(#[case] change: serde_json::Value, #[case] owner: Option<bool>, #[case] expected: Plan) {
        assert_eq!(plan(&object(&change), owner.map(cluster).as_ref()), expected);
    }

    #[test]
    fn once_provisioned_it_stays_so() {
        let now = now();
        let mut object = object(&json!({}));
        let first = status(&object, Plan::Ready, &now);
        assert!(first.ready && first.initialization.provisioned);
        object.status = Some(first);
        let later = status(&object, Plan::Paused, &now);
        assert!(later.ready && later.initialization.provisioned);
        assert!(api::conditions::is_true(&later.conditions, conditions::READY));
    }

    #[test]
    fn failure_domains_are_reported_unless_there_is_a_pause() {
        let domains = |object: &LocalCluster, plan| {
            serde_json::to_value(status(object, plan, &now())).expect("JSON").get("failureDomains").cloned()
        };
        assert_eq!(domains(&object(&json!({})), Plan::Ready), None);
        let mut object = object(&json!({"spec": {"failureDomains": ["b", "a"]}}));
        assert_eq!(domains(&object, Plan::Paused), None);
        let reported = Some(json!([{"name": "b", "controlPlane": true}, {"name": "a", "controlPlane": true}]));
        assert_eq!(domains(&object, Plan::Ready), reported);
        object.status = Some(status(&object, Plan::Ready, &now()));
        object.spec.failure_domains.clear();
        assert_eq!(domains(&object, Plan::Paused), reported);
        assert_eq!(domains(&object, Plan::Ready), None);
    }
}
