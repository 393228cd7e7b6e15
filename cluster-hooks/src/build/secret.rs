//! The client Secret that opens the gate.

use crate::observation::{EtcdView, KeyPair, PUBLISHED_BY_HOOK_ANNOTATION, Published};
use api::names;
use controller_support::external::ClusterView;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `{cluster}-apiserver-etcd-client`, as the hook creates it.
///
/// It has the type Opaque, because the control plane would take over a Secret of Cluster API's own type. The etcd
/// object owns it, because a Secret without an owner would stay behind in a deletion and in `clusterctl move`.
pub fn client(cluster: &ClusterView, etcd: &EtcdView, pair: &KeyPair) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(names::apiserver_client_secret(&cluster.name)),
            namespace: Some(cluster.namespace.clone()),
            labels: Some(labels(cluster, etcd)),
            annotations: Some([(PUBLISHED_BY_HOOK_ANNOTATION.to_owned(), "true".to_owned())].into()),
            owner_references: Some(vec![owner(etcd)]),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some([("tls.crt".to_owned(), pair.certificate.clone()), ("tls.key".to_owned(), pair.key.clone())].into()),
        ..Secret::default()
    }
}

/// Merge patch that brings the Secret up to date.
pub fn update(cluster: &ClusterView, etcd: &EtcdView, published: &Published, pair: &KeyPair) -> Value {
    json!({
        "metadata": {
            "resourceVersion": published.resource_version,
            "labels": labels(cluster, etcd),
            "ownerReferences": [owner(etcd)],
        },
        "data": {"tls.crt": pair.certificate, "tls.key": pair.key},
    })
}

/// The label of etcd's own Secrets makes the watch of those Secrets return this one too.
fn labels(cluster: &ClusterView, etcd: &EtcdView) -> BTreeMap<String, String> {
    [
        (names::CLUSTER_NAME_LABEL.to_owned(), cluster.name.clone()),
        (names::ETCD_CLUSTER_LABEL.to_owned(), etcd.reference.name.clone()),
    ]
    .into()
}

fn owner(etcd: &EtcdView) -> OwnerReference {
    OwnerReference {
        api_version: etcd.api_version.clone(),
        kind: etcd.reference.kind.clone(),
        name: etcd.reference.name.clone(),
        uid: etcd.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
