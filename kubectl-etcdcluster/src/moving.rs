//! A move to another management cluster: its progress, and its obstacles. Pure.
//!
//! `clusterctl move` makes all objects in the target, and then deletes all in the source, the Clusters last. In the
//! first half, it can be run again after the objects that it has made in the target are deleted: otherwise it
//! overwrites them while the source is at work. In the second half, it cannot be run again: it removes the annotations
//! of the objects that it deletes, and would copy the objects to the target without these annotations.

mod graph;

use crate::FIELD_MANAGER;
use crate::snapshot::Snapshot;
use api::conditions::{AVAILABLE, PAUSED, is_true};
use api::etcd_cluster::MemberRole;
use api::names;
use controller_support::external::is_cluster;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use kube::api::{DynamicObject, ObjectMeta};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub use graph::{Found, Rank};

/// The name of the Node that Machines of etcd pretend to have, because clusterctl moves no Machine without a Node. No
/// Node has this name.
pub const NODE: &str = "etcd-has-no-node";

/// Clusters, as a resource with its group.
pub const CLUSTERS: &str = "clusters.cluster.x-k8s.io";
/// ClusterClasses, in the same form.
pub const CLASSES: &str = "clusterclasses.cluster.x-k8s.io";
/// EtcdClusters, in the same form.
pub const ETCD_CLUSTERS: &str = "etcdclusters.etcdcluster.cluster.x-k8s.io";
const MACHINES: &str = "machines.cluster.x-k8s.io";
const SECRETS: &str = "secrets";
/// The kinds whose objects show that there is something to move: those of the Cluster API core, and ours.
const TELLING: [&str; 3] = [CLUSTERS, ETCD_CLUSTERS, MACHINES];

/// Label on the CRDs of kinds that clusterctl knows.
pub const CLUSTERCTL_LABEL: &str = "clusterctl.cluster.x-k8s.io";

/// The field managers of a move: a pause of a Cluster or ClusterClass that they set belongs to the move. clusterctl
/// sets no field manager, and the API server uses the first word of its user agent
/// (`cmd/clusterctl/client/cluster/proxy.go` of 1.14.0).
const MOVERS: [&str; 2] = ["clusterctl", FIELD_MANAGER];
/// The path of a Cluster's pause, which clusterctl sets.
pub const CLUSTER_PAUSE: [&str; 2] = ["spec", "paused"];
/// The path of a ClusterClass's pause.
pub const CLASS_PAUSE: [&str; 3] = ["metadata", "annotations", names::PAUSED_ANNOTATION];

/// Whether only a move has set a pause. A pause that somebody else has set too stays.
#[must_use]
pub fn is_of_move(object: &ObjectMeta, pause: &[&str]) -> bool {
    let sets_it = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        pause.iter().fold(fields, |value, key| value?.get(format!("f:{key}"))).is_some()
    };
    let set_by: Vec<&str> = object
        .managed_fields
        .iter()
        .flatten()
        .filter(sets_it)
        .map(|entry| entry.manager.as_deref().unwrap_or_default())
        .collect();
    !set_by.is_empty() && set_by.iter().all(|manager| MOVERS.contains(manager))
}

/// The state of the namespace in one of the two management clusters, as far as a move is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// The objects that clusterctl moves, as resource with group, and name.
    pub objects: BTreeSet<(String, String)>,
    /// The other objects of the kinds that clusterctl discovers.
    pub staying: BTreeSet<(String, String)>,
    /// clusterctl's mark is on an object that is moved: the object is about to be deleted.
    pub marked: bool,
    /// An object that is moved is being deleted.
    pub deleting: bool,
    /// An object that is moved has the pause of a move.
    pub moving: bool,
    /// Every Cluster has `spec.paused`.
    pub paused: bool,
}

impl Side {
    fn is_empty(&self) -> bool {
        !self.objects.iter().any(|(resource, _)| TELLING.contains(&resource.as_str()))
    }

    /// The objects that are left, for users.
    #[must_use]
    pub fn left(&self) -> String {
        self.objects.iter().map(|(resource, name)| format!("{resource}/{name}")).collect::<Vec<_>>().join(", ")
    }
}

