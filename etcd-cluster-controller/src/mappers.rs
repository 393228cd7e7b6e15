//! Which EtcdClusters a changed object concerns. The cost of the look-up does not depend on how many other EtcdClusters
//! there are.

use crate::etcds::{BY_CLUSTER_LABEL, BY_INFRASTRUCTURE, BY_TEMPLATE, kind_and_name};
use api::{EtcdCluster, names};
use controller_support::Cached;
use controller_support::external::{ClusterView, Reference};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::reflector::ObjectRef;

/// The EtcdCluster that controls a Machine.
pub(crate) fn machine_to_etcd_cluster(machine: &DynamicObject) -> Option<ObjectRef<EtcdCluster>> {
    let owner = machine.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    (owner.kind == "EtcdCluster").then(|| reference(&owner.name, machine))
}

/// The EtcdCluster that a config was made for, as long as no Machine controls the config: it may never get a Machine.
pub(crate) fn config_to_etcd_cluster(config: &DynamicObject) -> Option<ObjectRef<EtcdCluster>> {
    let has_machine = config.owner_references().iter().any(|owner| owner.controller == Some(true));
    let label = config.labels().get(names::ETCD_CLUSTER_LABEL).filter(|_| !has_machine)?;
    Some(reference(label, config))
}

/// The EtcdCluster that a Secret was made for, and the EtcdClusters of its Cluster, because one of them may wait until
/// the Secret of another is gone.
pub(crate) fn secret_to_etcd_clusters(
    etcds: &Cached,
    cluster: Option<&DynamicObject>,
    secret: &DynamicObject,
) -> Vec<ObjectRef<EtcdCluster>> {
    let labelled = secret.labels().get(names::ETCD_CLUSTER_LABEL).map(|name| reference(name, secret));
    let beside = cluster.map(|cluster| cluster_to_etcd_clusters(etcds, cluster)).unwrap_or_default();
    labelled.into_iter().chain(beside).collect()
}

/// The EtcdCluster that a Cluster names, and those whose label names the Cluster.
pub(crate) fn cluster_to_etcd_clusters(etcds: &Cached, cluster: &DynamicObject) -> Vec<ObjectRef<EtcdCluster>> {
    let view = ClusterView::read(cluster);
    let named = match &view.etcd {
        Some(Ok(Reference { kind, name, .. })) if kind == "EtcdCluster" => etcds.get(&view.namespace, name),
        _ => None,
    };
    let mut found = etcds.by_index(&BY_CLUSTER_LABEL, &view.namespace, &view.name);
    found.extend(named);
    let mut found: Vec<String> = found.iter().map(|etcd| etcd.name_any()).collect();
    found.sort();
    found.dedup();
    found.iter().map(|name| reference(name, cluster)).collect()
}

/// The EtcdClusters that use a template.
pub(crate) fn template_to_etcd_clusters(
    etcds: &Cached,
    template: &DynamicObject,
    kind: &str,
) -> Vec<ObjectRef<EtcdCluster>> {
    let namespace = template.namespace().unwrap_or_default();
    let users = etcds.by_index(&BY_TEMPLATE, &namespace, &kind_and_name(kind, &template.name_any()));
    users.iter().map(|etcd| reference(&etcd.name_any(), template)).collect()
}

/// The EtcdClusters of the Clusters that use an infrastructure object and still wait for it.
pub(crate) fn infrastructure_to_etcd_clusters(
    clusters: &Cached,
    etcds: &Cached,
    infrastructure: &DynamicObject,
    kind: &str,
) -> Vec<ObjectRef<EtcdCluster>> {
    let namespace = infrastructure.namespace().unwrap_or_default();
    let users = clusters.by_index(&BY_INFRASTRUCTURE, &namespace, &kind_and_name(kind, &infrastructure.name_any()));
    let waiting = users.iter().filter(|cluster| !ClusterView::read(cluster).infrastructure_ready);
    waiting.flat_map(|cluster| cluster_to_etcd_clusters(etcds, cluster)).collect()
}

