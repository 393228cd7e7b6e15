//! Kubernetes' verb for a request, as permissions have it.

use http::{Method, Uri};

pub(super) const WATCH: &str = "watch";

/// The verb of a request. A request that is not for a resource, such as discovery, is a `get`.
pub(super) fn verb(method: &Method, uri: &Uri) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if is_collection(uri.path()) => "deletecollection",
        "DELETE" => "delete",
        _ if has_watch(uri) => WATCH,
        _ if is_collection(uri.path()) => "list",
        _ => "get",
    }
}

fn has_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

/// Whether a path ends with a resource and names none of its objects: `/api/v1/secrets`, or
/// `/apis/apps/v1/namespaces/default/deployments`.
fn is_collection(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let resource = match segments.as_slice() {
        ["api", _, resource @ ..] | ["apis", _, _, resource @ ..] => resource,
        _ => return false,
    };
    matches!(resource, [_] | ["namespaces", _, _]) && !matches!(resource, ["namespaces", _, "status" | "finalize"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_verb_that_permissions_are_for() {
        let requests = [
            ("GET", "/api/v1/namespaces/team-a/secrets/demo-ca", "get"),
            ("GET", "/api/v1/namespaces/team-a/secrets?labelSelector=a", "list"),
            ("GET", "/api/v1/secrets?limit=500", "list"),
            ("GET", "/api/v1/namespaces", "list"),
            ("GET", "/api/v1/namespaces/team-a", "get"),
            ("GET", "/api/v1/namespaces/team-a/status", "get"),
            ("GET", "/apis/cluster.x-k8s.io/v1beta2/machines?watch=true&resourceVersion=7", "watch"),
            ("GET", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/machines", "list"),
            ("GET", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/machines/demo", "get"),
            ("GET", "/apis/cluster.x-k8s.io/v1beta2", "get"),
            ("GET", "/version", "get"),
            ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", "create"),
            ("PATCH", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusters/demo/status", "patch"),
            ("PUT", "/api/v1/namespaces/team-a/secrets/demo", "update"),
            ("DELETE", "/api/v1/namespaces/team-a/secrets/demo", "delete"),
            ("DELETE", "/api/v1/namespaces/team-a/secrets", "deletecollection"),
        ];
        for (method, uri, expected) in requests {
            assert_eq!(verb(&method.parse().unwrap(), &uri.parse().unwrap()), expected, "{method} {uri}");
        }
    }
}
