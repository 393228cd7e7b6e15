//! Which objects of a namespace `clusterctl move` moves, and which it leaves behind. Pure.
//!
//! Source: `objectgraph.go` and `getMoveSequence` of `mover.go`, clusterctl 1.14.0. clusterctl follows owner
//! references, by UID, from the roots. These are Clusters, ClusterClasses, ClusterResourceSets, and objects that have
//! its label for a hierarchy, or whose CRD has it. A Secret without owners belongs to the Cluster with whose name its
//! own name begins. clusterctl also moves objects with its other label, without what they own. It moves no object with
//! an owner that is not moved, whatever labels the object has.

use super::{CLASSES, CLUSTERS, SECRETS, Side};
use api::names;
use kube::api::ObjectMeta;
use std::collections::BTreeSet;

/// Kinds whose objects are roots without a label.
const LEADING: [&str; 3] = [CLUSTERS, CLASSES, "clusterresourcesets.addons.cluster.x-k8s.io"];
/// Each binding belongs to the Cluster with its name. In a similar way, a Secret may belong to a Cluster.
const BINDINGS: &str = "clusterresourcesetbindings.addons.cluster.x-k8s.io";
/// What follows the name of the Cluster in the name of a Secret. clusterctl looks only at what comes after the last dash,
/// so it does not know an `apiserver-etcd-client` by its name (`ParseSecretName` in Cluster API's `util/secret`).
const PURPOSES: [&str; 5] = ["-kubeconfig", "-ca", "-etcd", "-sa", "-proxy"];

/// What the labels of an object, or of its CRD, mean for clusterctl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// The object is moved without what it owns.
    labelled: bool,
    /// The object is a root: it is moved with all that it owns.
    leads: bool,
}

impl Rank {
    /// Reads the labels of an object or of a CRD.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        let has = |label: &str| metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label));
        Self { labelled: has(names::MOVE_LABEL), leads: has(names::MOVE_HIERARCHY_LABEL) }
    }

    fn or(self, other: Self) -> Self {
        Self { labelled: self.labelled || other.labelled, leads: self.leads || other.leads }
    }
}

/// An object of a kind that clusterctl discovers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    resource: String,
    name: String,
    uid: String,
    /// The UIDs of its owners.
    owners: Vec<String>,
    rank: Rank,
    marked: bool,
    deleting: bool,
    moving: bool,
}

impl Found {
    /// Reads an object. `resource`: with its group, like the name of a CRD. `kind`: the labels of its CRD.
    #[must_use]
    pub fn read(resource: &str, kind: Rank, metadata: &ObjectMeta) -> Self {
        let annotation = |name: &str| metadata.annotations.as_ref().and_then(|annotations| annotations.get(name));
        let owners = metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone());
        let pause = annotation(names::PAUSED_ANNOTATION);
        Self {
            resource: resource.to_owned(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            owners: owners.collect(),
            rank: Rank::of(metadata).or(kind).or(Rank { leads: LEADING.contains(&resource), ..Rank::default() }),
            marked: annotation(names::DELETE_FOR_MOVE_ANNOTATION).is_some(),
            deleting: metadata.deletion_timestamp.is_some(),
            moving: pause.is_some_and(|value| value == names::PAUSED_FOR_MOVE_VALUE),
        }
    }

    /// The Cluster that it belongs to only by its name.
    fn cluster(&self) -> Option<&str> {
        match self.resource.as_str() {
            SECRETS if self.owners.is_empty() => PURPOSES.iter().find_map(|purpose| self.name.strip_suffix(*purpose)),
            BINDINGS => Some(&self.name),
            _ => None,
        }
    }
}

impl Side {
    /// The side that has these objects. Does not determine whether its Clusters are paused.
    #[must_use]
    pub fn of(found: &[Found]) -> Self {
        let moved = moved(found);
        let mut side = Self::default();
        for object in found {
            let named = (object.resource.clone(), object.name.clone());
            if !moved.contains(object.uid.as_str()) {
                side.staying.insert(named);
                continue;
            }
            side.objects.insert(named);
            side.marked |= object.marked;
            side.deleting |= object.deleting;
            side.moving |= object.moving;
        }
        side
    }
}