/// The progress of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is nothing to move.
    Nothing,
    /// The target has nothing yet.
    NotBegun,
    /// The target has something, and the source still has everything. Both are paused.
    Created,
    /// The same, and the objects in the target are being deleted: the move is being given up.
    GivingUp,
    /// The target has everything, and something is already gone from the source. Both are paused.
    Leaving,
    /// Only the target has everything.
    Arrived,
    /// Both sides have something, but no move is under way: a side is not paused, or the objects in the target are from
    /// elsewhere, or the target has something that the source never had.
    Unclear,
}

/// Derives the progress of a move from the two sides. If an object is in the target and not in the source, clusterctl
/// has deleted it in the source: while both sides are paused, nothing else deletes anything. clusterctl makes the
/// Clusters first and deletes them last, and they do not have the pause of a move. So at least one side has an object
/// with this pause. clusterctl pauses the Clusters itself, and they have to be resumed before it is run again.
///
/// If an object in the target is being deleted while the source has everything, the move is being given up. If
/// clusterctl ran now, it would write into objects that are being deleted, and then delete the source.
#[must_use]
pub fn progress(source: &Side, target: &Side) -> Progress {
    let is_under_way = source.moving || (source.paused && target.moving);
    let goes = target.marked || target.deleting;
    match (source.is_empty(), target.is_empty()) {
        (true, _) if target.moving => Progress::Arrived,
        (true, _) => Progress::Nothing,
        (false, true) => Progress::NotBegun,
        (false, false) if !is_under_way || !target.paused => Progress::Unclear,
        (false, false) if !source.marked && target.objects.is_subset(&source.objects) => {
            if goes {
                Progress::GivingUp
            } else {
                Progress::Created
            }
        }
        // clusterctl deletes nothing before everything is made.
        (false, false) if source.paused && !goes && source.objects.is_subset(&target.objects) => Progress::Leaving,
        (false, false) => Progress::Unclear,
    }
}

/// The objects that the target already has. clusterctl would overwrite them, nobody could distinguish them from those
/// of the move, and giving up would delete them.
#[must_use]
pub fn of_target(source: &Side, target: &Side) -> Vec<String> {
    let same = target.staying.intersection(&source.objects);
    let there = target.objects.iter().chain(same);
    let say = |(resource, name): &(String, String)| {
        format!(
            "the namespace in the target has {resource}/{name} already: delete it there, or --undo if an earlier move has left it"
        )
    };
    there.map(say).collect()
}

