//! Which objects a process works on, as in Cluster API's managers with `--namespace` and `--watch-filter`.

use api::names::WATCH_FILTER_LABEL;
use kube::api::{Api, DynamicObject, ObjectMeta};
use kube::discovery::ApiResource;
use kube::{Client, Resource};

/// What a process works on. The default is everything.
///
/// Every watch and list of namespaced objects goes through [`Scope::api`], except those in the namespace of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only objects of this namespace are watched, so that the process needs no permission in any other. `None`: all
    /// namespaces.
    pub namespace: Option<String>,
    /// Only objects with this value of [`WATCH_FILTER_LABEL`] are reconciled. As in Cluster API, this concerns the
    /// object that is reconciled, and not the objects that it refers to. `None`: all are.
    pub watch_filter: Option<String>,
}

impl Scope {
    /// The objects of a namespaced kind that may be watched.
    #[must_use]
    pub fn api(&self, client: Client, resource: &ApiResource) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        }
    }

    /// Whether an object is to be reconciled.
    #[must_use]
    pub fn reconciles<K: Resource>(&self, object: &K) -> bool {
        let ObjectMeta { labels, namespace, .. } = object.meta();
        let value = labels.as_ref().and_then(|labels| labels.get(WATCH_FILTER_LABEL));
        self.watch_filter.as_ref().is_none_or(|wanted| value == Some(wanted))
            && self.namespace.as_ref().is_none_or(|wanted| namespace.as_ref() == Some(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Secret;
    use kube::Config;
    use serde_json::{Value, json};

    fn object(labels: &Value) -> DynamicObject {
        let metadata = json!({"name": "demo", "namespace": "team-a", "labels": labels});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn filtered(value: &str) -> Scope {
        Scope { watch_filter: Some(value.to_owned()), ..Scope::default() }
    }

    fn within(namespace: &str) -> Scope {
        Scope { namespace: Some(namespace.to_owned()), ..Scope::default() }
    }

    #[test]
    fn only_objects_with_the_very_value_are_reconciled() {
        assert!(Scope::default().reconciles(&object(&json!({}))));
        assert!(Scope::default().reconciles(&object(&json!({WATCH_FILTER_LABEL: "blue"}))), "no filter, no difference");
        assert!(filtered("blue").reconciles(&object(&json!({WATCH_FILTER_LABEL: "blue"}))));
        for labels in [json!({}), json!({WATCH_FILTER_LABEL: "Blue"}), json!({WATCH_FILTER_LABEL: ""})] {
            assert!(!filtered("blue").reconciles(&object(&labels)));
        }
    }

    #[tokio::test]
    async fn a_namespace_restricts_what_is_asked_for_and_what_is_reconciled() {
        let url = "http://127.0.0.1:1".parse().unwrap();
        let client = Client::try_from(Config::new(url)).unwrap();
        let secrets = ApiResource::erase::<Secret>(&());
        let path = |scope: &Scope| scope.api(client.clone(), &secrets).resource_url().to_owned();
        assert_eq!(path(&Scope::default()), "/api/v1/secrets");
        assert_eq!(path(&within("team-a")), "/api/v1/namespaces/team-a/secrets");
        assert!(within("team-a").reconciles(&object(&json!({}))));
        assert!(!within("team-b").reconciles(&object(&json!({}))));
    }
}
