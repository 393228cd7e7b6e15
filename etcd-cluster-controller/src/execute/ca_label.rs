//! The label that makes `clusterctl move` take a user's own CA along. The EtcdCluster does not own that Secret, and by
//! its name clusterctl would take it for the CA of a Cluster `X-managed`.

use crate::CONTROLLER;
use crate::context::Context;
use crate::observation::{Certificates, ClusterLink, Observation};
use crate::observe::other_owner;
use crate::plan::is_left_alone;
use api::names;
use controller_support::apply;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::json;

/// What is put off after every try.
const WHAT: &str = "ca-label";

/// Sets the label if it is missing, whatever has set the other labels of the CA. Nothing depends on the label before a
/// move needs it, so a failure is only logged, and it is tried again much later.
pub(crate) async fn label_ca_for_moves(context: &Context, observation: &Observation) {
    let (ClusterLink::One(cluster), Certificates::Ca { .. }) = (&observation.cluster, &observation.certificates) else {
        return;
    };
    let etcd = observation.etcd.as_ref();
    let (namespace, name) = (etcd.namespace().unwrap_or_default(), names::ca_secret(&cluster.name));
    let Some(secret) = context.secrets.get(&namespace, &name) else { return };
    let uid = etcd.uid().unwrap_or_default();
    if !would_stay_behind(&secret) || is_left_alone(observation) || context.put_off.has(&uid, WHAT) {
        return;
    }
    // Before the write, because the watch shows the change only a moment later.
    context.put_off.put(&uid, WHAT);
    let metadata = json!({"labels": {names::MOVE_LABEL: ""}, "resourceVersion": secret.resource_version()});
    let api = apply::dynamic(&context.shared.client, context.secrets.resource(), &namespace);
    let patch = json!({"metadata": metadata});
    if let Err(error) = apply::merge::<DynamicObject>(&api, CONTROLLER, &name, &patch).await {
        tracing::warn!(%error, secret = name, "the CA was not given the label with which clusterctl moves it");
    }
}

/// Whether a move would leave the Secret behind: it has no owner that is an object of Cluster API, and no label.
fn would_stay_behind(secret: &DynamicObject) -> bool {
    other_owner(secret, "").is_none() && !secret.labels().contains_key(names::MOVE_LABEL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_users_ca_gets_the_label_whoever_has_given_it_the_others() {
        let stays = |metadata: Value| {
            let secret: DynamicObject = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            would_stay_behind(&secret)
        };
        let owned = |api_version: &str, kind: &str| {
            let owner = json!({"apiVersion": api_version, "kind": kind, "name": "demo", "uid": "1"});
            json!({"ownerReferences": [owner], "labels": {"cluster.x-k8s.io/etcd-cluster": "demo-etcd"}})
        };
        assert!(stays(json!({"labels": {"cluster.x-k8s.io/etcd-cluster": "demo-etcd"}})));
        assert!(stays(owned("cert-manager.io/v1", "Certificate")));
        assert!(!stays(json!({"labels": {"clusterctl.cluster.x-k8s.io/move": ""}})));
        assert!(!stays(owned("etcdcluster.cluster.x-k8s.io/v1beta1", "EtcdCluster")), "the one that was made here");
    }
}
