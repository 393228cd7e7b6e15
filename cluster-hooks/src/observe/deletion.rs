//! What a Cluster's deletion waits for: its workers, and the Machines that etcd has left behind.

use super::{CONTROL_PLANE_LABEL, now, providers};
use crate::context::Context;
use crate::observation::{ClusterState, HookedMachine, hooked};
use api::names;
use controller_support::external::api_group;
use controller_support::kinds::{CLUSTER_API_CONTRACTS, ETCD_PROVIDER_CONTRACTS};
use controller_support::{Error, Result, apply};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, PartialObjectMeta};
use kube::discovery::ApiResource;
use std::collections::BTreeMap;

/// What Cluster API waits for before it deletes the control plane, except etcd's own Machines. Up to four requests (one
/// as long as a Machine is left), and only while the Cluster is being deleted.
pub(super) async fn workers(context: &Context, cluster: &ClusterState) -> Result<Vec<String>> {
    let providers = providers(context).await?;
    for kind in ["Machine", "MachineDeployment", "MachineSet", "MachinePool"] {
        let found = match of_cluster(context, cluster, kind).await {
            Ok(found) => found,
            // MachinePools are optional. If another kind cannot be listed, that does not mean that there are none of
            // it.
            Err(error) if kind == "MachinePool" && is_not_served(&error) => continue,
            Err(error) => return Err(error),
        };
        let counts = |object: &&PartialObjectMeta<DynamicObject>| match kind {
            "Machine" => is_worker(&object.metadata, &providers),
            "MachinePool" => is_looked_after(&object.metadata, cluster, now().0),
            _ => true,
        };
        let workers: Vec<String> =
            found.iter().filter(counts).map(|object| format!("{kind} {}", object.name_any())).collect();
        if !workers.is_empty() {
            return Ok(workers);
        }
    }
    Ok(Vec::new())
}

/// Machines of members that etcd has left behind: they carry its pre-terminate hook, and the etcd object that they
/// belonged to is gone. If that object exists, its Machines are its own, even if another Cluster uses it. One request,
/// and one more for each Machine with such an owner.
pub(super) async fn left_machines(context: &Context, cluster: &ClusterState) -> Result<Vec<HookedMachine>> {
    let mut left = Vec::new();
    for machine in of_cluster(context, cluster, "Machine").await? {
        let etcd = machine.owner_references().iter().find(|owner| owner.controller == Some(true) && is_etcd(owner));
        match etcd {
            Some(etcd) if is_there(context, &cluster.view.namespace, etcd).await? => {}
            _ => left.push(machine),
        }
    }
    Ok(hooked(&left))
}

fn is_etcd(owner: &OwnerReference) -> bool {
    (api_group(&owner.api_version), &*owner.kind) == ETCD_CLUSTER
}