/// Why a Cluster prevents the move of a namespace: it uses a ClusterClass of another namespace. clusterctl pauses such
/// a class, and leaves it behind, paused.
#[must_use]
pub fn shared_class(cluster: &DynamicObject, namespace: &str) -> Option<String> {
    let text = |path: &str| cluster.data.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    let class = text("/spec/topology/classRef/name").or_else(|| text("/spec/topology/class"))?;
    let (own, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let other = text("/spec/topology/classRef/namespace").or_else(|| text("/spec/topology/classNamespace"));
    let of = other.unwrap_or(&own);
    ((own == namespace) != (of == namespace)).then(|| {
        format!(
            "Cluster {own}/{name} uses ClusterClass {of}/{class} of another namespace, which clusterctl would leave behind, paused: give the Cluster a class of its own namespace"
        )
    })
}

/// Secrets that etcd needs in the target and that would stay behind: a CA from a user, and the Secrets that the spec
/// names.
#[must_use]
pub fn of_secrets(snapshot: &Snapshot, source: &Side) -> Vec<String> {
    let spec = &snapshot.etcd.spec.etcdadm_config_spec;
    let of_files = spec.files.iter().filter_map(|file| file.content_from.as_ref());
    let of_users = spec.users.iter().filter_map(|user| user.passwd_from.as_ref());
    let named = of_files.chain(of_users).map(|from| from.secret.name.clone());
    let ca = snapshot.cluster.iter().map(|cluster| names::ca_secret(&cluster.name));
    let needed: BTreeSet<(String, String)> = ca.chain(named).map(|name| (SECRETS.to_owned(), name)).collect();
    let namespace = snapshot.etcd.namespace().unwrap_or_default();
    let say = |(_, name): &(String, String)| without_label(&namespace, "Secret", "secret", name);
    with_name(snapshot, needed.intersection(&source.staying).map(say).collect())
}

/// Clusters of the namespace that would stay behind, with an EtcdCluster or without one. clusterctl pauses every Cluster,
/// and fails when it is to resume in the target what it has not moved.
#[must_use]
pub fn of_clusters(namespace: &str, source: &Side) -> Vec<String> {
    let staying = source.staying.iter().filter(|(resource, _)| resource == CLUSTERS);
    staying.map(|(_, name)| with_owner_that_stays(&format!("Cluster {namespace}/{name}"))).collect()
}

/// Objects that etcd needs in the target and that would stay behind because of their owners. If an owner stays, only
/// the owner is reported, not what stays with it, and for a Cluster [`of_clusters`] does that. `resources`: the kinds
/// that clusterctl discovers, as `Kind.group`, each with its resource.
#[must_use]
pub fn of_staying(snapshot: &Snapshot, resources: &BTreeMap<String, String>, source: &Side) -> Vec<String> {
    let stays = |resource: &str, name: &str| source.staying.contains(&(resource.to_owned(), name.to_owned()));
    let of_kind = |kind: &str, group: &str| resources.get(&format!("{kind}.{group}"));
    if snapshot.cluster.as_ref().is_some_and(|cluster| stays(CLUSTERS, &cluster.name)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    if stays(ETCD_CLUSTERS, &snapshot.etcd.name_any()) {
        found.push(with_owner_that_stays("it"));
    } else {
        for machine in &snapshot.machines {
            if stays(MACHINES, &machine.view.name) {
                found.push(with_owner_that_stays(&format!("Machine {}", machine.view.name)));
            } else if let Some(infrastructure) = &machine.view.infrastructure
                && let Some(resource) = of_kind(&infrastructure.kind, &infrastructure.group)
                && stays(resource, &infrastructure.name)
            {
                found.push(with_owner_that_stays(&format!("{} {}", infrastructure.kind, infrastructure.name)));
            }
        }
    }
    let template = &snapshot.etcd.spec.infrastructure_template;
    if let Some(resource) = of_kind(&template.kind, template.group())
        && stays(resource, &template.name)
    {
        let namespace = snapshot.etcd.namespace().unwrap_or_default();
        found.push(without_label(&namespace, &template.kind, resource, &template.name));
    }
    with_name(snapshot, found)
}

/// The message about an object that clusterctl would move if it had the label.
fn without_label(namespace: &str, kind: &str, resource: &str, name: &str) -> String {
    format!(
        "{kind} {name} would stay behind: clusterctl moves it with its owner or if it has a label, but not if it has an owner that stays. Take any such owner out of metadata.ownerReferences of the object, and set the label: kubectl -n {namespace} label {resource} {name} {}=",
        names::MOVE_LABEL
    )
}

/// The message about an object that no label would make clusterctl move.
fn with_owner_that_stays(what: &str) -> String {
    format!(
        "{what} would stay behind, with all that it owns, because clusterctl does not move an object that has an owner that stays. Take that owner out of metadata.ownerReferences of the object"
    )
}

/// What prevents the move of an EtcdCluster now. `movable`: the kinds that clusterctl moves, as `Kind.group`.
#[must_use]
pub fn of_etcd_cluster(snapshot: &Snapshot, movable: &BTreeSet<String>) -> Vec<String> {
    let mut found = of_pauses(snapshot);
    found.extend(of_objects(snapshot, movable));
    if snapshot.etcd.status.as_ref().is_none_or(|status| !status.creation_complete) {
        found.push("it has not been complete yet".to_owned());
    }
    found.extend(of_members(snapshot));
    with_name(snapshot, found)
}

/// The same, with the name of the EtcdCluster.
fn with_name(snapshot: &Snapshot, found: Vec<String>) -> Vec<String> {
    let (namespace, name) = (snapshot.etcd.namespace().unwrap_or_default(), snapshot.etcd.name_any());
    found.into_iter().map(|what| format!("EtcdCluster {namespace}/{name}: {what}")).collect()
}

/// Pauses by others. They would be lost, or moved and never removed.
fn of_pauses(snapshot: &Snapshot) -> Vec<String> {
    let pause = snapshot.etcd.annotations().get(names::PAUSED_ANNOTATION);
    let others = |value: &str| value != names::PAUSED_FOR_MOVE_VALUE;
    let mut found = Vec::new();
    if pause.is_some_and(|value| others(value)) {
        found.push("it is paused by somebody: end that first (kubectl etcdcluster rollout resume)".to_owned());
    }
    for machine in &snapshot.machines {
        if machine.view.annotations.get(names::PAUSED_ANNOTATION).is_some_and(|value| others(value)) {
            found.push(format!("Machine {} is paused by somebody: end that first", machine.view.name));
        }
    }
    found
}

/// Objects that clusterctl would leave behind, or refuse to move.
fn of_objects(snapshot: &Snapshot, movable: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    match &snapshot.cluster {
        None => found.push("no Cluster names it".to_owned()),
        Some(cluster) if cluster.deleting => found.push(format!("Cluster {} is being deleted", cluster.name)),
        Some(_) => {}
    }
    if snapshot.etcd.metadata.deletion_timestamp.is_some() {
        found.push("it is being deleted".to_owned());
    }
    if !snapshot.etcd.owner_references().iter().any(is_cluster) {
        found.push("no Cluster owns it, so it would not be moved with one".to_owned());
    }
    let kinds = snapshot.machines.iter().filter_map(|machine| machine.view.infrastructure.as_ref());
    let kinds: BTreeSet<String> = kinds.map(|reference| format!("{}.{}", reference.kind, reference.group)).collect();
    for kind in kinds.difference(movable) {
        found.push(format!(
            "{kind} would stay behind: its CRD has no label {CLUSTERCTL_LABEL} here, or does not exist in the target"
        ));
    }
    found
}

/// What a move would lose: neither a status nor a deletion is moved.
fn of_members(snapshot: &Snapshot) -> Vec<String> {
    let status = snapshot.etcd.status.clone().unwrap_or_default();
    let mut found = Vec::new();
    if snapshot.etcd.annotations().contains_key(names::BLOCK_MOVE_ANNOTATION) {
        found.push(format!("its controller says that it must not be moved now ({})", names::BLOCK_MOVE_ANNOTATION));
    }
    if !is_true(&status.conditions, AVAILABLE) {
        found.push("it is not Available: a quorum of its members is not well, or is not known to be".to_owned());
    }
    if let Some(begun) = &status.operation {
        found.push(format!("{:?} of member {} is under way", begun.kind, begun.member_id));
    }
    if !status.removed_members.is_empty() || !status.released_machine_uids.is_empty() {
        found.push("a member has left whose Machine is there still".to_owned());
    }
    let machines: BTreeSet<&str> = snapshot.machines.iter().map(|machine| machine.view.name.as_str()).collect();
    let voters = status.members.iter().filter(|member| member.role == MemberRole::Voter);
    let voters: BTreeSet<&str> = voters.map(|member| member.machine.as_str()).collect();
    let deleted = snapshot.machines.iter().filter(|machine| machine.view.deleting);
    found.extend(deleted.map(|machine| format!("Machine {} is being deleted", machine.view.name)));
    if machines != voters || status.members.len() != voters.len() {
        found.push("not every Machine has a member that votes, or not every member a Machine".to_owned());
    }
    if usize::try_from(snapshot.etcd.spec.replicas) != Ok(machines.len()) {
        found.push(format!("it has {} Machines, and {} are wanted", machines.len(), snapshot.etcd.spec.replicas));
    }
    found
}

/// Whether its controller reports that it does nothing.
#[must_use]
pub fn says_paused(snapshot: &Snapshot) -> bool {
    snapshot.etcd.status.as_ref().is_some_and(|status| is_true(&status.conditions, PAUSED))
}

/// Why an EtcdCluster in the target may not be resumed yet: its controller has not found the same etcd with all members
/// again.
#[must_use]
pub fn not_found_again(snapshot: &Snapshot) -> Option<String> {
    let status = snapshot.etcd.status.clone().unwrap_or_default();
    let recorded = snapshot.etcd.annotations().get(names::CLUSTER_ID_ANNOTATION);
    if recorded.is_none() || recorded != Some(&status.cluster_id) {
        return Some(format!("its etcd is {recorded:?}, and {:?} is found", status.cluster_id));
    }
    let healthy = usize::try_from(status.ready_replicas).unwrap_or(0);
    let odd = of_members(snapshot).into_iter().next();
    odd.or_else(|| {
        (healthy < snapshot.machines.len())
            .then(|| format!("{healthy} of its {} members have answered", snapshot.machines.len()))
    })
}

#[cfg(test)]
mod tests;
