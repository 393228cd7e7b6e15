//! A move to another management cluster: how far it is, and what stands in the way of it. Pure.
//!
//! `clusterctl move` makes all objects in the target, then deletes all in the source, the Clusters last. It can be run
//! again in the first half, when what it has made in the target is taken away there: else it writes over that, with the
//! source at work. Not in the second: it takes the annotations of what it deletes away, and would carry that over.

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

/// Name of the Node that Machines of etcd are said to have, as clusterctl moves no Machine without one. No Node has it.
pub const NODE: &str = "etcd-has-no-node";

/// Clusters, as a resource with its group.
pub const CLUSTERS: &str = "clusters.cluster.x-k8s.io";
/// ClusterClasses, likewise.
pub const CLASSES: &str = "clusterclasses.cluster.x-k8s.io";
/// EtcdClusters, likewise.
pub const ETCD_CLUSTERS: &str = "etcdclusters.etcdcluster.cluster.x-k8s.io";
const MACHINES: &str = "machines.cluster.x-k8s.io";
const SECRETS: &str = "secrets";
/// The kinds that tell whether there is anything to move: Cluster API's own, and ours.
const TELLING: [&str; 3] = [CLUSTERS, ETCD_CLUSTERS, MACHINES];

/// Label on the CRDs of kinds that clusterctl knows.
pub const CLUSTERCTL_LABEL: &str = "clusterctl.cluster.x-k8s.io";

/// Field managers whose pauses of Clusters and ClusterClasses are those of a move. clusterctl names none, and the API
/// server takes the first word of its user agent (`cmd/clusterctl/client/cluster/proxy.go` of 1.14.0).
const MOVERS: [&str; 2] = ["clusterctl", FIELD_MANAGER];
/// Where the pause of a Cluster is, as clusterctl sets it.
pub const CLUSTER_PAUSE: [&str; 2] = ["spec", "paused"];
/// Where that of a ClusterClass is.
pub const CLASS_PAUSE: [&str; 3] = ["metadata", "annotations", names::PAUSED_ANNOTATION];

/// Whether a pause is that of a move, and nobody else's as well. What others have paused stays so.
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

/// What the namespace in one of the two management clusters has, as far as a move is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// What clusterctl moves, as resource with group, and name.
    pub objects: BTreeSet<(String, String)>,
    /// What there is besides of the kinds that it looks at.
    pub staying: BTreeSet<(String, String)>,
    /// clusterctl's mark is on something that is moved: it is about to be deleted.
    pub marked: bool,
    /// Something that is moved is being deleted.
    pub deleting: bool,
    /// The pause of a move is on something that is moved.
    pub moving: bool,
    /// Every Cluster has `spec.paused`.
    pub paused: bool,
}

impl Side {
    fn is_empty(&self) -> bool {
        !self.objects.iter().any(|(resource, _)| TELLING.contains(&resource.as_str()))
    }

    /// What is left, for people.
    #[must_use]
    pub fn left(&self) -> String {
        self.objects.iter().map(|(resource, name)| format!("{resource}/{name}")).collect::<Vec<_>>().join(", ")
    }
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is nothing to move.
    Nothing,
    /// Nothing is in the target yet.
    NotBegun,
    /// Something is in the target, and everything in the source still. Both are paused.
    Created,
    /// The same, and what is in the target is being deleted: the move is being given up.
    GivingUp,
    /// Everything is in the target, and something has gone from the source already. Both are paused.
    Leaving,
    /// Everything is in the target alone.
    Arrived,
    /// Both sides have something, and no move is under way: one of them is not paused, or the target has it from
    /// elsewhere, or something that the source never had.
    Unclear,
}

/// Tells from the two sides how far a move is. What the target has and the source has not was deleted there by
/// clusterctl: nothing else deletes anything, as long as both sides are paused. clusterctl makes the Clusters first, which
/// do not carry the pause of a move, and deletes them last: one side at least has something that does. It pauses them
/// itself, and wants them resumed before it is run again.
///
/// What is deleted in the target while the source has everything was deleted there to give the move up. clusterctl
/// would write into what is on its way out, and delete the source then.
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

/// What the target has already: clusterctl would write over it, nobody could tell it from what the move has made, and
/// giving up would delete it.
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

/// Why a Cluster keeps a namespace from being moved: it uses a ClusterClass across namespaces. clusterctl pauses such a
/// class, and leaves it behind, paused.
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

/// Secrets that etcd needs in the target and that would stay behind: a CA of a user's own, and those the spec names.
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

/// Objects that etcd needs in the target and that would stay behind because of their owners. Of what stays with its owner,
/// the owner alone is said. `resources`: the kinds that clusterctl looks at, as `Kind.group`, each with its resource.
#[must_use]
pub fn of_staying(snapshot: &Snapshot, resources: &BTreeMap<String, String>, source: &Side) -> Vec<String> {
    let stays = |resource: &str, name: &str| source.staying.contains(&(resource.to_owned(), name.to_owned()));
    let of_kind = |kind: &str, group: &str| resources.get(&format!("{kind}.{group}"));
    if let Some(cluster) = snapshot.cluster.as_ref().filter(|cluster| stays(CLUSTERS, &cluster.name)) {
        return with_name(snapshot, vec![with_owner_that_stays(&format!("Cluster {}", cluster.name))]);
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

/// What is said of an object that clusterctl's label would have moved.
fn without_label(namespace: &str, kind: &str, resource: &str, name: &str) -> String {
    format!(
        "{kind} {name} would stay behind: clusterctl moves it with its owner or if it has a label, but not if it has an owner that stays. Take any such owner out of metadata.ownerReferences of the object, and set the label: kubectl -n {namespace} label {resource} {name} {}=",
        names::MOVE_LABEL
    )
}

/// What is said of one that no label would have moved.
fn with_owner_that_stays(what: &str) -> String {
    format!(
        "{what} would stay behind, with all that it owns, because clusterctl does not move an object that has an owner that stays. Take that owner out of metadata.ownerReferences of the object"
    )
}

/// What keeps an EtcdCluster from being moved now. `movable`: the kinds that clusterctl moves, as `Kind.group`.
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

/// Pauses of others would be lost, or moved and never lifted.
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

/// What clusterctl would leave behind, or refuse.
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

/// What a move would lose: a status is not moved, nor is a deletion.
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

/// Whether its controller has said that it does nothing.
#[must_use]
pub fn says_paused(snapshot: &Snapshot) -> bool {
    snapshot.etcd.status.as_ref().is_some_and(|status| is_true(&status.conditions, PAUSED))
}

/// Why an EtcdCluster that has arrived may not go on yet: its controller has not found the same etcd again, with all
/// members.
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
