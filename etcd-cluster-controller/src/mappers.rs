//! Which EtcdClusters a changed object concerns.

use api::{EtcdCluster, names};
use controller_support::external::{ClusterView, Reference};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::reflector::{ObjectRef, Store};

/// The EtcdCluster that controls a Machine.
pub(crate) fn machine_to_etcd_cluster(machine: &DynamicObject) -> Option<ObjectRef<EtcdCluster>> {
    let owner = machine.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    (owner.kind == "EtcdCluster").then(|| reference(&owner.name, machine))
}

/// The EtcdCluster that a Secret was made for, and those of its Cluster: one may wait for the Secret of another to go.
pub(crate) fn secret_to_etcd_clusters(
    etcds: &Store<EtcdCluster>,
    cluster: Option<&DynamicObject>,
    secret: &DynamicObject,
) -> Vec<ObjectRef<EtcdCluster>> {
    let labelled = secret.labels().get(names::ETCD_CLUSTER_LABEL).map(|name| reference(name, secret));
    let beside = cluster.map(|cluster| cluster_to_etcd_clusters(etcds, cluster)).unwrap_or_default();
    labelled.into_iter().chain(beside).collect()
}

/// The EtcdCluster that a Cluster names, and those that say they are for it.
pub(crate) fn cluster_to_etcd_clusters(
    etcds: &Store<EtcdCluster>,
    cluster: &DynamicObject,
) -> Vec<ObjectRef<EtcdCluster>> {
    let view = ClusterView::read(cluster);
    let named = match &view.etcd {
        Some(Ok(Reference { kind, name, .. })) if kind == "EtcdCluster" => Some(name.clone()),
        _ => None,
    };
    let claiming = etcds.state_filter(|etcd| {
        etcd.namespace().as_deref() == Some(&view.namespace)
            && (etcd.labels().get(names::CLUSTER_NAME_LABEL) == Some(&view.name)
                || named.as_deref() == etcd.metadata.name.as_deref())
    });
    claiming.iter().map(|etcd| ObjectRef::from_obj(etcd.as_ref())).collect()
}

/// The EtcdClusters that use a template.
pub(crate) fn template_to_etcd_clusters(
    etcds: &Store<EtcdCluster>,
    template: &DynamicObject,
    kind: &str,
) -> Vec<ObjectRef<EtcdCluster>> {
    let users = etcds.state_filter(|etcd| {
        let wanted = &etcd.spec.infrastructure_template;
        etcd.namespace() == template.namespace() && wanted.kind == kind && wanted.name == template.name_any()
    });
    users.iter().map(|etcd| ObjectRef::from_obj(etcd.as_ref())).collect()
}

/// An EtcdCluster in the namespace of another object.
pub(crate) fn reference(name: &str, beside: &DynamicObject) -> ObjectRef<EtcdCluster> {
    ObjectRef::new(name).within(&beside.namespace().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;
    use kube::runtime::{reflector, watcher};
    use serde_json::json;

    #[test]
    fn a_secret_that_goes_wakes_the_etcd_cluster_that_takes_its_place() {
        let (store, mut writer) = reflector::store::<EtcdCluster>();
        writer.apply_watcher_event(&watcher::Event::Apply(Story::new(1).etcd().clone()));
        let object = |value| serde_json::from_value::<DynamicObject>(value).unwrap();
        let cluster = object(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {
            "name": "demo", "namespace": "default", "annotations": {names::MANAGED_ETCD_ANNOTATION: "demo-etcd"}}}));
        let secret = object(json!({"metadata": {"name": "demo-managed-etcd", "namespace": "default",
            "labels": {names::ETCD_CLUSTER_LABEL: "old", names::CLUSTER_NAME_LABEL: "demo"}}}));
        let names = |cluster| {
            secret_to_etcd_clusters(&store, cluster, &secret).into_iter().map(|etcd| etcd.name).collect::<Vec<_>>()
        };
        assert_eq!(names(Some(&cluster)), ["old", "demo-etcd"]);
        assert_eq!(names(None), ["old"]);
    }
}