/// Whether the EtcdCluster exists, read live. One request.
async fn is_there(context: &Context, namespace: &str, etcd: &OwnerReference) -> Result<bool> {
    let resource = match context.shared.kinds.find(ETCD_CLUSTER.0, ETCD_CLUSTER.1, ETCD_PROVIDER_CONTRACTS).await {
        Ok(resource) => resource,
        Err(error) if error.is_user_error() => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let live = apply::get_live(&context.shared.client, &resource, namespace, &etcd.name).await?;
    Ok(live.is_some_and(|live| live.metadata.uid.as_deref() == Some(&*etcd.uid)))
}

/// Whether the API server serves no version of the kind that we could use.
fn is_not_served(error: &Error) -> bool {
    error.is_not_found() || matches!(error, Error::Kind(error) if error.is_user_error())
}

/// If the controller of MachinePools has not made the Cluster the owner of a MachinePool within this time, no
/// controller looks after that MachinePool.
const ADOPTION: SignedDuration = SignedDuration::from_mins(5);

/// Whether Cluster API looks after a MachinePool, and so waits for it. It does not if its feature gate is off. Once it
/// has deleted everything that the Cluster owns, a MachinePool with this owner is being deleted too. If that is not so,
/// Cluster API does not wait for this MachinePool, and nobody deletes it. With the gate on, Cluster API also waits for
/// MachinePools of the Cluster that the Cluster does not own: a MachinePool gets its owner from its own controller.
///
/// Source: Cluster API 1.14.0, reconcileDelete and getDescendants of core/reconcilers/cluster.
fn is_looked_after(machine_pool: &ObjectMeta, cluster: &ClusterState, now: Timestamp) -> bool {
    let owned = machine_pool.owner_references.iter().flatten().any(|owner| owner.uid == cluster.view.uid);
    let created = machine_pool.creation_timestamp.as_ref();
    let young = created.is_some_and(|created| now.duration_since(created.0) < ADOPTION);
    !cluster.children_deleted || machine_pool.deletion_timestamp.is_some() || (young && !owned)
}

/// Every object of the Cluster that is of this kind of Cluster API. One request.
async fn of_cluster(
    context: &Context,
    cluster: &ClusterState,
    kind: &str,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>> {
    let selector = ListParams::default().labels(&format!("{}={}", names::CLUSTER_NAME_LABEL, cluster.view.name));
    let list = |resource: ApiResource| {
        let objects = apply::dynamic(&context.shared.client, &resource, &cluster.view.namespace);
        let selector = selector.clone();
        async move { objects.list_metadata(&selector).await }
    };
    let (kinds, doing) = (&context.shared.kinds, format!("listing {kind}s"));
    Ok(kinds.ask_unwatched((names::CLUSTER_GROUP, kind), CLUSTER_API_CONTRACTS, &doing, list).await?.items)
}

/// Group and kind of this project's etcd.
const ETCD_CLUSTER: (&str, &str) = (names::ETCD_CLUSTER_GROUP, "EtcdCluster");

/// Whether a Machine belongs neither to a control plane nor to any etcd. If the Cluster named another etcd before, the
/// Machines of that etcd may still exist. They are deleted together with it, after the workers. A Machine that etcd has
/// left behind may have lost its label and its owner, but it waits for us by its hook.
fn is_worker(machine: &ObjectMeta, providers: &[(String, String)]) -> bool {
    let provider = |owner: &OwnerReference| {
        let group = api_group(&owner.api_version);
        providers.iter().any(|known| *known == (group.to_owned(), owner.kind.clone()))
    };
    let has = |map: &Option<BTreeMap<String, String>>, key| map.as_ref().is_some_and(|map| map.contains_key(key));
    let of_etcd = has(&machine.labels, names::ETCD_CLUSTER_LABEL)
        || has(&machine.annotations, names::PRE_TERMINATE_HOOK_ANNOTATION)
        || machine.owner_references.iter().flatten().any(|owner| owner.controller == Some(true) && provider(owner));
    !has(&machine.labels, CONTROL_PLANE_LABEL) && !of_etcd
}

#[cfg(test)]
mod tests {
    use super::*;
    use controller_support::KindError;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::core::Status;
    use serde_json::json;

    #[test]
    fn machine_pools_that_cluster_api_does_not_look_after_are_not_waited_for() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let age = ADOPTION.as_secs();
        let cluster = |reason: &str| {
            let conditions = json!([{"type": "Deleting", "status": "True", "reason": reason}]);
            let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": "demo", "uid": "cluster-2"}, "status": {"conditions": conditions}});
            ClusterState::read(&serde_json::from_value(cluster).unwrap())
        };
        for (deleting, owner, deleted, age, expected) in [
            ("", "cluster-2", false, age, true),
            ("", "cluster-2", true, age, true),
            ("WaitingForWorkersDeletion", "cluster-2", true, age, true),
            ("WaitingForWorkersDeletion", "cluster-2", false, age, false),
            ("WaitingForWorkersDeletion", "cluster-2", false, 0, false),
            // Its controller may be about to adopt it, or a restore has removed its owner.
            ("WaitingForWorkersDeletion", "", false, 0, true),
            ("WaitingForWorkersDeletion", "", false, age - 1, true),
            ("WaitingForWorkersDeletion", "", false, age, false),
            ("WaitingForWorkersDeletion", "cluster-1", false, age - 1, true),
            ("WaitingForWorkersDeletion", "cluster-1", false, age, false),
        ] {
            let pool = ObjectMeta {
                creation_timestamp: Some(Time(at(0))),
                deletion_timestamp: deleted.then(|| Time(at(0))),
                owner_references: Some(vec![OwnerReference { uid: owner.to_owned(), ..OwnerReference::default() }]),
                ..ObjectMeta::default()
            };
            let case = format!("{deleting} {owner} {deleted} {age}");
            assert_eq!(is_looked_after(&pool, &cluster(deleting), at(age)), expected, "{case}");
        }
    }

    #[test]
    fn a_kind_that_is_not_served_is_told_from_an_api_server_that_does_not_answer() {
        let kind = || "MachinePool.cluster.x-k8s.io".to_owned();
        let answered = |code| {
            let status = Status { code, ..Status::default() };
            Box::new(kube::Error::Api(Box::new(status)))
        };
        let listed = |code| Error::Api { doing: "listing MachinePools".to_owned(), source: answered(code) };
        let looked_up = |code| Error::Kind(KindError::Api { kind: kind(), source: answered(code) });
        let label = "cluster.x-k8s.io/v1beta2".to_owned();
        for (error, expected) in [
            (Error::Kind(KindError::NotServed { kind: kind() }), true),
            (Error::Kind(KindError::NoContract { kind: kind(), label }), true),
            (listed(404), true),
            (listed(403), false),
            (listed(503), false),
            (looked_up(503), false),
        ] {
            assert_eq!(is_not_served(&error), expected, "{error}");
        }
    }

    #[test]
    fn machines_of_an_etcd_cluster_are_known_by_their_owner() {
        let owner = |api_version: &str, kind: &str| OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            ..OwnerReference::default()
        };
        assert!(is_etcd(&owner("etcdcluster.cluster.x-k8s.io/v1alpha4", "EtcdCluster")));
        assert!(!is_etcd(&owner("example.org/v1", "EtcdCluster")));
        assert!(!is_etcd(&owner("cluster.x-k8s.io/v1beta2", "Cluster")));
    }

    #[test]
    fn machines_of_the_control_plane_and_of_any_etcd_are_not_workers() {
        let providers = [("example.org".to_owned(), "OtherEtcd".to_owned())];
        let is_worker = |labels: &BTreeMap<_, _>, owners: &[OwnerReference]| {
            let (labels, owners) = (Some(labels.clone()), Some(owners.to_vec()));
            is_worker(&ObjectMeta { labels, owner_references: owners, ..ObjectMeta::default() }, &providers)
        };
        let label = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let owner = |api_version: &str, kind: &str, controller| OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            controller: Some(controller),
            ..OwnerReference::default()
        };
        let none = BTreeMap::new();
        assert!(!is_worker(&label(CONTROL_PLANE_LABEL, ""), &[]));
        assert!(!is_worker(&none, &[owner("example.org/v1", "OtherEtcd", true)]));
        assert!(!is_worker(&label(names::ETCD_CLUSTER_LABEL, "demo-etcd"), &[]));
        assert!(
            !is_worker(&label(names::ETCD_CLUSTER_LABEL, "named before"), &[]),
            "it would keep the Cluster forever"
        );
        let set = owner("cluster.x-k8s.io/v1beta2", "MachineSet", true);
        assert!(is_worker(&none, &[owner("example.org/v1", "OtherEtcd", false), set]));
        assert!(is_worker(&none, &[owner("example.com/v1", "OtherEtcd", true)]), "a kind of another group");
        assert!(is_worker(&none, &[]));
        let hook = Some(label(names::PRE_TERMINATE_HOOK_ANNOTATION, names::PRE_TERMINATE_HOOK_OWNER));
        let left = ObjectMeta { annotations: hook, ..ObjectMeta::default() };
        assert!(!super::is_worker(&left, &providers), "nobody would take its hook away before it is gone");
    }
}
