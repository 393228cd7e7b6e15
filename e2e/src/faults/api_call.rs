//! A request to the API server, as described by its path and method.

use super::gate::Call;
use http::{Method, Uri};
use serde_json::Value;
use std::fmt;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Follows a collection.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object; server-side apply too.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
}

/// A request about a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiCall {
    /// What it does.
    pub verb: Verb,
    /// API group, empty for the core group.
    pub group: String,
    /// Resource in the plural.
    pub resource: String,
    /// Subresource such as `status`, or empty.
    pub subresource: String,
    /// Namespace; empty for a collection of all namespaces and for cluster-scoped objects.
    pub namespace: String,
    /// Name, empty for collections.
    pub name: String,
}

/// Cluster-scoped resources that the manager requests.
const CLUSTER_SCOPED: [&str; 2] = ["customresourcedefinitions", "namespaces"];
/// Writes that nothing depends on. They are not numbered.
const UNCOUNTED: [&str; 2] = ["events", "leases"];

impl ApiCall {
    /// The call of a request; `None` if it is not about a resource, such as discovery.
    #[must_use]
    pub fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let (group, path) = after_version(uri.path())?;
        let (namespace, path) = match path[..] {
            // These three are about the namespace itself.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", &path[..]),
            ["namespaces", namespace, ..] => (namespace, &path[2..]),
            _ => ("", &path[..]),
        };
        let part = |index: usize| path.get(index).map_or_else(String::new, |part| (*part).to_owned());
        let (resource, name, subresource) = (part(0), part(1), part(2));
        let verb = match (method.as_str(), name.is_empty()) {
            ("GET", _) if watches(uri.query().unwrap_or_default()) => Verb::Watch,
            ("GET", true) => Verb::List,
            ("GET", false) => Verb::Get,
            ("POST", _) => Verb::Create,
            ("PUT", _) => Verb::Update,
            ("PATCH", _) => Verb::Patch,
            ("DELETE", true) => Verb::DeleteCollection,
            ("DELETE", false) => Verb::Delete,
            _ => return None,
        };
        let (group, namespace) = (group.to_owned(), namespace.to_owned());
        (!resource.is_empty()).then_some(Self { verb, group, resource, subresource, namespace, name })
    }

    /// The same call with the name of the created object, which only the body contains.
    #[must_use]
    pub fn with_name_of(mut self, body: &[u8]) -> Self {
        if self.verb == Verb::Create && self.name.is_empty() {
            let object: Value = serde_json::from_slice(body).unwrap_or_default();
            object["metadata"]["name"].as_str().unwrap_or_default().clone_into(&mut self.name);
        }
        self
    }

    /// Path and query of the same request for one namespace; `None` if it is not about a collection of all namespaces.
    #[must_use]
    pub fn confined(&self, uri: &Uri, namespace: &str) -> Option<String> {
        let of_all = self.namespace.is_empty() && self.name.is_empty() && !CLUSTER_SCOPED.contains(&&*self.resource);
        if !of_all || !matches!(self.verb, Verb::List | Verb::Watch) {
            return None;
        }
        let before = uri.path().strip_suffix(self.resource.as_str())?;
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        Some(format!("{before}namespaces/{namespace}/{}{query}", self.resource))
    }
}

/// The group, and the path after the version, of a path such as `/apis/GROUP/VERSION/…` or `/api/v1/…`.
fn after_version(path: &str) -> Option<(&str, Vec<&str>)> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts[..] {
        ["api", _, ref rest @ ..] if !rest.is_empty() => Some(("", rest.to_vec())),
        ["apis", group, _, ref rest @ ..] if !rest.is_empty() => Some((group, rest.to_vec())),
        _ => None,
    }
}

fn watches(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair.split_once('='), Some(("watch", "true" | "1"))) || pair == "watch")
}

impl Call for ApiCall {
    fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Get | Verb::List | Verb::Watch) && !UNCOUNTED.contains(&&*self.resource)
    }
}

impl fmt::Display for ApiCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", format!("{:?}", self.verb).to_lowercase(), self.resource)?;
        if !self.subresource.is_empty() {
            write!(formatter, "/{}", self.subresource)?;
        }
        if !self.name.is_empty() {
            write!(formatter, " {}", self.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &Method, uri: &'static str) -> Option<ApiCall> {
        ApiCall::of(method, &Uri::from_static(uri))
    }

    #[test]
    fn paths_say_what_is_written() {
        let status =
            "/apis/etcdcluster.cluster.x-k8s.io/v1beta1/namespaces/ns/etcdclusters/demo-etcd/status?force=true";
        let found = call(&Method::PATCH, status).unwrap();
        assert_eq!((found.namespace.as_str(), found.group.as_str()), ("ns", "etcdcluster.cluster.x-k8s.io"));
        assert_eq!(found.to_string(), "patch etcdclusters/status demo-etcd");
        assert!(found.is_write());
        let created = call(&Method::POST, "/api/v1/namespaces/ns/secrets?fieldManager=x").unwrap();
        let created = created.with_name_of(br#"{"metadata": {"name": "demo-etcd"}}"#);
        assert_eq!(created.to_string(), "create secrets demo-etcd");
        assert!(created.is_write());
        let deleted = call(&Method::DELETE, "/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/machines/m").unwrap();
        assert_eq!(deleted.to_string(), "delete machines m");
    }

    #[test]
    fn reads_events_and_leases_have_no_number() {
        let watch = call(&Method::GET, "/api/v1/secrets?labelSelector=a%3Db&watch=true").unwrap();
        assert_eq!(watch.verb, Verb::Watch);
        assert!(!watch.is_write());
        let event = call(&Method::POST, "/apis/events.k8s.io/v1/namespaces/ns/events").unwrap();
        assert!(!event.is_write());
        let lease = call(&Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l").unwrap();
        assert!(!lease.is_write());
        assert_eq!(call(&Method::GET, "/version"), None);
        assert_eq!(call(&Method::GET, "/apis/cluster.x-k8s.io/v1beta2"), None);
    }

    #[test]
    fn collections_of_all_namespaces_are_confined_and_nothing_else_is() {
        let confined = |uri: &'static str| {
            let uri = Uri::from_static(uri);
            ApiCall::of(&Method::GET, &uri).unwrap().confined(&uri, "ns")
        };
        let wanted = Some("/api/v1/namespaces/ns/secrets?watch=true&limit=5".to_owned());
        assert_eq!(confined("/api/v1/secrets?watch=true&limit=5"), wanted);
        let wanted = Some("/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/machines".to_owned());
        assert_eq!(confined("/apis/cluster.x-k8s.io/v1beta2/machines"), wanted);
        assert_eq!(confined("/api/v1/namespaces/other/secrets"), None);
        assert_eq!(confined("/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=1"), None);
        assert_eq!(confined("/api/v1/namespaces"), None);
    }
}
