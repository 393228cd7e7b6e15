//! An etcd object of any provider, read through the etcd-provider contract.

use api::endpoints::{EndpointLists, parse_list};
use api::names;
use controller_support::external::{ClusterView, Reference, is_cluster};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

/// The etcd that a Cluster names.
#[derive(Clone, Debug, PartialEq)]
pub enum Etcd {
    /// The Cluster names none, or no longer one.
    NotNamed,
    /// It cannot be looked up.
    Invalid {
        /// What is wrong.
        message: String,
        /// Whether a change outside the Cluster object may correct this, so that a later look-up makes sense.
        retryable: bool,
    },
    /// The object does not exist.
    Missing(Reference),
    /// The object exists.
    Found(Box<EtcdView>),
}

/// Which Cluster an etcd object belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It carries our label and owner reference.
    Ours,
    /// It belongs to no Cluster yet, or our label and owner reference are incomplete.
    Free,
    /// It belongs to an earlier Cluster of the same name, or to a later one if our watch of Clusters is behind.
    OfNamesake,
    /// It belongs to the Cluster of this name.
    Theirs(String),
}

impl Claim {
    /// Whether our Cluster claims it, provided that our Cluster still exists.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Free | Self::OfNamesake)
    }
}

/// What the contract says about an etcd object.
#[derive(Clone, Debug, PartialEq)]
pub struct EtcdView {
    /// Group, kind and name.
    pub reference: Reference,
    /// `apiVersion` that it was read in.
    pub api_version: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// It is being deleted.
    pub deleting: bool,
    /// `status.ready`.
    pub ready: bool,
    /// `status.initialized`.
    pub initialized: bool,
    /// `status.endpoints`, else `status.endpoint`: sorted, each once.
    pub endpoints: Vec<String>,
    /// Lists of endpoints that are recorded on it as in use. None: there is no record.
    pub in_use: Option<EndpointLists>,
    /// It carries the annotation that confirms its deletion.
    pub deletion_confirmed: bool,
    /// The condition `Available` is True: it can be written to at its endpoints, whether it is ready or not.
    pub available: bool,
    /// Reason and message of the condition `Deleting` if that is True, else of `Ready` if that is not.
    pub condition: Option<(String, String)>,
    /// Owner references, to be kept when one is added.
    pub owners: Vec<OwnerReference>,
    /// Which Cluster it belongs to.
    pub claim: Claim,
    /// Another Cluster that names it and is not being deleted. Only read while our Cluster is being deleted.
    pub named_by_another: Option<String>,
    /// The Secrets that it owns carry this Cluster's label. Only read where neither label nor owner tell whose it is.
    pub has_our_secrets: bool,
}

impl EtcdView {
    /// Reads an etcd object. `exists` says whether its namespace has a Cluster of that name.
    pub fn read(
        object: &DynamicObject,
        reference: &Reference,
        cluster: &ClusterView,
        exists: impl Fn(&str) -> bool,
    ) -> Self {
        let status = &object.data["status"];
        let flag = |name: &str| status[name].as_bool().unwrap_or(false);
        Self {
            reference: reference.clone(),
            api_version: object.types.as_ref().map(|types| types.api_version.clone()).unwrap_or_default(),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            ready: flag("ready"),
            initialized: flag("initialized"),
            endpoints: endpoints(status),
            in_use: object.annotations().get(names::ENDPOINTS_IN_USE_ANNOTATION).map(|text| EndpointLists::parse(text)),
            deletion_confirmed: object.annotations().get(names::CONFIRM_DELETION_ANNOTATION) == Some(&reference.name),
            available: found(status, "Available").is_some_and(|condition| condition["status"] == "True"),
            condition: condition(status),
            owners: object.owner_references().to_vec(),
            claim: claim(object, cluster, exists),
            named_by_another: None,
            has_our_secrets: false,
        }
    }