/// The UIDs of the objects that are moved.
fn moved(found: &[Found]) -> BTreeSet<&str> {
    let clusters: BTreeSet<&str> =
        found.iter().filter(|object| object.resource == CLUSTERS).map(|object| object.name.as_str()).collect();
    let leads = |object: &Found| object.rank.leads || object.cluster().is_some_and(|name| clusters.contains(name));
    let below =
        grown(found, |object, below| leads(object) || object.owners.iter().any(|owner| below.contains(owner.as_str())));
    grown(found, |object, moved| {
        let is_wanted = object.rank.labelled || below.contains(object.uid.as_str());
        is_wanted && object.owners.iter().all(|owner| moved.contains(owner.as_str()))
    })
}

/// The UIDs of all objects that belong to a set. Each object in the set may make more objects belong to it.
fn grown<'a>(found: &'a [Found], belongs: impl Fn(&Found, &BTreeSet<&'a str>) -> bool) -> BTreeSet<&'a str> {
    let mut set = BTreeSet::new();
    loop {
        let more: Vec<&str> = found
            .iter()
            .filter(|object| !set.contains(object.uid.as_str()) && belongs(object, &set))
            .map(|object| object.uid.as_str())
            .collect();
        if more.is_empty() {
            return set;
        }
        set.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moving::ETCD_CLUSTERS;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    /// An object whose UID is its name, with these owners and labels.
    fn object(resource: &str, name: &str, owners: &[&str], labels: &[&str]) -> Found {
        let owner = |uid: &&str| OwnerReference { uid: (*uid).to_owned(), ..OwnerReference::default() };
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            owner_references: Some(owners.iter().map(owner).collect()),
            labels: Some(labels.iter().map(|label| ((*label).to_owned(), String::new())).collect()),
            ..ObjectMeta::default()
        };
        Found::read(resource, Rank::default(), &metadata)
    }

    #[test]
    fn what_clusterctl_moves_is_told_from_what_it_leaves() {
        // Its CRD has the label.
        let kind = Rank { labelled: true, ..Rank::default() };
        let thing = ObjectMeta { uid: Some("thing".to_owned()), ..ObjectMeta::default() };
        let found = [
            object(CLUSTERS, "demo", &[], &[]),
            object(ETCD_CLUSTERS, "demo-etcd", &["demo"], &[]),
            // An owner may come later in the list.
            object(SECRETS, "bootstrap-data", &["config"], &[]),
            object("etcdadmconfigs.bootstrap.cluster.x-k8s.io", "config", &["demo-etcd"], &[]),
            object(CLASSES, "class", &[], &[]),
            object("templates.example.org", "template-of-class", &["class"], &[]),
            object(SECRETS, "demo-kubeconfig", &[], &[]),
            Found { uid: "binding".to_owned(), ..object(BINDINGS, "demo", &[], &[]) },
            object(SECRETS, "labelled", &[], &[names::MOVE_LABEL]),
            object("identities.example.org", "identity", &[], &[names::MOVE_HIERARCHY_LABEL]),
            object(SECRETS, "of-identity", &["identity"], &[]),
            Found::read("things.example.org", kind, &thing),
            // From here on, no object is moved.
            object(SECRETS, "demo-managed-etcd", &[], &[]),
            object(SECRETS, "demo-apiserver-etcd-client", &[], &[]),
            object(SECRETS, "demo-ca", &["certificate"], &[]),
            object(SECRETS, "labelled-and-owned", &["certificate"], &[names::MOVE_LABEL]),
            object(SECRETS, "half-owned", &["demo", "certificate"], &[]),
            object(SECRETS, "other-kubeconfig", &[], &[]),
            object(SECRETS, "below-labelled", &["labelled"], &[]),
            object("configmaps", "kube-root-ca.crt", &[], &[]),
        ];
        let side = Side::of(&found);
        let named = |set: &BTreeSet<(String, String)>| set.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>();
        let expected = |objects: &[Found]| {
            named(&objects.iter().map(|object| (object.resource.clone(), object.name.clone())).collect())
        };
        assert_eq!(named(&side.objects), expected(&found[..12]));
        assert_eq!(named(&side.staying), expected(&found[12..]));
    }

    #[test]
    fn what_says_how_far_a_move_is_counts_on_what_is_moved() {
        let changed = |change: fn(&mut Found)| {
            let mut found = [object(CLUSTERS, "demo", &[], &[]), object("configmaps", "other", &[], &[])];
            change(&mut found[0]);
            change(&mut found[1]);
            let alone = Side::of(&found[1..]);
            assert!(!alone.marked && !alone.deleting && !alone.moving, "{alone:?}");
            Side::of(&found)
        };
        assert!(changed(|found| found.marked = true).marked);
        assert!(changed(|found| found.deleting = true).deleting);
        assert!(changed(|found| found.moving = true).moving);
    }
}
