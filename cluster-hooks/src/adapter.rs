//! What the hook needs to know of a kind of control plane to give it an external etcd: the path of the endpoints, and
//! the condition that the control plane wants, if any. KubeadmControlPlane is built in. The CRD of any other kind says
//! this in annotations, so that neither its provider nor the hook needs code for the other.

use api::conditions::ETCD_CLUSTER_HEALTHY;
use api::names;
use controller_support::external::Reference;
use controller_support::{Kinds, Result, TtlCache};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long the annotations of a CRD are cached, since no watch reports when they change. Invalid annotations are not
/// cached, and are read again whenever they are needed.
const TTL: Duration = Duration::from_secs(600);

/// Group and kind of Cluster API's own control plane.
pub const KUBEADM: (&str, &str) = ("controlplane.cluster.x-k8s.io", "KubeadmControlPlane");

/// Adapters of the kinds of control planes that are in use, by group and kind.
pub struct Adapters(TtlCache<(String, String), Arc<Adapter>>);

/// The result of looking up a kind.
pub enum Lookup {
    /// How to give it an external etcd.
    Found(Arc<Adapter>),
    /// There is no such kind.
    NoKind(String),
    /// Its CRD does not say how to give it an external etcd.
    NoAnnotation(String),
}

impl Default for Adapters {
    fn default() -> Self {
        Self(TtlCache::new(TTL))
    }
}

impl Adapters {
    /// The adapter of the kind that a Cluster refers to. For a kind that is not built in, this costs a request unless
    /// the adapter is cached.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn find(&self, kinds: &Kinds, reference: &Reference) -> Result<Lookup> {
        let key = (reference.group.clone(), reference.kind.clone());
        if let Some(adapter) = Adapter::built_in(reference).map(Arc::new).or_else(|| self.0.get(&key)) {
            return Ok(Lookup::Found(adapter));
        }
        let annotations = match kinds.annotations(&reference.group, &reference.kind).await {
            Ok(annotations) => annotations,
            Err(error) if error.is_user_error() => return Ok(Lookup::NoKind(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        Ok(match Adapter::announced(reference, &annotations).map(Arc::new) {
            Ok(adapter) => {
                self.0.insert(key, adapter.clone());
                Lookup::Found(adapter)
            }
            Err(message) => Lookup::NoAnnotation(message),
        })
    }
}

/// One kind of control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Path of the object whose presence makes etcd external. Its field `endpoints` holds the endpoints.
    external: Vec<String>,
    /// Type of the condition in which the control plane is told the state of etcd. None: the kind has no such
    /// condition.
    pub condition: Option<String>,
    /// Whether kubeadm sets up its machines, from what Cluster API's kubeadm providers give them.
    pub kubeadm: bool,
}

impl Adapter {
    /// The adapter of a built-in kind.
    pub fn built_in(reference: &Reference) -> Option<Self> {
        ((&*reference.group, &*reference.kind) == KUBEADM).then(|| Self {
            external: ["spec", "kubeadmConfigSpec", "clusterConfiguration", "etcd", "external"]
                .map(str::to_owned)
                .to_vec(),
            condition: Some(ETCD_CLUSTER_HEALTHY.to_owned()),
            kubeadm: true,
        })
    }

    /// The adapter that the annotations of the kind's CRD describe.
    ///
    /// # Errors
    /// A message that says what is wrong with the annotations, and what would be right.
    pub fn announced(reference: &Reference, annotations: &BTreeMap<String, String>) -> Result<Self, String> {
        let Reference { group, kind, .. } = reference;
        let Some(path) = annotations.get(names::EXTERNAL_ETCD_PATH_ANNOTATION) else {
            return Err(format!(
                "control plane {kind}.{group} cannot be told about etcd: its CRD has no annotation {} with the path of the \
                 object that makes etcd external, such as spec.etcd.external",
                names::EXTERNAL_ETCD_PATH_ANNOTATION
            ));
        };
        let external: Vec<String> = path.split('.').map(str::to_owned).collect();
        if external.len() < 2 || external[0] != "spec" || !external.iter().all(|field| is_field(field)) {
            return Err(format!(
                "the CRD of {kind}.{group} has annotation {}: {path:?}, which is not a valid path; expected field names \
                 joined by dots, the first of them spec, such as spec.etcd.external",
                names::EXTERNAL_ETCD_PATH_ANNOTATION
            ));
        }
        let condition = annotations.get(names::EXTERNAL_ETCD_CONDITION_ANNOTATION).cloned();
        if let Some(type_) = condition.as_ref().filter(|type_| !is_condition(type_)) {
            return Err(format!(
                "the CRD of {kind}.{group} has annotation {}: {type_:?}, which is not a valid type of a condition; expected \
                 letters and digits, such as {ETCD_CLUSTER_HEALTHY}",
                names::EXTERNAL_ETCD_CONDITION_ANNOTATION
            ));
        }
        Ok(Self { external, condition, kubeadm: false })
    }