    /// Looks at the Secrets of its namespace as well. An etcd that has lost its label and its owner, as by `kubectl
    /// replace`, still belongs to the Cluster whose label its own Secrets carry, if that Cluster exists. Otherwise
    /// another Cluster could claim it, and delete it together with itself. Before etcd has begun, there is nothing to
    /// lose: the etcd of a Cluster that named it by mistake is free for the right one.
    #[must_use]
    pub fn with_secrets<'a>(
        mut self,
        secrets: impl IntoIterator<Item = &'a DynamicObject>,
        cluster: &ClusterView,
        exists: impl Fn(&str) -> bool,
    ) -> Self {
        if self.claim == Claim::Free && !self.is_owned_by(cluster) {
            let is_its = |owner: &OwnerReference| owner.uid == self.uid;
            let its = secrets.into_iter().filter(|secret| secret.owner_references().iter().any(is_its));
            let (ours, others): (Vec<&String>, Vec<&String>) = its
                .filter_map(|secret| secret.labels().get(names::CLUSTER_NAME_LABEL))
                .partition(|name| **name == cluster.name);
            self.has_our_secrets = !ours.is_empty();
            if let Some(other) = others.into_iter().find(|name| self.has_begun() && exists(name)) {
                self.claim = Claim::Theirs(other.clone());
            }
        }
        self
    }

    /// Whether it may have data, by anything that its provider says: `status.initialized` alone is optional.
    fn has_begun(&self) -> bool {
        self.initialized || self.ready || self.available || !self.endpoints.is_empty() || self.in_use.is_some()
    }

    fn is_owned_by(&self, cluster: &ClusterView) -> bool {
        self.owners.iter().any(|owner| owner.uid == cluster.uid)
    }

    /// Whether it has been claimed by this Cluster: its label or its owner may be lost. An owner reference is proof, and
    /// so are its own Secrets. A label alone is not.
    pub fn is_left_by(&self, cluster: &ClusterView) -> bool {
        match self.claim {
            Claim::Ours | Claim::OfNamesake => true,
            Claim::Free => self.is_owned_by(cluster) || self.has_our_secrets,
            Claim::Theirs(_) => false,
        }
    }

    /// Its state for people, with the reason and message of its provider.
    pub fn describe(&self, how: &str) -> String {
        let reference = &self.reference;
        match &self.condition {
            Some((reason, message)) if message.is_empty() => format!("{reference} {how}: {reason}"),
            Some((reason, message)) => format!("{reference} {how}: {reason}: {message}"),
            None => format!("{reference} {how}"),
        }
    }

    /// Whether the live object may be claimed. It must be the one that was observed, with the same owners: it belongs
    /// to no Cluster, or still to the same namesake.
    pub fn is_still_open(&self, live: &Self) -> bool {
        let owned_as_observed = live.claim == self.claim && live.owners == self.owners;
        live.uid == self.uid && owned_as_observed && live.claim.is_open() && !live.deleting
    }

    /// Whether one of these endpoints is its own, or recorded on it as in use.
    pub fn has_one_of(&self, endpoints: &[String]) -> bool {
        let recorded = self.in_use.as_ref().map(EndpointLists::urls).unwrap_or_default();
        endpoints.iter().any(|endpoint| self.endpoints.contains(endpoint) || recorded.contains(endpoint.as_str()))
    }

    /// It may be handed over: it is Ready, it has endpoints to connect to, and it is not being deleted.
    pub fn usable(&self) -> bool {
        self.ready && !self.deleting && !self.endpoints.is_empty()
    }
}

fn endpoints(status: &Value) -> Vec<String> {
    let text = |name: &str| status[name].as_str().filter(|text| !text.trim().is_empty());
    list(text("endpoints").or_else(|| text("endpoint")).unwrap_or_default())
}

/// URLs between commas: sorted, each once.
pub(super) fn list(text: &str) -> Vec<String> {
    parse_list(text).into_iter().collect()
}

fn found<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

fn condition(status: &Value) -> Option<(String, String)> {
    let deleting = found(status, "Deleting").filter(|deleting| deleting["status"] == "True");
    let telling = deleting.or_else(|| found(status, "Ready").filter(|ready| ready["status"] != "True"))?;
    let text = |name: &str| telling[name].as_str().unwrap_or_default().to_owned();
    Some((text("reason"), text("message")))
}