/// A reference to an EtcdCluster in the namespace of another object.
pub(crate) fn reference(name: &str, beside: &DynamicObject) -> ObjectRef<EtcdCluster> {
    ObjectRef::new(name).within(&beside.namespace().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, watched};
    use serde_json::{Value, json};

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn etcd(change: impl FnOnce(&mut EtcdCluster)) -> Value {
        let mut story = Story::new(1);
        change(story.etcd());
        serde_json::to_value(story.etcd()).unwrap()
    }

    fn names_of(found: Vec<ObjectRef<EtcdCluster>>) -> Vec<String> {
        found.into_iter().map(|etcd| etcd.name).collect()
    }

    #[test]
    fn a_secret_that_goes_wakes_the_etcd_cluster_that_takes_its_place() {
        let etcds = watched(&[etcd(|_| {})]);
        let cluster = object(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {
            "name": "demo", "namespace": "default", "annotations": {names::MANAGED_ETCD_ANNOTATION: "demo-etcd"}}}));
        let secret = object(json!({"metadata": {"name": "demo-managed-etcd", "namespace": "default",
            "labels": {names::ETCD_CLUSTER_LABEL: "old", names::CLUSTER_NAME_LABEL: "demo"}}}));
        let names = |cluster| names_of(secret_to_etcd_clusters(&etcds, cluster, &secret));
        assert_eq!(names(Some(&cluster)), ["old", "demo-etcd"]);
        assert_eq!(names(None), ["old"]);
    }

    #[test]
    fn a_config_wakes_its_etcd_cluster_until_a_machine_has_it() {
        let woken = |controller: bool| {
            let owner =
                json!({"apiVersion": "g/v1", "kind": "Machine", "name": "m", "uid": "m", "controller": controller});
            let metadata = json!({"name": "demo-etcd-0", "namespace": "default", "ownerReferences": [owner],
                "labels": {names::ETCD_CLUSTER_LABEL: "demo-etcd"}});
            names_of(config_to_etcd_cluster(&object(json!({"metadata": metadata}))).into_iter().collect())
        };
        assert_eq!(woken(false), ["demo-etcd"]);
        assert_eq!(woken(true), [""; 0]);
    }

    #[test]
    fn a_cluster_wakes_whom_it_names_and_who_says_to_be_for_it() {
        let labelled = |name: &str, namespace: &str| {
            etcd(|etcd| {
                etcd.metadata.name = Some(name.to_owned());
                etcd.metadata.namespace = Some(namespace.to_owned());
                let label = (names::CLUSTER_NAME_LABEL.to_owned(), "demo".to_owned());
                etcd.metadata.labels = Some([label].into());
            })
        };
        let etcds = watched(&[
            etcd(|etcd| etcd.metadata.name = Some("named".to_owned())),
            etcd(|etcd| etcd.metadata.name = Some("of-nobody".to_owned())),
            labelled("claims", "default"),
            labelled("claims-too", "elsewhere"),
        ]);
        let names = |annotation: &str| {
            let metadata = json!({"name": "demo", "namespace": "default",
                "annotations": {names::MANAGED_ETCD_ANNOTATION: annotation}});
            names_of(cluster_to_etcd_clusters(&etcds, &object(json!({"metadata": metadata}))))
        };
        assert_eq!(names("named"), ["claims", "named"]);
        assert_eq!(names("claims"), ["claims"], "once");
        assert_eq!(names("is-not-there"), ["claims"]);
        let template = object(json!({"metadata": {"name": "etcd", "namespace": "default"}}));
        let users = |kind| names_of(template_to_etcd_clusters(&etcds, &template, kind));
        assert_eq!(users("LocalMachineTemplate"), ["claims", "named", "of-nobody"]);
        assert_eq!(users("OtherTemplate"), [""; 0]);
    }

    #[test]
    fn infrastructure_wakes_only_those_who_wait_for_it() {
        let etcds = watched(&[etcd(|etcd| etcd.metadata.name = Some("named".to_owned()))]);
        let infrastructure = object(json!({"metadata": {"name": "demo-infra", "namespace": "default"}}));
        let woken = |kind: &str, ready: bool| {
            let clusters = watched(&[json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": "demo", "namespace": "default", "uid": "cluster",
                    "annotations": {names::MANAGED_ETCD_ANNOTATION: "named"}},
                "spec": {"infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AnyCluster",
                    "name": "demo-infra"}},
                "status": {"initialization": {"infrastructureProvisioned": ready}}})]);
            names_of(infrastructure_to_etcd_clusters(&clusters, &etcds, &infrastructure, kind))
        };
        assert_eq!(woken("AnyCluster", false), ["named"]);
        assert_eq!(woken("AnyCluster", true), [""; 0]);
        assert_eq!(woken("OtherCluster", false), [""; 0]);
    }
}
