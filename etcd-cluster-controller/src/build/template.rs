//! The owner of the infrastructure template.

use controller_support::external::ClusterView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::DynamicObject;

/// The template's owners with the Cluster among them. KubeadmControlPlane does the same with its own template: the
/// template is deleted with the last Cluster that uses it. `None`: the Cluster is among the owners already.
#[must_use]
pub fn template_owners(template: &DynamicObject, cluster: &ClusterView) -> Option<Vec<OwnerReference>> {
    let owners = template.owner_references();
    let known = owners.iter().any(|owner| owner.uid == cluster.uid);
    (!known).then(|| cluster.among(owners, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use serde_json::{Value, json};

    fn owners(before: &Value) -> Option<Vec<String>> {
        let template = json!({"apiVersion": "g/v1", "kind": "T", "metadata": {"name": "t", "ownerReferences": before}});
        let owners = template_owners(&serde_json::from_value(template).unwrap(), &fixture::cluster())?;
        Some(owners.into_iter().map(|owner| owner.uid).collect())
    }

    fn owner(kind: &str, name: &str, uid: &str) -> Value {
        json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": kind, "name": name, "uid": uid})
    }

    #[test]
    fn the_cluster_is_added_once_and_other_owners_stay() {
        let strings = |list: &[&str]| Some(list.iter().map(|uid| (*uid).to_owned()).collect::<Vec<_>>());
        assert_eq!(owners(&json!([])), strings(&["cluster-uid"]));
        assert_eq!(owners(&json!([owner("Cluster", "demo", "cluster-uid")])), None);
        let other = owner("Cluster", "other", "o");
        assert_eq!(owners(&json!([other])), strings(&["o", "cluster-uid"]), "two Clusters may share a template");
        let earlier = owner("Cluster", "demo", "earlier");
        assert_eq!(owners(&json!([earlier])), strings(&["cluster-uid"]));
        let strange = owner("Thing", "demo", "thing");
        assert_eq!(owners(&json!([strange])), strings(&["thing", "cluster-uid"]));
    }
}