/// An owner reference to a Cluster, be it another one or this one, is proof. A label alone may be left over from a
/// Cluster that is gone, or be copied from another Cluster that exists.
fn claim(object: &DynamicObject, cluster: &ClusterView, exists: impl Fn(&str) -> bool) -> Claim {
    let owners: Vec<&OwnerReference> = object.owner_references().iter().filter(|owner| is_cluster(owner)).collect();
    if let Some(other) = owners.iter().find(|owner| owner.name != cluster.name && owner.uid != cluster.uid) {
        return Claim::Theirs(other.name.clone());
    }
    let is_this_one = |owner: &&OwnerReference| owner.uid == cluster.uid;
    match object.labels().get(names::CLUSTER_NAME_LABEL) {
        Some(label) if *label != cluster.name && !owners.iter().any(is_this_one) && exists(label) => {
            Claim::Theirs(label.clone())
        }
        _ if owners.iter().any(|owner| cluster.is_namesake(owner)) => Claim::OfNamesake,
        Some(label) if *label == cluster.name && !owners.is_empty() => Claim::Ours,
        _ => Claim::Free,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cluster() -> ClusterView {
        let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "demo", "namespace": "default", "uid": "c1"}});
        ClusterView::read(&serde_json::from_value(cluster).unwrap())
    }

    fn read(metadata: &Value, status: &Value) -> EtcdView {
        let mut object =
            json!({"apiVersion": "example.org/v1", "kind": "Other", "metadata": metadata, "status": status});
        object["metadata"]["name"] = json!("demo-etcd");
        let reference =
            Reference { group: "example.org".to_owned(), kind: "Other".to_owned(), name: "demo-etcd".to_owned() };
        EtcdView::read(&serde_json::from_value(object).unwrap(), &reference, &cluster(), |name| name == "alive")
    }

    #[test]
    fn an_owner_without_the_label_is_enough_for_what_a_cluster_has_left() {
        let owner = json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "demo", "uid": "c1"}]);
        let is_left = |metadata: Value| read(&metadata, &Value::Null).is_left_by(&cluster());
        let label = json!({names::CLUSTER_NAME_LABEL: "demo"});
        assert!(is_left(json!({"labels": label, "ownerReferences": owner})));
        assert!(is_left(json!({"ownerReferences": owner})));
        assert!(!is_left(json!({"labels": label})), "a user may have written that, on an etcd that was never named");
        assert!(!is_left(json!({})));
    }

    #[test]
    fn endpoints_are_sorted_and_each_is_there_once() {
        let two = ["https://10.0.0.1:2379", "https://10.0.0.2:2379"];
        let list = " https://10.0.0.2:2379, https://10.0.0.1:2379,,https://10.0.0.2:2379";
        assert_eq!(read(&json!({}), &json!({"endpoints": list})).endpoints, two);
        assert_eq!(read(&json!({}), &json!({"endpoint": list, "endpoints": ""})).endpoints, two);
        assert!(read(&json!({}), &json!({"endpoints": " , "})).endpoints.is_empty());
    }

    #[test]
    fn ready_without_endpoints_or_while_going_away_is_not_usable() {
        let ready = json!({"ready": true, "endpoints": "https://10.0.0.1:2379"});
        assert!(read(&json!({}), &ready).usable());
        assert!(!read(&json!({}), &json!({"ready": true})).usable());
        assert!(!read(&json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), &ready).usable());
    }

    #[test]
    fn it_belongs_to_the_cluster_that_owns_it() {
        let owner =
            |uid: &str| json!([{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "x", "uid": uid}]);
        let label = |name: &str| json!({names::CLUSTER_NAME_LABEL: name});
        let claim = |metadata| read(&metadata, &json!({})).claim;
        assert_eq!(claim(json!({})), Claim::Free);
        assert_eq!(claim(json!({"labels": label("demo")})), Claim::Free, "a label alone is not enough");
        assert_eq!(claim(json!({"ownerReferences": owner("c1")})), Claim::Free, "nor is an owner alone");
        assert_eq!(claim(json!({"labels": label("demo"), "ownerReferences": owner("c1")})), Claim::Ours);
        assert_eq!(claim(json!({"labels": label("alive")})), Claim::Theirs("alive".to_owned()));
        assert_eq!(claim(json!({"labels": label("gone")})), Claim::Free);
        assert_eq!(
            claim(json!({"labels": label("alive"), "ownerReferences": owner("c1")})),
            Claim::Free,
            "the label is put right"
        );
        assert_eq!(
            claim(json!({"labels": label("demo"), "ownerReferences": owner("c2")})),
            Claim::Theirs("x".to_owned())
        );
        let namesake =
            json!([{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "demo", "uid": "c0"}]);
        assert_eq!(claim(json!({"ownerReferences": namesake})), Claim::OfNamesake);
        assert_eq!(claim(json!({"labels": label("demo"), "ownerReferences": namesake})), Claim::OfNamesake);
        let stranger = json!([{"apiVersion": "example.org/v1", "kind": "Cluster", "name": "x", "uid": "s"}]);
        assert_eq!(claim(json!({"ownerReferences": stranger})), Claim::Free);
    }

    #[test]
    fn it_is_claimed_only_while_it_is_owned_as_it_was_seen() {
        let owned_by = |uid: &str| {
            let owner =
                json!([{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "demo", "uid": uid}]);
            read(&json!({"uid": "e1", "resourceVersion": uid, "ownerReferences": owner}), &json!({}))
        };
        let free = |uid: &str| read(&json!({"uid": uid, "resourceVersion": "9"}), &json!({"initialized": uid == "e1"}));
        assert!(
            read(&json!({"uid": "e1"}), &json!({})).is_still_open(&free("e1")),
            "what it says of itself may change"
        );
        assert!(!free("e1").is_still_open(&free("e2")), "another object of its name");
        assert!(!free("e1").is_still_open(&owned_by("c0")), "a namesake has claimed it meanwhile, maybe a later one");
        assert!(owned_by("c0").is_still_open(&owned_by("c0")));
        assert!(!owned_by("c0").is_still_open(&owned_by("c2")));
        let going = json!({"uid": "e1", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(!free("e1").is_still_open(&read(&going, &json!({}))));
    }
}