    /// Path of the endpoints from the top of the object, as managed fields have it.
    pub fn endpoints_path(&self) -> Vec<String> {
        self.external.iter().cloned().chain(["endpoints".to_owned()]).collect()
    }

    /// Path of the object that makes etcd external, with dots between the fields, as a person would write it.
    pub fn field(&self) -> String {
        self.external.join(".")
    }

    /// The object that makes etcd external. None: etcd is not external.
    pub fn external<'a>(&self, data: &'a Value) -> Option<&'a Value> {
        self.external.iter().try_fold(data, |value, key| value.get(key)).filter(|external| external.is_object())
    }

    /// The endpoints of the control plane, in the order that it has. None: etcd is not external.
    pub fn endpoints(&self, data: &Value) -> Option<Vec<String>> {
        let endpoints = self.external(data)?.get("endpoints").and_then(Value::as_array);
        Some(endpoints.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// The merge patch that sets the endpoints and nothing else.
    pub fn patch(&self, endpoints: &[String]) -> Value {
        self.external.iter().rev().fold(json!({"endpoints": endpoints}), |inner, key| json!({key: inner}))
    }
}

fn is_field(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn is_condition(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(group: &str, kind: &str) -> Reference {
        Reference { group: group.to_owned(), kind: kind.to_owned(), name: "demo".to_owned() }
    }

    fn kubeadm() -> Adapter {
        Adapter::built_in(&reference("controlplane.cluster.x-k8s.io", "KubeadmControlPlane")).unwrap()
    }

    fn announced(path: &str, condition: Option<&str>) -> Result<Adapter, String> {
        let mut annotations = BTreeMap::from([(names::EXTERNAL_ETCD_PATH_ANNOTATION.to_owned(), path.to_owned())]);
        annotations
            .extend(condition.map(|type_| (names::EXTERNAL_ETCD_CONDITION_ANNOTATION.to_owned(), type_.to_owned())));
        Adapter::announced(&reference("example.org", "Other"), &annotations)
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let endpoints = vec!["https://10.0.0.1:2379".to_owned(), "https://[fd00::2]:2379".to_owned()];
        for adapter in [kubeadm(), announced("spec.etcd.external", None).unwrap()] {
            let patch = adapter.patch(&endpoints);
            assert_eq!(adapter.endpoints(&patch), Some(endpoints.clone()));
            assert_eq!(patch.as_object().unwrap().len(), 1);
        }
    }

    #[test]
    fn a_control_plane_with_local_etcd_has_none() {
        for etcd in [json!({}), json!({"local": {}}), json!({"external": null})] {
            let data = json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": etcd}}}});
            assert_eq!(kubeadm().endpoints(&data), None);
        }
        assert_eq!(kubeadm().endpoints(&json!({})), None);
    }

    #[test]
    fn a_crd_that_announces_nothing_or_nonsense_is_told_what_would_be_right() {
        let nothing = Adapter::announced(&reference("example.org", "Other"), &BTreeMap::new()).unwrap_err();
        assert!(nothing.contains(names::EXTERNAL_ETCD_PATH_ANNOTATION) && nothing.contains("spec.etcd.external"));
        for bad in ["", "spec", "etcd.external", "spec..external", "spec.etcd[0]", ".spec.etcd", "spec/etcd", "spec.1"]
        {
            let message = announced(bad, None).unwrap_err();
            assert!(message.contains(names::EXTERNAL_ETCD_PATH_ANNOTATION) && message.contains(&format!("{bad:?}")));
        }
        let message = announced("spec.etcd", Some("is healthy")).unwrap_err();
        assert!(message.contains(names::EXTERNAL_ETCD_CONDITION_ANNOTATION), "{message}");
        let adapter = announced("spec.etcd", Some("EtcdHealthy")).unwrap();
        assert_eq!((adapter.condition.as_deref(), adapter.kubeadm), (Some("EtcdHealthy"), false));
    }
}
